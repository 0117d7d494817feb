"""The law phi that G changes: normal, with power tails, and the quadrature against it."""

from typing import Any

import numpy as np
from scipy import special

from bne._base.typing import Array

HALF_WIDTH = 5.0
"""L: the basis covers all but 6e-7 of N(0, 1)."""

TAIL_POWER = 6
"""phi falls as this power of 1 / |t| in the end; t has four moments."""

NODE_SPACING = 1.0 / 12.0
"""Distance of two nodes of the quadrature: eight nodes lie in the finest half-wave.

The trapezoid rule misses ``2 exp(-2 pi^2 / (c Delta^2))`` of a Gaussian peak whose log density has
the curvature c. So the normaliser is exact to 1e-6 for every draw whose log density bends by less
than c = 195 at its peak, and to 1e-9 where c is less than 130 (`sharpest_peak`).
"""


def log_base(t: Any, xp: Any = np) -> Any:
    """Log phi: of N(0, 1) up to L, beyond it ``log phi(L) - p log(1 + L (|t| - L) / p)``.

    The slope at L is that of the normal density. The tails' mass is 7e-7 in place of 6e-7.
    """
    inside = xp.minimum(xp.abs(t), HALF_WIDTH)
    beyond = xp.abs(t) - inside
    tail = TAIL_POWER * xp.log1p(HALF_WIDTH / TAIL_POWER * beyond)
    return -0.5 * inside**2 - 0.5 * np.log(2.0 * np.pi) - tail


def tail_pdf(t: Any, xp: Any = np) -> Any:
    """Phi's density at |t|, at least L: `log_base` without a logarithm."""
    end = np.exp(log_base(HALF_WIDTH))
    return end * _falling(t, xp) ** TAIL_POWER


def tail_mass(t: Any, xp: Any = np) -> Any:
    """Integral of phi from |t|, at least L, on: Phi(-|t|) of a power's tail."""
    return TAIL_MOMENTS[0] * _falling(t, xp) ** (TAIL_POWER - 1)


def _falling(t: Any, xp: Any) -> Any:
    """``1 / (1 + L (|t| - L) / p)``."""
    beyond = xp.maximum(xp.abs(t) - HALF_WIDTH, 0.0)
    return 1.0 / (1.0 + HALF_WIDTH / TAIL_POWER * beyond)


def _tail_moments() -> Array:
    """Integrals of ``t^k phi`` from L on, k = 0 ... 3, and of ``-phi log phi``: (5,)."""
    L, p, end = HALF_WIDTH, TAIL_POWER, np.exp(log_base(HALF_WIDTH))
    j = np.arange(4)
    beyond = end * special.beta(j + 1, p - 1 - j) * (p / L) ** (j + 1)  # of (t - L)^j
    powers = [np.sum(special.binom(k, j) * L ** (k - j) * beyond * (j <= k)) for k in range(4)]
    surprise = (p / (p - 1) - np.log(end)) * beyond[0]
    return np.array([*powers, surprise])


TAIL_MOMENTS = _tail_moments()


def sharpest_peak(error: float) -> float:
    """Curvature of the sharpest peak that the trapezoid rule integrates with this relative error.

    Poisson's sum of a Gaussian peak of width ``c^(-1/2)``: the first wave that the nodes cannot
    tell from a constant has the share ``2 exp(-2 pi^2 / (c Delta^2))`` of the peak's mass.
    """
    return 2.0 * np.pi**2 / (NODE_SPACING**2 * np.log(2.0 / error))


def quadrature() -> tuple[Array, Array]:
    """Nodes (Q,), and weights (5, Q) for integrals against phi of r, t r, t^2 r, t^3 r, -r log phi.

    The trapezoid rule inside. The ends add the first two terms of Euler and Maclaurin, in which r
    is even about L and -L, and the exact integral over the tail, where r is constant.
    """
    t = np.linspace(-HALF_WIDTH, HALF_WIDTH, round(2 * HALF_WIDTH / NODE_SPACING) + 1)
    log_phi = log_base(t)
    weights = NODE_SPACING * np.exp(log_phi) * np.vstack([t ** np.arange(4)[:, None], -log_phi])
    first, third = _end_slopes()
    # r'' by its central difference, and r' = r''' = 0
    bend = 3.0 * first * 2.0 / NODE_SPACING**2
    at_end = -(NODE_SPACING**2) / 12.0 * first + NODE_SPACING**4 / 720.0 * (third - bend)
    right = np.stack([NODE_SPACING**4 / 720.0 * bend, at_end + TAIL_MOMENTS], axis=1)
    weights[:, [0, -1]] *= 0.5
    weights[:, -2:] += right
    weights[:, :2] += np.array([1.0, -1.0, 1.0, -1.0, 1.0])[:, None] * right[:, ::-1]
    return t, weights


def _end_slopes() -> tuple[Array, Array]:
    """First and third derivatives at L of ``t^k phi``, k = 0 ... 3, and of ``-phi log phi``."""
    factors = [np.polynomial.Polynomial(np.eye(4)[k]) for k in range(4)]
    factors.append(np.polynomial.Polynomial([0.5 * np.log(2.0 * np.pi), 0.0, 0.5]))
    slopes = []
    for _ in range(3):  # (p phi)' = (p' - t p) phi
        factors = [p.deriv() - np.polynomial.Polynomial([0.0, 1.0]) * p for p in factors]
        slopes.append([p(HALF_WIDTH) for p in factors])
    phi = np.exp(log_base(HALF_WIDTH))
    return phi * np.array(slopes[0]), phi * np.array(slopes[2])
