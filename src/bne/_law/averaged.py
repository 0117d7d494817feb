"""The predictive law of a partitioned posterior: an average over its shards.

Every one-dimensional answer has a law in each shard. The law of the whole is the one whose quantile
function is the average of the shards' quantile functions (Li, Srivastava and Dunson 2017). If the
laws are given by draws, this is the average of the sorted draws.
"""

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy import special
from scipy.interpolate import CubicHermiteSpline
from sklearn.utils import check_random_state

from bne._base.typing import Array
from bne._data.rows import Rows
from bne._data.scaling import Scaling
from bne._draws.stage import Stage
from bne._law.conditional import chunks, conditional_draws
from bne._law.distribution import Law, PredictiveDistribution, at_finite


def average_draws(draws: Sequence[Array]) -> Array:
    """Average the quantiles of several sets of draws (S, ...), column by column.

    The draws of each shard are sorted and then averaged. A single set is returned as it is.
    """
    if len(draws) == 1:
        return draws[0]
    return np.mean([np.sort(d, axis=0) for d in draws], axis=0)


NODES = np.linspace(-6.0, 6.0, 97)
"""Levels at which the averaged quantile function is tabulated, as quantiles of N(0, 1).

They reach to six standard deviations, beyond which a law has a mass of 1e-9 on either side.
"""

FINE = np.linspace(-6.0, 6.0, 2401)
"""Levels of the finer grid to which the table is interpolated, as quantiles of N(0, 1).

Sums over this grid stand for integrals, at a cost that is small beside that of the table.
"""

MAX_ITERATIONS = 50
"""Limit on the steps of Newton's method. A halving at every step would also end within it."""

TINY = np.finfo(np.float64).tiny
"""Smallest normal number: a lower bound that keeps divisors and logarithms finite."""


