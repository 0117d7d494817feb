"""Draws -> predictive distribution (Eqs. 4 and 6): the one bridge every answer reads.

The predictive CDF is the average over posterior draws of ``F_s(y | x)``; quantiles invert that
average. Rows are worked in chunks, so that memory does not grow with their number.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy import special
from scipy.optimize import elementwise
from sklearn.utils import check_random_state

from bne._base.typing import Array, Integers
from bne._calibration.construction import log_base
from bne._calibration.ratio import FAR, Ratio
from bne._data.scaling import Scaling

CHUNK_ELEMENTS = 4_000_000
"""Draws x rows x values held at once: 32 MB a temporary array."""


class ConditionalDraws(NamedTuple):
    """The posterior of F(y | x) at n rows, in the model's units: S distributions for each row.

    Values are asked for in pairs: a y and the row it belongs to, k of each.

    Attributes
    ----------
    mu : (S, n) array
    sigma_eps : (S,) array
    ratio : Ratio or None
        dG/du of every draw; None is G = I.
    """

    mu: Array
    sigma_eps: Array
    ratio: Ratio | None = None

    def standardise(self, y: Array, row: Integers) -> Array:
        """Map y (k,) to ``t = (y - mu) / sigma_eps``: (S, k)."""
        return (y[None, :] - self.mu[:, row]) / self.sigma_eps[:, None]

    def cdf(self, y: Array, row: Integers) -> Array:
        """Draw-averaged CDF: (k,)."""
        t = self.standardise(y, row)
        draws = special.ndtr(t) if self.ratio is None else self.ratio.cdf(t, row)
        return np.mean(draws, axis=0)

    def log_pdf_draws(self, y: Array, row: Integers) -> Array:
        """Log density of every draw: (S, k)."""
        t, log_sigma = self.standardise(y, row), np.log(self.sigma_eps)[:, None]
        if self.ratio is None:
            return -0.5 * t**2 - 0.5 * np.log(2.0 * np.pi) - log_sigma
        return log_base(t) + self.ratio.log_ratio(t, row) - log_sigma

    def entropy(self) -> Array:
        """Differential entropy of every draw: (S, n)."""
        log_sigma = np.log(self.sigma_eps)[:, None]
        if self.ratio is None:
            return np.broadcast_to(log_sigma + 0.5 * np.log(2.0 * np.pi * np.e), self.mu.shape)
        return log_sigma + self.ratio.moments.entropy

    def divergences(self, low: Array, high: Array) -> Array:
        """Of every draw's law from their average, on a grid between ends (n,): (S, n)."""
        assert self.ratio is not None
        return self.ratio.divergences(self.mu, self.sigma_eps, low, high)

    def moments(self) -> tuple[Array, Array]:
        """Mean and variance of every draw: (S, n) each."""
        sigma = self.sigma_eps[:, None]
        if self.ratio is None:
            return self.mu, np.broadcast_to(sigma**2, self.mu.shape)
        return self.mu + sigma * self.ratio.moments.mean, sigma**2 * self.ratio.moments.variance

    def quantile_range(self, levels: Array, row: Integers) -> tuple[Array, Array]:
        """Values (k,) between which the mixture's quantiles at `levels` lie."""
        if self.ratio is None:
            low = high = special.ndtri(levels)
        else:
            low, high = np.full_like(levels, -FAR), np.full_like(levels, FAR)
        mu, sigma = self.mu[:, row], self.sigma_eps[:, None]
        ends = np.min(mu + sigma * low, axis=0), np.max(mu + sigma * high, axis=0)
        return ends[0] - 1e-9, ends[1] + 1e-9

    def sample(self, draw: Integers, rng: np.random.RandomState) -> Array:
        """One y for each row and each draw index in `draw` (n, size)."""
        row = np.broadcast_to(np.arange(self.mu.shape[1])[:, None], draw.shape)
        if self.ratio is None:
            t = rng.standard_normal(draw.shape)
        else:
            t = self.ratio.ppf(rng.uniform(size=draw.shape), draw, row)
        return self.mu[draw, row] + self.sigma_eps[draw] * t


