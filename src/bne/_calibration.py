"""The calibration function G (Eq. 3): what its two constructions share.

In the coordinate ``t = (y - mu) / sigma_eps`` the density of y is ``r(t | x) phi(t) / sigma_eps``,
with the ratio r = dG/du at u = Phi(t). Both constructions have

    r(t | x) = link(s(t, x)) / Z(x),
    s(t, x) = offset(t) + b(t; ell_t)^T sigma_G [W^T a_G(x; ell_x)],

a positive link, Z by quadrature, and b = T(ell_t)^T psi(t), psi cosines of an angle that depends on
t alone. So G is a CDF in every draw and at every x. Beyond -L and L the ratio stays at its value
there, and phi falls as a power of t (`log_base`) where the normal density would fall so fast that a
single outlier decides over sigma_eps. A construction (`bne._logistic`, `bne._cgp`) says what angle,
offset, link and roots T are.
"""

from typing import Any, NamedTuple, Protocol

import numpy as np
from scipy import special

from bne._priors import InverseGamma
from bne._typing import Array

HALF_WIDTH = 5.0
"""L: the basis covers all but 6e-7 of N(0, 1)."""

TAIL_POWER = 6
"""phi falls as this power of 1 / |t| in the end; t has four moments."""

N_COSINES = 16
"""M: in the logistic construction the finest half-wave is 2 L / 15 = 0.67 noise scales long."""

NODE_SPACING = 0.125
"""Of the quadrature: about five nodes in the finest half-wave, so that no spike hides between."""


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


def quadrature() -> tuple[Array, Array]:
    """Nodes (Q,), and weights (5, Q) for integrals against phi of r, t r, t^2 r, t^3 r, -r log phi.

    The trapezoid rule inside; on the two end nodes also the first term of Euler and Maclaurin (r is
    flat there) and the exact integral over the tail, where r is constant.
    """
    t = np.linspace(-HALF_WIDTH, HALF_WIDTH, round(2 * HALF_WIDTH / NODE_SPACING) + 1)
    k, L, log_phi = np.arange(4), HALF_WIDTH, log_base(t)
    phi, surprise = np.exp(log_phi), -log_phi[-1]
    weights = NODE_SPACING * phi * np.vstack([t ** k[:, None], -log_phi])
    slope = k * L ** np.maximum(k - 1, 0) - L ** (k + 1)
    slope = phi[-1] * np.append(slope, L - L * surprise)
    right = 0.5 * weights[:, -1] - NODE_SPACING**2 / 12.0 * slope + TAIL_MOMENTS
    weights[:, -1], weights[:, 0] = right, np.array([1.0, -1.0, 1.0, -1.0, 1.0]) * right
    return t, weights


def moments(construction: Construction, orders: tuple[int, ...]) -> Array:
    """Integrals of ``t^k psi(t)`` against N(0, 1), k in `orders`: (k, M)."""
    t = np.linspace(-12.0, 12.0, 4801)
    weights = np.exp(-0.5 * t**2) / np.sqrt(2.0 * np.pi) * (t[1] - t[0])
    return (weights * t ** np.asarray(orders)[:, None]) @ cosines(construction, t)
