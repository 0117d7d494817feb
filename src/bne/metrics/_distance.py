"""The L1 distance of two distributions."""

from __future__ import annotations

from typing import Any, Literal, overload

import numpy as np
from numpy.typing import ArrayLike
from scipy.integrate import trapezoid
from scipy.stats import norm

from bne._base.checks import check_grid, check_shape
from bne._base.typing import Array
from bne.metrics._rows import mean_or_rows, rowwise

GRID_LEVELS: Array = norm.cdf(np.linspace(norm.ppf(1e-6), norm.isf(1e-6), 33))
"""Levels whose quantiles make the default y grid: from 1e-6 to 1 - 1e-6, spaced as a Gaussian.
The grid holds the quantiles of both distributions, so a narrow one is resolved as well as a wide
one."""

GRID_CUTS = 8
"""Equal parts of each gap between two quantiles. For Gaussians a step is at most 0.04 sd."""


@overload
def l1_distance(
    predicted: Any, truth: Any, y_grid: ArrayLike | None = None, *, reduce: Literal[True] = ...
) -> float: ...
@overload
def l1_distance(
    predicted: Any, truth: Any, y_grid: ArrayLike | None = None, *, reduce: Literal[False]
) -> Array: ...
def l1_distance(
    predicted: Any, truth: Any, y_grid: ArrayLike | None = None, *, reduce: bool = True
) -> float | Array:
    r"""Return the L1 distance of two CDFs, :math:`\int |F(y|x) - F^*(y|x)|\, dy`.

    The distance is averaged over the rows x. In each row it equals the Wasserstein-1 distance.

    Parameters
    ----------
    predicted, truth : object or callable
        Distributions with the same N rows and the methods ``cdf`` and ``ppf``. A distribution
        with scalar parameters goes with any N. A callable is taken as the CDF itself: it maps y
        of shape (N, Q) to F(y) of shape (N, Q).
    y_grid : array_like, shape (Q,) or (N, Q), optional
        Increasing values of y for the trapezoid rule. By default they follow the quantiles of
        both distributions; the error is then below 1e-4 of their scale. If `predicted` or
        `truth` is a callable, `y_grid` must be given.
    reduce : bool, default=True
        Return the mean over rows; if False, return one distance for each row.

    Returns
    -------
    distance : float or ndarray, in the units of y

    Examples
    --------
    >>> from scipy.stats import norm
    >>> from bne.metrics import l1_distance
    >>> round(l1_distance(norm(loc=[0.0, 1.0]), norm(loc=[0.3, 0.9])), 4)
    0.2
    """
    if y_grid is None:
        y_grid = _quantile_grid(predicted, truth)
    else:
        y_grid = check_grid(y_grid, _count_rows(predicted, truth))
    gap = np.abs(_cdf(predicted, y_grid) - _cdf(truth, y_grid))
    return mean_or_rows(trapezoid(gap, y_grid, axis=1), reduce)


def _quantile_grid(*distributions: Any) -> Array:
    """Return increasing y values (N, Q) that follow the quantiles of all distributions."""
    if not all(hasattr(one, "ppf") and hasattr(one, "cdf") for one in distributions):
        raise TypeError(
            "`y_grid` must be given where a distribution is a plain function without `ppf`; "
            "got None. Pass increasing values of y, of shape (Q,) or (N, Q)."
        )
    levels = np.broadcast_to(GRID_LEVELS, (_count_rows(*distributions), len(GRID_LEVELS)))
    nodes = np.hstack([rowwise(one, "ppf", levels) for one in distributions])
    if not np.isfinite(nodes).all():
        raise ValueError(
            "`ppf` must be finite at levels from 1e-6 to 1 - 1e-6; got infinite or NaN "
            "quantiles. Pass `y_grid`."
        )
    nodes.sort(axis=1)
    cuts = np.arange(GRID_CUTS) / GRID_CUTS
    inner = nodes[:, :-1, None] + np.diff(nodes, axis=1)[:, :, None] * cuts
    return np.hstack([inner.reshape(len(nodes), -1), nodes[:, -1:]])


def _count_rows(*distributions: Any) -> int:
    """Return the common number of rows. Functions and scalar distributions go with any number."""
    shapes = [np.shape(one.cdf(0.0)) for one in distributions if hasattr(one, "cdf")]
    rows = {shape for shape in shapes if shape != ()}
    if len(rows) > 1 or any(len(shape) != 1 for shape in rows):
        raise ValueError(
            "`predicted` and `truth` must have the same rows, N; got shapes "
            f"{' and '.join(map(str, shapes))}. Evaluate both at the same x, of "
            "shape (N,)."
        )
    return rows.pop()[0] if rows else 1


def _cdf(distribution: Any, y_grid: Array) -> Array:
    if hasattr(distribution, "cdf"):
        return rowwise(distribution, "cdf", y_grid)
    return check_shape(distribution(y_grid), y_grid.shape, "the CDF")
