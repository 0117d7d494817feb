"""Shift-invariant kernels of the Euclidean distance, and their whitened features.

A Gaussian process with kernel ``k`` is written ``a(x; ell)^T v`` with ``v ~ N(0, I)`` and features

    a(x; ell) = L(ell)^{-1} k(z, x; ell),      L L^T = k(z, z; ell),

at feature points ``z``. With all distinct rows as points, ``A A^T = k`` exactly on the training
rows. The features are tabulated once on a grid of length-scales and interpolated between (C1), so
that no Cholesky factor is needed when a sampler moves ``ell``.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from scipy import linalg
from scipy.spatial import cKDTree
from scipy.spatial.distance import cdist

from bne._base.linalg import cholesky
from bne._base.typing import Array

KernelFunction = Callable[[Array], Array]

N_NODES = 32
"""Length of the grid of length-scales: a spacing of about 0.2 in log(ell) over a wide prior."""


def _matern12(r: Array) -> Array:
    return np.exp(-r)


def _matern32(r: Array) -> Array:
    s = np.sqrt(3.0) * r
    return (1.0 + s) * np.exp(-s)


def _matern52(r: Array) -> Array:
    s = np.sqrt(5.0) * r
    return (1.0 + s + s**2 / 3.0) * np.exp(-s)


def _rbf(r: Array) -> Array:
    return np.exp(-0.5 * r**2)


KERNELS: dict[str, KernelFunction] = {
    "matern12": _matern12,
    "matern32": _matern32,
    "matern52": _matern52,
    "rbf": _rbf,
}


def resolve_kernel(kernel: str | KernelFunction) -> KernelFunction:
    """Return the function ``r -> k(r)`` of the scaled distance ``r = d / ell``."""
    if isinstance(kernel, str):
        if kernel not in KERNELS:
            raise ValueError(
                f"`residual` must be one of {sorted(KERNELS)}, a function of distance, or None; "
                f"got {kernel!r}."
            )
        return KERNELS[kernel]
    if not callable(kernel):
        raise ValueError(
            f"`residual` must be one of {sorted(KERNELS)}, a function of distance, or None; "
            f"got {type(kernel).__name__}."
        )
    at_zero = np.asarray(kernel(np.zeros(1)), dtype=float)
    if at_zero.shape != (1,) or abs(at_zero[0] - 1.0) > 1e-8:
        raise ValueError(
            "A kernel function must map an array of scaled distances r to correlations with "
            f"k(0) = 1; got k([0.]) = {at_zero!r}."
        )
    return kernel


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


def principal_rotations(table: Array, reference: int) -> Array:
    """Rotations (J, m, m) that make the features' columns nearly orthogonal at every node.

    At the node `reference` they are the eigenvectors of ``A^T A``; from there outwards each is the
    rotation that keeps the features closest to its neighbour's (Procrustes), so that the rotated
    features are smooth in the length-scale, and then turned a little towards the eigenvectors.
    Samplers then see coordinates that are nearly independent, whatever the length-scale.
    """
    J, _, m = table.shape
    rotations = np.empty((J, m, m))
    A = table[reference]
    rotations[reference] = linalg.eigh(A.T @ A)[1][:, ::-1]
    for step, nodes in ((1, range(reference + 1, J)), (-1, range(reference - 1, -1, -1))):
        for j in nodes:
            neighbour = table[j - step] @ rotations[j - step]
            U, _, Vt = linalg.svd(table[j].T @ neighbour)
            rotations[j] = _turned(U @ Vt, table[j].T @ table[j])
    return rotations


MAX_TURN = 0.05
"""Radians in a step of `_turned`: features that turn fast lose variance between two nodes."""


def _turned(rotation: Array, gram: Array) -> Array:
    """A rotation with columns nearer to eigenvectors of `gram`, by three small steps.

    A step turns every pair of columns by about the angle that makes them orthogonal in `gram`. A
    pair that is nearly alike in it turns by less, since its eigenvectors may be any; and so do
    columns that `gram` hardly sees.
    """
    for _ in range(3):
        G = rotation.T @ gram @ rotation
        size = np.diag(G)
        gap = size - size[:, None]
        blur = 0.09 * (size + size[:, None]) ** 2 + 1e-4 * np.max(size) ** 2
        turn = G * gap / np.maximum(gap**2 + blur, np.finfo(float).tiny)
        turn *= MAX_TURN / max(MAX_TURN, np.max(np.abs(turn)))
        Q, R = linalg.qr(np.eye(len(G)) + turn)
        rotation = rotation @ (Q * np.sign(np.diag(R)))
    return rotation


NEIGHBOURS = 5
"""A residual that turns within the reach of five neighbours cannot be told from noise."""


def spacing_and_range(points: Array) -> tuple[float, float]:
    """Median distance to the fifth neighbour, and the diagonal of the points' bounding box."""
    extent = float(np.linalg.norm(np.ptp(points, axis=0)))
    if len(points) < 2 or extent == 0.0:
        return 0.1, 1.0
    k = min(NEIGHBOURS, len(points) - 1)
    reach = cKDTree(points).query(points, k=k + 1)[0][:, -1]
    return float(np.median(reach)), extent


