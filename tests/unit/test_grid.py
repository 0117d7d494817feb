"""Gridded data: lazy where the grid is, equal to the table, written chunk by chunk."""

import numpy as np
import pandas as pd
import pytest
import xarray as xr

from bne import BNERegressor
from bne._regressor.wide_table import wide_table
from bne.grid import predict_grid
from conftest import shifted

pytest.importorskip("dask")


@pytest.fixture(scope="module")
def model():
    rng = np.random.default_rng(shifted(0))
    X = pd.DataFrame(rng.normal(size=(40, 4)), columns=["lon", "lat", "a", "b"])
    y = X["a"] + 0.3 * X["lon"] + 0.2 * rng.normal(size=40)
    settings = {"calibration": None, "draws": 100, "chains": 2, "random_state": shifted(0)}
    experts = [("a", "a"), ("b", "b")]
    return BNERegressor(experts, inputs=["lon", "lat"], **settings).fit(X, y)


@pytest.fixture(scope="module")
def grid():
    rng = np.random.default_rng(shifted(1))
    lon, lat = np.linspace(-2, 2, 7), np.linspace(-1, 1, 5)
    a = rng.normal(size=(3, 7, 5))
    a[1, 2, 3] = np.nan
    return xr.Dataset(
        {"a": (("time", "lon", "lat"), a), "b": (("lon", "lat"), rng.normal(size=(7, 5)))},
        coords={"lon": ("lon", lon, {"units": "degrees_east"}), "lat": lat, "time": [0, 1, 2]},
        attrs={"title": "a map"},
    )


def test_cells_equal_the_table(model, grid):
    answers = predict_grid(model, grid)
    flat = xr.broadcast(*(grid[c] for c in ("lon", "lat", "a", "b")))
    names = ["lon", "lat", "a", "b"]
    X = pd.DataFrame(
        {n: v.transpose(*answers.dims).values.ravel() for n, v in zip(names, flat, strict=True)}
    )
    known = X.notna().all(axis=1).to_numpy()
    table = wide_table(model, X[known])
    for name in table:
        ours = answers[name].to_numpy().ravel()
        np.testing.assert_allclose(ours[known], table[name], rtol=1e-9, atol=1e-12)
        assert np.all(np.isnan(ours[~known])) and np.sum(~known) == 1
    assert answers["lon"].attrs["units"] == "degrees_east"
    assert answers.attrs["title"] == "a map"


def test_a_chunked_grid_is_lazy_and_written_by_chunks(model, grid, tmp_path):
    zarr = pytest.importorskip("zarr")
    bounds = (("lat", "bnds"), np.zeros((5, 2)))
    chunked = grid.assign(lat_bnds=bounds).chunk({"time": 1, "lon": 4, "lat": 5, "bnds": 2})
    lazy = predict_grid(model, chunked)
    assert all(hasattr(v.data, "dask") for v in lazy.values())
    lazy.to_zarr(tmp_path / "out.zarr", consolidated=False)
    stored = zarr.open_group(tmp_path / "out.zarr", mode="r")["mean"]
    assert sorted(stored.chunks) == [1, 4, 5]
    whole = predict_grid(model, grid)
    again = xr.open_zarr(tmp_path / "out.zarr", consolidated=False)
    xr.testing.assert_allclose(again.load(), whole.transpose(*again.dims))


def test_a_grid_without_a_column_says_so(model, grid):
    with pytest.raises(ValueError, match=r"The grid has no \['b'\]"):
        predict_grid(model, grid.drop_vars("b"))


def test_levels_that_are_none_are_refused_before_anything_is_computed(model, grid):
    with pytest.raises(ValueError, match=r"`quantiles` must lie in \(0, 1\); got 5"):
        predict_grid(model, grid, quantiles=[5, 95])


def test_the_model_is_left_as_it_was(model, grid):
    predict_grid(model, grid)
    assert model.posterior_ is not None
