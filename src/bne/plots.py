"""Pictures of a fitted model: one function each, which draws into an Axes and returns it.

Needs matplotlib. Inputs of one column are drawn as curves, of two as
maps. `stages` and `maps` compose the paper's Figures 3 and 5.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from bne._answers.reports import BiasReport, Decomposition
    from bne._law.distribution import PredictiveDistribution

__all__ = [
    "bands",
    "bias",
    "calibration",
    "density",
    "interval",
    "maps",
    "part",
    "stages",
    "weights",
]

BLUE, GREY, RED, GREEN = "#0072b2", "#555555", "#d55e00", "#009e73"
LABELS = {
    "total": "total",
    "aleatoric": "aleatoric (noise)",
    "epistemic": "epistemic (all that data could reduce)",
    "parametric": "parametric (weights of the models)",
    "structural_delta": "structural δ (all models wrong)",
    "structural_G": "structural G (shape of the noise)",
    "hyperparameters": "hyperparameters",
}


def interval(
    x: ArrayLike,
    distribution: PredictiveDistribution,
    *,
    coverage: float = 0.9,
    observed: tuple[ArrayLike, ArrayLike] | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Draw the predictive mean and its central interval over one input.

    Parameters
    ----------
    x : (N,)
    distribution : PredictiveDistribution at the same N rows
    observed : pair of (n,), optional
        Inputs and outcomes to draw as points.
    """
    ax = _axes(ax)
    x, order = _sorted(x)
    low, high = distribution.interval(coverage)
    ax.fill_between(
        x, low[order], high[order], color=BLUE, alpha=0.2, lw=0, label=f"{coverage:.0%} interval"
    )
    _mean_and_points(ax, x, distribution.mean()[order], observed)
    ax.legend(frameon=False)
    return ax


