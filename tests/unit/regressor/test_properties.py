"""Properties that hold whatever the data: affine maps, permutations, order of quantiles."""

import warnings

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st

from bne import BNERegressor
from bne._data.scaling import fit_scaling
from bne.datasets import make_wave_1d
from conftest import SHIFT, shifted

SETTINGS = settings(
    max_examples=8,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)


def FEW(test):
    """A few examples: the same ones in every run, and other ones for every shift of the seeds."""
    return SETTINGS(seed(shifted(0))(test) if SHIFT else test)


QUICK = {"calibration": None, "chains": 2, "warmup": 150, "draws": 300, "random_state": shifted(0)}
NAMES = ["rbf_short", "rbf_long", "periodic"]


def fit(X, y, names=tuple(NAMES), **changes):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = BNERegressor([(c, c) for c in names], inputs=["x"], **(QUICK | changes))
        return model.fit(X, y)


@pytest.fixture(scope="module")
def data():
    return make_wave_1d(50, random_state=shifted(4))


@pytest.fixture(scope="module")
def base(data):
    return fit(data.X, data.y)


@FEW
@given(shift=st.floats(-1e3, 1e3), scale=st.floats(1e-3, 1e3))
@pytest.mark.slow
def test_shifting_and_scaling_y_and_the_experts_does_the_same_to_answers(data, base, shift, scale):
    X = data.X.copy()
    X[NAMES] = shift + scale * X[NAMES]
    model = fit(X, shift + scale * data.y)
    # the scaling undoes the map but for rounding, which a chain of HMC steps magnifies
    new, old = (m.predict_distribution(Z[:6]) for m, Z in ((model, X), (base, data.X)))
    sd, (of_mean, of_sd) = scale * old.std(), sampling_errors(base, data.X[:6])
    assert np.all(np.abs(new.mean() - (shift + scale * old.mean())) < of_mean * sd)
    assert np.all(np.abs(new.std() / sd - 1.0) < of_sd)


def sampling_errors(model, X):
    """By how much mean and sd of two fits may differ that have other chains, in sds.

    Six Monte-Carlo errors of their difference, by batches of draws (19 degrees of freedom).
    """
    stage = model._stages("additive")[0]
    mu, noise = stage.mu(model._rows(X)), stage.draws.sigma_eps[:, None] ** 2
    squares = (mu - mu.mean(axis=0)) ** 2 + noise
    variance = np.mean(squares, axis=0)
    batches = (np.stack([np.mean(b, axis=0) for b in np.array_split(d, 20)]) for d in (mu, squares))
    of_mean, of_variance = (np.sqrt(2.0 / 20.0) * np.std(b, axis=0, ddof=1) for b in batches)
    return 6.0 * of_mean / np.sqrt(variance), 6.0 * of_variance / (2.0 * variance)


@FEW
@given(shift=st.floats(-1e3, 1e3), scale=st.floats(1e-3, 1e3))
def test_the_models_units_do_not_see_shift_and_scale(data, shift, scale):
    """What the sampler is given is the same to rounding."""
    x, f = data.X[["x"]].to_numpy(), data.X[NAMES].to_numpy()
    old, new = fit_scaling(x, f, data.y), fit_scaling(x, shift + scale * f, shift + scale * data.y)
    tolerance = 1e-9 * (1.0 + abs(shift) / scale)
    np.testing.assert_allclose(new.outcome(shift + scale * f), old.outcome(f), atol=tolerance)


@FEW
@given(order=st.permutations(range(50)))
def test_order_of_rows_to_predict_does_not_matter(data, base, order):
    order = list(order)
    np.testing.assert_allclose(
        base.predict_quantiles(data.X.iloc[order]),
        base.predict_quantiles(data.X).iloc[order],
        rtol=1e-9,
    )


@FEW
@given(rows=st.lists(st.integers(0, 49), min_size=1, max_size=9))
def test_a_row_does_not_depend_on_the_others(data, base, rows):
    parts = base.decompose(data.X.iloc[rows], measure="variance").to_frame()
    whole = base.decompose(data.X, measure="variance").to_frame().iloc[rows]
    np.testing.assert_allclose(parts, whole, rtol=1e-8, atol=1e-12)


@FEW
@given(levels=st.lists(st.floats(1e-6, 1 - 1e-6), min_size=2, max_size=6))
def test_quantiles_do_not_cross_and_invert_the_cdf(data, base, levels):
    law = base.predict_distribution(data.X[:5])
    tiled = np.tile(np.sort(levels), (5, 1))
    quantiles = law.ppf(tiled)
    assert np.all(np.diff(quantiles, axis=1) >= -1e-9)
    np.testing.assert_allclose(law.cdf(quantiles), tiled, atol=1e-6)


@FEW
@given(pair=st.lists(st.floats(0.01, 0.99), min_size=2, max_size=2, unique=True))
def test_more_coverage_is_a_wider_interval(data, base, pair):
    narrow, wide = (base.predict_interval(data.X[:5], c).to_numpy() for c in sorted(pair))
    assert np.all(wide[:, 0] <= narrow[:, 0] + 1e-9)
    assert np.all(wide[:, 1] >= narrow[:, 1] - 1e-9)


@pytest.mark.slow
def test_order_of_training_rows_and_experts_does_not_matter(data, base):
    """Up to the sampler's error: the chains are others."""
    order = np.random.default_rng(shifted(0)).permutation(50)
    rows = fit(data.X.iloc[order], data.y[order])
    experts = fit(data.X, data.y, names=tuple(NAMES[::-1]))
    expected = base.predict_distribution(data.X)
    of_mean, of_sd = sampling_errors(base, data.X)
    for model in (rows, experts):
        law = model.predict_distribution(data.X)
        assert np.all(np.abs(law.mean() - expected.mean()) < of_mean * expected.std())
        assert np.all(np.abs(law.std() / expected.std() - 1.0) < of_sd)
    names = base.explain_weights().index
    np.testing.assert_allclose(
        experts.explain_weights().loc[names, "mean"], base.explain_weights()["mean"], atol=0.15
    )


@pytest.mark.slow
def test_a_useless_expert_hurts_little():
    """Less than 0.05 nats a fresh observation, for an expert of pure noise.

    Its weight costs about ``chi2 / (2 n)``, one degree of freedom: beyond 0.05 once in 100,000.
    """
    data = make_wave_1d(200, random_state=shifted(4))
    base, fresh = fit(data.X, data.y), data.sample(400, random_state=shifted(9))
    rng = np.random.default_rng(shifted(1))
    X = data.X.assign(noise=rng.normal(size=len(data.X)))
    model = fit(X, data.y, names=(*NAMES, "noise"))
    with_noise = pd.DataFrame(fresh.X).assign(noise=rng.normal(size=400))
    loss = np.mean(base.predict_distribution(fresh.X).logpdf(fresh.y))
    loss -= np.mean(model.predict_distribution(with_noise).logpdf(fresh.y))
    assert loss < 0.05
