"""Inverse-Gamma priors of length-scales, and half-Normal priors of scales.

The sampler moves their logarithms. So each density below is that of the logarithm: it includes the
Jacobian.
"""

from typing import Any, NamedTuple

import numpy as np
from scipy import optimize, stats

TAIL = 0.01
"""Prior mass of a length-scale below the spacing of the data, and above their range.

The data say little about length-scales outside these bounds; the prior keeps them unlikely.
"""


class InverseGamma(NamedTuple):
    """The prior density ``p(ell) ~ ell^(-shape - 1) exp(-rate / ell)`` of a length-scale."""

    shape: float
    rate: float

    def log_density(self, log_ell: Any, xp: Any = np) -> Any:
        """Find the log density of log(ell), up to a constant."""
        return -self.shape * log_ell - self.rate * xp.exp(-log_ell)

    def quantile(self, q: float) -> float:
        """Find the quantile of ell at the level q."""
        return float(stats.invgamma.ppf(q, self.shape, scale=self.rate))


def half_normal_log_density(log_sigma: Any, scale: float, xp: Any = np) -> Any:
    """Find the log density of log(sigma) for sigma ~ HalfNormal(scale), up to a constant."""
    return log_sigma - 0.5 * (xp.exp(log_sigma) / scale) ** 2


def fit_inverse_gamma(low: float, high: float, tail: float = TAIL) -> InverseGamma:
    """Find the inverse Gamma prior with mass `tail` below `low` and mass `tail` above `high`.

    ``rate / ell`` has the distribution Gamma(shape, 1), so the ratio of its two quantiles fixes the
    shape. If `high` is less than twice `low`, twice `low` is used instead.
    """
    high = max(high, 2.0 * low)

    def excess(log_shape: float) -> float:
        gamma = stats.gamma(np.exp(log_shape))
        return np.log(gamma.ppf(1.0 - tail) / gamma.ppf(tail)) - np.log(high / low)

    shape = float(np.exp(optimize.brentq(excess, np.log(0.15), np.log(1e4))))
    return InverseGamma(shape, low * float(stats.gamma.ppf(1.0 - tail, shape)))


class Priors(NamedTuple):
    """Priors of the hyperparameters of the Gaussian stages, in the model's units (sd(y) = 1).

    Attributes
    ----------
    ell : InverseGamma
        Prior of the length-scale of delta.
    omega, delta, noise : float
        Scales of the half-Normal priors of sigma_omega, sigma_delta and sigma_eps.
    """

    ell: InverseGamma
    omega: float = 1.0
    delta: float = 1.0
    noise: float = 1.0


def length_scale_grid(prior: InverseGamma, n_nodes: int) -> np.ndarray:
    """Make a grid of equispaced log length-scales over the prior, with a spare node at each end.

    The upper end is at most ten times the upper 1% quantile of the prior. The features of longer
    length-scales are all alike, and beyond the grid its last node is used.
    """
    low = np.log(prior.quantile(5e-4))
    high = np.log(min(prior.quantile(1 - 5e-4), 10.0 * prior.quantile(1 - TAIL)))
    step = (high - low) / (n_nodes - 3)
    return low - step + step * np.arange(n_nodes)
