"""Scores against closed forms and quadrature; shapes that must not broadcast."""

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import gamma, kstest, norm
from sklearn.metrics import mean_pinball_loss

from bne import datasets, metrics
from conftest import shifted

Y = np.array([-1.3, 0.0, 0.4, 2.5, 9.0])
LOC = np.array([0.0, 0.5, -1.0, 2.0, 3.0])
SCALE = np.array([1.0, 0.3, 2.0, 1.5, 0.7])
NORMAL = norm(LOC, SCALE)


class RowLaw:
    """A Gaussian that keeps the package's contract: y (N,) or (N, Q), a scalar for all."""

    def __init__(self, loc, scale):
        self.loc, self.scale = np.asarray(loc), np.asarray(scale)

    def _by_row(self, method, values):
        values = np.asarray(values)
        extra = (slice(None),) + (None,) * (values.ndim - 1)
        return getattr(norm(self.loc[extra], self.scale[extra]), method)(values)

    def cdf(self, y):
        return self._by_row("cdf", y)

    def ppf(self, q):
        return self._by_row("ppf", q)


class OwnCrps(RowLaw):
    def crps(self, y):
        return 7.0 + 0 * self.loc + 0 * y


def gaussian_crps(y, loc, scale):
    """Closed form of Gneiting and Raftery (2007)."""
    z = (y - loc) / scale
    return scale * (z * (2 * norm.cdf(z) - 1) + 2 * norm.pdf(z) - 1 / np.sqrt(np.pi))


# --- CRPS


@pytest.mark.parametrize("law", [NORMAL, RowLaw(LOC, SCALE)], ids=["scipy", "rows"])
def test_crps_matches_the_gaussian_closed_form(law):
    expected = gaussian_crps(Y, LOC, SCALE)
    scores = metrics.crps(Y, law, reduce=False)
    # 1,000 levels; the last outcome is 8.6 sd away, where the missing tail tells.
    tolerance = SCALE * np.array([2e-6, 2e-6, 2e-6, 2e-6, 2e-4])
    assert (np.abs(scores - expected) < tolerance).all()
    assert metrics.crps(Y, law) == pytest.approx(scores.mean())


def test_crps_matches_quadrature_on_a_skewed_law():
    law, y = gamma(1.5, scale=2.0), 2.2
    below = quad(lambda z: law.cdf(z) ** 2, 0, y)[0]
    above = quad(lambda z: law.sf(z) ** 2, y, np.inf)[0]
    assert metrics.crps([y], law) == pytest.approx(below + above, abs=1e-4)


def test_crps_prefers_the_law_s_own_method():
    assert metrics.crps(Y, OwnCrps(LOC, SCALE)) == 7.0


def test_crps_ensemble_is_the_energy_form():
    draws = np.random.default_rng(shifted(0)).gamma(1.5, 2.0, size=(40, 5))
    spread = np.abs(draws[:, None] - draws[None]).mean(axis=(0, 1))
    expected = np.abs(draws - Y).mean(axis=0) - spread / 2
    np.testing.assert_allclose(metrics.crps_ensemble(Y, draws, reduce=False), expected)
    assert metrics.crps_ensemble(Y, draws) == pytest.approx(expected.mean())


def test_crps_ensemble_tends_to_crps():
    n_draws = 20_000
    draws = norm(LOC, SCALE).rvs((n_draws, 5), random_state=shifted(1))
    estimate = metrics.crps_ensemble(Y, draws, reduce=False)
    # |Z - y| has sd at most SCALE; the spread term adds less than as much again.
    tolerance = 5 * 2 * SCALE / np.sqrt(n_draws)
    assert (np.abs(estimate - gaussian_crps(Y, LOC, SCALE)) < tolerance).all()


# --- quantiles, intervals, density


def test_pinball_loss_agrees_with_scikit_learn():
    levels = np.array([0.1, 0.5, 0.95])
    quantiles = NORMAL.ppf(levels[:, None]).T
    expected = [
        mean_pinball_loss(Y, quantiles[:, j], alpha=level) for j, level in enumerate(levels)
    ]
    losses = metrics.pinball_loss(Y, quantiles, levels, reduce=False)
    assert losses.shape == (5, 3)
    np.testing.assert_allclose(losses.mean(axis=0), expected)
    assert metrics.pinball_loss(Y, quantiles, levels) == pytest.approx(np.mean(expected))
    single = metrics.pinball_loss(Y, quantiles[:, 1], 0.5)
    assert single == pytest.approx(expected[1])


