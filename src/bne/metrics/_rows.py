"""Calls of distributions row by row, and means over rows."""

from typing import Any

import numpy as np
from scipy.stats.distributions import rv_frozen

from bne._base.checks import check_shape
from bne._base.typing import Array


def rowwise(distribution: Any, method: str, values: Array) -> Array:
    """Call a method at values (N, Q): row i of the values goes to row i of the distribution."""
    function = getattr(distribution, method)
    if isinstance(distribution, rv_frozen):
        # SciPy aligns parameters of shape (N,) with the last axis of the values. Rows are our
        # first axis, so the values are transposed.
        check_shape(function(values[:, 0]), values.shape[:1], f"distribution.{method}")
        answer = np.transpose(function(values.T))
    else:
        answer = function(values)
    return check_shape(answer, values.shape, f"distribution.{method}")


def mean_or_rows(scores: Any, reduce: bool) -> float | Array:
    """Return the mean of the scores, or the scores themselves if `reduce` is False."""
    return float(np.mean(scores)) if reduce else np.asarray(scores)
