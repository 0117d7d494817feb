"""Draws of the ratio r(t | x) = dG/du: log density, CDF and moments in the coordinate t.

The ratio's predictor is kept as a cosine series, exact at any t. The CDF is the integral of a cubic
interpolant of the density on the quadrature nodes, with slopes limited so that the interpolant is
never negative: in every draw and at every x a CDF, whatever the coefficients.

Moments and quantiles come from compiled programs that see a block of rows and keep no table; the
CDF at given values reads tables, which are made when they are first asked for.
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
"""Rows that a compiled program sees at a time: few, so that their tables stay in the cache."""

ROW_ELEMENTS = 125
"""Weight of a draw at a row where chunks are made: 32 rows of 1,000 draws take some 100 MB."""


class Ratio:
    """S draws of the ratio at n rows.

    Parameters
    ----------
    construction : Construction
    series : (S, n, L)
        Cosine coefficients of the predictor s.
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
        """CDF of t (S, k), the k-th column at row[k]."""
        return self.tables.cdf(t, row)

    def pdf(self, t: Array, row: Integers) -> Array:
        """Density of t (S, k), the derivative of `cdf`; quicker than `log_ratio`."""
        return self.tables.pdf(t, row)

    def log_ratio(self, t: Array, row: Integers) -> Array:
        """Log r at t (S, k), the k-th column at row[k]: Clenshaw's sum of the series.

        Where the link has kinks that no quadrature sees, the derivative of `cdf` is used instead.
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
        inside = np.log(np.maximum(self.pdf(t, row), TINY)) - log_base(t)
        ends = np.log(np.maximum(self.tables.ends[:, row], TINY))
        beyond = np.where(t < 0, ends[:, :, 0], ends[:, :, 1])
        return np.where(np.abs(t) > HALF_WIDTH, beyond, inside)

    def ppf(self, u: Array, draw: Integers, row: Integers) -> Array:
        """Quantiles of t at levels u, one draw and one row each; all of one shape."""

        def excess(t: Array, u: Array, draw: Integers, row: Integers) -> Array:
            one = Tables(*(a[draw, row][None] for a in self.tables))
            return one.cdf(t[None, :], np.arange(t.size))[0] - u

        ends = np.full(u.size, -FAR), np.full(u.size, FAR)
        levels = u.ravel(), draw.ravel(), row.ravel()
        return elementwise.find_root(excess, ends, args=levels).x.reshape(u.shape)

    def mixture_quantiles(self, mu: Array, sigma: Array, levels: Array) -> Array:
        """Quantiles of the average over draws of the laws of ``mu + sigma t``.

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
        """Of the law of ``mu + sigma t`` of each draw from the average over draws: (S, n).

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
    """Draws of the ratio from those of its process.

    Parameters
    ----------
    construction : Construction
    coefficients : (S, n, P)
        Of b(t), sigma_G included.
    roots : (S, M, P)
        ``T(ell_t)``: b(t) = T^T psi(t).
    sigma_G : (S,)
    """
    return Ratio(construction, construction.series(coefficients, roots, sigma_G))


def in_blocks(function: Callable[..., Any], rows: Any, *shared: Any) -> Any:
    """Apply a compiled function to `BLOCK` rows at a time, the last one repeated at the end.

    Blocks have one shape, so that it is compiled once whatever the number of rows.

    Parameters
    ----------
    rows : array or tree of arrays
        The second axis is that of rows, in the answer too.
    """
    n = jax.tree.leaves(rows)[0].shape[1]
    pieces = []
    with jax.enable_x64(True):
        for first in range(0, n, BLOCK):
            kept = np.minimum(np.arange(first, first + BLOCK), n - 1)
            block = jax.tree.map(lambda a, kept=kept: a[:, kept], rows)
            # what is repeated goes here, not at the end: look-ups would copy a cut array every time
            real = slice(n - first)
            answer = function(block, *shared)
            pieces.append(jax.tree.map(lambda a, real=real: np.asarray(a)[:, real], answer))
    return jax.tree.map(lambda *a: np.concatenate(a, axis=1), *pieces)
