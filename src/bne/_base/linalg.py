"""Cholesky with the least jitter that works, and projections."""

import numpy as np
from scipy import linalg

from bne._base.typing import Array

JITTERS = (0.0, 1e-14, 1e-12, 1e-10, 1e-8, 1e-6)
"""Tried in turn, relative to the mean of the diagonal."""


def cholesky(K: Array) -> Array:
    """Lower Cholesky factor of K + jitter I, with the smallest jitter of `JITTERS` that works."""
    scale = float(np.mean(np.diag(K))) if len(K) else 1.0
    for jitter in JITTERS:
        try:
            L = linalg.cholesky(K + jitter * scale * np.eye(len(K)), lower=True)
        except linalg.LinAlgError:
            continue
        if np.min(np.diag(L), initial=np.inf) > 1e-7 * np.sqrt(scale):
            return L
    raise linalg.LinAlgError(
        f"A kernel matrix of size {len(K)} is not positive definite even with jitter {JITTERS[-1]}."
        " A kernel function of your own must be positive definite: k(0) = 1 and |k(r)| <= 1."
    )


def projection_coefficients(F: Array, A: Array) -> Array:
    """Least-squares coefficients of the columns of A on those of F (minimum norm if collinear)."""
    return linalg.lstsq(F, A, lapack_driver="gelsd")[0]
