"""The calibration function G (Eq. 3): the form that its two constructions share.

In the coordinate ``t = (y - mu) / sigma_eps`` the density of y is ``r(t | x) phi(t) / sigma_eps``,
with the ratio r = dG/du at u = Phi(t). Both constructions have

    r(t | x) = link(s(t, x)) / Z(x),
    s(t, x) = offset(t) + b(t; ell_t)^T sigma_G [W^T a_G(x; ell_x)],

The link is positive, and Z is an integral found by quadrature. So G is a CDF in every draw and at
every x. The basis is ``b = T(ell_t)^T psi(t)``, where psi are cosines of an angle that depends on t
alone. W are whitened coefficients, and a_G are features in x.

Beyond -L and L the ratio keeps its value there, and phi falls as a power of t (`log_base`). A
normal density would fall so fast that a single outlier could decide how large sigma_eps is.

A construction (`logistic`, `cgp`) defines the angle, the offset, the link and the roots T. Below,
"the process" is the Gaussian process behind s: h of `logistic` or g of `cgp`.
"""

from typing import Any, NamedTuple, Protocol

import numpy as np

from bne._base.priors import InverseGamma
from bne._base.typing import Array

N_COSINES = 16
"""M: the number of cosines.

In the logistic construction the finest half-wave is 2 L / 15 = 0.67 noise scales long; a sharper
edge of the density is smoothed. More cosines resolve finer edges, but cost time in every gradient.
"""


class Basis(NamedTuple):
    """The basis of the process in t, tabulated over its length-scale.

    Attributes
    ----------
    prior : InverseGamma
        Prior of the length-scale ell_t.
    log_ell : (J,)
        Log length-scales of the nodes.
    roots : (J, M, P) array
        T(ell_t): a root of the prior covariance of the coefficients of the cosines.
    """

    prior: InverseGamma
    log_ell: Array
    roots: Array


class Construction(Protocol):
    """The interface of a construction of G. Methods take numpy or jax.numpy as `xp`."""

    @property
    def has_kinks(self) -> bool:
        """Whether the link may bend within less than a cell of the quadrature."""
        ...

    def angle(self, t: Any, xp: Any = np) -> Any:
        """Find the angle of the cosines at t, in [0, pi]; it is constant beyond -L and L."""
        ...

    def angle_slope(self, t: Array) -> Array:
        """Find the derivative of the angle between -L and L."""
        ...

    @property
    def norms(self) -> Array:
        """Factors (M,) of the cosines."""
        ...

    def make_basis(self, has_residual: bool) -> Basis:
        """Tabulate the roots; in a model with delta, G must not change the location at any x."""
        ...

    def amplitude(self, log_sigma_G: Any, xp: Any = np) -> Any:
        """Find the amplitude of the process for the coordinate that the sampler moves."""
        ...

    def offset(self, b: Any, sigma_G: Any, xp: Any = np) -> Any:
        """Find the offset of s for the basis b (..., P)."""
        ...

    def log_link(self, s: Any, xp: Any = np) -> Any:
        """Find the log of the link, which is the log of the unnormalised ratio."""
        ...

    def log_constraint(self, virtual: Any, T: Any) -> Any:
        """Find the log of the prior factor, given coefficients (V, P) at the feature points."""
        ...

    def series(self, coefficients: Array, roots: Array, sigma_G: Array) -> Array:
        """Write s as a series in cosines of the angle, in every draw.

        Parameters
        ----------
        coefficients : (S, n, P)
            Coefficients of b(t), sigma_G included.
        roots : (S, M, P)
            Roots T(ell_t).
        sigma_G : (S,)

        Returns
        -------
        (S, n, C) array
            Coefficients of the C cosines.
        """
        ...

    def completion(self, roots: Array, sigma_G: Array, rng: np.random.Generator) -> Array:
        """Draw coefficients (S, P) of the process far from all feature points."""
        ...


def cosines(construction: Construction, t: Any, xp: Any = np) -> Any:
    """Find the functions psi at t: (..., M)."""
    angle = construction.angle(t, xp)
    waves = [xp.ones_like(angle), xp.cos(angle)]
    while len(waves) < N_COSINES:  # cos((k+1)a) = 2 cos(a) cos(ka) - cos((k-1)a)
        waves.append(2.0 * waves[1] * waves[-1] - waves[-2])
    norms = construction.norms
    return xp.stack([norm * wave for norm, wave in zip(norms, waves, strict=True)], axis=-1)


def moments(construction: Construction, orders: tuple[int, ...]) -> Array:
    """Integrate ``t^k psi(t)`` under N(0, 1), for the k in `orders`: (k, M)."""
    # a fine trapezoid rule: beyond 12 standard deviations N(0, 1) has no mass in float64
    t = np.linspace(-12.0, 12.0, 4801)
    weights = np.exp(-0.5 * t**2) / np.sqrt(2.0 * np.pi) * (t[1] - t[0])
    return (weights * t ** np.asarray(orders)[:, None]) @ cosines(construction, t)
