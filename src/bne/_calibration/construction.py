"""The calibration function G (Eq. 3): what its two constructions share.

In the coordinate ``t = (y - mu) / sigma_eps`` the density of y is ``r(t | x) phi(t) / sigma_eps``,
with the ratio r = dG/du at u = Phi(t). Both constructions have

    r(t | x) = link(s(t, x)) / Z(x),
    s(t, x) = offset(t) + b(t; ell_t)^T sigma_G [W^T a_G(x; ell_x)],

a positive link, Z by quadrature, and b = T(ell_t)^T psi(t), psi cosines of an angle that depends on
t alone. So G is a CDF in every draw and at every x. Beyond -L and L the ratio stays at its value
there, and phi falls as a power of t (`log_base`) where the normal density would fall so fast that a
single outlier decides over sigma_eps. A construction (`logistic`, `cgp`) says what angle, offset,
link and roots T are.
"""

from typing import Any, NamedTuple, Protocol

import numpy as np
from scipy import special

from bne._base.priors import InverseGamma
from bne._base.typing import Array

HALF_WIDTH = 5.0
"""L: the basis covers all but 6e-7 of N(0, 1)."""

TAIL_POWER = 6
"""phi falls as this power of 1 / |t| in the end; t has four moments."""

N_COSINES = 16
"""M: in the logistic construction the finest half-wave is 2 L / 15 = 0.67 noise scales long."""

NODE_SPACING = 1.0 / 12.0
"""Distance of two nodes of the quadrature: eight nodes lie in the finest half-wave.

The trapezoid rule misses ``2 exp(-2 pi^2 / (c Delta^2))`` of a Gaussian peak whose log density has
the curvature c. So the normaliser is exact to 1e-6 for every draw whose log density bends by less
than c = 195 at its peak, and to 1e-9 where c is less than 130 (`sharpest_peak`).
"""


class Basis(NamedTuple):
    """What the ratio needs in t, tabulated over its length-scale.

    Attributes
    ----------
    prior : InverseGamma
        On ell_t.
    log_ell : (J,) grid.
    roots : (J, M, P) array
        T(ell_t): a root of the coefficients' prior covariance.
    """

    prior: InverseGamma
    log_ell: Array
    roots: Array


class Construction(Protocol):
    """What a construction of G defines. Methods take numpy or jax.numpy as `xp`."""

    @property
    def has_kinks(self) -> bool:
        """Whether the link may bend within less than a cell of the quadrature."""
        ...

    def angle(self, t: Any, xp: Any = np) -> Any:
        """Angle of the cosines at t, in [0, pi], flat beyond the ends."""
        ...

    def angle_slope(self, t: Array) -> Array:
        """Its derivative inside the ends."""
        ...

    @property
    def norms(self) -> Array:
        """Factors (M,) of the cosines."""
        ...

    def make_basis(self, has_residual: bool) -> Basis:
        """Tabulate the roots; with delta, location is taken out of them at every x."""
        ...

    def amplitude(self, log_sigma_G: Any, xp: Any = np) -> Any:
        """Amplitude of the process at this coordinate."""
        ...

    def offset(self, b: Any, sigma_G: Any, xp: Any = np) -> Any:
        """Offset of s where the basis is b (..., P)."""
        ...

    def log_link(self, s: Any, xp: Any = np) -> Any:
        """Log of the unnormalised ratio."""
        ...

    def log_constraint(self, virtual: Any, T: Any) -> Any:
        """Log prior factor for coefficients `virtual` (V, P) at the feature points."""
        ...

    def series(self, coefficients: Array, roots: Array, sigma_G: Array) -> Array:
        """S as a cosine series: (S, n, P), (S, M, P) and (S,) -> (S, n, L)."""
        ...

    def completion(self, roots: Array, sigma_G: Array, rng: np.random.Generator) -> Array:
        """Coefficients (S, P) of the process where no feature point is near, one each draw."""
        ...


def cosines(construction: Construction, t: Any, xp: Any = np) -> Any:
    """The functions psi: (..., M)."""
    angle = construction.angle(t, xp)
    waves = [xp.ones_like(angle), xp.cos(angle)]
    while len(waves) < N_COSINES:  # cos((k+1)a) = 2 cos(a) cos(ka) - cos((k-1)a)
        waves.append(2.0 * waves[1] * waves[-1] - waves[-2])
    norms = construction.norms
    return xp.stack([norm * wave for norm, wave in zip(norms, waves, strict=True)], axis=-1)


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


def moments(construction: Construction, orders: tuple[int, ...]) -> Array:
    """Integrals of ``t^k psi(t)`` against N(0, 1), k in `orders`: (k, M)."""
    t = np.linspace(-12.0, 12.0, 4801)
    weights = np.exp(-0.5 * t**2) / np.sqrt(2.0 * np.pi) * (t[1] - t[0])
    return (weights * t ** np.asarray(orders)[:, None]) @ cosines(construction, t)
