"""G by a logistic Gaussian process: ``r = exp h / Z``. G is a CDF by construction (Eq. 3).

h is a Gaussian process whose kernel is Matern 3/2 in t times Matern 3/2 in x. It is written in
cosines on [-L, L]:

    h(t, x) = sigma_G b(t; ell_t)^T [W^T a_G(x; ell_x)] - sigma_G^2 |b(t; ell_t)|^2 / 2.

In a model with delta, the coefficients are conditioned on ``<h, 1> = <h, t> = 0`` under N(0, 1) at
every x, so that location belongs to delta. The second term centres h. It makes E[r] about 1, so
that the mean of G is about the identity, as in the paper.
"""

from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from scipy import linalg

from bne._base.priors import fit_inverse_gamma, length_scale_grid
from bne._base.typing import Array
from bne._calibration.base_law import HALF_WIDTH, quadrature
from bne._calibration.construction import N_COSINES, Basis, cosines, moments
from bne._process.interpolation import N_NODES
from bne._process.rotations import principal_rotations

LENGTH_SCALE_T = fit_inverse_gamma(0.4, 5.0)
"""Prior of the length-scale of h in t: 1% below .4 and 1% above 5 noise scales.

t is measured in noise scales, so the same prior suits all data.
"""

FREQUENCIES = np.pi * np.arange(N_COSINES) / (2.0 * HALF_WIDTH)
"""Angular frequencies of the cosines on [-L, L], per noise scale."""


@jax.tree_util.register_static
@dataclass(frozen=True)
class Logistic:
    """The logistic construction of G (Eq. 3); its methods are those of `Construction`."""

    @property
    def has_kinks(self) -> bool:
        """False: the link is exp, which is smooth."""
        return False

    def angle(self, t: Any, xp: Any = np) -> Any:
        """Find the angle, which is linear in t; the cosines are flat at -L and L."""
        return (xp.clip(t, -HALF_WIDTH, HALF_WIDTH) + HALF_WIDTH) * FREQUENCIES[1]

    def angle_slope(self, t: Array) -> Array:
        """Return the slope of the angle, a constant."""
        return np.full_like(t, FREQUENCIES[1])

    @property
    def norms(self) -> Array:
        """Factors that make the cosines orthonormal on [-L, L]."""
        return np.where(np.arange(N_COSINES) == 0, np.sqrt(0.5), 1.0) / np.sqrt(HALF_WIDTH)

    def make_basis(self, has_residual: bool) -> Basis:
        """Tabulate the roots; in a model without delta, h keeps its slope in t."""
        grid = length_scale_grid(LENGTH_SCALE_T, N_NODES)
        return Basis(LENGTH_SCALE_T, grid, self._roots(grid, (0, 1) if has_residual else (0,)))

    def _roots(self, log_ell: Array, orders: tuple[int, ...]) -> Array:
        """Find roots T(ell) of the conditioned covariance of the coefficients: (J, M, P).

        The prior precision Q of the coefficients c is diagonal: 1 / `spectral_density`. Conditioned
        on ``R^T c = 0`` their covariance is ``N (N^T Q N)^{-1} N^T``, where N spans the null space
        of ``R^T``. N is the same at every node, so that the conditions hold between nodes, too. The
        columns are rotated to be nearly orthogonal under N(0, 1), smoothly in ell.
        """
        N = linalg.null_space(moments(self, orders))
        roots = []
        for ell in np.exp(log_ell):
            factor = linalg.cholesky(N.T @ (N / spectral_density(ell)[:, None]), lower=True)
            roots.append(linalg.solve_triangular(factor, N.T, lower=True).T)
        t, weights = quadrature()
        values = np.sqrt(weights[0])[:, None] * cosines(self, t) @ np.stack(roots)
        return np.stack(roots) @ principal_rotations(values, len(log_ell) // 2)

    def amplitude(self, log_sigma_G: Any, xp: Any = np) -> Any:
        """Return the amplitude, which is sampled."""
        return xp.exp(log_sigma_G)

    def offset(self, b: Any, sigma_G: Any, xp: Any = np) -> Any:
        """Return minus half the variance of h, so that E[exp h] is 1."""
        return -0.5 * sigma_G**2 * xp.sum(b**2, axis=-1)

    def log_link(self, s: Any, xp: Any = np) -> Any:
        """Return s: the link is exp."""
        del xp
        return s

    def log_constraint(self, virtual: Any, T: Any) -> Any:
        """Return 0: no constraint is needed."""
        del virtual, T
        return 0.0

    def series(self, coefficients: Array, roots: Array, sigma_G: Array) -> Array:
        """Write s as a cosine series; see `Construction.series`.

        ``|b|^2`` becomes one by 2 cos(i a) cos(j a) = cos((i+j) a) + cos((i-j) a).
        """
        S, n, _ = coefficients.shape
        roots = roots * self.norms[:, None]
        series = np.zeros((S, n, 2 * N_COSINES - 1))
        series[:, :, :N_COSINES] = coefficients @ roots.transpose(0, 2, 1)
        squares = -0.25 * sigma_G[:, None, None] ** 2 * (roots @ roots.transpose(0, 2, 1))
        centring = np.zeros((S, 2 * N_COSINES - 1))
        for i in range(N_COSINES):
            for j in range(N_COSINES):
                centring[:, i + j] += squares[:, i, j]
                centring[:, abs(i - j)] += squares[:, i, j]
        return series + centring[:, None, :]

    def completion(self, roots: Array, sigma_G: Array, rng: np.random.Generator) -> Array:
        """Draw independent standard normal numbers: far from the data h has its prior again."""
        return rng.standard_normal((len(sigma_G), roots.shape[2]))


def spectral_density(ell: float) -> Array:
    """Find the spectral density of the Matern 3/2 kernel at the frequencies of the cosines."""
    rate = np.sqrt(3.0) / ell
    return 4.0 * rate**3 / (rate**2 + FREQUENCIES**2) ** 2
