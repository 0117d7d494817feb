"""Cholesky factors with as little jitter as possible, and projections."""

import numpy as np
from scipy import linalg

from bne._base.typing import Array

JITTERS = (0.0, 1e-14, 1e-12, 1e-10, 1e-8, 1e-6)
"""Jitters that are tried in turn, relative to the mean of the diagonal."""


def cholesky(K: Array) -> Array:
    """Find the lower Cholesky factor of K + jitter I, with the first of `JITTERS` that works."""
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
        " A kernel function of your own must be positive definite, with k(0) = 1 and |k(r)| <= 1."
        " Correct it, or use one of the named kernels."
    )


def projection_coefficients(F: Array, A: Array) -> Array:
    """Find the least-squares coefficients of the columns of A on the columns of F.

    F (n, K) is the matrix of the experts' predictions at the training rows, and not a CDF. If its
    columns are collinear, the coefficients of minimum norm are returned.
    """
    return linalg.lstsq(F, A, lapack_driver="gelsd")[0]
