"""Quantiles, modes and scores of a law that is the average of many draws."""

import numpy as np
from scipy.optimize import elementwise

from bne._base.typing import Array, Integers
from bne._law.conditional import ConditionalDraws, by_row


def invert(draws: ConditionalDraws, levels: Array) -> Array:
    """Find the quantiles of the averaged CDF at `levels` (n, Q).

    If G = I, a bracketing root finder is used: a quantile of a mixture lies between the smallest
    and the largest quantile of its components. If not, `Ratio.mixture_quantiles` finds them.
    """
    if draws.ratio is not None:
        return draws.ratio.mixture_quantiles(draws.mu, draws.sigma_eps, levels)

    def quantiles(q: Array, row: Integers) -> Array:
        def excess(y: Array, q: Array, row: Integers) -> Array:
            return draws.cdf(y, row) - q

        bracket = draws.quantile_range(q, row)
        return elementwise.find_root(excess, bracket, args=(q, row), tolerances=TOLERANCES).x

    return by_row(quantiles, levels)


TOLERANCES = {"xatol": 1e-12, "xrtol": 1e-14, "fatol": 0.0, "frtol": 0.0}
"""A quantile is found when it is known to 1e-12. Its CDF says nothing at levels such as 1e-12."""

MODE_GRID = 201
"""Values of y, between the .001 and .999 quantiles, among which the mode is first sought.

A peak narrower than the step of this grid may be missed; a finer grid takes longer.
"""


def mode(draws: ConditionalDraws) -> Array:
    """Find the highest point of the averaged density: the best of a grid, then refined."""
    rows = np.arange(draws.mu.shape[1])
    ends = invert(draws, np.tile([0.001, 0.999], (len(rows), 1)))
    grid = ends[:, :1] + (ends[:, 1:] - ends[:, :1]) * np.linspace(0.0, 1.0, MODE_GRID)

    def minus_pdf(y: Array, row: Integers) -> Array:
        return -np.mean(np.exp(draws.log_pdf_draws(y, row)), axis=0)

    values = np.stack([minus_pdf(column, rows) for column in grid.T], axis=1)
    best = np.clip(np.argmin(values, axis=1), 1, MODE_GRID - 2)
    bracket = tuple(grid[rows, best + i] for i in (-1, 0, 1))
    refined = elementwise.find_minimum(minus_pdf, bracket, args=(rows,))
    return np.where(refined.success, refined.x, bracket[1])


CRPS_NODES = np.polynomial.legendre.leggauss(64)
"""Nodes and weights of a Gauss-Legendre rule; two such rules give the CRPS, on either side of y."""


def crps(draws: ConditionalDraws, y: Array) -> Array:
    """Integrate ``(F(z) - 1[y <= z])^2`` over z, on either side of y, where the integrand jumps."""
    nodes, weights = CRPS_NODES
    row = np.arange(len(y))
    low = draws.quantile_range(np.full(len(y), 1e-9), row)[0][:, None]
    high = draws.quantile_range(np.full(len(y), 1 - 1e-9), row)[1][:, None]
    total = np.zeros_like(y)
    for start, end, offset in ((np.minimum(low, y), y, 0.0), (y, np.maximum(high, y), 1.0)):
        half = 0.5 * (end - start)
        z = (start + half)[..., None] + half[..., None] * nodes
        F = by_row(draws.cdf, z.reshape(len(y), -1)).reshape(z.shape)
        total += half * ((F - offset) ** 2 @ weights)
    return total
