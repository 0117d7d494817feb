"""Shared fixtures. Arrays of different rank must not broadcast by accident."""

import jax
import pytest

from bne import BNERegressor
from bne.datasets import make_wave_1d

jax.config.update("jax_numpy_rank_promotion", "raise")

EXPERTS = [(c, c) for c in ("rbf_short", "rbf_long", "periodic")]


@pytest.fixture(scope="session")
def wave():
    return make_wave_1d(100, random_state=1)


@pytest.fixture(scope="session")
def wave_model(wave):
    """The 1-D experiment at n = 100 with default settings."""
    return BNERegressor(EXPERTS, inputs=["x"], random_state=0, n_jobs=2).fit(wave.X, wave.y)
