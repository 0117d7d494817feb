"""G by the paper's constrained Gaussian process: ``G(u, x) = u + g(u, x)`` (Eq. 3).

g is a Gaussian process with mean zero, so that the mean of G is the identity. Its covariance is
``sigma_G^2 k(u, u') k(x, x')``, Matern 3/2 in both, conditioned on ``g(0, x) = g(1, x) = 0``. It is
written in sines, which are zero at both ends:

    g(u, x) = sqrt(2) sum_k c_k(x) sin(k pi u),
    dG/du = 1 + sqrt(2) sum_k c_k(x) k pi cos(k pi u),

The coefficients c have the covariance that the conditioned kernel gives them. In a model with
delta, c is also conditioned so that G does not change the mean of y.

G must increase. As in the paper, the prior has a probit factor ``Phi((dG/du) / NU)`` at every
virtual point, and the factors are multiplied. These factors do not exclude every negative slope. So
the likelihood and all answers use ``FLOOR log(1 + exp(slope / FLOOR))`` in place of the slope, and
normalise it: G is a CDF in every draw.

The amplitude is fixed. The normalising constant of the constrained prior is not known, and without
it a sampled amplitude would be pulled to zero.
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
"""sigma_G, in units of probability, before conditioning on the ends.

A larger one allows stronger changes of the noise's shape; a smaller one pulls G to the identity.
"""

NU = 0.05
"""Width of the probit factors: slopes of G above 2 NU are hardly affected.

The paper's constraint is the limit of a small width, which is harder to sample.
"""

FLOOR = 0.02
"""Size of the smooth floor of the slope: slopes above three times this are hardly changed.

A lower floor changes fewer slopes, but bends more sharply, and the quadrature sees it less well
(docs/lab/accuracy.md).
"""

VIRTUAL_LEVELS = np.linspace(0.0, 1.0, 25)
"""Levels u of the virtual points. There is one at each level, at every feature point in x.

More levels leave less room for negative slopes between them, and cost time.
"""

LENGTH_SCALE_U = fit_inverse_gamma(0.1, 2.0)
"""Prior of the length-scale of g in u: 1% below .1 and 1% above 2, where u has the range 1."""

SLICE_STEPS = 100
"""Steps of elliptical slice sampling that draw from the constrained prior, far from the data."""


@jax.tree_util.register_static
@dataclass(frozen=True)
class ConstrainedGP:
    """The paper's construction of G (Eq. 3); its methods are those of `Construction`."""

    @property
    def has_kinks(self) -> bool:
        """True: the floor may bend within less than a cell."""
        return True

    def angle(self, t: Any, xp: Any = np) -> Any:
        """Find the angle ``pi u``."""
        ndtr = special.ndtr if xp is np else jax.scipy.special.ndtr
        return np.pi * ndtr(xp.clip(t, -HALF_WIDTH, HALF_WIDTH))

    def angle_slope(self, t: Array) -> Array:
        """Find the slope of the angle, ``pi phi(t)``."""
        return np.pi * np.exp(-0.5 * t**2) / np.sqrt(2.0 * np.pi)

    @property
    def norms(self) -> Array:
        """Factors ``sqrt(2) k pi`` of the derivatives of the sines. The constant has factor 0."""
        return np.sqrt(2.0) * np.pi * np.arange(N_COSINES)

    def make_basis(self, has_residual: bool) -> Basis:
        """Tabulate the roots; in a model without delta, G may change the mean of y."""
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
        """Return the fixed amplitude."""
        return AMPLITUDE * xp.ones_like(log_sigma_G)

    def offset(self, b: Any, sigma_G: Any, xp: Any = np) -> Any:
        """Return 1, the slope of the identity."""
        del sigma_G
        return xp.ones_like(b[..., 0])

    def log_link(self, s: Any, xp: Any = np) -> Any:
        """Find the log of the slope with its smooth floor."""
        z = s / FLOOR
        # below -30 the log of softplus(z) is z to 1e-13
        softplus = xp.logaddexp(xp.maximum(z, -30.0), 0.0)
        return np.log(FLOOR) + xp.where(z < -30.0, z, xp.log(softplus))

    def log_constraint(self, virtual: Any, T: Any) -> Any:
        """Sum ``log Phi(slope / NU)`` over the virtual points."""
        b = cosines(self, special.ndtri(VIRTUAL_LEVELS)) @ T
        return jnp.sum(jax.scipy.special.log_ndtr((1.0 + virtual @ b.T) / NU))

    def series(self, coefficients: Array, roots: Array, sigma_G: Array) -> Array:
        """Return the slope, which is a cosine series already."""
        del sigma_G
        series = coefficients @ (roots * self.norms[:, None]).transpose(0, 2, 1)
        series[:, :, 0] += 1.0
        return series

    def completion(self, roots: Array, sigma_G: Array, rng: np.random.Generator) -> Array:
        """Draw from the constrained prior at one x, by elliptical slice sampling from G = I."""
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
    """Find the covariance of the sine coefficients c_k, k = 1 ... M - 1, given g(0) = g(1) = 0."""
    nodes, weights = np.polynomial.legendre.leggauss(200)
    u, weights = 0.5 * (nodes + 1.0), 0.5 * weights
    kernel = resolve_kernel("matern32")
    at = np.r_[u, 0.0, 1.0]
    whole = kernel(np.abs(at[:, None] - at[None, :]) / ell)
    inner, cross, ends = whole[:-2, :-2], whole[:-2, -2:], whole[-2:, -2:]
    pinned = inner - cross @ np.linalg.solve(ends, cross.T)
    sines = np.sqrt(2.0) * np.sin(np.pi * u[:, None] * np.arange(1, N_COSINES)) * weights[:, None]
    return sines.T @ pinned @ sines
