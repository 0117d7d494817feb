"""G by the paper's constrained Gaussian process: ``G(u, x) = u + g(u, x)`` (Eq. 3).

g has mean zero (so G has the identity mean) and covariance ``sigma_G^2 k(u, u') k(x, x')``, Matern
3/2 each, conditioned on ``g(0, x) = g(1, x) = 0``. Sines carry it, which keep both ends exactly:

    g(u, x) = sqrt(2) sum_k c_k(x) sin(k pi u),
    dG/du = 1 + sqrt(2) sum_k c_k(x) k pi cos(k pi u),

where c has the covariance that the conditioned kernel gives these coefficients. With delta, c is
conditioned on G leaving the mean where it is. Monotonicity is the paper's: a factor
``Phi((dG/du) / NU)`` at every virtual point, multiplied over all of them. Where the slope is not
positive all the same, the likelihood and all answers use ``FLOOR log(1 + exp(slope / FLOOR))``,
normalised: always a CDF.

The amplitude is fixed: the normalising constant of the constrained prior is not known, and without
it a sampled amplitude is pulled to zero.
"""

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from scipy import linalg, special

from bne._base.priors import fit_inverse_gamma, length_scale_grid
from bne._base.typing import Array
from bne._calibration.base_law import HALF_WIDTH, quadrature
from bne._calibration.construction import N_COSINES, Basis, cosines, moments
from bne._process.interpolation import N_NODES
from bne._process.kernels import resolve_kernel
from bne._process.rotations import principal_rotations

AMPLITUDE = 0.5
"""sigma_G, in units of probability; before conditioning on the ends."""

NU = 0.05
"""Width of the probit terms: slopes above 2 NU are free."""

FLOOR = 0.02
"""Slopes above three times this are left as they are."""

VIRTUAL_LEVELS = np.linspace(0.0, 1.0, 25)
"""Levels u of the virtual points, at every feature point in x."""

LENGTH_SCALE_U = fit_inverse_gamma(0.1, 2.0)
"""Prior of g's length-scale in u."""

SLICE_STEPS = 100
"""Steps of elliptical slice sampling for the constrained prior far off the data."""


