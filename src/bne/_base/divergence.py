"""Mutual information of a draw and y (Eq. 7), by quadrature over y on the draws' densities."""

from typing import Any

import numpy as np

NODES = 257
"""Nodes of the quadrature over y. More nodes resolve narrower densities, but cost time."""


def equispaced(low: Any, high: Any, xp: Any = np) -> tuple[Any, Any]:
    """Make equispaced grids (n, `NODES`) between ends (n,), and find their steps (n,)."""
    width = high - low
    return low[:, None] + width[:, None] * xp.linspace(0.0, 1.0, NODES)[None], width / (NODES - 1)


def divergences(f: Any, step: Any, xp: Any = np) -> Any:
    """Find the divergence ``KL(f_s, f)`` of each density f_s from their average f: (S, n).

    The mean over s is the mutual information of the draw and y (Eq. 7). It is never negative,
    because the mean over s at each node of the grid is not.

    Parameters
    ----------
    f : (S, n, Q)
        Densities on a grid that holds nearly all of their mass.
    step : (n,)
        Step of the grid.
    """
    tiny = np.finfo(np.float64).tiny
    average = xp.mean(f, axis=0)
    log_ratio = xp.log(xp.maximum(f, tiny)) - xp.log(xp.maximum(average, tiny))[None]
    return xp.sum(f * log_ratio, axis=2) * step[None, :]
