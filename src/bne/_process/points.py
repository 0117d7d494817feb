"""Feature points: which rows carry a process, and how far apart they are."""

import numpy as np
from scipy.spatial import cKDTree

from bne._base.typing import Array
from bne._process.kernels import KernelFunction

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
