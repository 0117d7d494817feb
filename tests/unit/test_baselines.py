"""Comparators against library oracles and closed forms."""

import numpy as np
import pytest
from scipy import stats

pytest.importorskip("ngboost")
pytest.importorskip("quantile_forest")
pytest.importorskip("statsmodels")

from statsmodels.nonparametric.kernel_density import KDEMultivariateConditional

from bne.baselines import (
    BayesianStacking,
    ConditionalKDE,
    DeepEnsemble,
    Mixture,
    MixtureOfExperts,
    NaturalGradientBoosting,
    QuantileForest,
    QuantileLaw,
    comparators,
)
from bne.datasets import make_wave_1d
from conftest import shifted

EXPERTS = ["rbf_short", "rbf_long", "periodic"]


@pytest.fixture(scope="module")
def data():
    return make_wave_1d(80, random_state=shifted(3))


def test_a_mixture_of_one_is_a_gaussian():
    mean = np.array([[0.0], [2.0]])
    law = Mixture(mean, np.full((2, 1), 1.5), np.ones((2, 1)))
    gaussian = stats.norm(mean[:, 0], 1.5)
    y = np.array([0.3, 1.0])
    np.testing.assert_allclose(law.cdf(y), gaussian.cdf(y), rtol=1e-12)
    np.testing.assert_allclose(law.logpdf(y), gaussian.logpdf(y), rtol=1e-12)
    np.testing.assert_allclose(law.ppf(0.2), gaussian.ppf(0.2), rtol=1e-9)
    np.testing.assert_allclose(law.mean(), mean[:, 0])
    table = np.array([[0.1, 0.9], [0.5, 0.6]])
    np.testing.assert_allclose(law.cdf(law.ppf(table)), table, atol=1e-9)


def test_crps_equals_the_integral_of_squares():
    rng = np.random.default_rng(shifted(0))
    weights = rng.dirichlet(np.ones(4), size=3)
    law = Mixture(rng.normal(size=(3, 4)), rng.uniform(0.3, 1.0, size=(3, 4)), weights)
    y, z = rng.normal(size=3), np.linspace(-12, 12, 48_001)
    levels = np.linspace(0.0, 1.0, 4001)
    inner = law.ppf(np.tile(levels[1:-1], (3, 1)))
    ends = np.array([[-6.0], [6.0]])
    quantiles = QuantileLaw(
        levels, np.hstack([inner[:, :1] + ends[0], inner, inner[:, -1:] + ends[1]])
    )
    F = law.cdf(np.tile(z, (3, 1)))
    integral = np.trapezoid((F - (y[:, None] <= z)) ** 2, z, axis=1)
    np.testing.assert_allclose(law.crps(y), integral, atol=1e-3)
    np.testing.assert_allclose(quantiles.crps(y), integral, atol=5e-3)
    np.testing.assert_allclose(quantiles.mean(), law.mean(), atol=5e-3)


def test_a_near_component_of_next_to_no_weight_does_not_count():
    weights = np.array([[1e-320, 1.0, 0.0]])
    law = Mixture(np.array([[0.0, 1.0, 0.0]]), np.ones((1, 3)), weights)
    np.testing.assert_allclose(law.logpdf([0.0]), stats.norm.logpdf(1.0))


def test_conditional_kde_equals_statsmodels(data):
    mine = ConditionalKDE(["x"]).fit(data.X, data.y)
    x = data.X[["x"]].to_numpy()
    theirs = KDEMultivariateConditional(
        data.y, x, "c", "c", bw=[mine.bandwidth_y_, *mine.bandwidths_x_], rng=shifted(0)
    )
    at, y = data.X[:7], data.y[:7] + 0.3
    law = mine.predict_distribution(at)
    np.testing.assert_allclose(law.cdf(y), theirs.cdf(y, x[:7]), rtol=1e-6)
    np.testing.assert_allclose(law.pdf(y), theirs.pdf(y, x[:7]), rtol=1e-6)


def test_a_collapsed_bandwidth_gives_the_nearest_point(data):
    mine = ConditionalKDE(["x"]).fit(data.X, data.y)
    mine.bandwidths_x_ = [1e-8]
    np.testing.assert_allclose(mine.predict_distribution(data.X[:5]).mean(), data.y[:5])