class AveragedDistribution(Law):
    """The law whose quantile function is the average of those of several laws at the same rows.

    The variance, the entropy, the CRPS, the mode and samples come from a table of this quantile
    function. The CDF and the density start from the table, and Newton's method then solves for them
    with the quantile function itself.
    """

    def __init__(self, laws: Sequence[PredictiveDistribution]) -> None:
        self._laws = laws
        self._n_rows = len(laws[0])

    def mean(self) -> Array:
        """Return the predictive mean: (N,)."""
        return np.mean([law.mean() for law in self._laws], axis=0)

    def var(self) -> Array:
        """Return the predictive variance: (N,)."""
        weights = _gaussian_weights(FINE)

        def about_mean(fine: Array, _: slice) -> Array:
            return (fine - (fine @ weights)[:, None]) ** 2 @ weights

        return self._by_rows(about_mean)

    def entropy(self) -> Array:
        """Return the differential entropy: (N,)."""
        weights = _gaussian_weights(0.5 * (FINE[1:] + FINE[:-1]))
        log_slopes = self._by_rows(lambda fine, _: np.log(_secants(fine)) @ weights)
        return log_slopes + 0.5 * np.log(2.0 * np.pi * np.e)

    def _quantiles(self, levels: Array) -> Array:
        return np.mean([law.ppf(levels) for law in self._laws], axis=0)

    def cdf(self, y: ArrayLike) -> Array:
        """Return the predictive CDF at y."""
        values, shape = self._broadcast(y)
        found = at_finite(lambda v: special.ndtr(self._solve(v)[0]), values, 0.0, 1.0)
        return found.reshape(shape)

    def logpdf(self, y: ArrayLike) -> Array:
        """Return the log of the predictive density at y."""
        values, shape = self._broadcast(y)

        def log_density(finite: Array) -> Array:
            z, slope = self._solve(finite)
            return -0.5 * z**2 - 0.5 * np.log(2.0 * np.pi) - np.log(slope)

        return at_finite(log_density, values, -np.inf, -np.inf).reshape(shape)

    def mode(self) -> Array:
        """Find where the predictive density is highest: (N,)."""

        def highest(fine: Array, _: slice) -> Array:
            log_density = -0.125 * (FINE[1:] + FINE[:-1]) ** 2 - np.log(_secants(fine))
            return fine[np.arange(len(fine)), np.argmax(log_density, axis=1)]

        return self._by_rows(highest)

    def sample(self, n: int = 1, random_state: Any = None) -> Array:
        """Draw from the predictive distribution, independently at each row: (N, n)."""
        z = check_random_state(random_state).standard_normal((self._n_rows, n))

        def drawn(fine: Array, part: slice) -> Array:
            return np.stack([np.interp(u, FINE, q) for u, q in zip(z[part], fine, strict=True)])

        return self._by_rows(drawn)

    def crps(self, y: ArrayLike) -> Array:
        """Return the continuous ranked probability score (CRPS) at y, which has the shape of y.

        It is twice the pinball loss of the quantiles, averaged over their levels.
        """
        values, shape = self._broadcast(y)
        u, weights = special.ndtr(FINE), _gaussian_weights(FINE)

        def at(finite: Array) -> Array:
            def scores(fine: Array, part: slice) -> Array:
                above = [fine - column[:, None] for column in finite[part].T]
                return np.stack([2.0 * (((a >= 0) - u[None]) * a) @ weights for a in above], axis=1)

            return self._by_rows(scores)

        return at_finite(at, values, np.inf, np.inf).reshape(shape)

    @cached_property
    def _on_nodes(self) -> tuple[Array, Array]:
        """Quantiles at the levels of `NODES`, and their slopes: (N, 97) each.

        The slopes are limited, so that the interpolated quantiles increase with the level.
        """
        levels = np.tile(special.ndtr(NODES), (self._n_rows, 1))
        quantiles, slopes = self._quantiles_and_slopes(levels)
        steep = 3.0 * np.diff(quantiles, axis=1) / np.diff(NODES)
        before, after = (
            np.concatenate(p, 1) for p in ((steep[:, :1], steep), (steep, steep[:, -1:]))
        )
        return quantiles, np.minimum(slopes, np.minimum(before, after))

    def _by_rows(self, answer: Callable[[Array, slice], Array]) -> Array:
        """Apply `answer` to the quantiles at the levels of `FINE`, in chunks of rows."""
        quantiles, slopes = self._on_nodes
        parts = list(chunks(self._n_rows, len(FINE)))
        splines = (CubicHermiteSpline(NODES, quantiles[p], slopes[p], axis=1) for p in parts)
        return np.concatenate([answer(f(FINE), p) for f, p in zip(splines, parts, strict=True)])

    def _quantiles_and_slopes(self, levels: Array) -> tuple[Array, Array]:
        """Find the quantiles at `levels` (N, Q), and their slopes in the quantile of N(0, 1)."""
        log_phi = -0.5 * special.ndtri(levels) ** 2 - 0.5 * np.log(2.0 * np.pi)
        quantiles, slopes = np.zeros_like(levels), np.zeros_like(levels)
        for law in self._laws:
            q = law.ppf(levels)
            quantiles += q / len(self._laws)
            # the bound of 500 keeps exp finite where a law has hardly any density
            slopes += np.exp(np.minimum(log_phi - law.logpdf(q), 500.0)) / len(self._laws)
        return quantiles, slopes

    def _solve(self, y: Array) -> tuple[Array, Array]:
        """Find the level at which the quantile function is y (N, Q), and its slope there.

        The level is given as a quantile of N(0, 1). It is found by Newton's method. A step that
        would leave the interval known to hold the answer is replaced by its midpoint. Beyond the
        grid the quantile function is continued as a straight line.
        """

        def start(fine: Array, part: slice) -> Array:
            return np.stack([np.interp(v, q, FINE) for v, q in zip(y[part], fine, strict=True)])

        z, ends = self._by_rows(start), self._on_nodes[0]
        low, high = np.full_like(z, FINE[0]), np.full_like(z, FINE[-1])
        step, slope = np.zeros_like(z), np.ones_like(z)
        for _ in range(MAX_ITERATIONS):
            q, slope = self._quantiles_and_slopes(special.ndtr(z))
            low, high = np.where(q < y, z, low), np.where(q < y, high, z)
            step = (y - q) / slope
            if np.all((np.abs(step) < 1e-7) | (high - low < 1e-9)):
                break
            newton = z + step
            inside = (newton > low) & (newton < high)
            z = np.where(inside, newton, 0.5 * (low + high))
        outside = (y < ends[:, :1]) | (y > ends[:, -1:])
        return np.where(outside | (np.abs(step) < 1e-7), z + step, z), slope


def make_law(stages: Sequence[Stage], rows: Rows, scaling: Scaling) -> Law:
    """Make the predictive distribution at N rows; several stages are shards, to be averaged."""
    laws = [
        PredictiveDistribution(
            lambda part, stage=stage: conditional_draws(stage, rows.part(part)),
            len(rows.f),
            stage.draws.size,
            scaling,
            stage.row_elements,
        )
        for stage in stages
    ]
    return laws[0] if len(laws) == 1 else AveragedDistribution(laws)


def _secants(fine: Array) -> Array:
    """Find the slopes of quantiles between the levels of `FINE`; they are kept above 0."""
    return np.maximum(np.diff(fine, axis=1) / np.diff(FINE), TINY)


def _gaussian_weights(z: Array) -> Array:
    """Find weights on an equispaced grid whose sums stand for expectations under N(0, 1)."""
    weights = np.exp(-0.5 * z**2)
    return weights / np.sum(weights)
