"""The posterior of F(y | x) at some rows: one distribution of y for each draw and row."""

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
from scipy import special

from bne._base.threads import single_blas_thread
from bne._base.typing import Array, Integers
from bne._calibration.base_law import log_base
from bne._calibration.programs import FAR
from bne._calibration.ratio import Ratio
from bne._data.rows import Rows
from bne._draws.stage import Stage

CHUNK_ELEMENTS = 4_000_000
"""Elements (draws x rows x values) of a temporary array: 32 MB. Rows are chunked by this."""


class ConditionalDraws(NamedTuple):
    """The posterior of F(y | x) at n rows, in the model's units: S distributions for each row.

    Methods that evaluate a distribution take k values y (k,) and the rows (k,) that these belong
    to.

    Attributes
    ----------
    mu : (S, n) array
        The mean function mu at the rows.
    sigma_eps : (S,) array
        Noise scale.
    ratio : Ratio or None
        dG/du of every draw; None if G = I.
    """

    mu: Array
    sigma_eps: Array
    ratio: Ratio | None = None

    def standardise(self, y: Array, row: Integers) -> Array:
        """Map y (k,) to ``t = (y - mu) / sigma_eps``: (S, k)."""
        return (y[None, :] - self.mu[:, row]) / self.sigma_eps[:, None]

    def cdf(self, y: Array, row: Integers) -> Array:
        """Find the CDF, averaged over draws: (k,)."""
        t = self.standardise(y, row)
        draws = special.ndtr(t) if self.ratio is None else self.ratio.cdf(t, row)
        return np.mean(draws, axis=0)

    def log_pdf_draws(self, y: Array, row: Integers) -> Array:
        """Find the log density of every draw: (S, k)."""
        t, log_sigma = self.standardise(y, row), np.log(self.sigma_eps)[:, None]
        if self.ratio is None:
            return -0.5 * t**2 - 0.5 * np.log(2.0 * np.pi) - log_sigma
        return log_base(t) + self.ratio.log_ratio(t, row) - log_sigma

    def entropy(self) -> Array:
        """Find the differential entropy of every draw: (S, n)."""
        log_sigma = np.log(self.sigma_eps)[:, None]
        if self.ratio is None:
            return np.broadcast_to(log_sigma + 0.5 * np.log(2.0 * np.pi * np.e), self.mu.shape)
        return log_sigma + self.ratio.moments.entropy

    def divergences(self, low: Array, high: Array) -> Array:
        """Find the divergence KL of every draw's law from their average: (S, n).

        It is an integral over a grid in y between `low` (n,) and `high` (n,).
        """
        assert self.ratio is not None
        return self.ratio.divergences(self.mu, self.sigma_eps, low, high)

    def moments(self) -> tuple[Array, Array]:
        """Find the mean and the variance of y in every draw: (S, n) each."""
        sigma = self.sigma_eps[:, None]
        if self.ratio is None:
            return self.mu, np.broadcast_to(sigma**2, self.mu.shape)
        return self.mu + sigma * self.ratio.moments.mean, sigma**2 * self.ratio.moments.variance

    def total_moments(self) -> tuple[Array, Array]:
        """Find the mean and the variance of y over all draws (total variance): (n,) each."""
        mean, variance = self.moments()
        return np.mean(mean, axis=0), np.mean(variance, axis=0) + np.var(mean, axis=0)

    def quantile_range(self, levels: Array, row: Integers) -> tuple[Array, Array]:
        """Find two values (k,) between which the quantiles of the averaged CDF at `levels` lie."""
        if self.ratio is None:
            low = high = special.ndtri(levels)
        else:
            low, high = np.full_like(levels, -FAR), np.full_like(levels, FAR)
        mu, sigma = self.mu[:, row], self.sigma_eps[:, None]
        ends = np.min(mu + sigma * low, axis=0), np.max(mu + sigma * high, axis=0)
        return ends[0] - 1e-9, ends[1] + 1e-9

    def sample(self, draw: Integers, rng: np.random.RandomState) -> Array:
        """Draw a y for each row and each of its draw indices `draw` (n, size)."""
        row = np.broadcast_to(np.arange(self.mu.shape[1])[:, None], draw.shape)
        if self.ratio is None:
            t = rng.standard_normal(draw.shape)
        else:
            t = self.ratio.ppf(rng.uniform(size=draw.shape), draw, row)
        return self.mu[draw, row] + self.sigma_eps[draw] * t


def by_row(function: Callable[[Array, Integers], Array], values: Array) -> Array:
    """Apply a function of (values, rows) to values (n, Q); the answer has shape (..., n, Q)."""
    n, Q = values.shape
    answer = function(values.ravel(), np.repeat(np.arange(n), Q))
    return answer.reshape(*answer.shape[:-1], n, Q)


def chunks(n_rows: int, row_elements: int) -> Iterator[slice]:
    """Cut the rows into slices of at most `CHUNK_ELEMENTS` elements each."""
    size = max(1, CHUNK_ELEMENTS // max(row_elements, 1))
    for first in range(0, n_rows, size):
        yield slice(first, min(first + size, n_rows))


def conditional_draws(stage: Stage, rows: Rows) -> ConditionalDraws:
    """Find the posterior of F(y | x) at N rows (Eq. 4)."""
    ratio = None
    with single_blas_thread():
        if stage.features is not None and stage.draws.calibration is not None:
            ratio = stage.draws.calibration.ratio(stage.features, rows.x)
        return ConditionalDraws(stage.mu(rows), stage.draws.sigma_eps, ratio)


def log_likelihood_draws(stage: Stage, rows: Rows, y: Array) -> Array:
    """Find the log likelihood of every row in the model's units, in every draw: (S, n)."""
    parts = []
    for part in chunks(len(y), stage.row_elements * stage.draws.size):
        here = conditional_draws(stage, rows.part(part))
        parts.append(here.log_pdf_draws(y[part], np.arange(len(y[part]))))
    return np.concatenate(parts, axis=1)