def test_stacking_finds_the_mixture():
    """y follows one expert seven times in ten, the other three."""
    rng = np.random.default_rng(shifted(1))
    n = 1500
    X = make_wave_1d(n, random_state=shifted(0)).X.assign(a=rng.normal(scale=3, size=n))
    X = X.assign(b=rng.normal(scale=3, size=n))
    first = rng.uniform(size=n) < 0.7
    y = np.where(first, X["a"], X["b"]) + 0.5 * rng.normal(size=n)
    stacking = BayesianStacking(["a", "b"], shifted(0)).fit(X, y)
    # one sd each: sigma_k must cover the rows that follow the other expert
    assert stacking.weights_[0] > 0.6
    assert stacking.weights_.sum() == pytest.approx(1.0)
    wrong = BayesianStacking(["b", "a"], shifted(0)).fit(X, y)
    np.testing.assert_allclose(wrong.weights_[::-1], stacking.weights_, atol=0.02)


def test_mixture_of_experts_follows_x():
    """One expert is right on the left, the other on the right."""
    rng = np.random.default_rng(shifted(2))
    data = make_wave_1d(200, random_state=shifted(0))
    x = data.X["x"].to_numpy()
    X = data.X.assign(a=np.sin(x), b=np.sin(x) + 3.0)
    y = np.sin(x) + np.where(x > 0, 3.0, 0.0) + 0.3 * rng.normal(size=200)
    settings = {"warmup": 150, "draws": 100, "random_state": shifted(0)}
    model = MixtureOfExperts(["a", "b"], ["x"], **settings).fit(X, y)
    at = X[np.abs(x) > 2.0]
    truth = np.sin(at["x"]) + np.where(at["x"] > 0, 3.0, 0.0)
    assert np.mean(np.abs(model.predict_distribution(at).mean() - truth)) < 0.4


@pytest.mark.parametrize("method", [DeepEnsemble, NaturalGradientBoosting, QuantileForest])
@pytest.mark.slow
def test_methods_on_inputs_and_experts_predict_distributions(method, data):
    law = (
        method(EXPERTS, ["x"], random_state=shifted(0))
        .fit(data.X, data.y)
        .predict_distribution(data.X)
    )
    error = np.sqrt(np.mean((law.mean() - data.y) ** 2))
    assert error < 0.8 * np.std(data.y)
    u = law.cdf(data.y)
    assert np.all((u >= 0) & (u <= 1))
    low, high = law.interval(0.9)
    assert np.all(low < high)
    assert np.mean((data.y >= low) & (data.y <= high)) > 0.6
    again = method(EXPERTS, ["x"], random_state=shifted(0)).fit(data.X, data.y)
    again = again.predict_distribution(data.X)
    np.testing.assert_allclose(again.mean(), law.mean(), rtol=1e-12)


def test_the_registry_leaves_out_what_the_data_do_not_allow():
    everything = {"CondKDE", "stack", "BME", "DeepEns", "NGBoost", "QRF"}
    assert set(comparators(EXPERTS, ["x"], 2000)) == everything
    assert set(comparators(EXPERTS, ["x"], 2001)) == everything - {"CondKDE"}
    assert set(comparators(EXPERTS, list("abcd"), 100)) == everything - {"CondKDE"}
    assert set(comparators(EXPERTS, [], 100)) == everything - {"CondKDE", "BME"}
    assert set(comparators(["periodic"], ["x"], 100)) == everything - {"stack"}


def test_a_declared_comparator_is_built_with_what_it_needs():
    methods = comparators(EXPERTS, ["x"], 100, random_state=7)
    assert methods["CondKDE"].get_params() == {"inputs": ["x"]}
    assert methods["stack"].get_params() == {"experts": EXPERTS, "random_state": 7}
    given = {"experts": EXPERTS, "inputs": ["x"], "random_state": 7}
    for name in ("BME", "DeepEns", "NGBoost", "QRF"):
        assert given.items() <= methods[name].get_params().items()
