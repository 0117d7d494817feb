"""Shared fixtures. Arrays of different rank must not broadcast by accident."""

import warnings

import jax
import numpy as np
import pytest
from scipy import stats

from bne import BNERegressor, _joint
from bne.datasets import make_wave_1d

jax.config.update("jax_numpy_rank_promotion", "raise")

EXPERTS = [(c, c) for c in ("rbf_short", "rbf_long", "periodic")]


def base_pdf(t):
    """The normal density, beyond 5 a sixth power with the same slope there."""
    a = np.abs(t)
    power = stats.norm.pdf(5.0) * (1.0 + 5.0 / 6.0 * np.maximum(a - 5.0, 0.0)) ** -6.0
    return np.where(a > 5.0, power, stats.norm.pdf(t))


@pytest.fixture(scope="session")
def wave():
    return make_wave_1d(100, random_state=1)


@pytest.fixture(scope="session")
def wave_model(wave):
    """The 1-D experiment at n = 100 with default settings."""
    return BNERegressor(EXPERTS, inputs=["x"], random_state=0, n_jobs=2).fit(wave.X, wave.y)


@pytest.fixture(scope="session")
def cgp_model(wave):
    """The paper's construction of G: one short chain."""
    settings = {"chains": 1, "warmup": 100, "draws": 50, "random_state": 0}
    model = BNERegressor(EXPERTS, inputs=["x"], calibration="cgp", **settings)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return model.fit(wave.X[:60], wave.y[:60])


def joint_data(x, F, y, table, grid, features, priors, weights, times=1, **more):
    """Data of the joint density, every row `times` times."""

    def repeat(a, axis=0):
        return np.repeat(a, times, axis=axis)

    return _joint.build_data(
        F=repeat(F),
        y=repeat(y),
        table=repeat(table, 1),
        grid=grid,
        table_G=repeat(features.tabulate(x), 1),
        features=features,
        priors=priors,
        weights=repeat(weights),
        **more,
    )
