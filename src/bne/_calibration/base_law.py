"""The base law phi of t, which G changes: normal with power tails. Integrals against it.

Here phi is its density and Phi its CDF. They are those of N(0, 1) up to |t| = L.
"""

from typing import Any

import numpy as np
from scipy import special

from bne._base.typing import Array

HALF_WIDTH = 5.0
"""L: the half-width of the interval of t on which G varies. It covers all but 6e-7 of N(0, 1).

A wider interval would need more cosines or more nodes for the same resolution.
"""

TAIL_POWER = 6
"""p: far out, phi falls as ``|t|^-p``. So t has four moments, and its kurtosis exists."""

NODE_SPACING = 1.0 / 12.0
"""Delta: the distance of two nodes of the quadrature. Eight nodes lie in the finest half-wave.

Let c be the curvature of a draw's log density at its peak. The trapezoid rule misses a share
``2 exp(-2 pi^2 / (c Delta^2))`` of a Gaussian peak. So the normaliser is exact to 1e-6 if c is less
than 195, and to 1e-9 if c is less than 130 (`sharpest_peak`). Time and memory grow with the number
of nodes.
"""


def log_base(t: Any, xp: Any = np) -> Any:
    """Find log phi(t): that of N(0, 1) up to L, then ``log phi(L) - p log(1 + L (|t| - L) / p)``.

    The slope at L is that of the normal density. The mass of the tails is 7e-7, in place of 6e-7.
    """
    inside = xp.minimum(xp.abs(t), HALF_WIDTH)
    beyond = xp.abs(t) - inside
    tail = TAIL_POWER * xp.log1p(HALF_WIDTH / TAIL_POWER * beyond)
    return -0.5 * inside**2 - 0.5 * np.log(2.0 * np.pi) - tail


def tail_pdf(t: Any, xp: Any = np) -> Any:
    """Find phi(t) for |t| >= L: `log_base` without a logarithm."""
    end = np.exp(log_base(HALF_WIDTH))
    return end * _falling(t, xp) ** TAIL_POWER


def tail_mass(t: Any, xp: Any = np) -> Any:
    """Find the mass of phi beyond |t| on one side, for |t| >= L."""
    return TAIL_MOMENTS[0] * _falling(t, xp) ** (TAIL_POWER - 1)


def _falling(t: Any, xp: Any) -> Any:
    """Find ``1 / (1 + L (|t| - L) / p)``, whose power p is the tail relative to phi(L)."""
    beyond = xp.maximum(xp.abs(t) - HALF_WIDTH, 0.0)
    return 1.0 / (1.0 + HALF_WIDTH / TAIL_POWER * beyond)


def _tail_moments() -> Array:
    """Integrate ``t^k phi``, k = 0 ... 3, and ``-phi log phi`` from L to infinity: (5,)."""
    L, p, end = HALF_WIDTH, TAIL_POWER, np.exp(log_base(HALF_WIDTH))
    j = np.arange(4)
    beyond = end * special.beta(j + 1, p - 1 - j) * (p / L) ** (j + 1)  # integrals of (t - L)^j phi
    powers = [np.sum(special.binom(k, j) * L ** (k - j) * beyond * (j <= k)) for k in range(4)]
    surprise = (p / (p - 1) - np.log(end)) * beyond[0]
    return np.array([*powers, surprise])


TAIL_MOMENTS = _tail_moments()
"""Integrals of ``t^k phi``, k = 0 ... 3, and of ``-phi log phi`` from L to infinity."""


def sharpest_peak(error: float) -> float:
    """Find the curvature c of the sharpest peak that the quadrature integrates with this error.

    The error is relative. By Poisson's summation formula, the trapezoid rule misses the share
    ``2 exp(-2 pi^2 / (c Delta^2))`` of the mass of a Gaussian peak of width ``c^(-1/2)``.
    """
    return 2.0 * np.pi**2 / (NODE_SPACING**2 * np.log(2.0 / error))


def quadrature() -> tuple[Array, Array]:
    """Make nodes (Q,) and weights (5, Q) for integrals of r, t r, t^2 r, t^3 r, -r log phi by phi.

    Between -L and L it is the trapezoid rule. At each end two things are added: the first two
    correction terms of Euler and Maclaurin, and the exact integral over the tail, where r is
    constant. The terms use that the first and third derivatives of r are 0 there.
    """
    t = np.linspace(-HALF_WIDTH, HALF_WIDTH, round(2 * HALF_WIDTH / NODE_SPACING) + 1)
    log_phi = log_base(t)
    weights = NODE_SPACING * np.exp(log_phi) * np.vstack([t ** np.arange(4)[:, None], -log_phi])
    first, third = _end_slopes()
    # at the ends r' = r''' = 0, because r is even about them; r'' is a central difference
    bend = 3.0 * first * 2.0 / NODE_SPACING**2
    at_end = -(NODE_SPACING**2) / 12.0 * first + NODE_SPACING**4 / 720.0 * (third - bend)
    right = np.stack([NODE_SPACING**4 / 720.0 * bend, at_end + TAIL_MOMENTS], axis=1)
    weights[:, [0, -1]] *= 0.5
    weights[:, -2:] += right
    weights[:, :2] += np.array([1.0, -1.0, 1.0, -1.0, 1.0])[:, None] * right[:, ::-1]
    return t, weights


def _end_slopes() -> tuple[Array, Array]:
    """Find the first and third derivatives at L of ``t^k phi``, k = 0 ... 3, and -phi log phi."""
    factors = [np.polynomial.Polynomial(np.eye(4)[k]) for k in range(4)]
    factors.append(np.polynomial.Polynomial([0.5 * np.log(2.0 * np.pi), 0.0, 0.5]))
    slopes = []
    for _ in range(3):  # (f phi)' = (f' - t f) phi
        factors = [f.deriv() - np.polynomial.Polynomial([0.0, 1.0]) * f for f in factors]
        slopes.append([f(HALF_WIDTH) for f in factors])
    phi = np.exp(log_base(HALF_WIDTH))
    return phi * np.array(slopes[0]), phi * np.array(slopes[2])
