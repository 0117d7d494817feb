"""Gridded data: an xarray grid of models' predictions in, a grid of all answers out.

A grid in dask chunks gives a lazy one: nothing is computed before it is asked for or written, chunk
by chunk, by whatever scheduler dask is told to use.
"""

from collections.abc import Sequence
from copy import copy
from typing import Any

import numpy as np
import pandas as pd

from bne._answers import columns, table


def predict_grid(model: Any, grid: Any, *, quantiles: Sequence[float] = columns.QUANTILES) -> Any:
    """Mean, sd, quantiles, parts of the variance and probability of bias at every cell.

    Parameters
    ----------
    model : BNERegressor
        Fitted to a frame, with experts that are columns.
    grid : xarray.Dataset
        Its variables and coordinates have the names of the model's columns. Those that lack a
        dimension are the same along it.
    quantiles : list of float

    Returns
    -------
    xarray.Dataset
        One variable an answer, over all dimensions of those columns, with coordinates; lazy where
        `grid` is. ``.to_zarr(path)`` then computes and writes one chunk at a time.

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
            "variables to the columns that the model was fitted on."
        )
    whole = xr.broadcast(*(grid[name].reset_coords(drop=True) for name in names))
    columns = xr.Dataset({f"column{i}": values.variable for i, values in enumerate(whole)})
    chunks = grid[names].unify_chunks().chunksizes
    columns = columns.chunk(chunks) if chunks else columns
    answerer = table.prepare(model._fitted(), quantiles)
    names_out = columns.column_names(answerer)
    some = columns["column0"]
    template = xr.Dataset({name: some.astype(float) for name in names_out})
    light = copy(model)
    del light.posterior_  # the answerer has what answers need; every chunk's task carries both
    answers = xr.map_blocks(_block, columns, args=(light, answerer), template=template)
    coordinates = {k: v for k, v in grid.coords.items() if set(v.dims) <= set(answers.dims)}
    return answers.assign_coords(coordinates).assign_attrs(grid.attrs)


def _block(columns: Any, model: Any, answerer: table.Answerer) -> Any:
    """All answers at the cells of one chunk."""
    names = [str(name) for name in model.feature_names_in_]
    first = columns["column0"]
    X = pd.DataFrame({n: columns[f"column{i}"].to_numpy().ravel() for i, n in enumerate(names)})
    known = np.all(np.isfinite(X.to_numpy(float)), axis=1)  # oceans and edges have no prediction
    out = {}
    found = table.in_chunks(answerer, model._rows(X[known])) if np.any(known) else {}
    for name in columns.column_names(answerer):
        values = np.full(len(X), np.nan)
        values[known] = found.get(name, np.empty(0))
        out[name] = (first.dims, values.reshape(first.shape))
    return columns.drop_vars(list(columns)).assign(out)