def test_pinball_loss_is_least_at_the_true_quantile():
    law, level = gamma(1.5, scale=2.0), 0.8
    y = law.rvs(20_000, random_state=shifted(0))
    at = [
        metrics.pinball_loss(y, np.full(y.shape, law.ppf(level) + shift), level)
        for shift in (-0.5, 0.0, 0.5)
    ]
    assert at[1] < min(at[0], at[2])


def test_interval_score_is_a_sum_of_two_pinball_losses():
    # Bracher et al. (2021): IS = (2 / alpha) (pinball at alpha/2 + pinball at 1 - alpha/2).
    lower, upper = NORMAL.interval(0.8)
    low = metrics.pinball_loss(Y, lower, 0.1, reduce=False)
    high = metrics.pinball_loss(Y, upper, 0.9, reduce=False)
    scores = metrics.interval_score(Y, lower, upper, 0.8, reduce=False)
    np.testing.assert_allclose(scores, (low + high) * 2 / 0.2)
    assert metrics.interval_score(Y, lower, upper, 0.8) == pytest.approx(scores.mean())


def test_one_row_keeps_its_axis():
    assert metrics.interval_score([0.0], [-1.0], [2.0], 0.9, reduce=False).shape == (1,)
    assert metrics.crps([0.0], norm(loc=[0.0]), reduce=False).shape == (1,)
    assert metrics.crps_ensemble([0.0], [[1.0], [2.0]], reduce=False).shape == (1,)
    assert metrics.l1_distance(norm(), norm(loc=[1.0]), reduce=False).shape == (1,)


def test_log_score_matches_the_gaussian_closed_form():
    z = (Y - LOC) / SCALE
    expected = 0.5 * z**2 + np.log(SCALE) + 0.5 * np.log(2 * np.pi)
    np.testing.assert_allclose(metrics.log_score(Y, NORMAL, reduce=False), expected)
    assert metrics.log_score(Y, NORMAL) == pytest.approx(expected.mean())
    assert metrics.log_score([-1.0], gamma(1.5)) == np.inf


def test_log_score_of_the_truth_is_its_entropy():
    truth = datasets.make_gamma_0d(1, random_state=shifted(0)).truth
    law = truth.distribution(np.zeros(20_000))
    y = law.rvs(random_state=shifted(0))
    scores = metrics.log_score(y, law, reduce=False)
    standard_error = scores.std() / np.sqrt(len(y))
    assert scores.mean() == pytest.approx(truth.entropy(0.0), abs=5 * standard_error)


def test_coverage_counts_ends_as_inside():
    y = np.array([0.0, 1.0, 2.0, 3.0])
    assert metrics.coverage(y, np.full(4, 1.0), np.full(4, 2.0)) == 0.5
    assert metrics.coverage(y, np.full(4, -np.inf), np.full(4, 2.5)) == 0.75


def test_coverage_of_the_truth_is_nominal():
    n = 10_000
    data = datasets.make_wave_1d(n, random_state=shifted(0))
    lower, upper = data.truth.distribution(data.X["x"].to_numpy()).interval(0.9)
    standard_error = np.sqrt(0.9 * 0.1 / n)
    assert metrics.coverage(data.y, lower, upper) == pytest.approx(0.9, abs=5 * standard_error)


def test_pit_is_uniform_under_the_truth_only():
    # At level 1e-6, sqrt(n) D < 2.7; of Gaussians D is 0.052, and sqrt(n) D is 7.4.
    n = 20_000
    data = datasets.make_wave_1d(n, random_state=shifted(0))
    x = data.X["x"].to_numpy()
    u = metrics.pit(data.y, data.truth.distribution(x))
    assert u.shape == (n,)
    assert kstest(u, "uniform").pvalue > 1e-6
    gaussian = norm(data.truth.mean(x), data.truth.std(x))
    assert kstest(metrics.pit(data.y, gaussian), "uniform").pvalue < 1e-6


# --- what must be refused

COLUMN = Y[:, None]
Y_SHAPE = r"`y` must have shape \(N,\), N > 0; got \(5, 1\)"


@pytest.mark.parametrize(
    "call",
    [
        lambda: metrics.crps(COLUMN, NORMAL),
        lambda: metrics.crps_ensemble(COLUMN, np.zeros((3, 5))),
        lambda: metrics.pinball_loss(COLUMN, Y, 0.5),
        lambda: metrics.interval_score(COLUMN, Y, Y, 0.9),
        lambda: metrics.log_score(COLUMN, NORMAL),
        lambda: metrics.coverage(COLUMN, Y, Y),
        lambda: metrics.pit(COLUMN, NORMAL),
    ],
)
def test_a_column_of_outcomes_is_refused(call):
    with pytest.raises(ValueError, match=Y_SHAPE):
        call()


