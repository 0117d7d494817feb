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

from bne._base.priors import InverseGamma
from bne._base.typing import Array

N_COSINES = 16
"""M: in the logistic construction the finest half-wave is 2 L / 15 = 0.67 noise scales long."""


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


def moments(construction: Construction, orders: tuple[int, ...]) -> Array:
    """Integrals of ``t^k psi(t)`` against N(0, 1), k in `orders`: (k, M)."""
    t = np.linspace(-12.0, 12.0, 4801)
    weights = np.exp(-0.5 * t**2) / np.sqrt(2.0 * np.pi) * (t[1] - t[0])
    return (weights * t ** np.asarray(orders)[:, None]) @ cosines(construction, t)
