"""Inverse-Gamma priors on length-scales, half-Normal priors on scales.

All are sampled on the log scale; each density below includes that Jacobian.
"""

from typing import Any, NamedTuple

import numpy as np
from scipy import optimize, stats

TAIL = 0.01
"""Prior mass of a length-scale below the data's spacing, and above its range."""


class InverseGamma(NamedTuple):
    """Shape and rate of ``p(ell) ~ ell^(-shape - 1) exp(-rate / ell)``."""

    shape: float
    rate: float

    def log_density(self, log_ell: Any, xp: Any = np) -> Any:
        """Log density of log(ell), up to a constant."""
        return -self.shape * log_ell - self.rate * xp.exp(-log_ell)

    def quantile(self, q: float) -> float:
        """Quantile of ell."""
        return float(stats.invgamma.ppf(q, self.shape, scale=self.rate))


def half_normal_log_density(log_sigma: Any, scale: float, xp: Any = np) -> Any:
    """Log density of log(sigma) for sigma ~ HalfNormal(scale), up to a constant."""
    return log_sigma - 0.5 * (xp.exp(log_sigma) / scale) ** 2


def fit_inverse_gamma(low: float, high: float, tail: float = TAIL) -> InverseGamma:
    """Find the inverse Gamma with mass `tail` below `low` and above `high`.

    ``rate / ell ~ Gamma(shape, 1)``, so the ratio of its two quantiles fixes the shape. A prior
    narrower than a factor of two between the tails is widened to it.
    """
    high = max(high, 2.0 * low)

    def excess(log_shape: float) -> float:
        gamma = stats.gamma(np.exp(log_shape))
        return np.log(gamma.ppf(1.0 - tail) / gamma.ppf(tail)) - np.log(high / low)

    shape = float(np.exp(optimize.brentq(excess, np.log(0.15), np.log(1e4))))
    return InverseGamma(shape, low * float(stats.gamma.ppf(1.0 - tail, shape)))


class Priors(NamedTuple):
    """Everything the prior of the Gaussian stages needs, in the model's units (sd(y) = 1).

    Attributes
    ----------
    omega, delta, noise : float
        Scales of the half-Normals on sigma_omega, sigma_delta, sigma_eps.
    ell : InverseGamma
        On the length-scale of delta.
    """

    ell: InverseGamma
    omega: float = 1.0
    delta: float = 1.0
    noise: float = 1.0


def length_scale_grid(prior: InverseGamma, n_nodes: int) -> np.ndarray:
    """Equispaced log length-scales over the prior, with a spare node at each end.

    The upper end is ten times the prior's upper tail at the most: the features of longer
    length-scales are all alike, and beyond the grid its last node is used.
    """
    low = np.log(prior.quantile(5e-4))
    high = np.log(min(prior.quantile(1 - 5e-4), 10.0 * prior.quantile(1 - TAIL)))
    step = (high - low) / (n_nodes - 3)
    return low - step + step * np.arange(n_nodes)
