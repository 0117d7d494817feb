"""One length-scale for each input: relative length-scales that maximise the marginal likelihood.

The relative length-scales are estimated once, before sampling. The common length-scale that
multiplies them all is then sampled (docs/deviations.md says why).
"""

import numpy as np
from scipy import linalg, optimize
from scipy.spatial.distance import cdist

from bne._base.typing import Array
from bne._process.kernels import KernelFunction

MAX_ROWS = 200
"""Largest number of rows that are used: the cost of one evaluation grows with its cube."""


def fit_relevance(kernel: KernelFunction, x: Array, f: Array, y: Array, seed: int) -> Array:
    """Estimate the relevance of each input, the inverse of its relative length-scale: (d,).

    It maximises the marginal likelihood of Eq. (2) with sigma_omega = 1. The logarithms of
    relevances and scales have a standard normal penalty, so that an input without influence gets a
    finite value. The relevances are divided by their geometric mean.
    """
    rows = np.random.default_rng(seed).permutation(len(y))[:MAX_ROWS]
    x, f, y = x[rows], f[rows], y[rows]
    d = x.shape[1]

    def loss(parameters: Array) -> float:
        log_relevance, (log_delta, log_eps) = parameters[:d], parameters[d:]
        scaled = x * np.exp(log_relevance)
        V = np.exp(2 * log_delta) * kernel(cdist(scaled, scaled)) + f @ f.T
        V[np.diag_indices_from(V)] += np.exp(2 * log_eps) + 1e-8
        L = linalg.cholesky(V, lower=True)
        r = linalg.solve_triangular(L, y, lower=True)
        return 0.5 * r @ r + np.sum(np.log(np.diag(L))) + 0.5 * np.sum(parameters**2)

    start = np.r_[np.full(d, -0.5 * np.log(d)), np.log(0.5), np.log(0.5)]
    best = optimize.minimize(loss, start, method="L-BFGS-B", bounds=[(-6.0, 4.0)] * (d + 2))
    return np.exp(best.x[:d] - np.mean(best.x[:d]))
