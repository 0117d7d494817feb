"""Mutual information of a draw and y, by quadrature over y on the draws' densities."""

from typing import Any

import numpy as np

NODES = 257
"""Of the trapezoid rule over y."""


def equispaced(low: Any, high: Any, xp: Any = np) -> tuple[Any, Any]:
    """A grid (n, `NODES`) between ends (n,), and its steps (n,)."""
    width = high - low
    return low[:, None] + width[:, None] * xp.linspace(0.0, 1.0, NODES)[None], width / (NODES - 1)


def divergences(f: Any, step: Any, xp: Any = np) -> Any:
    """``KL(f_s, f)`` of each density from the average of all: (S, n).

    Their mean is the mutual information. It cannot be negative: no node's share is.

    Parameters
    ----------
    f : (S, n, Q)
        Densities on a grid that holds all but all of their mass.
    step : (n,)
    """
    tiny = np.finfo(np.float64).tiny
    average = xp.mean(f, axis=0)
    log_ratio = xp.log(xp.maximum(f, tiny)) - xp.log(xp.maximum(average, tiny))[None]
    return xp.sum(f * log_ratio, axis=2) * step[None, :]
