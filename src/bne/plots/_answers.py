"""Pictures of the answers: parts of the uncertainty, bias, weights."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from bne.plots._canvas import (
    BLUE,
    GREEN,
    GREY,
    RED,
    axes_or_new,
    draw_map,
    draw_mean,
    is_map,
    sort_places,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from bne._answers.reports import BiasReport, Decomposition

LABELS = {
    "total": "total",
    "aleatoric": "aleatoric (noise)",
    "epistemic": "epistemic (all that data could reduce)",
    "parametric": "parametric (weights of the models)",
    "structural_delta": "structural δ (all models wrong)",
    "structural_G": "structural G (shape of the noise)",
    "hyperparameters": "hyperparameters",
}
"""Titles of the parts of a decomposition."""


def bands(
    x: ArrayLike,
    decomposition: Decomposition,
    *,
    coverage: float = 0.9,
    observed: tuple[ArrayLike, ArrayLike] | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Draw the predictive mean and three nested bands around it.

    The inner band is the parametric part of the uncertainty, the middle one the epistemic part, the
    outer one the total.

    Parameters
    ----------
    x : (N,)
        The input at each row.
    decomposition : Decomposition
        At the same N rows, with ``measure="variance"``.
    coverage : float, default=0.9
        Probability that each band would hold if its part were the only uncertainty.
    observed : pair of (n,), optional
        Inputs and outcomes, drawn as points.
    ax : Axes, optional
        Where to draw; a new one by default.
    """
    ax = axes_or_new(ax)
    x, order = sort_places(x)
    table = decomposition.bands(coverage).iloc[order]
    names = {"total": "+ aleatoric", "epistemic": "+ structural", "parametric": "parametric"}
    for color, (name, label) in zip((GREY, BLUE, RED), names.items(), strict=True):
        lower, upper = table[name, "lower"], table[name, "upper"]
        ax.fill_between(x, lower, upper, color=color, alpha=0.3, lw=0, label=label)
    draw_mean(ax, x, decomposition.mean[order], observed)
    return ax


def part(
    x: ArrayLike, decomposition: Decomposition, name: str = "total", *, ax: Axes | None = None
) -> Axes:
    """Draw one part of a decomposition: a curve over one input, a map over two.

    The band around a curve is two Monte-Carlo standard errors wide on each side.

    Parameters
    ----------
    x : (N,) or (N, 2)
        The inputs at each row.
    decomposition : Decomposition
        At the same N rows.
    name : str
        Name of the part, for example ``"structural_delta"``.
    ax : Axes, optional
        Where to draw; a new one by default.
    """
    if name not in LABELS:
        raise ValueError(f"`name` must be one of {list(LABELS)}; got {name!r}.")
    ax = axes_or_new(ax)
    values = getattr(decomposition, name)
    unit = "nats" if decomposition.measure == "entropy" else "squared units of y"
    x = np.asarray(x, dtype=np.float64)
    if is_map(x):
        draw_map(ax, x, values, unit, diverging=bool(np.min(values) < 0))
    else:
        x, order = sort_places(x)
        error = 2.0 * decomposition.errors[name][order]
        ax.plot(x, values[order], color=BLUE, lw=2)
        ax.fill_between(
            x, values[order] - error, values[order] + error, color=BLUE, alpha=0.2, lw=0
        )
        ax.axhline(0.0, color=GREY, lw=0.5)
        ax.set(xlabel="x", ylabel=unit)
    ax.set_title(LABELS[name])
    return ax


def bias(x: ArrayLike, report: BiasReport, *, of: str = "total", ax: Axes | None = None) -> Axes:
    """Draw the probability P(D > 0) of a bias: a curve over one input, a map over two.

    Parameters
    ----------
    x : (N,) or (N, 2)
        The inputs at each row.
    report : BiasReport
        At the same N rows.
    of : {"total", "delta", "G"}
        Which of the report's differences D is.
    ax : Axes, optional
        Where to draw; a new one by default.
    """
    ax = axes_or_new(ax)
    probability = getattr(report, of).prob_positive
    x = np.asarray(x, dtype=np.float64)
    symbol = {"delta": "D_δ", "G": "D_G", "total": "D"}[of]
    label = f"P({symbol} > 0), {report.statistic}"
    if is_map(x):
        draw_map(ax, x, probability, label, diverging=True, limits=(0.0, 1.0))
    else:
        x, order = sort_places(x)
        ax.axhspan(report.threshold, 1.0, color=GREEN, alpha=0.15, lw=0)
        ax.axhspan(0.0, 1.0 - report.threshold, color=RED, alpha=0.15, lw=0)
        ax.plot(x, probability[order], color=BLUE, lw=2)
        ax.set(xlabel="x", ylabel=label, ylim=(0.0, 1.0))
    return ax


def weights(table: Any, *, ax: Axes | None = None) -> Axes:
    """Draw the weights of the models: posterior means and intervals.

    Parameters
    ----------
    table : DataFrame
        What `BNERegressor.explain_weights` returns.
    ax : Axes, optional
        Where to draw; a new one by default.
    """
    ax = axes_or_new(ax)
    position = np.arange(len(table))[::-1]
    ax.hlines(position, table["lower"], table["upper"], color=BLUE, lw=3, alpha=0.5)
    ax.plot(table["mean"], position, "o", color=BLUE)
    ax.axvline(0.0, color=GREY, lw=0.8)
    ax.set_yticks(position, [str(name) for name in table.index])
    ax.set(xlabel="weight, posterior mean and interval", ylim=(-0.6, len(table) - 0.4))
    return ax
