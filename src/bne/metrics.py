"""Scores of predictive distributions, and the distance of a prediction to the truth.

A *distribution* here is what ``BNERegressor.predict_distribution`` returns, or a SciPy
frozen distribution with parameters of shape (N,): one law per row. Scores are averaged
over rows, lower is better; ``reduce=False`` keeps the rows. The formulas are those of
`scoringrules`; this module checks shapes, so that (N,) never meets (N, 1) unnoticed.
"""

from __future__ import annotations

from typing import Any, Literal, overload

import numpy as np
import scoringrules
from numpy.typing import ArrayLike
from scipy.integrate import trapezoid
from scipy.stats import norm
from scipy.stats.distributions import rv_frozen

from bne._base.checks import (
    check_grid,
    check_interval,
    check_levels,
    check_no_nan,
    check_outcomes,
    check_shape,
)
from bne._base.typing import Array

__all__ = [
    "coverage",
    "crps",
    "crps_ensemble",
    "crps_scorer",
    "interval_score",
    "l1_distance",
    "log_score",
    "pinball_loss",
    "pit",
]

# Levels at which a law without its own `crps` is scored: midpoints of equal bins. For a
# Gaussian the error is below 2e-6 sd near the mean and 2e-4 sd for far outliers.
CRPS_LEVELS = (np.arange(1000) + 0.5) / 1000

# The y grid of `l1_distance`: quantiles of both laws at Gaussian-spaced levels from 1e-6
# to 1 - 1e-6, so that a narrow law is resolved as well as a wide one, and each gap cut
# in 8. For Gaussians the step is at most 0.04 sd.
GRID_LEVELS: Array = norm.cdf(np.linspace(norm.ppf(1e-6), norm.isf(1e-6), 33))
GRID_CUTS = 8


@overload
def crps(y: ArrayLike, distribution: Any, *, reduce: Literal[True] = ...) -> float: ...
@overload
def crps(y: ArrayLike, distribution: Any, *, reduce: Literal[False]) -> Array: ...
def crps(y: ArrayLike, distribution: Any, *, reduce: bool = True) -> float | Array:
    r"""Return the continuous ranked probability score, :math:`\int (F - 1[y \le z])^2 dz`.

    The distribution's own ``crps(y)`` is used where there is one, else the quantile
    form on 1,000 levels.

    Parameters
    ----------
    y : array_like, shape (N,)
        Outcomes.
    distribution : object
        Predictive law with N rows; has ``crps(y)`` or ``ppf(q)``.
    reduce : bool
        Average over rows; if False, return shape (N,).

    Returns
    -------
    score : float or ndarray, in the units of y

    Examples
    --------
    >>> from scipy.stats import norm
    >>> from bne.metrics import crps
    >>> round(crps([0.0, 1.0], norm(loc=[0.0, 1.0])), 4)
    0.2337
    """
    y = check_outcomes(y)
    if hasattr(distribution, "crps"):
        scores = check_shape(distribution.crps(y), y.shape, "distribution.crps(y)")
    else:
        shape = (len(y), len(CRPS_LEVELS))
        quantiles = _rowwise(distribution, "ppf", np.broadcast_to(CRPS_LEVELS, shape))
        scores = scoringrules.crps_quantile(y, quantiles, CRPS_LEVELS, backend="numpy")
    return _reduce(scores, reduce)


def crps_scorer(estimator: Any, X: Any, y: ArrayLike) -> float:
    """Return minus the mean CRPS of a fitted model's predictive distribution: greater is better.

    A scorer for scikit-learn, as in ``GridSearchCV(model, grid, scoring=crps_scorer)``.

    Parameters
    ----------
    estimator : object with ``predict_distribution(X)``
    X : (N, p) array or DataFrame
    y : (N,) array
    """
    return -crps(y, estimator.predict_distribution(X))


@overload
def crps_ensemble(y: ArrayLike, draws: ArrayLike, *, reduce: Literal[True] = ...) -> float: ...
@overload
def crps_ensemble(y: ArrayLike, draws: ArrayLike, *, reduce: Literal[False]) -> Array: ...
def crps_ensemble(y: ArrayLike, draws: ArrayLike, *, reduce: bool = True) -> float | Array:
    r"""Return the CRPS of an empirical law, :math:`E|Z - y| - \frac12 E|Z - Z'|`.

    It is the score of the draws as they are; as an estimate for the law they came from
    it is too large by :math:`E|Z - Z'| / (2S)`.

    Parameters
    ----------
    y : array_like, shape (N,)
        Outcomes.
    draws : array_like, shape (S, N)
        Predictive draws, draws first.
    reduce : bool
        Average over rows; if False, return shape (N,).

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
            "Transpose it if its rows are the outcomes."
        )
    scores = scoringrules.crps_ensemble(y, draws, m_axis=0, estimator="qd", backend="numpy")
    return _reduce(scores, reduce)


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
        Their levels, in (0, 1).
    reduce : bool
        Average; if False, return the shape of `quantiles`.

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
    return _reduce(losses, reduce)


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
    """Return the interval (Winkler) score: width, plus a fine for each miss.

    Parameters
    ----------
    y : array_like, shape (N,)
        Outcomes.
    lower, upper : array_like, shape (N,)
        Ends of the central intervals.
    coverage : float
        Their nominal coverage, in (0, 1); a miss by d costs 2 d / (1 - coverage).
    reduce : bool
        Average over rows; if False, return shape (N,).

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
            "`lower` and `upper` must be finite; got infinite ends, whose score is "
            "infinite. Score central intervals, not one-sided ones."
        )
    scores = scoringrules.interval_score(y, lower, upper, 1.0 - float(level), backend="numpy")
    # scoringrules drops the axis of a single row.
    return _reduce(np.reshape(scores, y.shape), reduce)


