"""Arrays as NetCDF-4 bytes, and back. Only numbers are read."""

import io

from bne._base.typing import Array
from bne._storage.errors import ModelFileError

ARRAYS = "arrays.nc"
"""Name of the member of a model file that holds the arrays."""


def to_netcdf(arrays: dict[str, Array]) -> bytes:
    """Write arrays as NetCDF-4 bytes. Each is a variable; dimensions are named by their length."""
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
    """Read arrays of numbers; refuse arrays that are stored anywhere but in these bytes."""
    import h5py

    arrays: dict[str, Array] = {}
    with h5py.File(io.BytesIO(data), "r") as file:
        members = {n: file[n] for n in file if isinstance(file.get(n, getlink=True), h5py.HardLink)}
        for name, member in members.items():
            if not isinstance(member, h5py.Dataset) or name.startswith("axis"):
                continue  # it is a dimension
            elsewhere = member.is_virtual or member.external or member.chunks is not None
            if elsewhere or member.dtype.kind not in "biuf":
                raise ModelFileError(
                    f"{ARRAYS} holds {name!r} in another way than bne writes it. Do not use it."
                )
            if member.nbytes > len(data):
                raise ModelFileError(
                    f"{ARRAYS} claims {member.nbytes:,} bytes; it has {len(data):,}. Do not use it."
                )
            values = member[()]
            arrays[name] = values.astype(bool) if member.attrs.get("dtype") == "bool" else values
    return arrays
