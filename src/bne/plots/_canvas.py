"""What the pictures share: colours, axes, the order of a curve's points, and maps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

if TYPE_CHECKING:
    from matplotlib.axes import Axes

BLUE, GREY, RED, GREEN = "#0072b2", "#555555", "#d55e00", "#009e73"

LARGEST = 25.0
"""Size of a point where there are few of them; where there are many, points are smaller."""


def axes_or_new(ax: Axes | None) -> Axes:
    """Return the given Axes, or a new one."""
    if ax is not None:
        return ax
    import matplotlib.pyplot as plt

    return plt.subplots(layout="constrained")[1]


def panels(rows: int, columns: int) -> tuple[Any, np.ndarray]:
    """Return a new figure and its Axes, (rows, columns)."""
    import matplotlib.pyplot as plt

    size = (4.4 * columns, 3.6 * rows)
    return plt.subplots(rows, columns, figsize=size, layout="constrained")


def is_map(x: np.ndarray) -> bool:
    """Say whether the places have two inputs."""
    return x.ndim == 2 and x.shape[1] == 2


def sort_places(x: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
    """Return the places of a curve in increasing order, and that order: (N,) each."""
    flat = np.asarray(x, dtype=np.float64)
    if flat.ndim == 2 and flat.shape[1] == 1:
        flat = flat[:, 0]
    if flat.ndim != 1:
        raise ValueError(
            f"`x` must have shape (N,) for a curve or (N, 2) for a map; got {flat.shape}. Pass one "
            "or two of its columns."
        )
    order = np.argsort(flat, kind="stable")
    return flat[order], order


def draw_mean(
    ax: Axes, x: np.ndarray, mean: np.ndarray, observed: tuple[ArrayLike, ArrayLike] | None
) -> None:
    """Draw the predictive mean as a curve, and the observations if there are any."""
    ax.plot(x, mean, color=BLUE, lw=2, label="predictive mean")
    if observed is not None:
        ax.plot(*map(np.asarray, observed), ".", color=RED, ms=4, label="observations")
    ax.set(xlabel="x", ylabel="y")


def draw_mean_map(
    ax: Axes, x: np.ndarray, mean: np.ndarray, observed: tuple[ArrayLike, ArrayLike] | None
) -> None:
    """Draw a map of the predictive mean, and observations in the same colours."""
    places, y = (np.empty((0, 2)), np.empty(0)) if observed is None else map(np.asarray, observed)
    both = np.concatenate([mean, y])
    limits = float(np.min(both)), float(np.max(both))
    drawn = draw_map(ax, x, mean, "y", diverging=False, limits=limits)
    style = {"cmap": drawn.cmap, "norm": drawn.norm, "edgecolors": "black", "linewidths": 0.5}
    ax.scatter(*places.T, c=y, s=LARGEST, **style)
    ax.set_title("predictive mean")


def draw_map(
    ax: Axes,
    x: np.ndarray,
    values: np.ndarray,
    label: str,
    *,
    diverging: bool,
    limits: Sequence[float] | None = None,
) -> Any:
    """Draw values at places (N, 2): cells where the places form a grid, points where they do not.

    `limits` are the values at the two ends of the colours. By default the 0.5% of the places with
    the lowest values and the 0.5% with the highest lie beyond the ends: otherwise one extreme place
    would leave all others in one colour.
    """
    beyond = 0
    if limits is None:
        limits, beyond = _colour_limits(values, diverging)
    style = {
        "cmap": "RdBu_r" if diverging else "viridis",
        "vmin": limits[0],
        "vmax": limits[1],
    }
    columns, rows = np.unique(x[:, 0]), np.unique(x[:, 1])
    if len(columns) * len(rows) == len(x):
        order = np.lexsort((x[:, 0], x[:, 1]))
        cells = values[order].reshape(len(rows), len(columns))
        drawn = ax.pcolormesh(columns, rows, cells, shading="nearest", **style)
    else:
        size = float(np.clip(6e4 / len(x), 4.0, LARGEST))
        crowded = size < LARGEST
        style |= {"marker": "s", "linewidths": 0.0} if crowded else {"linewidths": 0.3}
        drawn = ax.scatter(*x.T, c=values, s=size, edgecolors=GREY, **style)
    extend = "both" if beyond else "neither"
    colorbar = ax.figure.colorbar(drawn, ax=ax, shrink=0.85, extend=extend)
    colorbar.set_label(label)
    return drawn


def _colour_limits(values: np.ndarray, diverging: bool) -> tuple[tuple[float, float], int]:
    """Return the ends of the colours, and how many places lie beyond each end."""
    ordered = np.sort(values[np.isfinite(values)])
    beyond = len(ordered) // 200
    low, high = float(ordered[beyond]), float(ordered[-1 - beyond])
    if diverging:
        high = max(abs(low), abs(high))
        low = -high
    return (low, high), beyond