@overload
def log_score(y: ArrayLike, distribution: Any, *, reduce: Literal[True] = ...) -> float: ...
@overload
def log_score(y: ArrayLike, distribution: Any, *, reduce: Literal[False]) -> Array: ...
def log_score(y: ArrayLike, distribution: Any, *, reduce: bool = True) -> float | Array:
    """Return the negative log predictive density, in nats.

    Parameters
    ----------
    y : array_like, shape (N,)
        Outcomes.
    distribution : object
        Predictive law with N rows; has ``logpdf(y)``.
    reduce : bool
        Average over rows; if False, return shape (N,).

    Returns
    -------
    score : float or ndarray
        Infinite where the density is zero.

    Examples
    --------
    >>> from scipy.stats import norm
    >>> from bne.metrics import log_score
    >>> round(log_score([0.0, 1.0], norm(loc=[0.0, 1.0])), 4)
    0.9189
    """
    y = check_outcomes(y)
    logpdf = check_shape(distribution.logpdf(y), y.shape, "distribution.logpdf(y)")
    return _reduce(-logpdf, reduce)


def coverage(y: ArrayLike, lower: ArrayLike, upper: ArrayLike) -> float:
    """Return the share of outcomes inside their intervals, ends included.

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


def pit(y: ArrayLike, distribution: Any) -> Array:
    """Return the probability integral transform F(y), uniform if F is calibrated.

    Parameters
    ----------
    y : array_like, shape (N,)
        Outcomes.
    distribution : object
        Predictive law with N rows; has ``cdf(y)``.

    Returns
    -------
    u : ndarray, shape (N,), in [0, 1]

    Examples
    --------
    >>> from scipy.stats import norm
    >>> from bne.metrics import pit
    >>> pit([0.0, 1.0], norm(loc=[0.0, 1.0]))
    array([0.5, 0.5])
    """
    y = check_outcomes(y)
    return check_shape(distribution.cdf(y), y.shape, "distribution.cdf(y)")


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

    Averaged over the rows x; equal, row by row, to the Wasserstein-1 distance.

    Parameters
    ----------
    predicted, truth : object or callable
        Laws with the same N rows (a law of one row without shape fits any N), with
        ``cdf`` and ``ppf``; or callables that map y of shape (N, Q) to F(y) of
        shape (N, Q).
    y_grid : array_like, shape (Q,) or (N, Q), optional
        Increasing values of y for the trapezoid rule. By default they follow the
        quantiles of both laws (an error below 1e-4 of their scale). Callables need it.
    reduce : bool
        Average over rows; if False, return shape (N,).

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
    return _reduce(trapezoid(gap, y_grid, axis=1), reduce)


def _quantile_grid(*laws: Any) -> Array:
    """Return y values (N, Q) that follow the quantiles of all laws, increasing."""
    if not all(hasattr(law, "ppf") and hasattr(law, "cdf") for law in laws):
        raise TypeError(
            "`y_grid` is needed where a law is a plain function, without `ppf`; got "
            "None. Pass increasing values of y, of shape (Q,) or (N, Q)."
        )
    levels = np.broadcast_to(GRID_LEVELS, (_count_rows(*laws), len(GRID_LEVELS)))
    nodes = np.hstack([_rowwise(law, "ppf", levels) for law in laws])
    if not np.isfinite(nodes).all():
        raise ValueError(
            "`ppf` must be finite at levels 1e-6 to 1 - 1e-6; got infinite or NaN "
            "quantiles. Pass `y_grid`."
        )
    nodes.sort(axis=1)
    cuts = np.arange(GRID_CUTS) / GRID_CUTS
    inner = nodes[:, :-1, None] + np.diff(nodes, axis=1)[:, :, None] * cuts
    return np.hstack([inner.reshape(len(nodes), -1), nodes[:, -1:]])


def _count_rows(*laws: Any) -> int:
    """Return the common number of rows; plain functions and scalar laws fit any."""
    shapes = [np.shape(law.cdf(0.0)) for law in laws if hasattr(law, "cdf")]
    rows = {shape for shape in shapes if shape != ()}
    if len(rows) > 1 or any(len(shape) != 1 for shape in rows):
        raise ValueError(
            "`predicted` and `truth` must have the same rows, N; got shapes "
            f"{' and '.join(map(str, shapes))}. Evaluate both at the same x, of "
            "shape (N,)."
        )
    return rows.pop()[0] if rows else 1


def _cdf(law: Any, y_grid: Array) -> Array:
    if hasattr(law, "cdf"):
        return _rowwise(law, "cdf", y_grid)
    return check_shape(law(y_grid), y_grid.shape, "the CDF")


def _rowwise(distribution: Any, method: str, values: Array) -> Array:
    """Call a method at values (N, Q), row i of which belongs to row i of the law."""
    function = getattr(distribution, method)
    if isinstance(distribution, rv_frozen):
        # SciPy lines its (N,) parameters up with the last axis, we with the first.
        check_shape(function(values[:, 0]), values.shape[:1], f"distribution.{method}")
        answer = np.transpose(function(values.T))
    else:
        answer = function(values)
    return check_shape(answer, values.shape, f"distribution.{method}")


def _reduce(scores: Any, reduce: bool) -> float | Array:
    return float(np.mean(scores)) if reduce else np.asarray(scores)
