"""The predictive distribution of y (Eqs. 4 and 6), made from posterior draws.

Its CDF is the average of ``F_s(y | x)`` over the draws s, and its quantiles invert that average.
Rows are answered in chunks, so that the memory in use does not grow with their number.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy import special
from sklearn.utils import check_random_state

from bne._base.checks import check_levels, unmasked
from bne._base.typing import Array
from bne._data.scaling import Scaling
from bne._law import numerics
from bne._law.conditional import ConditionalDraws, by_row, chunks

DrawsAt = Callable[[slice], ConditionalDraws]
"""A function that gives the draws of F(y | x) at a slice of the rows."""


class Law(ABC):
    """The interface of all predictive distributions at N rows.

    Arguments `y` and levels `q` may have three shapes. (N,) holds one value for each row; (N, Q)
    holds Q values for each row; a scalar is used for every row. Then the answer has shape (N,),
    (N, Q) or (N,).
    """

    _n_rows: int

    def __len__(self) -> int:
        """Return the number of rows."""
        return self._n_rows

    @abstractmethod
    def mean(self) -> Array:
        """Return the predictive mean: (N,)."""

    @abstractmethod
    def var(self) -> Array:
        """Return the predictive variance: (N,)."""

    def std(self) -> Array:
        """Return the predictive standard deviation: (N,)."""
        return np.sqrt(self.var())

    @abstractmethod
    def cdf(self, y: ArrayLike) -> Array:
        """Return the predictive CDF at y."""

    @abstractmethod
    def crps(self, y: ArrayLike) -> Array:
        """Return the continuous ranked probability score (CRPS) at y, which has the shape of y."""

    @abstractmethod
    def mode(self) -> Array:
        """Find where the predictive density is highest: (N,)."""

    @abstractmethod
    def sample(self, n: int = 1, random_state: Any = None) -> Array:
        """Draw from the predictive distribution, independently at each row: (N, n)."""

    @abstractmethod
    def logpdf(self, y: ArrayLike) -> Array:
        """Return the log of the predictive density at y."""

    def pdf(self, y: ArrayLike) -> Array:
        """Return the predictive density at y."""
        return np.exp(self.logpdf(y))

    @abstractmethod
    def _quantiles(self, levels: Array) -> Array:
        """Find the quantiles at levels (N, Q) in (0, 1)."""

    def ppf(self, q: ArrayLike) -> Array:
        """Return the predictive quantiles at the levels q: the inverse of the CDF."""
        levels, shape = self._broadcast(q)
        check_levels(levels, "quantiles")
        return self._quantiles(levels).reshape(shape)

    def median(self) -> Array:
        """Return the predictive median: (N,)."""
        return self.ppf(0.5)

    def interval(self, coverage: float = 0.9) -> tuple[Array, Array]:
        """Return the lower and upper ends of the central interval (Eq. 6), (N,) each."""
        check_levels(coverage, "coverage")
        tail = 0.5 * (1.0 - coverage)
        ends = self.ppf(np.tile([tail, 1.0 - tail], (self._n_rows, 1)))
        return ends[:, 0], ends[:, 1]

    def _broadcast(self, y: ArrayLike) -> tuple[Array, tuple[int, ...]]:
        """Bring an argument to (N, Q), and return it with the shape of the answer."""
        values = np.asarray(unmasked(y), dtype=np.float64)
        if values.ndim == 0:
            return np.full((self._n_rows, 1), values), (self._n_rows,)
        if values.ndim > 2 or len(values) != self._n_rows:
            raise ValueError(
                f"Expected a scalar, ({self._n_rows},) or ({self._n_rows}, Q) for {self._n_rows} "
                f"rows; got shape {values.shape}. To evaluate the same Q values at every row, pass "
                "np.tile(values, (N, 1))."
            )
        return values.reshape(self._n_rows, -1), values.shape


def at_finite(
    function: Callable[[Array], Array], values: Array, below: float, above: float
) -> Array:
    """Evaluate a function of values of y, also at -inf (`below`), at inf (`above`) and at NaN."""
    finite = np.isfinite(values)
    if np.all(finite):
        return function(values)
    some = values[finite][0] if np.any(finite) else 0.0
    found = function(np.where(finite, values, some))
    ends = np.where(np.isnan(values), np.nan, np.where(values > 0, above, below))
    return np.where(finite, found, ends)


class PredictiveDistribution(Law):
    """Predictive distribution of y at N rows, in units of y (Eqs. 4 and 6).

    `BNERegressor.predict_distribution` makes it. Arguments `y` and levels `q` may have three
    shapes. (N,) holds one value for each row; (N, Q) holds Q values for each row; a scalar is used
    for every row. Then the answer has shape (N,), (N, Q) or (N,).
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
        """Return the predictive mean: (N,)."""
        mean = self._by_chunk(lambda draws: draws.total_moments()[0])
        return self._scaling.undo_outcome(mean)

    def var(self) -> Array:
        """Return the predictive variance: (N,)."""
        variance = self._by_chunk(lambda draws: draws.total_moments()[1])
        return variance * self._scaling.y_scale**2

    def cdf(self, y: ArrayLike) -> Array:
        """Return the predictive CDF at y."""
        return self._at(y, lambda draws, v: by_row(draws.cdf, v), (0.0, 1.0))

    def logpdf(self, y: ArrayLike) -> Array:
        """Return the log of the predictive density at y."""

        def average(draws: ConditionalDraws, v: Array) -> Array:
            log_pdf = by_row(draws.log_pdf_draws, v)
            return special.logsumexp(log_pdf, axis=0) - np.log(self._n_draws)

        return self._at(y, average, (-np.inf, -np.inf)) - np.log(self._scaling.y_scale)

    def _quantiles(self, levels: Array) -> Array:
        """Invert the draw-averaged CDF."""
        return self._scaling.undo_outcome(self._by_chunk(numerics.invert, levels))

    def mode(self) -> Array:
        """Find where the predictive density is highest: (N,)."""
        return self._scaling.undo_outcome(self._by_chunk(numerics.mode, cost=2))

    def sample(self, n: int = 1, random_state: Any = None) -> Array:
        """Draw from the predictive distribution, independently at each row: (N, n)."""
        rng = check_random_state(random_state)
        draw = rng.randint(self._n_draws, size=(self._n_rows, n))
        return self._scaling.undo_outcome(self._by_chunk(lambda d, s: d.sample(s, rng), draw))

    def crps(self, y: ArrayLike) -> Array:
        """Return the continuous ranked probability score (CRPS) at y, which has the shape of y."""
        cost = len(numerics.CRPS_NODES[0])
        return self._at(y, numerics.crps, (np.inf, np.inf), cost) * self._scaling.y_scale

    def _at(
        self,
        y: ArrayLike,
        function: Callable[[ConditionalDraws, Array], Array],
        ends: tuple[float, float],
        cost: int = 1,
    ) -> Array:
        """Evaluate a function of the draws and of y; `ends` are its values at -inf and at inf."""
        values, shape = self._broadcast(y)

        def at(finite: Array) -> Array:
            scaled = self._scaling.outcome(finite)
            return self._by_chunk(function, scaled, cost=cost).reshape(finite.shape)

        return at_finite(at, values, *ends).reshape(shape)

    def _by_chunk(
        self, function: Callable[..., Array], values: Any = None, *, cost: int = 1
    ) -> Array:
        """Apply a function of the draws, and of `values`, to chunks of rows.

        `cost` is the number of elements that the function holds for each value.
        """
        width = max(self._row_elements, cost * (1 if values is None else values.shape[1]))
        parts = [
            function(self._draws_at(rows), *(() if values is None else (values[rows],)))
            for rows in chunks(self._n_rows, self._n_draws * width)
        ]
        return np.concatenate(parts) if parts else np.empty(0)
