"""The L1 distance against closed forms, quadrature and SciPy's Wasserstein distance."""

from itertools import pairwise

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import gamma, norm, t, wasserstein_distance, weibull_min
from test_metrics import LOC, SCALE, RowLaw

from bne import datasets, metrics
from conftest import shifted


@pytest.mark.parametrize("kind", [norm, RowLaw], ids=["scipy", "rows"])
def test_l1_of_shifted_gaussians_is_the_shift(kind):
    shift = np.array([0.0, 0.01, -0.3, 2.0, 40.0])
    distance = metrics.l1_distance(kind(LOC, SCALE), kind(LOC + shift, SCALE), reduce=False)
    np.testing.assert_allclose(distance, np.abs(shift), atol=1e-4)
    mean = metrics.l1_distance(kind(LOC, SCALE), kind(LOC + shift, SCALE))
    assert mean == pytest.approx(np.abs(shift).mean(), abs=1e-4)


@pytest.mark.parametrize("ratio", [1e-3, 0.2, 3.0, 1e3])
def test_l1_of_rescaled_gaussians(ratio):
    # |F - F*| for a common mean: |1 - ratio| E|Z|, also for a very narrow law.
    expected = abs(1 - ratio) * np.sqrt(2 / np.pi)
    distance = metrics.l1_distance(norm(0, ratio), norm(0, 1))
    assert distance == pytest.approx(expected, abs=1e-4 * max(1, ratio))


LAWS = {
    "skewed": (gamma(1.5, scale=2.0), norm(3.0, 2.4)),
    "bounded": (weibull_min(1.5, loc=1.0, scale=3.0), weibull_min(3.0, scale=5.0)),
    "heavy": (t(4), norm(0.5, 1.0)),
}


@pytest.mark.parametrize("laws", LAWS.values(), ids=LAWS)
def test_l1_matches_quadrature(laws):
    first, second = laws

    def gap(z):
        return abs(first.cdf(z) - second.cdf(z))

    edges = [-np.inf, *np.linspace(-10, 30, 81), np.inf]
    expected = sum(quad(gap, a, b, limit=200)[0] for a, b in pairwise(edges))
    assert metrics.l1_distance(first, second) == pytest.approx(expected, abs=1e-4)


@pytest.mark.parametrize("laws", LAWS.values(), ids=LAWS)
def test_l1_matches_scipy_wasserstein(laws):
    levels = (np.arange(100_000) + 0.5) / 100_000
    expected = wasserstein_distance(*(law.ppf(levels) for law in laws))
    assert metrics.l1_distance(*laws) == pytest.approx(expected, abs=1e-3)


def test_l1_takes_plain_functions_on_a_grid():
    grid = np.linspace(-12, 15, 6001)
    first, second = RowLaw([0.0, 1.0], [1.0, 1.0]), RowLaw([0.5, 0.0], [1.0, 1.0])
    rows = np.tile(grid, (2, 1))
    by_function = metrics.l1_distance(first.cdf, second.cdf, rows, reduce=False)
    np.testing.assert_allclose(by_function, [0.5, 1.0], atol=1e-4)
    assert metrics.l1_distance(first, second, grid) == pytest.approx(0.75, abs=1e-4)
    one = metrics.l1_distance(norm(0).cdf, norm(2).cdf, grid)
    assert one == pytest.approx(2.0, abs=1e-4)


def test_l1_on_the_experiment_s_grid():
    data = datasets.make_wave_1d(10, random_state=shifted(0))
    x = np.linspace(-5, 5, 101)
    law = data.truth.distribution(x)
    assert metrics.l1_distance(law, law) == 0.0
    moved = weibull_min(law.kwds["c"], law.kwds["loc"] + 0.3, law.kwds["scale"])
    assert metrics.l1_distance(moved, law) == pytest.approx(0.3, abs=1e-4)


def test_l1_lets_a_scalar_law_fit_any_rows():
    distance = metrics.l1_distance(norm([0.0, 1.0, 2.0]), norm(), reduce=False)
    np.testing.assert_allclose(distance, [0, 1, 2], atol=1e-4)


# --- what must be refused


def test_l1_refuses_laws_that_do_not_match():
    with pytest.raises(ValueError, match=r"the same rows, N; got shapes \(2,\) and \(3,\)"):
        metrics.l1_distance(norm([0, 1]), norm([0, 1, 2]))
    with pytest.raises(ValueError, match=r"got shapes \(2, 1\) and \(2,\)"):
        metrics.l1_distance(norm([[0], [1]]), norm([0, 1]))


def test_l1_refuses_bad_grids():
    grid = np.linspace(-8, 8, 101)
    with pytest.raises(TypeError, match="`y_grid` must be given where a distribution is a plain"):
        metrics.l1_distance(norm().cdf, norm())
    with pytest.raises(ValueError, match="at least two increasing values per row"):
        metrics.l1_distance(norm(), norm(), grid[::-1])
    with pytest.raises(ValueError, match="at least two increasing values per row"):
        metrics.l1_distance(norm(), norm(), grid[:, None])
    with pytest.raises(ValueError, match=r"\(N, Q\) with N = 2; got \(3, 101\)"):
        metrics.l1_distance(norm([0, 1]), norm([0, 1]), np.tile(grid, (3, 1)))
    with pytest.raises(ValueError, match=r"`the CDF` must have shape \(1, 101\)"):
        metrics.l1_distance(norm([[0], [1]]).cdf, norm(), grid)


def test_l1_asks_for_a_grid_where_quantiles_are_infinite():
    class Endless(RowLaw):
        def ppf(self, q):
            return np.full(np.shape(q), np.inf)

    with pytest.raises(ValueError, match="got infinite or NaN quantiles"):
        metrics.l1_distance(Endless([0.0], [1.0]), norm())
