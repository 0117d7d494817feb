"""Read and write tables: CSV, Parquet, NetCDF or Zarr, according to the extension of the file.

A grid (NetCDF or Zarr) is read as a table with one row for each cell, and written as a grid again.
"""

import csv
import gzip
import io
import shutil
import tempfile
import warnings
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from bne._base.files import atomic
from bne.grid import DimensionError, check_dimensions

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


def read(path: Path, names: Sequence[str], rows_of: str | None = None) -> Table:
    """Read a table. A grid becomes a table with one row for each cell, with its coordinates.

    Only the variables of a grid that have one of the `names` are read, with their coordinates. They
    must not have more dimensions than the variable `rows_of`; if this is None, than one of them.
    """
    kind = kind_of(path)
    if not path.exists():
        raise FileNotFoundError(f"There is no file {str(path)!r}.")
    try:
        table = _READERS[kind](path, names, rows_of)
    except (PermissionError, DimensionError):
        raise
    except pd.errors.EmptyDataError:
        raise ValueError(f"{path.name!r} is empty.") from None
    except (ValueError, OSError) as error:  # the errors of the parsers are of these types
        raise ValueError(f"{path.name!r} cannot be read as {kind}: {error}") from error
    if len(table.rows) == 0:
        raise ValueError(f"{path.name!r} has no rows.")
    return table


def _read_grid(path: Path, names: Sequence[str], rows_of: str | None, **how: Any) -> Table:
    """Read the named variables of a grid as rows."""
    import xarray as xr

    with xr.open_dataset(path, **how) as opened:
        known = [name for name in names if name in opened.variables]
        check_dimensions(opened, known, rows_of if rows_of in known else None)
        left = [str(name) for name in opened.data_vars if name not in known]
        dims = {dim for name in known for dim in opened[name].dims}
        other = [name for name, c in opened.coords.items() if not set(c.dims) <= dims]
        grid = opened.drop_vars([*left, *other]).load()
    if left:
        warnings.warn(
            f"{path.name!r} has variables that are not named, and are not read: "
            f"{', '.join(map(repr, left))}.",
            stacklevel=2,
        )
    return Table(grid.to_dataframe().reset_index(), grid)


def _read_csv(path: Path) -> pd.DataFrame:
    """Read a CSV file; no row may have more fields than the header."""
    with warnings.catch_warnings():
        # without `index_col` pandas takes the first field of longer rows for an index
        warnings.simplefilter("error", pd.errors.ParserWarning)
        try:
            return pd.read_csv(path, index_col=False)
        except pd.errors.ParserWarning:
            raise ValueError(_long_row(path)) from None


def _long_row(path: Path) -> str:
    """Say which row of a CSV file is the first with more fields than the header."""
    opened = gzip.open if path.name.lower().endswith(".gz") else open
    with opened(path, "rt", newline="", encoding="utf-8") as file:
        lines = csv.reader(file)
        header = len(next(lines))
        for fields in lines:
            if len(fields) > header:
                return (
                    f"line {lines.line_num} has {len(fields)} fields, but the header has {header}. "
                    "Correct the line, or name every column in the header."
                )
    return "a row has more fields than the header."


_READERS: dict[str, Callable[..., Table]] = {
    "csv": lambda path, *_: Table(_read_csv(path)),
    "parquet": lambda path, *_: Table(pd.read_parquet(path)),
    "netcdf": lambda path, *of: _read_grid(path, *of, engine="h5netcdf"),
    "zarr": lambda path, *of: _read_grid(path, *of, engine="zarr", consolidated=False),
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
        buffer = io.BytesIO()  # the NetCDF library crashes if the disk is full
        as_dataset(rows, grid).to_netcdf(buffer, engine="h5netcdf")
        with atomic(path) as file:
            file.write(buffer.getbuffer())
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


WRITER = "bne predict"
"""Attribute `written_by` of the Zarr stores that this module writes, and may replace."""


def check_replaceable(path: Path) -> None:
    """Raise an error if there is something at `path` that is not a Zarr store written by bne."""
    if not path.exists() and not path.is_symlink():
        return
    import zarr

    try:
        store = zarr.open_group(path, mode="r")
        ours = store.attrs.get("written_by") == WRITER
        known = {*store.keys(), "zarr.json", ".zgroup", ".zattrs", ".zmetadata"}
        ours = ours and {entry.name for entry in path.iterdir()} <= known
    except Exception:  # whatever it is, it is not a store of bne
        ours = False
    if not ours:
        raise FileExistsError(
            f"{str(path)!r} exists, and bne did not write it. Name another output, or move it away."
        )


def _write_zarr(data: Any, path: Path) -> None:
    """Write to a temporary folder, then put it in the place of the old one."""
    check_replaceable(path)
    folder = path.absolute().parent
    if not folder.is_dir():
        raise FileNotFoundError(f"There is no folder {str(folder)!r} to write to.")
    data = data.assign_attrs(written_by=WRITER)
    temporary = Path(tempfile.mkdtemp(prefix=f".{path.name}.", dir=folder))
    try:
        data.to_zarr(temporary / "new", mode="w", consolidated=False)
        if path.exists():
            path.replace(temporary / "old")
        (temporary / "new").replace(path)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
