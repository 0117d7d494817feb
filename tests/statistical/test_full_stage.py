"""The full stage's sampler and its answers, by simulation."""

import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from bne import BNERegressor
from bne._fitting import full_stage as _joint

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
import health
import sbc

from conftest import shifted

pytestmark = pytest.mark.slow


def p_values(sets):
    shared = sbc.world()
    return sbc.uniformity(
        pd.DataFrame([sbc.ranks(shifted(s), shared, sbc.SETTINGS) for s in range(sets)])
    )


def test_simulation_based_calibration():
    """Short version of benchmarks/sbc.py; false-alarm rate 1e-4 over ten quantities."""
    assert min(p_values(sets=20).values()) > 1e-4 / 10


def test_a_broken_sampler_is_caught(monkeypatch):
    """The Jacobian of the map is left out."""
    monkeypatch.setattr(_joint, "log_density", sbc.broken_log_density)
    assert min(p_values(sets=4).values()) < 0.01 / 10


def assert_well_sampled(r_hat, ess):
    """R-hat up to 1.01 and 400 effective draws, but for the errors of these two themselves.

    An effective size near 400 of 4000 draws is estimated with an error of a sixth (Sokal: with a
    variance of ``2 (2 M + 1) / 4000`` for a window of ``M = 25``): three errors below 400 are 200,
    and few may be there. R-hat of eight half chains that agree is ``1 + (4 / ess) chi2 / 7``, with
    7 degrees of freedom.
    """
    assert np.min(ess) >= 200
    assert np.mean(ess >= 400) > 0.9
    assert np.all(r_hat <= np.maximum(1.01, 1.0 + 4.0 / ess * stats.chi2.isf(1e-6, 7) / 7.0))


def test_default_settings_sample_well(wave_model):
    """n = 100: hyperparameters, weights, and F(y|x) at 20 (y, x) pairs."""
    table = health.table(wave_model)
    named = table[table["kind"] == "named"]
    assert_well_sampled(named["r_hat"], named[["ess_bulk", "ess_tail"]].min(axis=1))
    assert np.sum(wave_model._stages("full")[0].draws.statistics["diverging"]) == 0


def test_delta_and_the_mean_mix_at_every_training_row(wave_model):
    table = health.table(wave_model)
    by_row = table[table["kind"] == "row"]
    assert_well_sampled(by_row["r_hat"], by_row["ess_bulk"])


def test_a_gaussian_truth_needs_no_calibration():
    """Linear and homoscedastic: the full stage costs at most 0.02 nats."""
    rng = np.random.default_rng(shifted(0))
    x = rng.uniform(-2, 2, size=1200)
    f = np.column_stack([np.sin(2 * x), x])
    y = f @ [0.5, 0.4] + 0.3 * rng.normal(size=1200)
    X = np.column_stack([x, f])
    model = BNERegressor(
        [("a", 1), ("b", 2)], inputs=[0], draws=400, random_state=shifted(0), n_jobs=2
    )
    model.fit(X[:200], y[:200])
    nll = {
        stage: -model.predict_distribution(X[200:], stage=stage).logpdf(y[200:])
        for stage in ("additive", "full")
    }
    cost = nll["full"] - nll["additive"]
    assert np.mean(cost) < 0.02 + 5 * np.std(cost) / np.sqrt(len(cost))


def test_the_full_stage_is_nearer_the_truth(wave_model, wave):
    """L1 to the true CDF and test NLL on the 1-D experiment, beside the additive stage."""
    from bne.metrics import l1_distance

    grid = np.linspace(-5, 5, 41)
    truth = wave.truth.distribution(grid)
    fresh = wave.sample(1000, random_state=shifted(5))
    l1, nll = {}, {}
    for stage in ("additive", "full"):
        l1[stage] = l1_distance(wave_model.predict_distribution(wave.features(grid), stage), truth)
        nll[stage] = -wave_model.predict_distribution(fresh.X, stage).logpdf(fresh.y)
    # over data sets the ratio has mean 0.71 and sd 0.07, the gain mean 0.22 and sd 0.05 nats:
    # limits are more than three sds away, and the fresh rows' own error comes on top
    assert l1["full"] < 0.95 * l1["additive"]
    gain = nll["additive"] - nll["full"]
    assert np.mean(gain) > 0.05 + 3 * np.std(gain) / np.sqrt(len(gain))
