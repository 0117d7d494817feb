"""The law of a partitioned posterior (Li, Srivastava and Dunson 2017): an average of shards.

Every one-dimensional answer of the whole is the law whose quantile function is the average of the
shards' quantile functions. Where the answer is a set of draws, that is the average of the sorted
draws.
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
from bne._law.distribution import Law, PredictiveDistribution


def average_draws(draws: Sequence[Array]) -> Array:
    """Draws (S, ...) of the averaged-quantile law of each column; one set is left as it is."""
    if len(draws) == 1:
        return draws[0]
    return np.mean([np.sort(d, axis=0) for d in draws], axis=0)


NODES = np.linspace(-6.0, 6.0, 97)
"""Where the averaged quantile function is tabulated, as quantiles of N(0, 1)."""

FINE = np.linspace(-6.0, 6.0, 2401)

MAX_ITERATIONS = 50

TINY = np.finfo(np.float64).tiny


class AveragedDistribution(Law):
    """The law whose quantile function is the average of those of several laws at the same rows.

    Moments, CRPS, mode and samples come from its quantile function on a grid, interpolated; the CDF
    and the density are refined by Newton's method on the quantile function itself.
    """

    def __init__(self, laws: Sequence[PredictiveDistribution]) -> None:
        self._laws = laws
        self._n_rows = len(laws[0])

    def mean(self) -> Array:
        """Predictive mean: (N,)."""
        return np.mean([law.mean() for law in self._laws], axis=0)

    def var(self) -> Array:
        """Predictive variance: (N,)."""
        weights = _gaussian_weights(FINE)

        def about_mean(fine: Array, _: slice) -> Array:
            return (fine - (fine @ weights)[:, None]) ** 2 @ weights

        return self._by_rows(about_mean)

    def entropy(self) -> Array:
        """Differential entropy: (N,)."""
        weights = _gaussian_weights(0.5 * (FINE[1:] + FINE[:-1]))
        log_slopes = self._by_rows(lambda fine, _: np.log(_secants(fine)) @ weights)
        return log_slopes + 0.5 * np.log(2.0 * np.pi * np.e)

    def _quantiles(self, levels: Array) -> Array:
        return np.mean([law.ppf(levels) for law in self._laws], axis=0)

    def cdf(self, y: ArrayLike) -> Array:
        """Predictive CDF."""
        values, shape = self._broadcast(y)
        return special.ndtr(self._solve(values)[0]).reshape(shape)

    def logpdf(self, y: ArrayLike) -> Array:
        """Log predictive density."""
        values, shape = self._broadcast(y)
        z, slope = self._solve(values)
        return (-0.5 * z**2 - 0.5 * np.log(2.0 * np.pi) - np.log(slope)).reshape(shape)

    def mode(self) -> Array:
        """Where the predictive density is highest: (N,)."""

        def highest(fine: Array, _: slice) -> Array:
            log_density = -0.125 * (FINE[1:] + FINE[:-1]) ** 2 - np.log(_secants(fine))
            return fine[np.arange(len(fine)), np.argmax(log_density, axis=1)]

        return self._by_rows(highest)

    def sample(self, n: int = 1, random_state: Any = None) -> Array:
        """Draws from the predictive distribution, independent across rows: (N, n)."""
        z = check_random_state(random_state).standard_normal((self._n_rows, n))

        def drawn(fine: Array, part: slice) -> Array:
            return np.stack([np.interp(u, FINE, q) for u, q in zip(z[part], fine, strict=True)])

        return self._by_rows(drawn)

    def crps(self, y: ArrayLike) -> Array:
        """Continuous ranked probability score at y, the average over levels of the pinball loss."""
        values, shape = self._broadcast(y)
        u, weights = special.ndtr(FINE), _gaussian_weights(FINE)

        def scores(fine: Array, part: slice) -> Array:
            above = [fine - column[:, None] for column in values[part].T]
            return np.stack([2.0 * (((a >= 0) - u[None]) * a) @ weights for a in above], axis=1)

        return self._by_rows(scores).reshape(shape)

    @cached_property
    def _on_nodes(self) -> tuple[Array, Array]:
        """Quantiles at the levels of `NODES`, and slopes so limited that none cross: (N, 97)."""
        levels = np.tile(special.ndtr(NODES), (self._n_rows, 1))
        quantiles, slopes = self._quantiles_and_slopes(levels)
        steep = 3.0 * np.diff(quantiles, axis=1) / np.diff(NODES)
        before, after = (
            np.concatenate(p, 1) for p in ((steep[:, :1], steep), (steep, steep[:, -1:]))
        )
        return quantiles, np.minimum(slopes, np.minimum(before, after))

    def _by_rows(self, answer: Callable[[Array, slice], Array]) -> Array:
        """An answer from the quantiles at the levels of `FINE`, some rows at a time."""
        quantiles, slopes = self._on_nodes
        parts = list(chunks(self._n_rows, len(FINE)))
        splines = (CubicHermiteSpline(NODES, quantiles[p], slopes[p], axis=1) for p in parts)
        return np.concatenate([answer(f(FINE), p) for f, p in zip(splines, parts, strict=True)])

    def _quantiles_and_slopes(self, levels: Array) -> tuple[Array, Array]:
        """Quantiles (N, Q), and their derivative in the quantile of N(0, 1)."""
        log_phi = -0.5 * special.ndtri(levels) ** 2 - 0.5 * np.log(2.0 * np.pi)
        quantiles, slopes = np.zeros_like(levels), np.zeros_like(levels)
        for law in self._laws:
            q = law.ppf(levels)
            quantiles += q / len(self._laws)
            slopes += np.exp(np.minimum(log_phi - law.logpdf(q), 500.0)) / len(self._laws)
        return quantiles, slopes

    def _solve(self, y: Array) -> tuple[Array, Array]:
        """Where the quantile function is y (N, Q), as quantiles of N(0, 1), and its slope there.

        Newton's method, with halvings of what is known to hold the answer; beyond the grid the
        quantile function goes on as a straight line.
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
    """Predictive distribution at N rows: of the only stage, or averaged over shards."""
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
    """Slopes of quantiles at the levels of `FINE`, above 0."""
    return np.maximum(np.diff(fine, axis=1) / np.diff(FINE), TINY)


def _gaussian_weights(z: Array) -> Array:
    """Weights of a rule for expectations under N(0, 1) on an equispaced grid."""
    weights = np.exp(-0.5 * z**2)
    return weights / np.sum(weights)
