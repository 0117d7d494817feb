"""G by a logistic Gaussian process: ``r = exp h / Z``, a CDF by construction.

h is a Gaussian process, Matern 3/2 in t times Matern 3/2 in x, in cosines on [-L, L]:

    h(t, x) = sigma_G b(t; ell_t)^T [W^T a_G(x; ell_x)] - sigma_G^2 |b(t; ell_t)|^2 / 2.

The coefficients are conditioned on ``<h, 1> = <h, t> = 0`` under N(0, 1) at every x: location
belongs to delta. The second term centres h so that E[r] is about 1: the paper's identity mean.
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
"""Prior of h's length-scale in t, which is in noise scales whatever the data."""

FREQUENCIES = np.pi * np.arange(N_COSINES) / (2.0 * HALF_WIDTH)


@jax.tree_util.register_static
@dataclass(frozen=True)
class Logistic:
    """The logistic construction; methods as in `Construction`."""

    @property
    def has_kinks(self) -> bool:
        """No: it is exp."""
        return False

    def angle(self, t: Any, xp: Any = np) -> Any:
        """Equispaced in t: the cosines are flat at -L and L."""
        return (xp.clip(t, -HALF_WIDTH, HALF_WIDTH) + HALF_WIDTH) * FREQUENCIES[1]

    def angle_slope(self, t: Array) -> Array:
        """Constant."""
        return np.full_like(t, FREQUENCIES[1])

    @property
    def norms(self) -> Array:
        """Make the cosines orthonormal on [-L, L]."""
        return np.where(np.arange(N_COSINES) == 0, np.sqrt(0.5), 1.0) / np.sqrt(HALF_WIDTH)

    def make_basis(self, has_residual: bool) -> Basis:
        """Tabulate the roots; without delta, h keeps its part in t."""
        grid = length_scale_grid(LENGTH_SCALE_T, N_NODES)
        return Basis(LENGTH_SCALE_T, grid, self._roots(grid, (0, 1) if has_residual else (0,)))

    def _roots(self, log_ell: Array, orders: tuple[int, ...]) -> Array:
        """Roots T(ell) of the conditioned covariance of the coefficients at every node: (J, M, P).

        With precision ``Q = diag(1 / S(ell))`` the covariance conditioned on ``R^T c = 0`` is
        ``N (N^T Q N)^{-1} N^T``, N spanning the null space of ``R^T``; the conditions hold between
        nodes too. The columns are rotated to be nearly orthogonal under N(0, 1), smoothly in ell.
        """
        N = linalg.null_space(moments(self, orders))
        roots = []
        for ell in np.exp(log_ell):
            L = linalg.cholesky(N.T @ (N / spectral_density(ell)[:, None]), lower=True)
            roots.append(linalg.solve_triangular(L, N.T, lower=True).T)
        t, weights = quadrature()
        values = np.sqrt(weights[0])[:, None] * cosines(self, t) @ np.stack(roots)
        return np.stack(roots) @ principal_rotations(values, len(log_ell) // 2)

    def amplitude(self, log_sigma_G: Any, xp: Any = np) -> Any:
        """Sampled."""
        return xp.exp(log_sigma_G)

    def offset(self, b: Any, sigma_G: Any, xp: Any = np) -> Any:
        """Centre h at minus half its variance."""
        return -0.5 * sigma_G**2 * xp.sum(b**2, axis=-1)

    def log_link(self, s: Any, xp: Any = np) -> Any:
        """The link is exp."""
        del xp
        return s

    def log_constraint(self, virtual: Any, T: Any) -> Any:
        """None is needed."""
        del virtual, T
        return 0.0

    def series(self, coefficients: Array, roots: Array, sigma_G: Array) -> Array:
        """``|b|^2`` by 2 cos(i a) cos(j a) = cos((i+j) a) + cos((i-j) a)."""
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
        """Independent standard normal numbers: h has its prior again."""
        return rng.standard_normal((len(sigma_G), roots.shape[2]))


def spectral_density(ell: float) -> Array:
    """Matern 3/2 of unit variance at the frequencies of the cosines."""
    rate = np.sqrt(3.0) / ell
    return 4.0 * rate**3 / (rate**2 + FREQUENCIES**2) ** 2