def bands(
    x: ArrayLike,
    decomposition: Decomposition,
    *,
    coverage: float = 0.9,
    observed: tuple[ArrayLike, ArrayLike] | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Draw the predictive mean with nested bands: parametric, all that is epistemic, total.

    Parameters
    ----------
    x : (N,)
    decomposition : Decomposition with ``measure="variance"`` at the same N rows
    observed : pair of (n,), optional
        Inputs and outcomes to draw as points.
    """
    ax = _axes(ax)
    x, order = _sorted(x)
    table = decomposition.bands(coverage).iloc[order]
    names = {"total": "+ aleatoric", "epistemic": "+ structural", "parametric": "parametric"}
    for color, (name, label) in zip((GREY, BLUE, RED), names.items(), strict=True):
        lower, upper = table[name, "lower"], table[name, "upper"]
        ax.fill_between(x, lower, upper, color=color, alpha=0.3, lw=0, label=label)
    _mean_and_points(ax, x, decomposition.mean[order], observed)
    return ax


def stages(
    model: Any,
    X: Any,
    x: ArrayLike,
    observed: tuple[ArrayLike, ArrayLike],
    *,
    truth: Any = None,
) -> np.ndarray:
    """Draw the six panels of the paper's Figure 3: (2, 3) Axes.

    Above, the uncertainty of each stage in nested bands. Below, the probability that the models are
    too low, that the noise is larger than the Gaussian fit, and the data beside the truth.

    Parameters
    ----------
    model : fitted BNERegressor
    X : N rows to predict, and x : (N,) their places on the axis
    observed : pair of (n,)
        Training inputs and outcomes.
    truth : SciPy frozen distribution with parameters (N,), optional
    """
    figure, axes = _panels(2, 3)
    titles = {
        "ensemble": "(a) original ensemble",
        "additive": "(b) + residual process δ",
        "full": "(c) full model",
    }
    for ax, (stage, title) in zip(axes[0], titles.items(), strict=True):
        parts = model.decompose(X, measure="variance", stage=stage)
        bands(x, parts, observed=observed, ax=ax)
        ax.set_title(title)
    limits = [ax.get_ylim() for ax in axes[0]]
    low, high = min(a for a, _ in limits), max(b for _, b in limits)
    bias(x, model.detect_bias(X), ax=axes[1, 0])
    axes[1, 0].set_title("(d) models too low?")
    bias(x, model.detect_bias(X, statistic="variance"), of="G", ax=axes[1, 1])
    axes[1, 1].set_title("(e) noise larger than Gaussian fit?")
    data = axes[1, 2]
    data.plot(*map(np.asarray, observed), ".", color=RED, ms=4)
    if truth is not None:
        where, order = _sorted(x)
        data.plot(where, truth.mean()[order], color=GREY, lw=1.5, label="true mean")
        ends = [truth.ppf(q)[order] for q in (0.05, 0.95)]
        data.fill_between(where, *ends, color=GREY, alpha=0.2, lw=0, label="true 90% band")
        data.legend(frameon=False)
    data.set(xlabel="x", title="(f) data")
    for ax in (*axes[0], data):
        ax.set_ylim(low, high)
    handles, labels = axes[0, 0].get_legend_handles_labels()
    inside_out = [2, 1, 0, *range(3, len(labels))]
    handles, labels = ([a[i] for i in inside_out] for a in (handles, labels))
    figure.legend(handles, labels, loc="outside lower center", ncols=5, frameon=False)
    return axes


def maps(
    model: Any,
    X: Any,
    x: ArrayLike,
    *,
    observed: tuple[ArrayLike, ArrayLike] | None = None,
    of: str = "total",
) -> np.ndarray:
    """Draw the four maps of the paper's Figure 5 and that of P(D > 0): (2, 3) Axes.

    The sixth panel holds the structural part that belongs to G.

    Parameters
    ----------
    model : fitted BNERegressor with two inputs
    X : N rows to predict, and x : (N, 2) their places
        The columns of a frame name the axes.
    observed : pair of (n, 2) places and (n,) outcomes, optional
        Drawn on the first map in the same colours.
    of : {"total", "delta", "G"}
        Which of the report's differences D is.
    """
    figure, axes = _panels(2, 3)
    across, up = getattr(x, "columns", ("", ""))
    figure.supxlabel(across)
    figure.supylabel(up)
    x = np.asarray(x, dtype=np.float64)
    parts = model.decompose(X, measure="variance")
    _mean_map(axes[0, 0], x, parts.mean, observed)
    values = {
        "total variance": parts.total,
        "parametric": parts.parametric,
        "structural δ": parts.structural_delta,
        "structural G": parts.structural_G,
    }
    for ax, (title, value) in zip(axes.flat[1:5], values.items(), strict=True):
        _map(ax, x, value, "squared units of y", diverging=title == "structural G")
        ax.set_title(title)
    bias(x, model.detect_bias(X), of=of, ax=axes[1, 2])
    axes[1, 2].set_title("models too low?")
    return axes


def part(
    x: ArrayLike, decomposition: Decomposition, name: str = "total", *, ax: Axes | None = None
) -> Axes:
    """Draw one part of a decomposition: a curve over one input, a map over two.

    Parameters
    ----------
    x : (N,) or (N, 2)
    name : a part's name, for example ``"structural_delta"``
    """
    if name not in LABELS:
        raise ValueError(f"`name` must be one of {list(LABELS)}; got {name!r}.")
    ax = _axes(ax)
    values = getattr(decomposition, name)
    unit = "nats" if decomposition.measure == "entropy" else "squared units of y"
    x = np.asarray(x, dtype=np.float64)
    if x.ndim == 2 and x.shape[1] == 2:
        _map(ax, x, values, unit, diverging=bool(np.min(values) < 0))
    else:
        x, order = _sorted(x)
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
    """Draw P(D > 0) of ``total``, ``delta`` or ``G``: a curve over one input, a map over two."""
    ax = _axes(ax)
    probability = getattr(report, of).prob_positive
    x = np.asarray(x, dtype=np.float64)
    symbol = {"delta": "D_δ", "G": "D_G", "total": "D"}[of]
    label = f"P({symbol} > 0), {report.statistic}"
    if x.ndim == 2 and x.shape[1] == 2:
        _map(ax, x, probability, label, diverging=True, limits=(0.0, 1.0))
    else:
        x, order = _sorted(x)
        ax.axhspan(report.threshold, 1.0, color=GREEN, alpha=0.15, lw=0)
        ax.axhspan(0.0, 1.0 - report.threshold, color=RED, alpha=0.15, lw=0)
        ax.plot(x, probability[order], color=BLUE, lw=2)
        ax.set(xlabel="x", ylabel=label, ylim=(0.0, 1.0))
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
    observed : (n,), optional
        Outcomes, drawn as a histogram.
    truth : SciPy frozen distribution, optional
    """
    ax = _axes(ax)
    ends = [d.ppf(q)[row] for d in distributions.values() for q in (0.0005, 0.9995)]
    y = np.linspace(min(ends), max(ends), 401)
    if observed is not None:
        ax.hist(np.asarray(observed), bins=25, density=True, color=GREY, alpha=0.25, label="data")
    if truth is not None:
        ax.plot(y, np.ravel(truth.pdf(y)), color=GREY, lw=1.5, ls="--", label="truth")
    for color, (name, law) in zip((RED, GREEN, BLUE), distributions.items(), strict=False):
        ax.plot(y, law.pdf(np.tile(y, (len(law), 1)))[row], color=color, lw=2, label=name)
    ax.set(xlabel="y", ylabel="density", ylim=(0.0, None))
    ax.legend(frameon=False)
    return ax


def calibration(
    distribution: PredictiveDistribution, y: ArrayLike, *, ax: Axes | None = None
) -> Axes:
    """Draw the share of outcomes below each predictive quantile, with a 95% band for chance."""
    ax = _axes(ax)
    pit = np.sort(distribution.cdf(np.asarray(y, dtype=np.float64)))
    share = np.arange(1, len(pit) + 1) / len(pit)
    level = np.linspace(0.0, 1.0, 101)
    half = 1.36 / np.sqrt(len(pit))  # Kolmogorov-Smirnov
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
    ax.step(np.r_[0.0, pit, 1.0], np.r_[0.0, share, 1.0], color=BLUE, lw=2, where="post")
    ax.set(xlabel="predictive probability", ylabel="share of outcomes", xlim=(0, 1), ylim=(0, 1))
    ax.set_aspect("equal")
    ax.legend(frameon=False, loc="upper left")
    return ax


def weights(table: Any, *, ax: Axes | None = None) -> Axes:
    """Draw the table of `BNERegressor.explain_weights`: means and intervals."""
    ax = _axes(ax)
    position = np.arange(len(table))[::-1]
    ax.hlines(position, table["lower"], table["upper"], color=BLUE, lw=3, alpha=0.5)
    ax.plot(table["mean"], position, "o", color=BLUE)
    ax.axvline(0.0, color=GREY, lw=0.8)
    ax.set_yticks(position, [str(name) for name in table.index])
    ax.set(xlabel="weight, posterior mean and interval", ylim=(-0.6, len(table) - 0.4))
    return ax


def _mean_and_points(
    ax: Axes, x: np.ndarray, mean: np.ndarray, observed: tuple[ArrayLike, ArrayLike] | None
) -> None:
    """Draw the predictive mean, and observations if there are any."""
    ax.plot(x, mean, color=BLUE, lw=2, label="predictive mean")
    if observed is not None:
        ax.plot(*map(np.asarray, observed), ".", color=RED, ms=4, label="observations")
    ax.set(xlabel="x", ylabel="y")


def _mean_map(
    ax: Axes, x: np.ndarray, mean: np.ndarray, observed: tuple[ArrayLike, ArrayLike] | None
) -> None:
    """Map the predictive mean, with observations in the same colours."""
    places, y = (np.empty((0, 2)), np.empty(0)) if observed is None else map(np.asarray, observed)
    both = np.concatenate([mean, y])
    limits = float(np.min(both)), float(np.max(both))
    drawn = _map(ax, x, mean, "y", diverging=False, limits=limits)
    style = {"cmap": drawn.cmap, "norm": drawn.norm, "edgecolors": "black", "linewidths": 0.5}
    ax.scatter(*places.T, c=y, s=25, **style)
    ax.set_title("predictive mean")


def _axes(ax: Axes | None) -> Axes:
    if ax is not None:
        return ax
    import matplotlib.pyplot as plt

    return plt.subplots(layout="constrained")[1]


def _panels(rows: int, columns: int) -> tuple[Any, np.ndarray]:
    import matplotlib.pyplot as plt

    size = (4.4 * columns, 3.6 * rows)
    return plt.subplots(rows, columns, figsize=size, layout="constrained")


def _sorted(x: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
    flat = np.asarray(x, dtype=np.float64)
    if flat.ndim == 2 and flat.shape[1] == 1:
        flat = flat[:, 0]
    if flat.ndim != 1:
        raise ValueError(
            f"`x` must have shape (N,) for a curve or (N, 2) for a map; got {flat.shape}. Pick the "
            "columns to draw over."
        )
    order = np.argsort(flat, kind="stable")
    return flat[order], order


def _map(
    ax: Axes,
    x: np.ndarray,
    values: np.ndarray,
    label: str,
    *,
    diverging: bool,
    limits: Sequence[float] | None = None,
) -> Any:
    """Fill a regular grid with cells; draw scattered places as points.

    Without limits, colours span all but the 0.5% of the places at either end: one far corner would
    leave the rest in one colour.
    """
    beyond = 0
    if limits is None:
        ordered = np.sort(values[np.isfinite(values)])
        beyond = len(ordered) // 200
        limits = float(ordered[beyond]), float(ordered[-1 - beyond])
        if diverging:
            limits = -max(np.abs(limits)), max(np.abs(limits))
    colors = "RdBu_r" if diverging else "viridis"
    style = {"cmap": colors, "vmin": limits[0], "vmax": limits[1]}
    columns, rows = np.unique(x[:, 0]), np.unique(x[:, 1])
    if len(columns) * len(rows) == len(x):
        order = np.lexsort((x[:, 0], x[:, 1]))
        cells = values[order].reshape(len(rows), len(columns))
        drawn = ax.pcolormesh(columns, rows, cells, shading="nearest", **style)
    else:
        size = float(np.clip(6e4 / len(x), 4.0, 25.0))
        crowded = size < 25.0
        style |= {"marker": "s", "linewidths": 0.0} if crowded else {"linewidths": 0.3}
        drawn = ax.scatter(*x.T, c=values, s=size, edgecolors=GREY, **style)
    extend = "both" if beyond else "neither"
    colorbar = ax.figure.colorbar(drawn, ax=ax, shrink=0.85, extend=extend)
    colorbar.set_label(label)
    return drawn
