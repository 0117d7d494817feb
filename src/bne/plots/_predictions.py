"""Pictures of predictive distributions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from bne.plots._canvas import BLUE, GREEN, GREY, RED, axes_or_new, draw_mean, sort_places

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from bne._law.distribution import PredictiveDistribution

CHANCE = 1.36
"""95% quantile of the Kolmogorov-Smirnov distance of n uniform values, times the root of n."""


def interval(
    x: ArrayLike,
    distribution: PredictiveDistribution,
    *,
    coverage: float = 0.9,
    observed: tuple[ArrayLike, ArrayLike] | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Draw the predictive mean and a central interval over one input.

    Parameters
    ----------
    x : (N,)
        The input at each row.
    distribution : PredictiveDistribution
        The prediction at the same N rows.
    coverage : float, default=0.9
        Probability that the interval holds.
    observed : pair of (n,), optional
        Inputs and outcomes, drawn as points.
    ax : Axes, optional
        Where to draw; a new one by default.
    """
    ax = axes_or_new(ax)
    x, order = sort_places(x)
    low, high = distribution.interval(coverage)
    ax.fill_between(
        x, low[order], high[order], color=BLUE, alpha=0.2, lw=0, label=f"{coverage:.0%} interval"
    )
    draw_mean(ax, x, distribution.mean()[order], observed)
    ax.legend(frameon=False)
    return ax


def density(
    distributions: dict[str, PredictiveDistribution],
    *,
    row: int = 0,
    observed: ArrayLike | None = None,
    truth: Any = None,
    ax: Axes | None = None,
) -> Axes:
    """Draw the predictive densities of several stages at one row (Figure 2 of the paper).

    Parameters
    ----------
    distributions : dict of name to PredictiveDistribution
        The names are shown in the legend.
    row : int, default=0
        The row of the distributions to draw.
    observed : (n,), optional
        Outcomes, drawn as a histogram.
    truth : frozen SciPy distribution, optional
        The true distribution at that row.
    ax : Axes, optional
        Where to draw; a new one by default.
    """
    ax = axes_or_new(ax)
    ends = [d.ppf(q)[row] for d in distributions.values() for q in (0.0005, 0.9995)]
    y = np.linspace(min(ends), max(ends), 401)
    if observed is not None:
        ax.hist(np.asarray(observed), bins=25, density=True, color=GREY, alpha=0.25, label="data")
    if truth is not None:
        ax.plot(y, np.ravel(truth.pdf(y)), color=GREY, lw=1.5, ls="--", label="truth")
    for color, (name, one) in zip((RED, GREEN, BLUE), distributions.items(), strict=False):
        ax.plot(y, one.pdf(np.tile(y, (len(one), 1)))[row], color=color, lw=2, label=name)
    ax.set(xlabel="y", ylabel="density", ylim=(0.0, None))
    ax.legend(frameon=False)
    return ax


def calibration(
    distribution: PredictiveDistribution, y: ArrayLike, *, ax: Axes | None = None
) -> Axes:
    """Draw, for every level, how many outcomes lie below the predictive quantile of that level.

    For a calibrated prediction the curve stays near the diagonal: with a probability of 95% it lies
    within the grey band.

    Parameters
    ----------
    distribution : PredictiveDistribution
        The prediction at N rows.
    y : (N,)
        Outcomes.
    ax : Axes, optional
        Where to draw; a new one by default.
    """
    ax = axes_or_new(ax)
    pit = np.sort(distribution.cdf(np.asarray(y, dtype=np.float64)))
    below = np.arange(1, len(pit) + 1) / len(pit)
    level = np.linspace(0.0, 1.0, 101)
    half = CHANCE / np.sqrt(len(pit))
    ax.fill_between(
        level,
        np.maximum(level - half, 0.0),
        np.minimum(level + half, 1.0),
        color=GREY,
        alpha=0.15,
        lw=0,
        label="95% band if calibrated",
    )
    ax.plot([0, 1], [0, 1], color=GREY, lw=1)
    ax.step(np.r_[0.0, pit, 1.0], np.r_[0.0, below, 1.0], color=BLUE, lw=2, where="post")
    ax.set(xlabel="predictive probability", ylabel="share of outcomes", xlim=(0, 1), ylim=(0, 1))
    ax.set_aspect("equal")
    ax.legend(frameon=False, loc="upper left")
    return ax
