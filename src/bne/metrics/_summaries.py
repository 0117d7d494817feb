"""Scores of what is drawn or read from a predictive distribution: draws, quantiles, intervals."""

from __future__ import annotations

from typing import Literal, overload

import numpy as np
import scoringrules
from numpy.typing import ArrayLike

from bne._base.checks import (
    check_interval,
    check_levels,
    check_no_nan,
    check_outcomes,
    check_shape,
)
from bne._base.typing import Array
from bne.metrics._rows import mean_or_rows


@overload
def crps_ensemble(y: ArrayLike, draws: ArrayLike, *, reduce: Literal[True] = ...) -> float: ...
@overload
def crps_ensemble(y: ArrayLike, draws: ArrayLike, *, reduce: Literal[False]) -> Array: ...
def crps_ensemble(y: ArrayLike, draws: ArrayLike, *, reduce: bool = True) -> float | Array:
    r"""Return the CRPS of a set of S draws, :math:`E|Z - y| - \frac12 E|Z - Z'|`.

    Z and Z' are picked from the draws at random. The draws themselves are scored. As an estimate
    of the CRPS of the distribution that they were drawn from, the score is too large by
    :math:`E|Z - Z'| / (2S)`.

    Parameters
    ----------
    y : array_like, shape (N,)
        Outcomes.
    draws : array_like, shape (S, N)
        Predictive draws; the first axis counts the draws.
    reduce : bool, default=True
        Return the mean over rows; if False, return one score for each row.

    Returns
    -------
    score : float or ndarray, in the units of y

    Examples
    --------
    >>> from bne.metrics import crps_ensemble
    >>> crps_ensemble([0.5], [[0.0], [1.0]])
    0.25
    """
    y = check_outcomes(y)
    draws = check_no_nan(draws, "draws")
    if draws.ndim != 2 or draws.shape[1] != len(y):
        raise ValueError(
            f"`draws` must have shape (S, {len(y)}), draws first; got {draws.shape}. "
            "Transpose the array if its rows are the outcomes."
        )
    scores = scoringrules.crps_ensemble(y, draws, m_axis=0, estimator="qd", backend="numpy")
    return mean_or_rows(scores, reduce)


@overload
def pinball_loss(
    y: ArrayLike, quantiles: ArrayLike, levels: ArrayLike, *, reduce: Literal[True] = ...
) -> float: ...
@overload
def pinball_loss(
    y: ArrayLike, quantiles: ArrayLike, levels: ArrayLike, *, reduce: Literal[False]
) -> Array: ...
def pinball_loss(
    y: ArrayLike, quantiles: ArrayLike, levels: ArrayLike, *, reduce: bool = True
) -> float | Array:
    """Return the pinball loss of predicted quantiles, averaged over rows and levels.

    Parameters
    ----------
    y : array_like, shape (N,)
        Outcomes.
    quantiles : array_like, shape (N, Q), or (N,) for one level
        Predicted quantiles.
    levels : array_like, shape (Q,), or float for one level
        The levels of these quantiles, in (0, 1).
    reduce : bool, default=True
        Return the mean; if False, return one loss for each predicted quantile.

    Returns
    -------
    loss : float or ndarray, in the units of y

    Examples
    --------
    >>> from bne.metrics import pinball_loss
    >>> pinball_loss([3.0], [[2.0, 4.0]], [0.5, 0.9])
    0.3
    """
    y = check_outcomes(y)
    levels = check_levels(levels, "levels")
    if levels.ndim > 1:
        raise ValueError(
            f"`levels` must be a number or have shape (Q,); got {levels.shape}. Pass "
            "one level per column of `quantiles`."
        )
    quantiles = check_no_nan(quantiles, "quantiles")
    check_shape(quantiles, y.shape + levels.shape, "quantiles")
    outcomes = y.reshape(y.shape + (1,) * levels.ndim)
    losses = scoringrules.quantile_score(outcomes, quantiles, levels, backend="numpy")
    return mean_or_rows(losses, reduce)


@overload
def interval_score(
    y: ArrayLike,
    lower: ArrayLike,
    upper: ArrayLike,
    coverage: float,
    *,
    reduce: Literal[True] = ...,
) -> float: ...
@overload
def interval_score(
    y: ArrayLike, lower: ArrayLike, upper: ArrayLike, coverage: float, *, reduce: Literal[False]
) -> Array: ...
def interval_score(
    y: ArrayLike, lower: ArrayLike, upper: ArrayLike, coverage: float, *, reduce: bool = True
) -> float | Array:
    """Return the interval score (Winkler score): the width plus a penalty for each miss.

    Parameters
    ----------
    y : array_like, shape (N,)
        Outcomes.
    lower, upper : array_like, shape (N,)
        Ends of the central intervals.
    coverage : float
        The nominal coverage of the intervals, in (0, 1). An outcome that lies outside by a
        distance d adds 2 d / (1 - coverage) to the score.
    reduce : bool, default=True
        Return the mean over rows; if False, return one score for each row.

    Returns
    -------
    score : float or ndarray, in the units of y

    Examples
    --------
    >>> from bne.metrics import interval_score
    >>> round(interval_score([0.0, 3.0], [-1.0, -1.0], [2.0, 2.0], coverage=0.9), 6)
    13.0
    """
    y, lower, upper = check_interval(y, lower, upper)
    level = check_levels(coverage, "coverage")
    if level.ndim:
        raise ValueError(
            f"`coverage` must be one number; got shape {level.shape}. Call once per coverage."
        )
    if not (np.isfinite(lower).all() and np.isfinite(upper).all()):
        raise ValueError(
            "`lower` and `upper` must be finite; got infinite ends. Their score would be "
            "infinite. Pass central intervals, not one-sided ones."
        )
    scores = scoringrules.interval_score(y, lower, upper, 1.0 - float(level), backend="numpy")
    # scoringrules drops the axis where there is a single row
    return mean_or_rows(np.reshape(scores, y.shape), reduce)


def coverage(y: ArrayLike, lower: ArrayLike, upper: ArrayLike) -> float:
    """Return the share of outcomes that lie inside their intervals or on an end.

    Parameters
    ----------
    y : array_like, shape (N,)
        Outcomes.
    lower, upper : array_like, shape (N,)
        Ends of the intervals.

    Returns
    -------
    share : float

    Examples
    --------
    >>> from bne.metrics import coverage
    >>> coverage([0.0, 3.0], lower=[-1.0, -1.0], upper=[2.0, 2.0])
    0.5
    """
    y, lower, upper = check_interval(y, lower, upper)
    return float(np.mean((lower <= y) & (y <= upper)))
