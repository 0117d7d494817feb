"""Whitened features of a Gaussian process, and the process that draws of coefficients give.

A Gaussian process with kernel ``k`` is written ``a(x; ell)^T v`` with ``v ~ N(0, I)`` and features

    a(x; ell) = L(ell)^{-1} k(z, x; ell),      L L^T = k(z, z; ell),

at feature points ``z``. With all distinct rows as points, ``A A^T = k`` exactly on the training
rows. The features are tabulated once on a grid of length-scales and interpolated between (C1), so
that no Cholesky factor is needed when a sampler moves ``ell``.
"""

from typing import NamedTuple

import numpy as np
from scipy import linalg
from scipy.spatial.distance import cdist

from bne._base.linalg import cholesky
from bne._base.typing import Array
from bne._process.interpolation import interpolation
from bne._process.kernels import KernelFunction


class FeatureMap(NamedTuple):
    """Tabulated features of one Gaussian process.

    Attributes
    ----------
    kernel : function
        Correlation as a function of scaled distance.
    points : (m, d) array
        The feature points z.
    relevance : (d,) array
        Each input is multiplied by it before distances are taken: one length-scale per input.
    log_ell : (J,) array
        Equispaced grid of log length-scales.
    factors : (J, m, m) array
        Lower Cholesky factors of k(z, z; ell_j).
    rotations : (J, m, m) array or None
        Rotate the features at each node (`principal_rotations`); the prior does not mind.
    """

    kernel: KernelFunction
    points: Array
    relevance: Array
    log_ell: Array
    factors: Array
    rotations: Array | None = None

    def tabulate(self, x: Array) -> Array:
        """Features of the rows x at every node: (J, N, m)."""
        distance = cdist(x * self.relevance, self.points * self.relevance)
        table = np.empty((len(self.log_ell), len(x), len(self.points)))
        for j, log_ell in enumerate(self.log_ell):
            k = self.kernel(distance / np.exp(log_ell))
            table[j] = linalg.solve_triangular(self.factors[j], k.T, lower=True).T
        return table if self.rotations is None else table @ self.rotations

    def within(self, nodes: slice) -> "FeatureMap":
        """The map with some of its nodes."""
        rotations = None if self.rotations is None else self.rotations[nodes]
        return self._replace(
            log_ell=self.log_ell[nodes], factors=self.factors[nodes], rotations=rotations
        )


def make_feature_map(
    kernel: KernelFunction, points: Array, log_ell: Array, relevance: Array | None = None
) -> FeatureMap:
    """Factorise k(z, z) at every node of the grid."""
    relevance = np.ones(points.shape[1]) if relevance is None else relevance
    distance = cdist(points * relevance, points * relevance)
    factors = np.stack([cholesky(kernel(distance / np.exp(le))) for le in log_ell])
    return FeatureMap(kernel, points, relevance, np.asarray(log_ell, dtype=float), factors)


def process_draws(table: Array, grid: Array, log_ell: Array, coefficients: Array) -> Array:
    """Process values ``a(x; ell_s)^T v_s`` for every draw.

    Parameters
    ----------
    table : (J, N, m) features of N rows.
    log_ell : (S,) draws.
    coefficients : (S, m) draws of v, or (S, m, M) for several processes that share features.

    Returns
    -------
    (S, N) or (S, N, M) array.
    """
    first, weights = interpolation(log_ell, grid)
    out = np.empty((len(log_ell), table.shape[1], *coefficients.shape[2:]))
    for j in np.unique(first):
        s = np.flatnonzero(first == j)
        near = np.concatenate(table[j : j + 4], axis=1)
        w = weights[s].reshape(len(s), 4, *[1] * (coefficients.ndim - 1))
        weighted = (w * coefficients[s, None]).reshape(len(s), -1, *coefficients.shape[2:])
        out[s] = weighted @ near.T if coefficients.ndim == 2 else near @ weighted
    return out


def missing_variance(table: Array, grid: Array, log_ell: Array) -> Array:
    """What the features leave out, ``k(x, x) - a(x)^T a(x) >= 0``: (S, N).

    Off the training rows a draw is completed with this variance, so that far from the data the
    process has its prior again.
    """
    first, weights = interpolation(log_ell, grid)
    explained = np.zeros((len(log_ell), table.shape[1]))
    for p in range(4):
        for q in range(p, 4):
            # a_p . a_q at every first node, then picked draw by draw
            inner = np.einsum(
                "jnm,jnm->jn", table[p : len(grid) - 3 + p], table[q : len(grid) - 3 + q]
            )
            factor = (1 + (p != q)) * weights[:, p] * weights[:, q]
            explained += factor[:, None] * inner[first]
    return np.maximum(1.0 - explained, 0.0)
