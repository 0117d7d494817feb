"""Scores of a whole predictive distribution: CRPS, log score and PIT."""

from __future__ import annotations

from typing import Any, Literal, overload

import numpy as np
import scoringrules
from numpy.typing import ArrayLike

from bne._base.checks import check_outcomes, check_shape
from bne._base.typing import Array
from bne.metrics._rows import mean_or_rows, rowwise

CRPS_LEVELS = (np.arange(1000) + 0.5) / 1000
"""Levels of the quantiles that score a distribution without a `crps` method: midpoints of equal
bins. For a Gaussian the error is below 2e-6 sd near the mean and below 2e-4 sd for far outliers."""


@overload
def crps(y: ArrayLike, distribution: Any, *, reduce: Literal[True] = ...) -> float: ...
@overload
def crps(y: ArrayLike, distribution: Any, *, reduce: Literal[False]) -> Array: ...
def crps(y: ArrayLike, distribution: Any, *, reduce: bool = True) -> float | Array:
    r"""Return the continuous ranked probability score, :math:`\int (F - 1[y \le z])^2 dz`.

    If the distribution has a method ``crps(y)``, that method is called. If not, the score is
    computed from its quantiles at 1,000 levels.

    Parameters
    ----------
    y : array_like, shape (N,)
        Outcomes.
    distribution : object
        Predictive distribution with N rows, with a method ``crps(y)`` or ``ppf(q)``.
    reduce : bool, default=True
        Return the mean over rows; if False, return one score for each row.

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
        quantiles = rowwise(distribution, "ppf", np.broadcast_to(CRPS_LEVELS, shape))
        scores = scoringrules.crps_quantile(y, quantiles, CRPS_LEVELS, backend="numpy")
    return mean_or_rows(scores, reduce)


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
        Predictive distribution with N rows, with a method ``logpdf(y)``.
    reduce : bool, default=True
        Return the mean over rows; if False, return one score for each row.

    Returns
    -------
    score : float or ndarray
        It is infinite where the density is zero.

    Examples
    --------
    >>> from scipy.stats import norm
    >>> from bne.metrics import log_score
    >>> round(log_score([0.0, 1.0], norm(loc=[0.0, 1.0])), 4)
    0.9189
    """
    y = check_outcomes(y)
    logpdf = check_shape(distribution.logpdf(y), y.shape, "distribution.logpdf(y)")
    return mean_or_rows(-logpdf, reduce)


def pit(y: ArrayLike, distribution: Any) -> Array:
    """Return the probability integral transform: the predictive CDF F at the outcome, F(y).

    Over many rows the values are uniform on [0, 1] if F is calibrated.

    Parameters
    ----------
    y : array_like, shape (N,)
        Outcomes.
    distribution : object
        Predictive distribution with N rows, with a method ``cdf(y)``.

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


def crps_scorer(estimator: Any, X: Any, y: ArrayLike) -> float:
    """Return the mean CRPS of a fitted model with a minus sign, so that greater is better.

    This is a scorer for scikit-learn, as in ``GridSearchCV(model, grid, scoring=crps_scorer)``.

    Parameters
    ----------
    estimator : object with ``predict_distribution(X)``
    X : (N, p) array or DataFrame
    y : (N,) array
    """
    return -crps(y, estimator.predict_distribution(X))
