"""One length-scale per input: relative length-scales that maximise the marginal likelihood.

The relative length-scales are an empirical-Bayes choice, made once; the common length-scale that
multiplies them all is then sampled like any other (docs/deviations.md says why).
"""

import numpy as np
from scipy import linalg, optimize
from scipy.spatial.distance import cdist

from bne._base.typing import Array
from bne._process.kernels import KernelFunction

MAX_ROWS = 200
"""Rows used; the cost of one evaluation is cubic in it."""


def fit_relevance(kernel: KernelFunction, x: Array, f: Array, y: Array, seed: int) -> Array:
    """Relevance of each input (the inverse of its relative length-scale): (d,), mean 1 in logs.

    Maximises the marginal likelihood of Eq. (2) at sigma_omega = 1, with a standard normal penalty
    on the logarithms of relevances and scales, so that an input without influence ends at a finite
    one.
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