@jax.tree_util.register_static
@dataclass(frozen=True)
class ConstrainedGP:
    """The paper's construction; methods as in `Construction`."""

    @property
    def has_kinks(self) -> bool:
        """The floor may."""
        return True

    def angle(self, t: Any, xp: Any = np) -> Any:
        """``pi u``."""
        ndtr = special.ndtr if xp is np else jax.scipy.special.ndtr
        return np.pi * ndtr(xp.clip(t, -HALF_WIDTH, HALF_WIDTH))

    def angle_slope(self, t: Array) -> Array:
        """``pi phi(t)``."""
        return np.pi * np.exp(-0.5 * t**2) / np.sqrt(2.0 * np.pi)

    @property
    def norms(self) -> Array:
        """Derivatives of sqrt(2) sin(k pi u); the constant is no part of g."""
        return np.sqrt(2.0) * np.pi * np.arange(N_COSINES)

    def make_basis(self, has_residual: bool) -> Basis:
        """Tabulate the roots; without delta, G may move the mean."""
        grid = length_scale_grid(LENGTH_SCALE_U, N_NODES)
        covariances = [coefficient_covariance(ell) for ell in np.exp(grid)]
        if has_residual:
            a = moments(self, (1,))[0, 1:]
            covariances = [C - np.outer(C @ a, C @ a) / (a @ C @ a) for C in covariances]
        rank = N_COSINES - 1 - has_residual
        roots = np.zeros((N_NODES, N_COSINES, rank))
        for j, C in enumerate(covariances):
            values, axes = linalg.eigh(C)
            roots[j, 1:] = axes[:, -rank:] * np.sqrt(np.maximum(values[-rank:], 0.0))
        t, weights = quadrature()
        slopes = np.sqrt(weights[0])[:, None] * cosines(self, t) @ roots
        return Basis(LENGTH_SCALE_U, grid, roots @ principal_rotations(slopes, N_NODES // 2))

    def amplitude(self, log_sigma_G: Any, xp: Any = np) -> Any:
        """Fixed."""
        return AMPLITUDE * xp.ones_like(log_sigma_G)

    def offset(self, b: Any, sigma_G: Any, xp: Any = np) -> Any:
        """The identity has slope 1."""
        del sigma_G
        return xp.ones_like(b[..., 0])

    def log_link(self, s: Any, xp: Any = np) -> Any:
        """A smooth floor: exp far below zero, the slope itself above."""
        z = s / FLOOR
        softplus = xp.logaddexp(xp.maximum(z, -30.0), 0.0)
        return np.log(FLOOR) + xp.where(z < -30.0, z, xp.log(softplus))

    def log_constraint(self, virtual: Any, T: Any) -> Any:
        """Sum of ``log Phi(slope / NU)`` over the virtual points."""
        b = cosines(self, special.ndtri(VIRTUAL_LEVELS)) @ T
        return jnp.sum(jax.scipy.special.log_ndtr((1.0 + virtual @ b.T) / NU))

    def series(self, coefficients: Array, roots: Array, sigma_G: Array) -> Array:
        """The slope is a cosine series already."""
        del sigma_G
        series = coefficients @ (roots * self.norms[:, None]).transpose(0, 2, 1)
        series[:, :, 0] += 1.0
        return series

    def completion(self, roots: Array, sigma_G: Array, rng: np.random.Generator) -> Array:
        """The constrained prior at one x, by elliptical slice sampling from G = I."""
        b = cosines(self, special.ndtri(VIRTUAL_LEVELS)) @ roots

        def log_constraint(c: Array) -> Array:
            slope = 1.0 + sigma_G[:, None] * np.einsum("svp,sp->sv", b, c)
            return np.sum(special.log_ndtr(slope / NU), axis=1)

        return elliptical_slice(log_constraint, np.zeros((len(sigma_G), roots.shape[2])), rng)


def elliptical_slice(log_factor: Any, start: Array, rng: np.random.Generator) -> Array:
    """Sample ``N(0, I) exp(log_factor)`` in S chains side by side (Murray, Adams, MacKay 2010)."""
    c = start
    for _ in range(SLICE_STEPS):
        other = rng.standard_normal(c.shape)
        level = log_factor(c) + np.log(rng.uniform(size=len(c)))
        angle = rng.uniform(0.0, 2.0 * np.pi, len(c))
        low, high = angle - 2.0 * np.pi, angle.copy()
        while True:
            proposal = c * np.cos(angle)[:, None] + other * np.sin(angle)[:, None]
            refused = log_factor(proposal) < level
            if not np.any(refused):
                break
            low = np.where(refused & (angle < 0), angle, low)
            high = np.where(refused & (angle >= 0), angle, high)
            angle = np.where(refused, rng.uniform(low, high), angle)
        c = proposal
    return c


def coefficient_covariance(ell: float) -> Array:
    """Covariance of g's sine coefficients, k = 1 ... M - 1, with both ends pinned."""
    nodes, weights = np.polynomial.legendre.leggauss(200)
    u, weights = 0.5 * (nodes + 1.0), 0.5 * weights
    kernel = resolve_kernel("matern32")
    at = np.r_[u, 0.0, 1.0]
    whole = kernel(np.abs(at[:, None] - at[None, :]) / ell)
    inner, cross, ends = whole[:-2, :-2], whole[:-2, -2:], whole[-2:, -2:]
    pinned = inner - cross @ np.linalg.solve(ends, cross.T)
    sines = np.sqrt(2.0) * np.sin(np.pi * u[:, None] * np.arange(1, N_COSINES)) * weights[:, None]
    return sines.T @ pinned @ sines
