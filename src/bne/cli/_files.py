"""Read and write tables: CSV, Parquet, NetCDF or Zarr, according to the extension of the file.

A grid (NetCDF or Zarr) is read as a table with one row for each place, and written as a grid again.
"""

import shutil
import tempfile
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from bne._base.files import atomic

KINDS = {
    ".csv": "csv",
    ".csv.gz": "csv",
    ".parquet": "parquet",
    ".nc": "netcdf",
    ".zarr": "zarr",
}
"""Kind of a file by its extension."""

NEEDS = {"parquet": "pyarrow", "zarr": "zarr"}
"""Optional package that a kind needs."""


class Table(NamedTuple):
    """Rows of a file. If the file holds a grid, `grid` is the xarray Dataset, otherwise None."""

    rows: pd.DataFrame
    grid: Any = None


def kind_of(path: Path) -> str:
    """Return the kind of a file by its name; raise ValueError if its package is missing."""
    for ending, kind in sorted(KINDS.items(), key=lambda item: -len(item[0])):
        if path.name.lower().endswith(ending):
            needed = NEEDS.get(kind)
            if needed is not None and find_spec(needed) is None:
                raise ValueError(f"{path.name!r} needs {needed}. Install the extra `files`.")
            return kind
    raise ValueError(f"{path.name!r} has an unknown extension. Use one of {', '.join(KINDS)}.")


def read(path: Path) -> Table:
    """Read a table. A grid becomes a table with one row for each place, with its coordinates."""
    kind = kind_of(path)
    if not path.exists():
        raise FileNotFoundError(f"There is no file {str(path)!r}.")
    try:
        table = _READERS[kind](path)
    except PermissionError:
        raise
    except pd.errors.EmptyDataError:
        raise ValueError(f"{path.name!r} is empty.") from None
    except (ValueError, OSError) as error:  # the errors of the parsers are of these types
        raise ValueError(f"{path.name!r} cannot be read as {kind}: {error}") from error
    if len(table.rows) == 0:
        raise ValueError(f"{path.name!r} has no rows.")
    return table


def _read_grid(path: Path, **how: Any) -> Table:
    """Read a grid as rows."""
    import xarray as xr

    with xr.open_dataset(path, **how) as opened:
        grid = opened.load()
    return Table(grid.to_dataframe().reset_index(), grid)


_READERS: dict[str, Callable[[Path], Table]] = {
    "csv": lambda path: Table(pd.read_csv(path)),
    "parquet": lambda path: Table(pd.read_parquet(path)),
    "netcdf": lambda path: _read_grid(path, engine="h5netcdf"),
    "zarr": lambda path: _read_grid(path, engine="zarr", consolidated=False),
}


def write(rows: pd.DataFrame, path: Path, grid: Any = None) -> None:
    """Write a table completely, or leave the old file. Rows of a grid become a grid again."""
    kind = kind_of(path)
    if kind == "csv":
        compression = "gzip" if path.name.lower().endswith(".gz") else None
        with atomic(path) as file:
            rows.to_csv(file, index=False, compression=compression)
    elif kind == "parquet":
        with atomic(path) as file:
            rows.to_parquet(file, index=False)
    elif kind == "netcdf":
        with atomic(path) as file:
            as_dataset(rows, grid).to_netcdf(file, engine="h5netcdf")
    else:
        _write_zarr(as_dataset(rows, grid), path)


def as_dataset(rows: pd.DataFrame, grid: Any) -> Any:
    """Return a Dataset: each column is a variable over the dimensions of the grid, or over rows."""
    import xarray as xr

    if grid is None:
        return xr.Dataset({str(c): ("row", rows[c].to_numpy()) for c in rows})
    shape = tuple(grid.sizes.values())
    data = xr.Dataset(coords=grid.coords, attrs=grid.attrs)
    for name in rows:
        if name not in grid.coords and name not in grid.sizes:
            data[str(name)] = (tuple(grid.sizes), np.reshape(rows[name].to_numpy(), shape))
    return data


def _write_zarr(data: Any, path: Path) -> None:
    """Write to a temporary folder, then put it in the place of the old one."""
    folder = path.absolute().parent
    if not folder.is_dir():
        raise FileNotFoundError(f"There is no folder {str(folder)!r} to write to.")
    temporary = Path(tempfile.mkdtemp(prefix=f".{path.name}.", dir=folder))
    try:
        data.to_zarr(temporary / "new", mode="w", consolidated=False)
        if path.exists():
            path.replace(temporary / "old")
        (temporary / "new").replace(path)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
