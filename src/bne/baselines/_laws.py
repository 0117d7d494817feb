"""Predictive distributions of the comparators: Gaussian mixtures and tables of quantiles."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import scoringrules
from numpy.typing import ArrayLike
from scipy import special, stats
from scipy.optimize import elementwise

from bne._base.typing import Array


def by_row(values: ArrayLike, at: Callable[..., Array], *parameters: Array) -> Array:
    """Apply a function to the values and the parameters of each row.

    Working row by row keeps the memory small where a row has many components. `values` is a
    scalar, (N,) or (N, Q); the answer is (N,) or (N, Q).
    """
    n = len(parameters[0])
    values = np.asarray(values, float)
    table = np.broadcast_to(values.reshape(values.shape or (1,)), (n, *values.shape[1:]))
    rows = zip(table.reshape(n, -1), *parameters, strict=True)
    return np.stack([at(*row) for row in rows]).reshape(table.shape)


@dataclass(frozen=True, eq=False)
class Mixture:
    """A mixture of S Gaussians at each of N rows.

    Its methods take the same arguments as those of `bne.PredictiveDistribution`.

    Attributes
    ----------
    means, sds, weights : (N, S)
        Parameters of the Gaussians. The weights of a row sum to 1.
    """

    means: Array
    sds: Array
    weights: Array

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self.means)

    def mean(self) -> Array:
        """Return the predictive mean, (N,)."""
        return np.sum(self.weights * self.means, axis=1)

    def cdf(self, y: ArrayLike) -> Array:
        """Return the predictive CDF at y."""
        return self._by_row(y, lambda y, m, s, w: special.ndtr((y[:, None] - m) / s) @ w)

    def logpdf(self, y: ArrayLike) -> Array:
        """Return the log of the predictive density at y."""

        def at(y: Array, m: Array, s: Array, w: Array) -> Array:
            with np.errstate(divide="ignore"):
                return special.logsumexp(stats.norm.logpdf(y[:, None], m, s) + np.log(w), axis=1)

        return self._by_row(y, at)

    def pdf(self, y: ArrayLike) -> Array:
        """Return the predictive density at y."""
        return np.exp(self.logpdf(y))

    def ppf(self, q: ArrayLike) -> Array:
        """Return the quantiles of level q.

        A quantile of the mixture lies between the least and the greatest quantile of the
        components; a root is searched for between these two.
        """

        def at(q: Array, m: Array, s: Array, w: Array) -> Array:
            ends = m + s * special.ndtri(q)[:, None]
            low, high = ends.min(axis=1) - 1e-9, ends.max(axis=1) + 1e-9

            def excess(y: Array, q: Array) -> Array:
                return special.ndtr((y[..., None] - m) / s) @ w - q

            return elementwise.find_root(excess, (low, high), args=(q,)).x

        return self._by_row(q, at)

    def interval(self, coverage: float = 0.9) -> tuple[Array, Array]:
        """Return the lower and the upper ends of central intervals, (N,) each."""
        return self.ppf(0.5 - 0.5 * coverage), self.ppf(0.5 + 0.5 * coverage)

    def crps(self, y: ArrayLike) -> Array:
        """Return the CRPS (continuous ranked probability score) of outcomes y, (N,)."""
        return self._by_row(y, lambda y, m, s, w: scoringrules.crps_mixnorm(y, m, s, w))

    def _by_row(self, values: ArrayLike, at: Callable[..., Array]) -> Array:
        return by_row(values, at, self.means, self.sds, self.weights)


@dataclass(frozen=True, eq=False)
class QuantileLaw:
    """A CDF through Q quantiles at each of N rows, joined by straight lines.

    All of the probability lies between the first and the last quantile.

    Attributes
    ----------
    levels : (Q,)
        Levels of the quantiles, increasing from 0 to 1.
    values : (N, Q)
        The quantiles.
    """

    levels: Array
    values: Array

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self.values)

    def mean(self) -> Array:
        """Return the predictive mean, (N,)."""
        return np.asarray(np.trapezoid(self.values, self.levels, axis=1))

    def cdf(self, y: ArrayLike) -> Array:
        """Return the predictive CDF at y."""
        return self._by_row(y, lambda y, v: np.interp(y, v, self.levels, left=0.0, right=1.0))

    def ppf(self, q: ArrayLike) -> Array:
        """Return the quantiles of level q."""
        return self._by_row(q, lambda q, v: np.interp(q, self.levels, v))

    def interval(self, coverage: float = 0.9) -> tuple[Array, Array]:
        """Return the lower and the upper ends of central intervals, (N,) each."""
        return self.ppf(0.5 - 0.5 * coverage), self.ppf(0.5 + 0.5 * coverage)

    def crps(self, y: ArrayLike) -> Array:
        """Return the CRPS of outcomes y, (N,): twice the integral of the pinball loss."""

        def at(y: Array, v: Array) -> Array:
            gap = y[:, None] - v
            loss = 2.0 * gap * (self.levels - (gap < 0))
            return np.asarray(np.trapezoid(loss, self.levels, axis=1))

        return self._by_row(y, at)

    def _by_row(self, values: ArrayLike, at: Callable[..., Array]) -> Array:
        return by_row(values, at, self.values)
