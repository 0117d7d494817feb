"""Shared fixtures. Arrays of different rank must not broadcast by accident.

Every seed of a test goes through `shifted`: with BNE_TEST_SEED=3 in the environment all of them are
others, and every test must still pass.
"""

import os
import pickle
import time
import warnings

import jax
import numpy as np
import pytest
from scipy import stats

from bne import BNERegressor
from bne._base.files import atomic
from bne._calibration.base_law import HALF_WIDTH, NODE_SPACING, log_base
from bne._data.places import every_row
from bne._fitting import full_data
from bne._fitting.training import Training
from bne.datasets import make_wave_1d

jax.config.update("jax_numpy_rank_promotion", "raise")

SHIFT = int(os.environ.get("BNE_TEST_SEED", "0"))
"""Shifts the seeds of all data, fits and samples; 0 is what CI runs."""


def shifted(seed):
    """This seed where the shift is 0, and another one for every other shift; 32 bits at most."""
    return (seed + 10_000 * SHIFT) % 2**31


EXPERTS = [(c, c) for c in ("rbf_short", "rbf_long", "periodic")]


def base_pdf(t):
    """The normal density, beyond 5 a sixth power with the same slope there."""
    a = np.abs(t)
    power = stats.norm.pdf(5.0) * (1.0 + 5.0 / 6.0 * np.maximum(a - 5.0, 0.0)) ** -6.0
    return np.where(a > 5.0, power, stats.norm.pdf(t))


def sharpness(ratio, row):
    """Curvature of the log density of t at its sharpest peak that counts, of every draw: (S,)."""
    t = np.linspace(-HALF_WIDTH, HALF_WIDTH, 2001)
    log_r = ratio.log_ratio(np.tile(t, (len(ratio.series), 1)), np.full(len(t), row))
    log_p = log_r + log_base(t)
    bend = -np.gradient(np.gradient(log_p, t, axis=1), t, axis=1)
    high = log_p > np.max(log_p, axis=1, keepdims=True) - 4.0
    return np.max(np.where(high, bend, 1.0), axis=1)


def rule_error(curvature):
    """What the trapezoid rule misses of a Gaussian peak, by Poisson's sum; see `NODE_SPACING`."""
    return 2.0 * np.exp(-2.0 * np.pi**2 / (curvature * NODE_SPACING**2))


def cubic_error(curvature):
    """Bound on the error of a CDF that is the integral of a cubic on the nodes: (S,).

    The error of the corrected trapezoid rule up to a node is ``Delta^4 / 720`` times the third
    derivative there, which is at most ``1.4 c^(3/2)`` times the height of a Gaussian peak, and that
    is at most ``(c / 2 pi)^(1/2)``. Slopes are limited in nodes of small density only.
    """
    return NODE_SPACING**4 / 720.0 * 1.4 * curvature**1.5 * np.sqrt(curvature / (2.0 * np.pi))


EXPENSIVE = {"wave_model", "cgp_model"}
"""Fits that take a minute; who needs one is slow."""


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    for item in items:
        if EXPENSIVE & set(item.fixturenames):
            item.add_marker(pytest.mark.slow)


@pytest.fixture(scope="session")
def wave():
    return make_wave_1d(100, random_state=shifted(1))


@pytest.fixture(scope="session")
def wave_model(wave, tmp_path_factory):
    """The 1-D experiment at n = 100 with default settings."""
    model = BNERegressor(EXPERTS, inputs=["x"], random_state=shifted(0), n_jobs=2)
    return fitted_once("wave_model", tmp_path_factory, lambda: model.fit(wave.X, wave.y))


@pytest.fixture(scope="session")
def cgp_model(wave, tmp_path_factory):
    """The paper's construction of G: one short chain."""
    settings = {"chains": 1, "warmup": 100, "draws": 50, "random_state": shifted(0)}
    model = BNERegressor(EXPERTS, inputs=["x"], calibration="cgp", **settings)

    def fit():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return model.fit(wave.X[:60], wave.y[:60])

    return fitted_once("cgp_model", tmp_path_factory, fit)


def fitted_once(name, tmp_path_factory, fit):
    """A fit that pytest's worker processes share: the first one that needs it makes it."""
    if "PYTEST_XDIST_WORKER" not in os.environ:
        return fit()
    folder = tmp_path_factory.getbasetemp().parent
    path, claim = folder / f"{name}.pickle", folder / f"{name}.claim"
    while True:
        try:
            claim.touch(exist_ok=False)
        except FileExistsError:
            if path.exists():
                return pickle.loads(path.read_bytes())
            time.sleep(0.2)
            continue
        try:
            model = fit()
            with atomic(path) as file:
                pickle.dump(model, file)
            return model
        except BaseException:
            claim.unlink()  # another worker may try
            raise


def joint_data(x, F, y, table, grid, features, priors, weights, times=1, power=1.0, **more):
    """Data of the joint density, every row `times` times."""

    def repeat(a, axis=0):
        return np.repeat(a, times, axis=axis)

    y, table_G = repeat(y), repeat(features.tabulate(x), 1)
    rows = Training(y, repeat(F), repeat(table, 1), grid, every_row(len(y)), priors, power)
    return full_data.build_data(rows, features, table_G, repeat(weights), **more)