CANDIDATES = 50_000
"""Rows at the most that feature points are chosen from."""


def choose_points(kernel: KernelFunction, x: Array, limit: int, seed: int) -> Array:
    """Feature points: every distinct row if there are at most `limit`, a choice of them beyond.

    The choice is the randomly pivoted Cholesky factorisation of the kernel matrix (Chen, Epperly,
    Tropp, Webber 2024): a row is taken with probability proportional to the variance that the rows
    taken before leave unexplained. Of very many rows it is made among some.
    """
    distinct = np.unique(x, axis=0)
    if len(distinct) <= limit:
        return distinct
    rng = np.random.default_rng(seed)
    if len(distinct) > CANDIDATES:
        distinct = rng.permutation(distinct)[:CANDIDATES]
    spacing, extent = spacing_and_range(distinct)
    ell = np.sqrt(spacing * extent)
    factor, unexplained = np.zeros((len(distinct), limit)), np.ones(len(distinct))
    chosen: list[int] = []
    for i in range(limit):
        pivot = int(rng.choice(len(distinct), p=unexplained / np.sum(unexplained)))
        chosen.append(pivot)
        column = kernel(np.linalg.norm(distinct - distinct[pivot], axis=1) / ell)
        column -= factor[:, :i] @ factor[pivot, :i]
        factor[:, i] = column / np.sqrt(max(column[pivot], 1e-12))
        unexplained = np.maximum(unexplained - factor[:, i] ** 2, 0.0)
        unexplained[chosen] = 0.0
        if np.sum(unexplained) <= 1e-10 * len(distinct):
            break
    return distinct[chosen]


def interpolation(log_ell: Any, grid: Any, xp: Any = np) -> tuple[Any, Any]:
    """Catmull-Rom interpolation on an equispaced grid.

    Returns the first of four neighbouring nodes and their weights, shape (..., 4); beyond the ends
    of the grid the nearest node is used. `xp` is numpy or jax.numpy, so that fitting and predicting
    share one formula. The result is C1 in ``log_ell`` inside the grid.
    """
    J = grid.shape[0]
    if J < 4:
        raise ValueError(f"Interpolation needs at least 4 nodes; got {J}.")
    position = xp.clip((log_ell - grid[0]) / (grid[1] - grid[0]), 1.0, J - 2.0)
    start = xp.clip(xp.floor(position), 1, J - 3).astype(int)
    s = (position - start)[..., None]
    weights = xp.concatenate(
        [
            0.5 * s * (-1.0 + s * (2.0 - s)),
            1.0 + 0.5 * s**2 * (3.0 * s - 5.0),
            0.5 * s * (1.0 + s * (4.0 - 3.0 * s)),
            0.5 * s**2 * (s - 1.0),
        ],
        axis=-1,
    )
    return start - 1, weights


def nodes_between(log_ell: Array, grid: Array) -> slice:
    """The nodes that interpolation at any of these length-scales reads."""
    first = interpolation(log_ell, grid)[0]
    return slice(int(np.min(first)), int(np.max(first)) + 4)


def interpolate(table: Array, log_ell: float, grid: Array) -> Array:
    """A table (J, ...) at one length-scale."""
    first, weights = interpolation(np.asarray(log_ell), grid)
    return np.tensordot(weights, table[first : first + 4], axes=1)


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
