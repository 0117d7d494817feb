"""Laws that are averaged over shards."""

import numpy as np
import pytest
from scipy import stats

from bne._law import averaged, conditional
from conftest import shifted


class Gaussian:
    """A law at two rows, by scipy."""

    def __init__(self, mean, sd):
        self._law = stats.norm(np.asarray(mean)[:, None], np.asarray(sd)[:, None])

    def __len__(self):
        return 2

    def mean(self):
        return self._law.mean()[:, 0]

    def ppf(self, levels):
        return self._law.ppf(levels)

    def logpdf(self, y):
        return self._law.logpdf(y)


@pytest.mark.parametrize("elements", [conditional.CHUNK_ELEMENTS, 1])
def test_average_of_gaussians_is_the_gaussian_of_average_moments(monkeypatch, elements):
    """All rows at a time, or one by one."""
    monkeypatch.setattr(conditional, "CHUNK_ELEMENTS", elements)
    laws = [Gaussian([0.0, 5.0], [1.0, 0.2]), Gaussian([2.0, 6.0], [3.0, 0.4])]
    law, expected = averaged.AveragedDistribution(laws), stats.norm([1.0, 5.5], [2.0, 0.3])
    y = np.array([0.3, 5.9])
    np.testing.assert_allclose(law.mean(), expected.mean(), rtol=1e-12)
    np.testing.assert_allclose(law.var(), expected.var(), rtol=1e-6)
    np.testing.assert_allclose(law.entropy(), expected.entropy(), atol=1e-6)
    np.testing.assert_allclose(law.cdf(y), expected.cdf(y), atol=1e-9)
    np.testing.assert_allclose(law.logpdf(y), expected.logpdf(y), atol=1e-8)
    np.testing.assert_allclose(law.mode(), expected.mean(), atol=1e-2)
    far = expected.mean() + 20.0 * expected.std()
    np.testing.assert_allclose(law.logpdf(far), expected.logpdf(far), rtol=1e-6)
    sample = law.sample(20_000, random_state=shifted(0))
    np.testing.assert_allclose(sample.std(axis=1), expected.std(), rtol=5 / np.sqrt(40_000))
    t = (y - expected.mean()) / expected.std()
    crps = t * (2 * stats.norm.cdf(t) - 1) + 2 * stats.norm.pdf(t) - 1 / np.sqrt(np.pi)
    np.testing.assert_allclose(law.crps(y), expected.std() * crps, rtol=1e-4)
    lower, upper = law.interval(0.9)
    np.testing.assert_allclose([lower, upper], [expected.ppf(0.05), expected.ppf(0.95)])


def test_a_law_of_two_narrow_peaks_has_ordered_quantiles():
    """Between peaks the quantile function is steep; an unlimited cubic would turn back."""

    class Peaks(Gaussian):
        def __init__(self):
            self._law = stats.Mixture(
                [stats.Normal(mu=-3.0, sigma=0.05), stats.Normal(mu=3.0, sigma=0.05)]
            )

        def mean(self):
            return np.zeros(2)

        def ppf(self, levels):
            return self._law.icdf(levels)

        def logpdf(self, y):
            return self._law.logpdf(y)

    law = averaged.AveragedDistribution([Peaks(), Peaks()])
    assert np.all(np.diff(law._by_rows(lambda fine, _: fine), axis=1) >= 0)
    assert np.all(np.isfinite(law.entropy())) and np.all(np.isfinite(law.mode()))
    y = np.tile(np.linspace(-3.2, 3.2, 41), (2, 1))
    np.testing.assert_allclose(law.cdf(y), Peaks()._law.cdf(y), atol=1e-6)
    # a jump of the quantile function is spread over two cells of the grid, a fifth of the mass
    np.testing.assert_allclose(law.var(), 9.0 + 0.05**2, rtol=0.1)


def test_average_of_two_equal_mixtures_is_that_mixture():
    """Its quantile function is steep between the modes, where Newton's steps would leave it."""

    class Two(Gaussian):
        def __init__(self):
            self._law = stats.Mixture(
                [stats.Normal(mu=-2.0, sigma=0.5), stats.Normal(mu=2.0, sigma=0.5)]
            )

        def ppf(self, levels):
            return self._law.icdf(levels)

        def logpdf(self, y):
            return self._law.logpdf(y)

    law, expected = averaged.AveragedDistribution([Two(), Two()]), Two()._law
    y = np.tile(np.linspace(-4.0, 4.0, 81), (2, 1))
    np.testing.assert_allclose(law.cdf(y), expected.cdf(y), atol=1e-8)
    np.testing.assert_allclose(law.logpdf(y), expected.logpdf(y), atol=1e-5)
    np.testing.assert_allclose(law.entropy(), expected.entropy(), atol=0.05)
    assert np.all(np.abs(np.abs(law.mode()) - 2.0) < 0.05)


def test_average_of_sorted_draws_is_the_average_of_quantiles():
    rng = np.random.default_rng(shifted(0))
    shards = [rng.normal(m, s, size=(4000, 2)) for m, s in ((0.0, 1.0), (1.0, 3.0))]
    average = averaged.average_draws(shards)
    levels = [0.05, 0.5, 0.95]
    expected = np.mean([np.quantile(d, levels, axis=0) for d in shards], axis=0)
    np.testing.assert_allclose(np.quantile(average, levels, axis=0), expected, rtol=1e-10)
