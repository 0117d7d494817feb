"""Whitened features of a Gaussian process, and values of the process from draws (Eq. 2).

A Gaussian process with kernel ``k`` is written ``a(x; ell)^T v`` with ``v ~ N(0, I)`` and features

    a(x; ell) = L(ell)^{-1} k(z, x; ell),      L L^T = k(z, z; ell),

at feature points ``z``. If all distinct rows are points, ``A A^T = k`` is exact on the training
rows. The features are tabulated once on a grid of length-scales. Between the nodes they are
interpolated with a continuous derivative, so that no Cholesky factor of ``k`` is needed when
the sampler moves ``ell``.
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
        Correlation as a function of the scaled distance.
    points : (m, d) array
        The feature points z.
    relevance : (d,) array
        Factor by which each input is multiplied before distances are taken. Different factors give
        each input its own length-scale.
    log_ell : (J,) array
        Log length-scales of the nodes, equispaced.
    factors : (J, m, m) array
        Lower Cholesky factors of k(z, z; ell_j).
    rotations : (J, m, m) array or None
        Rotation of the features at each node (`principal_rotations`). A rotation does not change
        the prior of the process.
    """

    kernel: KernelFunction
    points: Array
    relevance: Array
    log_ell: Array
    factors: Array
    rotations: Array | None = None

    def tabulate(self, x: Array) -> Array:
        """Find the features of the rows x at every node: (J, N, m)."""
        distance = cdist(x * self.relevance, self.points * self.relevance)
        table = np.empty((len(self.log_ell), len(x), len(self.points)))
        for j, log_ell in enumerate(self.log_ell):
            k = self.kernel(distance / np.exp(log_ell))
            table[j] = linalg.solve_triangular(self.factors[j], k.T, lower=True).T
        return table if self.rotations is None else table @ self.rotations

    def within(self, nodes: slice) -> "FeatureMap":
        """Return the map with only these nodes."""
        rotations = None if self.rotations is None else self.rotations[nodes]
        return self._replace(
            log_ell=self.log_ell[nodes], factors=self.factors[nodes], rotations=rotations
        )


def make_feature_map(
    kernel: KernelFunction, points: Array, log_ell: Array, relevance: Array | None = None
) -> FeatureMap:
    """Make a feature map: factorise k(z, z) at every node of the grid."""
    relevance = np.ones(points.shape[1]) if relevance is None else relevance
    distance = cdist(points * relevance, points * relevance)
    factors = np.stack([cholesky(kernel(distance / np.exp(le))) for le in log_ell])
    return FeatureMap(kernel, points, relevance, np.asarray(log_ell, dtype=float), factors)


def process_draws(table: Array, grid: Array, log_ell: Array, coefficients: Array) -> Array:
    """Find the values ``a(x; ell_s)^T v_s`` of the process in every draw s.

    Parameters
    ----------
    table : (J, N, m)
        Features of N rows at every node.
    grid : (J,)
        Log length-scales of the nodes.
    log_ell : (S,)
        Draws of the log length-scale.
    coefficients : (S, m) or (S, m, M)
        Draws of v, for one process or for M processes that share the features.

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
    """Find the variance that the features leave out, ``k(x, x) - a(x)^T a(x) >= 0``: (S, N).

    At rows other than the feature points, a draw is completed with this variance. So far from the
    data the process has its prior again.
    """
    first, weights = interpolation(log_ell, grid)
    explained = np.zeros((len(log_ell), table.shape[1]))
    for p in range(4):
        for q in range(p, 4):
            # products a_p . a_q for every first node; each draw then takes its own
            inner = np.einsum(
                "jnm,jnm->jn", table[p : len(grid) - 3 + p], table[q : len(grid) - 3 + q]
            )
            factor = (1 + (p != q)) * weights[:, p] * weights[:, q]
            explained += factor[:, None] * inner[first]
    return np.maximum(1.0 - explained, 0.0)
