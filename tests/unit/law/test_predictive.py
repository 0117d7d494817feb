"""The predictive distribution against closed forms of Gaussian mixtures."""

import numpy as np
import pytest
from scipy import integrate, stats

from bne import PredictiveDistribution
from bne._data.scaling import Scaling
from bne._law import distribution as _predictive
from bne._law.conditional import ConditionalDraws
from conftest import shifted

SCALING = Scaling(np.zeros(1), np.ones(1), 5.0, 2.0)
S, N = 50, 6


@pytest.fixture
def mixture():
    rng = np.random.default_rng(shifted(0))
    return rng.normal(scale=2, size=(S, N)), rng.uniform(0.2, 1.5, size=S)


@pytest.fixture
def distribution(mixture):
    mu, sigma = mixture
    return PredictiveDistribution(lambda rows: ConditionalDraws(mu[:, rows], sigma), N, S, SCALING)


def components(mixture):
    mu, sigma = mixture
    return stats.norm(5 + 2 * mu, 2 * sigma[:, None])


def test_cdf_pdf_and_moments_are_the_mixtures(distribution, mixture):
    y = np.linspace(-3, 12, N)
    law = components(mixture)
    np.testing.assert_allclose(distribution.cdf(y), law.cdf(y).mean(axis=0))
    np.testing.assert_allclose(distribution.pdf(y), law.pdf(y).mean(axis=0))
    np.testing.assert_allclose(distribution.logpdf(y), np.log(law.pdf(y).mean(axis=0)))
    np.testing.assert_allclose(distribution.mean(), law.mean().mean(axis=0))
    total = law.var().mean(axis=0) + law.mean().var(axis=0)
    np.testing.assert_allclose(distribution.var(), total)
    np.testing.assert_allclose(distribution.std() ** 2, total)


def test_shapes_of_arguments(distribution):
    y = np.arange(N * 3, dtype=float).reshape(N, 3)
    assert distribution.cdf(0.0).shape == (N,)
    assert distribution.cdf(y[:, 0]).shape == (N,)
    assert distribution.cdf(y).shape == (N, 3)
    np.testing.assert_array_equal(distribution.cdf(y)[:, 1], distribution.cdf(y[:, 1]))
    with pytest.raises(ValueError, match=r"\(6, Q\)"):
        distribution.cdf(np.zeros(5))
    assert len(distribution) == N


@pytest.mark.parametrize("q", [1e-6, 0.05, 0.5, 0.95, 1 - 1e-6])
def test_quantiles_invert_the_averaged_cdf(distribution, q):
    np.testing.assert_allclose(distribution.cdf(distribution.ppf(q)), q, atol=1e-9)


def test_the_inverse_recovers_y_where_there_is_density(distribution):
    y = distribution.mean()
    np.testing.assert_allclose(distribution.ppf(distribution.cdf(y)), y, rtol=1e-6)


def test_intervals(distribution):
    low, high = distribution.interval(0.8)
    np.testing.assert_allclose(distribution.cdf(low), 0.1, atol=1e-8)
    np.testing.assert_allclose(distribution.cdf(high), 0.9, atol=1e-8)
    with pytest.raises(ValueError, match=r"Pass 0\.9, not 90"):
        distribution.interval(90)
    with pytest.raises(ValueError, match=r"in \(0, 1\); got 1.02"):
        distribution.ppf(1.02)
    np.testing.assert_array_equal(distribution.median(), distribution.ppf(0.5))


def test_crps_equals_its_integral(distribution):
    y = np.array([5.0, -4.0, 20.0, 7.0, 0.0, 60.0])
    ours = distribution.crps(y)
    for i in range(N):

        def squared(z, above, i=i):
            return (distribution.cdf(np.full(N, z))[i] - above) ** 2

        below = integrate.quad(squared, -40, y[i], args=(0.0,), limit=200)[0]
        beyond = integrate.quad(squared, y[i], 80, args=(1.0,), limit=200)[0]
        np.testing.assert_allclose(ours[i], below + beyond, rtol=1e-4)


def test_mode_is_the_highest_point(distribution):
    grid = np.tile(np.linspace(-10, 20, 20_001), (N, 1))
    best = distribution.pdf(grid).max(axis=1)
    np.testing.assert_allclose(distribution.pdf(distribution.mode()), best, rtol=1e-5)


def test_samples_follow_the_distribution(distribution):
    y = distribution.sample(4000, random_state=shifted(0))
    assert y.shape == (N, 4000)
    for i in range(N):
        u = distribution.cdf(np.tile(y[i], (N, 1)))[i]
        assert stats.kstest(u, "uniform").pvalue > 1e-6
    np.testing.assert_array_equal(y, distribution.sample(4000, random_state=shifted(0)))


def test_chunks_do_not_change_the_answer(distribution, monkeypatch):
    y = np.linspace(0, 10, N)
    whole = distribution.cdf(y), distribution.ppf(0.3), distribution.crps(y), distribution.mode()
    monkeypatch.setattr(_predictive, "CHUNK_ELEMENTS", 1)
    parts = distribution.cdf(y), distribution.ppf(0.3), distribution.crps(y), distribution.mode()
    for a, b in zip(whole, parts, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-9)
