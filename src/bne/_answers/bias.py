"""Where the models are wrong, with a probability (section 3.1 of the paper).

``D_delta`` is what delta changes about a statistic of y given x, ``D_G`` what G changes. For the
mean, ``D_delta = delta(x)`` and ``D_G = integral of Phi - G(Phi) dy = E[y|x] - mu(x)`` (Eq. 5).
Neither is known well: for skewed noise they have opposite signs, and delta takes up some of what
the experts could say. The total is: what E[y|x] differs by from the experts under the weights that
suit each draw best (`Stage.best_weights`).

Other statistics compare F(y|x) with the Gaussian law N(mu, s^2), and delta has no part in them; s
is the rows' typical standard deviation of y, which is known, where sigma_eps is known only together
with the stretch of G.
"""

from typing import NamedTuple

import numpy as np
from scipy import special

from bne._answers.best_weights import best_weights
from bne._answers.fitted import Fitted
from bne._base.typing import Array
from bne._calibration.ratio import Ratio
from bne._data.rows import Rows
from bne._draws.stage import Stage
from bne._law.averaged import average_draws
from bne._law.conditional import ConditionalDraws, chunks, conditional_draws

STATISTICS = ("mean", "variance", "skewness", "modes", "median")


class BiasDraws(NamedTuple):
    """Draws of D_delta, D_G and the total at N rows, in units of the statistic: (S, N) each."""

    delta: Array
    G: Array
    total: Array


class BiasSummary(NamedTuple):
    """Posterior of a difference D at N rows; all (N,).

    ``prob_positive`` is P(D > 0), where draws equal to zero count half.
    """

    mean: Array
    lower: Array
    upper: Array
    prob_positive: Array

    @property
    def evidence(self) -> Array:
        """``2 |P(D > 0) - 1/2|``: 0 says nothing, 1 says that the sign is certain."""
        return 2.0 * np.abs(self.prob_positive - 0.5)


def check_statistic(statistic: str | float) -> str | float:
    """A name of `STATISTICS`, or a quantile level in (0, 1)."""
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
    """Posterior of D_delta, D_G and the total at N rows, in chunks, averaged over shards."""
    stages, train = fitted.thinned("full"), fitted.posterior.rows
    y_scale = fitted.scaling.y_scale
    weights = [best_weights(stage, train) if statistic == "mean" else None for stage in stages]
    pieces = []
    for part in chunks(len(rows.f), stages[0].row_elements * stages[0].draws.size):
        shards = [
            bias_draws(stage, rows.part(part), w, statistic, y_scale)
            for stage, w in zip(stages, weights, strict=True)
        ]
        # a number of modes has no averages between two numbers: draws of all shards count alike
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
    """D_delta, D_G and the total in every draw; the mean's total is under these weights."""
    here, calibration = conditional_draws(stage, rows), stage.draws.calibration
    stretch = np.ones(1) if calibration is None else calibration.stretch
    power = {"variance": 2, "skewness": 0, "modes": 0}.get(str(statistic), 1)
    G = _changed_by_G(here, stretch[:, None], statistic) * y_scale**power
    if weights is None:
        return BiasDraws(np.zeros_like(G), G, G)
    best = weights @ rows.f.T
    return BiasDraws(y_scale * stage.value("residual", rows), G, y_scale * (here.mu - best) + G)


def _changed_by_G(draws: ConditionalDraws, stretch: Array, statistic: str | float) -> Array:
    """D_G of every draw, in the model's units: (S, n)."""
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
    """Maxima of the density of t on the nodes; those below 1% of the highest do not count."""
    p = ratio.tables.nodes[..., 0]
    inner = p[:, :, 1:-1]
    peak = (inner > p[:, :, :-2]) & (inner >= p[:, :, 2:])
    return np.sum(peak & (inner > 0.01 * np.max(p, axis=2, keepdims=True)), axis=2)


def summarise_bias(draws: Array, coverage: float) -> BiasSummary:
    """Mean, central interval and P(D > 0) of draws (S, N)."""
    tail = 0.5 * (1.0 - coverage)
    lower, upper = np.quantile(draws, [tail, 1.0 - tail], axis=0)
    positive = np.mean(draws > 0, axis=0) + 0.5 * np.mean(draws == 0, axis=0)
    return BiasSummary(np.mean(draws, axis=0), lower, upper, positive)
