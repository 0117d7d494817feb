"""Feature points: the rows on which a process is built, and their distances."""

import numpy as np
from scipy.spatial import cKDTree

from bne._base.typing import Array
from bne._process.kernels import KernelFunction

NEIGHBOURS = 5
"""The spacing of points is the distance to this many neighbours.

A process that varies within the distance of five neighbours cannot be told from noise.
"""


def spacing_and_range(points: Array) -> tuple[float, float]:
    """Find the median distance to the fifth neighbour, and the diagonal of the bounding box."""
    extent = float(np.linalg.norm(np.ptp(points, axis=0)))
    if len(points) < 2 or extent == 0.0:
        return 0.1, 1.0
    k = min(NEIGHBOURS, len(points) - 1)
    reach = cKDTree(points).query(points, k=k + 1)[0][:, -1]
    return float(np.median(reach)), extent


CANDIDATES = 50_000
"""Largest number of rows among which feature points are chosen; more take time and memory."""


def choose_points(kernel: KernelFunction, x: Array, limit: int, seed: int) -> Array:
    """Choose the feature points: all distinct rows if there are at most `limit`, else `limit` rows.

    They are chosen by randomly pivoted Cholesky factorisation of the kernel matrix (Chen, Epperly,
    Tropp and Webber 2024). A row is taken with a probability proportional to the variance that the
    rows taken before leave unexplained. When there are very many rows, the points are chosen among
    `CANDIDATES` of them.
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
