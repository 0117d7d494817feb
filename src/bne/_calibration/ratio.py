"""Draws of the ratio r(t | x) = dG/du (Eq. 3): log density, CDF and moments of t.

The function s behind the ratio is stored as a cosine series, which is exact at any t. The CDF is
the integral of a cubic interpolant of the density between the nodes of the quadrature. The slopes
of the interpolant are limited, so that it is never negative. So the CDF increases from 0 to 1 in
every draw and at every x, whatever the coefficients are.

Moments and quantiles come from compiled programs, which work on a block of rows and keep no table.
The CDF at given values reads tables, which are made when they are first needed.
"""

from collections.abc import Callable
from functools import cached_property
from typing import Any

import jax
import numpy as np
from scipy.optimize import elementwise

from bne._base.typing import Array, Integers
from bne._calibration import programs
from bne._calibration.base_law import HALF_WIDTH, log_base
from bne._calibration.construction import Construction
from bne._calibration.programs import FAR, TINY, Moments
from bne._calibration.tables import Tables

BLOCK = 2
"""Rows in one call of a compiled program: few, so that their tables fit into the cache."""

ROW_ELEMENTS = 125
"""Numbers that one draw at one row needs; the size of a chunk of rows follows from it.

A chunk then has 32 rows of 1,000 draws, and takes about 100 MB.
"""


class Ratio:
    """S draws of the ratio at n rows.

    Parameters
    ----------
    construction : Construction
    series : (S, n, L)
        Coefficients of the cosine series of s.
    """

    def __init__(self, construction: Construction, series: Array) -> None:
        self.construction = construction
        self.series = series

    @cached_property
    def moments(self) -> Moments:
        """Normaliser and moments of t."""
        return in_blocks(programs.moments_of, self.series, self.construction)

    @cached_property
    def tables(self) -> Tables:
        """Density and CDF of t on the nodes."""
        return in_blocks(programs.tables_of, self.series, self.construction)

    def cdf(self, t: Array, row: Integers) -> Array:
        """Find the CDF at t (S, k), where column i belongs to row[i]."""
        return self.tables.cdf(t, row)

    def pdf(self, t: Array, row: Integers) -> Array:
        """Find the density of t at t (S, k): the derivative of `cdf`, quicker than `log_ratio`."""
        return self.tables.pdf(t, row)

    def log_ratio(self, t: Array, row: Integers) -> Array:
        """Find log r at t (S, k), where column i belongs to row[i], by Clenshaw's summation.

        If the link may have kinks that the quadrature does not see, the derivative of `cdf` is used
        instead, so that the density and the CDF agree.
        """
        if self.construction.has_kinks:
            return self._log_ratio_of_cdf(t, row)
        twice = 2.0 * np.cos(self.construction.angle(t))
        series = self.series[:, row]
        last, previous = np.zeros_like(t), np.zeros_like(t)
        for k in range(series.shape[2] - 1, 0, -1):
            last, previous = series[:, :, k] + twice * last - previous, last
        s = series[:, :, 0] + 0.5 * twice * last - previous
        return self.construction.log_link(s) - self.moments.log_Z[:, row]

    def _log_ratio_of_cdf(self, t: Array, row: Integers) -> Array:
        """Find log r from the derivative of `cdf`."""
        inside = np.log(np.maximum(self.pdf(t, row), TINY)) - log_base(t)
        ends = np.log(np.maximum(self.tables.ends[:, row], TINY))
        beyond = np.where(t < 0, ends[:, :, 0], ends[:, :, 1])
        return np.where(np.abs(t) > HALF_WIDTH, beyond, inside)

    def ppf(self, u: Array, draw: Integers, row: Integers) -> Array:
        """Find quantiles of t at levels u, each in its own draw and row (arrays of one shape)."""

        def excess(t: Array, u: Array, draw: Integers, row: Integers) -> Array:
            one = Tables(*(a[draw, row][None] for a in self.tables))
            return one.cdf(t[None, :], np.arange(t.size))[0] - u

        ends = np.full(u.size, -FAR), np.full(u.size, FAR)
        levels = u.ravel(), draw.ravel(), row.ravel()
        return elementwise.find_root(excess, ends, args=levels).x.reshape(u.shape)

    def mixture_quantiles(self, mu: Array, sigma: Array, levels: Array) -> Array:
        """Find quantiles of the average, over the draws, of the laws of ``mu + sigma t``.

        Parameters
        ----------
        mu : (S, n); sigma : (S,); levels : (n, Q)

        Returns
        -------
        (n, Q) array
        """
        rows = self.series, mu, levels.T
        found, self.moments = in_blocks(programs.mixture_quantiles, rows, sigma, self.construction)
        return found.T

    def divergences(self, mu: Array, sigma: Array, low: Array, high: Array) -> Array:
        """Find the divergence KL of each draw's law of ``mu + sigma t`` from their average: (S, n).

        Parameters
        ----------
        mu : (S, n); sigma : (S,)
        low, high : (n,)
            Ends of the grid in y.
        """
        rows = self.series, mu, np.stack([low, high])
        return in_blocks(programs.divergences_of, rows, sigma, self.construction)


def make_ratio(
    construction: Construction, coefficients: Array, roots: Array, sigma_G: Array
) -> Ratio:
    """Make draws of the ratio from draws of the process behind it.

    Parameters
    ----------
    construction : Construction
    coefficients : (S, n, P)
        Coefficients of b(t), sigma_G included.
    roots : (S, M, P)
        Roots ``T(ell_t)``, where ``b(t) = T^T psi(t)``.
    sigma_G : (S,)
        Amplitude of the process.
    """
    return Ratio(construction, construction.series(coefficients, roots, sigma_G))


def in_blocks(function: Callable[..., Any], rows: Any, *shared: Any) -> Any:
    """Apply a compiled function to `BLOCK` rows at a time, and join the answers.

    If the last block is too short, its last row is repeated. So all blocks have the same shape, and
    the function is compiled once for any number of rows.

    Parameters
    ----------
    rows : array or tree of arrays
        Arrays whose second axis counts rows, as that of the answer does.
    """
    n = jax.tree.leaves(rows)[0].shape[1]
    pieces = []
    with jax.enable_x64(True):
        for first in range(0, n, BLOCK):
            kept = np.minimum(np.arange(first, first + BLOCK), n - 1)
            block = jax.tree.map(lambda a, kept=kept: a[:, kept], rows)
            # repeated rows are cut off here: look-ups in an array that is cut later would copy it
            real = slice(n - first)
            answer = function(block, *shared)
            pieces.append(jax.tree.map(lambda a, real=real: np.asarray(a)[:, real], answer))
    return jax.tree.map(lambda *a: np.concatenate(a, axis=1), *pieces)
