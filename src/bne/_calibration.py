"""The calibration function G (Eq. 3), logistic construction.

In the coordinate ``t = (y - mu) / sigma_eps`` the density of y is ``r(t | x) phi(t) / sigma_eps``
with the ratio

    r(t | x) = exp h(t, x) / Z(x),        Z(x) = integral of phi(s) exp h(s, x) ds,

so that G is a CDF by construction. h is a Gaussian process, Matern 3/2 in t times Matern 3/2 in x:

    h(t, x) = sigma_G b(t; ell_t)^T [W^T a_G(x; ell_x)] - sigma_G^2 |b(t; ell_t)|^2 / 2,

with cosines on [-L, L] in t. Their coefficients are conditioned on ``<h, 1> = <h, t> = 0`` under
N(0, 1) at every x: location belongs to delta. The second term centres h so that E[r] is about 1:
the identity mean of the paper. Beyond L, h stays at its value there (the cosines are flat at L).
"""

from typing import Any, NamedTuple

import numpy as np
from scipy import linalg, special

from bne._kernels import N_NODES, principal_rotations
from bne._priors import InverseGamma, fit_inverse_gamma, length_scale_grid
from bne._typing import Array

HALF_WIDTH = 5.0
"""L: the basis covers all but 6e-7 of N(0, 1); what lies beyond keeps the ratio at the end."""

N_COSINES = 16
"""The finest half-wave is 2 L / 15 = 0.67 noise scales long."""

NODE_SPACING = 0.125
"""Of the quadrature: about five nodes in the finest half-wave, so that no spike hides between."""

LENGTH_SCALE_T = fit_inverse_gamma(0.4, 5.0)
"""Prior of h's length-scale in t, which is in noise scales whatever the data."""

FREQUENCIES = np.pi * np.arange(N_COSINES) / (2.0 * HALF_WIDTH)
NORMS = np.where(np.arange(N_COSINES) == 0, np.sqrt(0.5), 1.0) / np.sqrt(HALF_WIDTH)


def cosines(t: Any, xp: Any = np) -> Any:
    """Orthonormal cosines on [-L, L] with flat ends: (..., M)."""
    angle = (xp.clip(t, -HALF_WIDTH, HALF_WIDTH) + HALF_WIDTH) * FREQUENCIES[1]
    waves = [xp.ones_like(angle), xp.cos(angle)]
    while len(waves) < N_COSINES:  # cos((k+1)a) = 2 cos(a) cos(ka) - cos((k-1)a)
        waves.append(2.0 * waves[1] * waves[-1] - waves[-2])
    return xp.stack([norm * wave for norm, wave in zip(NORMS, waves, strict=True)], axis=-1)


def quadrature() -> tuple[Array, Array]:
    """Nodes (Q,), and weights (3, Q) for integrals of ``t^k r(t)`` against N(0, 1), k = 0, 1, 2.

    The trapezoid rule inside; on the two end nodes also the first term of Euler and Maclaurin (r is
    flat there) and the exact integral over the tail, where r is constant.
    """
    t = np.linspace(-HALF_WIDTH, HALF_WIDTH, round(2 * HALF_WIDTH / NODE_SPACING) + 1)
    k, L = np.arange(3), HALF_WIDTH
    phi = np.exp(-0.5 * t**2) / np.sqrt(2.0 * np.pi)
    weights = NODE_SPACING * phi * t ** k[:, None]
    slope = phi[-1] * (k * L ** np.maximum(k - 1, 0) - L ** (k + 1))
    tail = np.array([special.ndtr(-L), phi[-1], L * phi[-1] + special.ndtr(-L)])
    right = 0.5 * weights[:, -1] - NODE_SPACING**2 / 12.0 * slope + tail
    weights[:, -1], weights[:, 0] = right, (-1.0) ** k * right
    return t, weights


def spectral_density(ell: float) -> Array:
    """Matern 3/2 of unit variance at the frequencies of the cosines."""
    rate = np.sqrt(3.0) / ell
    return 4.0 * rate**3 / (rate**2 + FREQUENCIES**2) ** 2


def moment_free_space(orders: tuple[int, ...]) -> Array:
    """Orthonormal coefficients (M, P) with ``<h, t^k> = 0`` under N(0, 1), k in `orders`."""
    t = np.linspace(-12.0, 12.0, 4801)
    weights = np.exp(-0.5 * t**2) * t ** np.asarray(orders)[:, None]
    return linalg.null_space(weights @ cosines(t))


def root_table(log_ell: Array, orders: tuple[int, ...]) -> Array:
    """Roots T(ell) of the conditioned covariance of the coefficients at every node: (J, M, P).

    With precision ``Q = diag(1 / S(ell))`` the covariance conditioned on ``R^T c = 0`` is
    ``N (N^T Q N)^{-1} N^T``, N spanning the null space of ``R^T``; the conditions hold between
    nodes too. The columns are rotated to be nearly orthogonal under N(0, 1), smoothly in ell.
    """
    N = moment_free_space(orders)
    roots = []
    for ell in np.exp(log_ell):
        L = linalg.cholesky(N.T @ (N / spectral_density(ell)[:, None]), lower=True)
        roots.append(linalg.solve_triangular(L, N.T, lower=True).T)
    t, weights = quadrature()
    values = np.sqrt(weights[0])[:, None] * cosines(t) @ np.stack(roots)
    return np.stack(roots) @ principal_rotations(values, len(log_ell) // 2)


class Basis(NamedTuple):
    """What h needs in t, tabulated over its length-scale.

    Attributes
    ----------
    prior : InverseGamma
        On ell_t.
    log_ell : (J,) grid.
    roots : (J, M, P) array
    """

    prior: InverseGamma
    log_ell: Array
    roots: Array


def make_basis(has_residual: bool) -> Basis:
    """Tabulate the basis; without delta, h keeps its part in t."""
    grid = length_scale_grid(LENGTH_SCALE_T, N_NODES)
    return Basis(LENGTH_SCALE_T, grid, root_table(grid, (0, 1) if has_residual else (0,)))