def check_levels(levels: ArrayLike) -> None:
    """Of quantiles: in (0, 1)."""
    levels = np.asarray(levels, dtype=np.float64)
    bad = levels[~((levels > 0) & (levels < 1))]
    if bad.size:
        raise ValueError(f"`quantiles` must lie in (0, 1); got {bad[0]:g}. Pass 0.9, not 90.")


def by_row(function: Callable[[Array, Integers], Array], values: Array) -> Array:
    """Apply a function of (values, rows) to an array (n, Q), and shape the answer like it."""
    n, Q = values.shape
    answer = function(values.ravel(), np.repeat(np.arange(n), Q))
    return answer.reshape(*answer.shape[:-1], n, Q)


DrawsAt = Callable[[slice], ConditionalDraws]


class Law(ABC):
    """What all predictive distributions at N rows share.

    An argument `y` (or a level `q`) of shape (N,) is taken row by row, (N, Q) gives (N, Q), and a
    scalar is the same for every row.
    """

    _n_rows: int

    def __len__(self) -> int:
        """Return the number of rows."""
        return self._n_rows

    @abstractmethod
    def var(self) -> Array:
        """Predictive variance: (N,)."""

    def std(self) -> Array:
        """Predictive standard deviation: (N,)."""
        return np.sqrt(self.var())

    @abstractmethod
    def logpdf(self, y: ArrayLike) -> Array:
        """Log predictive density."""

    def pdf(self, y: ArrayLike) -> Array:
        """Predictive density."""
        return np.exp(self.logpdf(y))

    @abstractmethod
    def _quantiles(self, levels: Array) -> Array:
        """Quantiles at levels (N, Q) in (0, 1)."""

    def ppf(self, q: ArrayLike) -> Array:
        """Quantiles: the inverse of the CDF."""
        levels, shape = self._broadcast(q)
        check_levels(levels)
        return self._quantiles(levels).reshape(shape)

    def median(self) -> Array:
        """Predictive median: (N,)."""
        return self.ppf(0.5)

    def interval(self, coverage: float = 0.9) -> tuple[Array, Array]:
        """Central interval: lower and upper ends, (N,) each."""
        if not 0 < coverage < 1:
            raise ValueError(f"`coverage` must lie in (0, 1); got {coverage:g}. Pass 0.9, not 90.")
        tail = 0.5 * (1.0 - coverage)
        ends = self.ppf(np.tile([tail, 1.0 - tail], (self._n_rows, 1)))
        return ends[:, 0], ends[:, 1]

    def _broadcast(self, y: ArrayLike) -> tuple[Array, tuple[int, ...]]:
        """Bring an argument to (N, Q), and say the shape of the answer."""
        values = np.asarray(y, dtype=np.float64)
        if values.ndim == 0:
            return np.full((self._n_rows, 1), values), (self._n_rows,)
        if values.ndim > 2 or len(values) != self._n_rows:
            raise ValueError(
                f"Expected a scalar, ({self._n_rows},) or ({self._n_rows}, Q) for {self._n_rows} "
                f"rows; got shape {values.shape}. For Q values at every row pass "
                "np.tile(values, (N, 1))."
            )
        return values.reshape(self._n_rows, -1), values.shape