@pytest.mark.parametrize(
    ("call", "name"),
    [
        (lambda: metrics.crps(Y, norm(LOC[:, None])), "distribution.ppf"),
        (lambda: metrics.crps(Y, OwnCrps(LOC[:, None], 1.0)), r"distribution.crps\(y\)"),
        (lambda: metrics.log_score(Y, norm(LOC[:, None])), r"distribution.logpdf\(y\)"),
        (lambda: metrics.pit(Y, norm(LOC[:, None])), r"distribution.cdf\(y\)"),
        (lambda: metrics.pinball_loss(Y, COLUMN, 0.5), "quantiles"),
        (lambda: metrics.pinball_loss(Y, Y, [0.5]), "quantiles"),
        (lambda: metrics.pinball_loss(Y, np.zeros((2, 5)), [0.1, 0.9]), "quantiles"),
        (lambda: metrics.coverage(Y, COLUMN, Y), "lower"),
        (lambda: metrics.interval_score(Y, Y, COLUMN, 0.9), "upper"),
        (lambda: metrics.interval_score(Y, 0.0, Y, 0.9), "lower"),
    ],
)
def test_predictions_of_another_shape_are_refused(call, name):
    with pytest.raises(ValueError, match=f"`{name}` must have shape"):
        call()


@pytest.mark.parametrize("draws", [np.zeros((5, 3)), np.zeros(5), np.zeros((3, 5, 1))])
def test_draws_come_first(draws):
    with pytest.raises(ValueError, match=r"`draws` must have shape \(S, 5\), draws first"):
        metrics.crps_ensemble(Y, draws)


@pytest.mark.parametrize("level", [90, 0.0, 1.0, -0.1, np.nan])
def test_levels_outside_the_unit_interval_are_refused(level):
    with pytest.raises(ValueError, match=r"`levels` must lie in \(0, 1\).*not 90"):
        metrics.pinball_loss(Y, Y, level)
    with pytest.raises(ValueError, match=r"`coverage` must lie in \(0, 1\).*not 90"):
        metrics.interval_score(Y, Y, Y, level)


def test_several_coverages_or_nested_levels_are_refused():
    with pytest.raises(ValueError, match="`coverage` must be one number; got shape"):
        metrics.interval_score(Y, Y, Y, [0.5, 0.9])
    with pytest.raises(ValueError, match=r"`levels` must be a number or have shape \(Q,\)"):
        metrics.pinball_loss(Y, Y, [[0.5]])


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_outcomes_must_be_finite(bad):
    with pytest.raises(ValueError, match="`y` must be finite; got 1 NaN or infinite"):
        metrics.log_score([0.0, bad], norm())


def test_missing_or_crossed_predictions_are_refused():
    missing = np.where(Y > 2, np.nan, Y)
    with pytest.raises(ValueError, match="`lower` must not hold NaN; got 2"):
        metrics.coverage(Y, missing, Y)
    with pytest.raises(ValueError, match="`quantiles` must not hold NaN; got 2"):
        metrics.pinball_loss(Y, missing, 0.5)
    with pytest.raises(ValueError, match="`draws` must not hold NaN; got 2"):
        metrics.crps_ensemble(Y, missing[None])
    with pytest.raises(ValueError, match="`lower` must not exceed `upper`; got 5 rows"):
        metrics.coverage(Y, Y + 1, Y)
    with pytest.raises(ValueError, match="must be finite; got infinite ends"):
        metrics.interval_score(Y, np.full(5, -np.inf), Y, 0.9)


def test_empty_outcomes_are_refused():
    with pytest.raises(ValueError, match=r"N > 0; got \(0,\)"):
        metrics.coverage([], [], [])


def test_scorer_prefers_the_better_model():
    from sklearn.model_selection import cross_val_score

    from bne import BNERegressor
    from bne.datasets import make_wave_1d
    from bne.metrics import crps_scorer

    data = make_wave_1d(60, random_state=shifted(0))
    quick = {
        "inputs": ["x"],
        "calibration": None,
        "warmup": 50,
        "draws": 50,
        "random_state": shifted(0),
    }
    scores = {}
    for residual in ("matern32", None):
        model = BNERegressor([("long", "rbf_long")], residual=residual, **quick)
        scores[residual] = cross_val_score(model, data.X, data.y, scoring=crps_scorer, cv=3)
    assert np.all(np.isfinite(scores["matern32"]))
    assert np.all(scores["matern32"] < 0)
    assert scores["matern32"].mean() > scores[None].mean()
