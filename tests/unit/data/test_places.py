"""Rows that share their inputs: the same posterior, found at the places and not at every row."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bne import BNERegressor, SamplingWarning
from bne._base.priors import InverseGamma, Priors, length_scale_grid
from bne._calibration.features import make_calibration
from bne._calibration.logistic import Logistic
from bne._data import places as _places
from bne._data.rows import Rows
from bne._fitting import axes, collapsed, full_data, full_density, full_stage
from bne._fitting.design import Choices, enough_points, make_design
from bne._fitting.training import Training
from bne._mean import gaussian
from bne._mean.gaussian import Hyperparameters
from bne._mean.residual import places_of
from bne._process import points
from bne._process.features import make_feature_map
from bne._process.kernels import resolve_kernel
from conftest import shifted

PRIORS = Priors(InverseGamma(3.0, 2.0))
GRID = length_scale_grid(PRIORS.ell, 32)
COUNTS = [1, 7, 2, 5, 1, 4, 9, 3, 6]


@pytest.fixture(scope="module")
def stations():
    """Nine stations with some days each, in no order; the experts differ from day to day."""
    rng = np.random.default_rng(shifted(0))
    of_row = rng.permutation(np.repeat(np.arange(9), COUNTS))
    x = rng.uniform(-2, 2, size=(9, 2))[of_row]
    F = np.column_stack([np.sin(x[:, 0]), np.ones(len(x))]) + 0.2 * rng.normal(size=(len(x), 2))
    y = F @ [0.7, 0.1] + 0.5 * rng.gamma(2.0, size=len(x)) - 1.0
    return x, F, y


@pytest.fixture(scope="module")
def tables(stations):
    """Features at the rows, the places, and features at the places."""
    x, _, _ = stations
    places = _places.find_places(x)
    features = make_feature_map(resolve_kernel("matern32"), x[places.first], GRID)
    return features.tabulate(x), places, features.tabulate(x[places.first])


def test_places_are_where_inputs_are_the_same(stations):
    x, _, y = stations
    places = _places.find_places(x)
    assert len(places.first) == 9
    np.testing.assert_array_equal(x[places.first][places.of_row], x)
    sums = places.sums(np.column_stack([y, np.ones(len(y))]))
    assert sorted(sums[:, 1]) == sorted(COUNTS)
    for u in range(9):
        np.testing.assert_allclose(sums[u, 0], np.sum(y[places.of_row == u]), rtol=1e-12)


def test_where_few_rows_share_their_inputs_rows_are_the_places(stations):
    x = np.vstack([stations[0], np.random.default_rng(shifted(1)).normal(size=(50, 2))])
    places = _places.find_places(x)
    assert not places.shared
    np.testing.assert_array_equal(places.first, np.arange(len(x)))
    assert places.sums(x) is x


def test_without_inputs_there_is_one_place():
    places = _places.find_places(np.zeros((5, 0)))
    np.testing.assert_array_equal(places.sums(np.arange(5.0)), [10.0])


def test_a_residual_clear_of_the_experts_tells_rows_apart(stations):
    x, F, y = stations
    settings = {
        "calibration": None,
        "chains": 1,
        "warmup": 20,
        "draws": 20,
        "random_state": shifted(0),
    }
    X = np.column_stack([F, x])
    with pytest.warns(SamplingWarning):
        model = BNERegressor([("a", 0), ("b", 1)], orthogonalize=True, **settings).fit(X, y)
    rows = Rows(x, F)
    assert places_of(rows, None).shared
    assert not places_of(rows, model._stages("additive")[0].residual).shared


def test_gaussian_tables_are_those_of_the_rows(stations, tables):
    _, F, y = stations
    table, places, at_places = tables
    h = Hyperparameters(-0.3, -0.5, -0.7, 0.2)
    with jax.enable_x64(True):
        ours = collapsed.spectral_table(F, y, at_places, GRID, 16, places)
        theirs = collapsed.spectral_table(F, y, table, GRID, 16)
        values = [float(collapsed.log_marginal(h, t)) for t in (ours, theirs)]
    np.testing.assert_allclose(*values, rtol=1e-11)
    ours = gaussian.gram_table(F, y, at_places, GRID, places).at(0.2)
    theirs = gaussian.gram_table(F, y, table, GRID).at(0.2)
    for a, b in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("share", [1.0, 0.95])
def test_products_clear_of_the_experts_are_those_of_the_rows(stations, tables, share):
    _, F, _ = stations
    table, places, at_places = tables
    weights = np.random.default_rng(shifted(2)).uniform(0.2, 3.0, size=len(F))
    E = axes.expert_axes(F, weights)[0]
    root = np.sqrt(weights)[:, None]
    dense = root * table - share * (root * E) @ ((weights[:, None] * E).T @ table)
    ours = axes.without_experts(at_places, E, weights, places, share)
    assert ours.shape[1] == 9
    for j, k in ((0, 0), (4, 4), (4, 5)):
        np.testing.assert_allclose(ours[j].T @ ours[k], dense[j].T @ dense[k], atol=1e-11)
    every = _places.every_row(len(F))
    plain = axes.without_experts(table, E, weights, every, share)
    np.testing.assert_allclose(plain, dense, atol=1e-12)


@pytest.fixture(scope="module")
def densities(stations, tables):
    """The joint density and its gradient, at the rows and at the places."""
    x, F, y = stations
    table, places, at_places = tables
    features = make_calibration(Logistic(), x, np.ones(2), shifted(0), has_residual=True)
    weights = np.random.default_rng(shifted(3)).uniform(0.5, 2.0, size=len(y))
    rows = Training(y, F, table, GRID, _places.every_row(len(y)), PRIORS, power=3.0)
    by_row = full_data.build_data(rows, features, features.tabulate(x), weights)
    rows = rows._replace(table=at_places, places=places)
    at = features.tabulate(x[places.first])
    by_place = full_data.build_data(rows, features, at, weights)
    mode = Hyperparameters(*np.log([0.7, 0.4, 0.4, 1.0]))
    start = full_stage.starts(by_row, mode, 1, np.random.default_rng(shifted(1)))[0]

    def density(data):
        with jax.enable_x64(True):
            data = jax.tree.map(jnp.asarray, data)
            value, slope = jax.value_and_grad(full_density.log_density)(jnp.asarray(start), data)
            return float(value), np.asarray(slope)

    return density, by_row, by_place


def test_the_joint_density_is_that_of_the_rows(densities):
    density, by_row, by_place = densities
    assert by_row.place is None and by_place.A.shape[1] < by_row.A.shape[1] + 1
    (value, slope), (expected, expected_slope) = density(by_place), density(by_row)
    np.testing.assert_allclose(value, expected, rtol=1e-11)
    np.testing.assert_allclose(slope, expected_slope, rtol=1e-7, atol=1e-8)


def test_the_joint_density_needs_to_know_how_many_rows_are_at_a_place(densities):
    density, by_row, by_place = densities
    expected = density(by_row)[0]
    for changes in (
        {"counts": np.minimum(by_place.counts, 1.0)},
        {"place": np.roll(by_place.place, 1)},
        {"gram": 0.9 * by_place.gram},
    ):
        assert abs(density(by_place._replace(**changes))[0] - expected) > 1e-3


@pytest.mark.parametrize(
    ("rows_a_place", "expected"), [(1.0, 128), (1.5, 192), (20.0, 512), (0.2, 128)]
)
def test_where_many_rows_share_a_place_there_are_more_points(rows_a_place, expected):
    assert enough_points(rows_a_place) == expected


def test_points_are_chosen_for_places_and_for_rows_that_experts_tell_apart(stations):
    rng = np.random.default_rng(shifted(4))
    x = np.repeat(rng.normal(size=(600, 2)), 3, axis=0)
    rows, y = Rows(x, rng.normal(size=(1800, 2))), rng.normal(size=1800)

    def points(orthogonalize, partitions=1):
        choices = Choices(resolve_kernel("matern32"), orthogonalize=orthogonalize)
        terms = make_design(rows, y, choices, shifted(0), partitions).terms
        return len(terms[1].feature_map.points)

    assert points(orthogonalize=False) == 384
    assert points(orthogonalize=False, partitions=2) == 192
    assert points(orthogonalize=True) == 128


def test_neighbourhoods_in_parts_are_those_of_all(stations, monkeypatch):
    x, _, y = stations
    whole = full_data.row_weights(x, y)
    monkeypatch.setattr(full_data, "COORDINATE_ROWS", 7)
    np.testing.assert_allclose(full_data.row_weights(x, y), whole, rtol=1e-12)
    assert np.ptp(whole) > 0.1


def test_points_of_very_many_rows_are_chosen_among_some(monkeypatch):
    x = np.random.default_rng(shifted(5)).normal(size=(400, 2))
    monkeypatch.setattr(points, "CANDIDATES", 50)
    chosen = points.choose_points(resolve_kernel("matern32"), x, 20, shifted(0))
    assert chosen.shape == (20, 2) and len(np.unique(chosen, axis=0)) == 20
    assert {tuple(p) for p in chosen} <= {tuple(p) for p in x}


@pytest.mark.slow
def test_a_fit_at_places_has_the_posterior_of_the_rows(stations, monkeypatch):
    """Quantiles of two seeds differ by 0.033 sds of y at most; twice that may be."""
    x, F, y = stations
    settings = {"chains": 2, "warmup": 200, "draws": 400, "random_state": shifted(0), "n_jobs": 2}

    def quantiles():
        model = BNERegressor([("a", 0), ("b", 1)], inputs=[2, 3], **settings)
        model.fit(np.column_stack([F, x]), y)
        return model.predict_quantiles(np.column_stack([F, x])[:12], [0.1, 0.5, 0.9])

    ours = quantiles()
    monkeypatch.setattr(_places, "FEW", 0.0)
    np.testing.assert_allclose(ours, quantiles(), atol=0.066 * np.std(y))
