"""Gridded data: `predict_grid` turns an xarray grid of models' predictions into a grid of answers.

If the grid is divided into dask chunks, the answers are lazy: dask computes each chunk when it is
needed or written, with the scheduler that the user has chosen.
"""

from collections.abc import Sequence
from copy import copy
from typing import Any

import numpy as np
import pandas as pd

from bne._answers import table
from bne._answers.columns import QUANTILES, column_names


def predict_grid(model: Any, grid: Any, *, quantiles: Sequence[float] = QUANTILES) -> Any:
    """Return mean, sd, quantiles, parts of the variance and bias at every cell of a grid.

    Parameters
    ----------
    model : BNERegressor
        Fitted to a frame, with experts that are columns of the frame.
    grid : xarray.Dataset
        Its variables and coordinates have the names of the model's columns. A variable without some
        dimension of the grid is taken as constant along it.
    quantiles : list of float
        Levels of the quantiles, in (0, 1).

    Returns
    -------
    xarray.Dataset
        One variable for each answer, over all dimensions of those columns, with coordinates. It is
        lazy if `grid` is; ``.to_zarr(path)`` then computes and writes one chunk at a time. Cells
        where an input or a prediction is missing have missing answers.

    Examples
    --------
    >>> answers = predict_grid(model, xr.open_zarr("models.zarr"))  # doctest: +SKIP
    >>> answers.to_zarr("answers.zarr")  # doctest: +SKIP
    """
    import xarray as xr

    names = [str(name) for name in model.feature_names_in_]
    missing = [name for name in names if name not in grid.variables]
    if missing:
        raise ValueError(
            f"The grid has no {missing}; it has {sorted(map(str, grid.variables))}. Rename its "
            "variables to the columns that the model was fitted to."
        )
    check_dimensions(grid, names)
    whole = xr.broadcast(*(grid[name].reset_coords(drop=True) for name in names))
    columns = xr.Dataset({f"column{i}": values.variable for i, values in enumerate(whole)})
    chunks = grid[names].unify_chunks().chunksizes
    columns = columns.chunk(chunks) if chunks else columns
    answerer = table.prepare(model._fitted(), quantiles)
    some = columns["column0"].astype(float)
    template = xr.Dataset({name: some for name in column_names(answerer.levels)})
    light = copy(model)
    del light.posterior_  # every task gets the model and the answerer, which holds the draws
    answers = xr.map_blocks(_block, columns, args=(light, answerer), template=template)
    coordinates = {k: v for k, v in grid.coords.items() if set(v.dims) <= set(answers.dims)}
    return answers.assign_coords(coordinates).assign_attrs(grid.attrs)


class DimensionError(ValueError):
    """An error for variables whose dimensions do not go together."""


def check_dimensions(grid: Any, names: Sequence[str], widest: str | None = None) -> None:
    """Raise an error if a variable has a dimension that the widest variable does not have.

    A variable without some dimension of the widest is constant along it. A variable with another
    dimension would repeat every cell of the widest. If `widest` is None, it is found.
    """
    if not names:
        return
    if widest is None:
        widest = max(names, key=lambda name: len(grid[name].dims))
    dims = set(grid[widest].dims)
    for name in names:
        other = set(grid[name].dims) - dims
        if other:
            raise DimensionError(
                f"{name!r} has the dimension {sorted(map(str, other))[0]!r}, which {widest!r} does "
                f"not have ({', '.join(map(str, grid[widest].dims)) or 'none'}). Rows would be "
                "repeated. Put the variables on the same dimensions."
            )


def _block(columns: Any, model: Any, answerer: table.Answerer) -> Any:
    """Return all answers at the cells of one chunk."""
    names = [str(name) for name in model.feature_names_in_]
    first = columns["column0"]
    X = pd.DataFrame({n: columns[f"column{i}"].to_numpy().ravel() for i, n in enumerate(names)})
    known = np.all(np.isfinite(X.to_numpy(float)), axis=1)  # other cells, like oceans, stay empty
    out = {}
    found = table.in_chunks(answerer, model._rows(X[known])) if np.any(known) else {}
    for name in column_names(answerer.levels):
        values = np.full(len(X), np.nan)
        values[known] = found.get(name, np.empty(0))
        out[name] = (first.dims, values.reshape(first.shape))
    return columns.drop_vars(list(columns)).assign(out)
