"""Where the models are wrong, with a probability (section 3.1 of the paper).

Three differences D are reported for a statistic of y given x:

* ``D_delta`` is what the residual process delta changes. For the mean, ``D_delta = delta(x)``.
* ``D_G`` is what the calibration function G changes. For the mean,
  ``D_G = integral of Phi - G(Phi) dy = E[y|x] - mu(x)`` (Eq. 5).
* The total. For the mean, it is E[y|x] minus the experts' sum under the weights that fit E[y|x]
  best in each draw (`best_weights`).

The verdict is about the total, because the data know neither D_delta nor D_G well: delta takes up
part of what the experts could express, and for skewed noise the two have opposite signs.

The other statistics compare F(y|x) with the Gaussian law N(mu, s_y^2). Both have the same mu, so
``D_delta`` is 0 by definition. s_y is the geometric mean, over the training rows, of the standard
deviation of y in the draw. The data know s_y well. They do not know sigma_eps alone: sigma_eps and
the stretch of G together set the size of the noise.
"""

from typing import NamedTuple

import numpy as np
from scipy import special

from bne._answers.best_weights import best_weights
from bne._answers.fitted import Fitted
from bne._base.checks import check_levels
from bne._base.typing import Array
from bne._calibration.ratio import Ratio
from bne._data.rows import Rows
from bne._draws.stage import Stage
from bne._law.averaged import average_draws
from bne._law.conditional import ConditionalDraws, chunks, conditional_draws

STATISTICS = ("mean", "variance", "skewness", "modes", "median")
"""Statistics of y given x that have a name. A quantile is asked for by its level."""


class BiasDraws(NamedTuple):
    """Draws of D_delta, D_G and the total at N rows, in the unit of the statistic: (S, N) each."""

    delta: Array
    G: Array
    total: Array


class BiasSummary(NamedTuple):
    """Posterior of a difference D at N rows.

    Attributes
    ----------
    mean : (N,)
        Posterior mean of D.
    lower, upper : (N,)
        Ends of the central posterior interval of D.
    prob_positive : (N,)
        P(D > 0), the share of draws above zero. Draws equal to zero count half.
    """

    mean: Array
    lower: Array
    upper: Array
    prob_positive: Array

    @property
    def evidence(self) -> Array:
        """``2 |P(D > 0) - 1/2|``: 0 means that the sign is unknown, 1 that it is certain."""
        return 2.0 * np.abs(self.prob_positive - 0.5)


def check_statistic(statistic: str | float) -> str | float:
    """Return the statistic if it is one of `STATISTICS` or a level in (0, 1); else raise."""
    if isinstance(statistic, str):
        if statistic in STATISTICS:
            return statistic
    elif 0 < statistic < 1:
        return float(statistic)
    raise ValueError(
        f"`statistic` must be one of {list(STATISTICS)} or a quantile level in (0, 1); got "
        f"{statistic!r}. Pass 0.9 for the 90% quantile."
    )


def bias(
    fitted: Fitted, rows: Rows, statistic: str | float, coverage: float
) -> tuple[BiasSummary, BiasSummary, BiasSummary]:
    """Summarise D_delta, D_G and the total at N rows, in chunks, averaged over shards."""
    check_levels(coverage, "coverage")
    stages, train = fitted.thinned("full"), fitted.posterior.rows
    y_scale = fitted.scaling.y_scale
    weights = [best_weights(stage, train) if statistic == "mean" else None for stage in stages]
    pieces = []
    for part in chunks(len(rows.f), stages[0].row_elements * stages[0].draws.size):
        shards = [
            bias_draws(stage, rows.part(part), w, statistic, y_scale)
            for stage, w in zip(stages, weights, strict=True)
        ]
        # a mean of numbers of modes need not be a number of modes: pool the draws of all shards
        join = np.concatenate if statistic == "modes" else average_draws
        averaged = (join(d) for d in zip(*shards, strict=True))
        pieces.append([summarise_bias(d, coverage) for d in averaged])
    delta, G, total = (
        BiasSummary(*(np.concatenate(field) for field in zip(*summaries, strict=True)))
        for summaries in zip(*pieces, strict=True)
    )
    return delta, G, total


def bias_draws(
    stage: Stage, rows: Rows, weights: Array | None, statistic: str | float, y_scale: float
) -> BiasDraws:
    """Find D_delta, D_G and the total in every draw (Eq. 5).

    Parameters
    ----------
    weights : (S, K) array or None
        The best weights of each draw. None for every statistic but the mean: then ``D_delta`` is 0
        and the total is ``D_G``.
    """
    here, calibration = conditional_draws(stage, rows), stage.draws.calibration
    stretch = np.ones(1) if calibration is None else calibration.stretch
    # the statistic has the unit of y to this power
    power = {"variance": 2, "skewness": 0, "modes": 0}.get(str(statistic), 1)
    G = _changed_by_G(here, stretch[:, None], statistic) * y_scale**power
    if weights is None:
        return BiasDraws(np.zeros_like(G), G, G)
    best = weights @ rows.f.T
    return BiasDraws(y_scale * stage.value("residual", rows), G, y_scale * (here.mu - best) + G)


def _changed_by_G(draws: ConditionalDraws, stretch: Array, statistic: str | float) -> Array:
    """Find D_G in every draw, in the model's units: (S, n)."""
    ratio, sigma = draws.ratio, draws.sigma_eps[:, None]
    if ratio is None:
        return np.zeros_like(draws.mu)
    if statistic == "mean":
        return sigma * ratio.moments.mean
    if statistic == "variance":
        return sigma**2 * (ratio.moments.variance - stretch**2)
    if statistic == "skewness":
        return ratio.moments.skewness
    if statistic == "modes":
        return number_of_modes(ratio) - 1.0
    level = 0.5 if statistic == "median" else float(statistic)
    S, n = draws.mu.shape
    draw, row = np.indices((S, n))
    quantile = ratio.ppf(np.full((S, n), level), draw, row)
    return sigma * (quantile - stretch * special.ndtri(level))


def number_of_modes(ratio: Ratio) -> Array:
    """Count the maxima of the density of t, among the nodes of its table, in every draw: (S, n).

    Maxima below 1% of the highest one do not count: they are ripples in the tails.
    """
    p = ratio.tables.nodes[..., 0]
    inner = p[:, :, 1:-1]
    peak = (inner > p[:, :, :-2]) & (inner >= p[:, :, 2:])
    return np.sum(peak & (inner > 0.01 * np.max(p, axis=2, keepdims=True)), axis=2)


def summarise_bias(draws: Array, coverage: float) -> BiasSummary:
    """Find the mean, the central interval and P(D > 0) from draws (S, N)."""
    tail = 0.5 * (1.0 - coverage)
    lower, upper = np.quantile(draws, [tail, 1.0 - tail], axis=0)
    positive = np.mean(draws > 0, axis=0) + 0.5 * np.mean(draws == 0, axis=0)
    return BiasSummary(np.mean(draws, axis=0), lower, upper, positive)
