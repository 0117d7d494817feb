"""Arrays as NetCDF-4 bytes, and back; nothing but numbers is read."""

import io

from bne._base.typing import Array
from bne._storage.errors import ModelFileError

ARRAYS = "arrays.nc"
"""Name of the arrays' member of a model file."""


def to_netcdf(arrays: dict[str, Array]) -> bytes:
    """NetCDF-4 bytes, one variable an array; dimensions are named by their length."""
    import xarray as xr

    dataset = xr.Dataset(
        {
            name: (tuple(f"axis{i}_of_{n}" for i, n in enumerate(a.shape)), a)
            for name, a in arrays.items()
        }
    )
    buffer = io.BytesIO()
    dataset.to_netcdf(buffer, engine="h5netcdf")
    return buffer.getvalue()


def from_netcdf(data: bytes) -> dict[str, Array]:
    """Arrays of numbers, stored in these bytes and nowhere else."""
    import h5py

    arrays: dict[str, Array] = {}
    with h5py.File(io.BytesIO(data), "r") as file:
        members = {n: file[n] for n in file if isinstance(file.get(n, getlink=True), h5py.HardLink)}
        for name, member in members.items():
            if not isinstance(member, h5py.Dataset) or name.startswith("axis"):
                continue  # the dimensions
            elsewhere = member.is_virtual or member.external or member.chunks is not None
            if elsewhere or member.dtype.kind not in "biuf":
                raise ModelFileError(f"{ARRAYS} holds {name!r} in another way than bne writes it.")
            if member.nbytes > len(data):
                raise ModelFileError(
                    f"{ARRAYS} claims {member.nbytes:,} bytes; it has {len(data):,}."
                )
            values = member[()]
            arrays[name] = values.astype(bool) if member.attrs.get("dtype") == "bool" else values
    return arrays
