"""Whole figures of six panels: the paper's Figures 3 and 5."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from bne.plots._answers import bands, bias
from bne.plots._canvas import GREY, RED, draw_map, draw_mean_map, panels, sort_places

if TYPE_CHECKING:
    from matplotlib.axes import Axes

TITLES = {
    "ensemble": "(a) original ensemble",
    "additive": "(b) + residual process δ",
    "full": "(c) full model",
}
"""Titles of the stages' panels."""


def stages(
    model: Any,
    X: Any,
    x: ArrayLike,
    observed: tuple[ArrayLike, ArrayLike],
    *,
    truth: Any = None,
) -> np.ndarray:
    """Draw the six panels of the paper's Figure 3 and return their Axes, (2, 3).

    The upper panels show the uncertainty of each stage in nested bands. The lower panels show the
    probability that the models are too low, the probability that the noise is larger than in the
    Gaussian fit, and the data with the truth.

    Parameters
    ----------
    model : fitted BNERegressor
    X : DataFrame or array with N rows
        The rows to predict.
    x : (N,)
        The input at each row.
    observed : pair of (n,)
        Training inputs and outcomes.
    truth : frozen SciPy distribution with parameters (N,), optional
    """
    figure, axes = panels(2, 3)
    for ax, (stage, title) in zip(axes[0], TITLES.items(), strict=True):
        parts = model.decompose(X, measure="variance", stage=stage)
        bands(x, parts, observed=observed, ax=ax)
        ax.set_title(title)
    limits = [ax.get_ylim() for ax in axes[0]]
    low, high = min(a for a, _ in limits), max(b for _, b in limits)
    bias(x, model.detect_bias(X), ax=axes[1, 0])
    axes[1, 0].set_title("(d) models too low?")
    bias(x, model.detect_bias(X, statistic="variance"), of="G", ax=axes[1, 1])
    axes[1, 1].set_title("(e) noise larger than Gaussian fit?")
    _draw_data(axes[1, 2], x, observed, truth)
    for ax in (*axes[0], axes[1, 2]):
        ax.set_ylim(low, high)
    _common_legend(figure, axes[0, 0])
    return axes


def _draw_data(ax: Axes, x: ArrayLike, observed: tuple[ArrayLike, ArrayLike], truth: Any) -> None:
    """Draw the observations, and the true mean and 90% interval if they are known."""
    ax.plot(*map(np.asarray, observed), ".", color=RED, ms=4)
    if truth is not None:
        places, order = sort_places(x)
        ax.plot(places, truth.mean()[order], color=GREY, lw=1.5, label="true mean")
        ends = [truth.ppf(q)[order] for q in (0.05, 0.95)]
        ax.fill_between(places, *ends, color=GREY, alpha=0.2, lw=0, label="true 90% band")
        ax.legend(frameon=False)
    ax.set(xlabel="x", title="(f) data")


def _common_legend(figure: Any, ax: Axes) -> None:
    """Put one legend below all panels, with the bands named from the inner to the outer one."""
    handles, labels = ax.get_legend_handles_labels()
    inside_out = [2, 1, 0, *range(3, len(labels))]
    handles, labels = ([a[i] for i in inside_out] for a in (handles, labels))
    figure.legend(handles, labels, loc="outside lower center", ncols=5, frameon=False)


def maps(
    model: Any,
    X: Any,
    x: ArrayLike,
    *,
    observed: tuple[ArrayLike, ArrayLike] | None = None,
    of: str = "total",
) -> np.ndarray:
    """Draw six maps and return their Axes, (2, 3).

    They are the four maps of the paper's Figure 5 (predictive mean, total variance, its parametric
    and its structural part δ), the structural part that belongs to G, and P(D > 0).

    Parameters
    ----------
    model : fitted BNERegressor with two inputs
    X : DataFrame or array with N rows
        The rows to predict.
    x : (N, 2)
        The places of these rows. If this is a DataFrame, its columns name the axes.
    observed : pair of (n, 2) places and (n,) outcomes, optional
        Drawn on the first map in the same colours.
    of : {"total", "delta", "G"}
        Which of the report's differences D is.
    """
    figure, axes = panels(2, 3)
    across, up = getattr(x, "columns", ("", ""))
    figure.supxlabel(across)
    figure.supylabel(up)
    x = np.asarray(x, dtype=np.float64)
    parts = model.decompose(X, measure="variance")
    draw_mean_map(axes[0, 0], x, parts.mean, observed)
    values = {
        "total variance": parts.total,
        "parametric": parts.parametric,
        "structural δ": parts.structural_delta,
        "structural G": parts.structural_G,
    }
    for ax, (title, value) in zip(axes.flat[1:5], values.items(), strict=True):
        draw_map(ax, x, value, "squared units of y", diverging=title == "structural G")
        ax.set_title(title)
    bias(x, model.detect_bias(X), of=of, ax=axes[1, 2])
    axes[1, 2].set_title("models too low?")
    return axes