class PredictiveDistribution(Law):
    """Predictive distribution of y at N rows.

    Made by `BNERegressor.predict_distribution`. An argument `y` (or a level `q`) of shape (N,) is
    taken row by row, (N, Q) gives (N, Q), and a scalar is the same for every row.
    """

    def __init__(
        self,
        draws_at: DrawsAt,
        n_rows: int,
        n_draws: int,
        scaling: Scaling,
        row_elements: int = 1,
    ) -> None:
        self._draws_at = draws_at
        self._n_rows = n_rows
        self._n_draws = n_draws
        self._row_elements = row_elements
        self._scaling = scaling

    def mean(self) -> Array:
        """Predictive mean: (N,)."""
        mean = self._by_chunk(lambda draws: np.mean(draws.moments()[0], axis=0))
        return self._scaling.undo_outcome(mean)

    def var(self) -> Array:
        """Predictive variance, by the law of total variance: (N,)."""

        def total(draws: ConditionalDraws) -> Array:
            mean, variance = draws.moments()
            return np.mean(variance, axis=0) + np.var(mean, axis=0)

        return self._by_chunk(total) * self._scaling.y_scale**2

    def cdf(self, y: ArrayLike) -> Array:
        """Predictive CDF."""
        return self._at(y, lambda draws, v: by_row(draws.cdf, v))

    def logpdf(self, y: ArrayLike) -> Array:
        """Log predictive density."""

        def average(draws: ConditionalDraws, v: Array) -> Array:
            log_pdf = by_row(draws.log_pdf_draws, v)
            return special.logsumexp(log_pdf, axis=0) - np.log(self._n_draws)

        return self._at(y, average) - np.log(self._scaling.y_scale)

    def _quantiles(self, levels: Array) -> Array:
        """Invert the draw-averaged CDF."""
        return self._scaling.undo_outcome(self._by_chunk(invert, levels))

    def mode(self) -> Array:
        """Where the predictive density is highest: (N,)."""
        return self._scaling.undo_outcome(self._by_chunk(_mode, cost=2))

    def sample(self, n: int = 1, random_state: Any = None) -> Array:
        """Draws from the predictive distribution, independent across rows: (N, n)."""
        rng = check_random_state(random_state)
        draw = rng.randint(self._n_draws, size=(self._n_rows, n))
        return self._scaling.undo_outcome(self._by_chunk(lambda d, s: d.sample(s, rng), draw))

    def crps(self, y: ArrayLike) -> Array:
        """Continuous ranked probability score at y: shape of y."""
        return self._at(y, _crps, cost=len(CRPS_NODES[0])) * self._scaling.y_scale

    def _at(
        self, y: ArrayLike, function: Callable[[ConditionalDraws, Array], Array], cost: int = 1
    ) -> Array:
        values, shape = self._broadcast(y)
        scaled = self._scaling.outcome(values)
        return self._by_chunk(function, scaled, cost=cost).reshape(shape)

    def _by_chunk(
        self, function: Callable[..., Array], values: Any = None, *, cost: int = 1
    ) -> Array:
        """Apply a function of the draws (and values) to chunks of rows; `cost` elements a value."""
        width = max(self._row_elements, cost * (1 if values is None else values.shape[1]))
        parts = [
            function(self._draws_at(rows), *(() if values is None else (values[rows],)))
            for rows in chunks(self._n_rows, self._n_draws * width)
        ]
        return np.concatenate(parts) if parts else np.empty(0)


def chunks(n_rows: int, row_elements: int) -> Iterator[slice]:
    """Slices of rows with at most `CHUNK_ELEMENTS` elements each."""
    size = max(1, CHUNK_ELEMENTS // max(row_elements, 1))
    for first in range(0, n_rows, size):
        yield slice(first, min(first + size, n_rows))


def invert(draws: ConditionalDraws, levels: Array) -> Array:
    """Quantiles of the averaged CDF at `levels` (n, Q).

    With G = I by a bracketing root finder: a quantile of a mixture lies between the least and the
    greatest of its components' quantiles.
    """
    if draws.ratio is not None:
        return draws.ratio.mixture_quantiles(draws.mu, draws.sigma_eps, levels)

    def quantiles(q: Array, row: Integers) -> Array:
        def excess(y: Array, q: Array, row: Integers) -> Array:
            return draws.cdf(y, row) - q

        bracket = draws.quantile_range(q, row)
        return elementwise.find_root(excess, bracket, args=(q, row), tolerances=TOLERANCES).x

    return by_row(quantiles, levels)


TOLERANCES = {"xatol": 1e-12, "xrtol": 1e-14, "fatol": 1e-10, "frtol": 0.0}
MODE_GRID = 201


def _mode(draws: ConditionalDraws) -> Array:
    """Highest point of the averaged density: the best of a grid, then refined."""
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


def _crps(draws: ConditionalDraws, y: Array) -> Array:
    """Integral of ``(F(z) - 1[y <= z])^2`` over z, split at y where the integrand jumps."""
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
