"""The log density of the full model (Eq. 4), in coordinates that NUTS can walk.

The position is ``(hyperparameters, z_omega, z_delta, z_G)``. Three triangular maps straighten the
joint posterior, and cost no factorisation larger than K x K in a gradient:

* ``eta`` stands for ``log sigma_eps``: the rows' average log standard deviation of y. The noise
  scale and the stretch of G are known far worse than their product;
* ``v`` is mapped by the closed-form posterior of stage 2 at the current hyperparameters, taken to
  be diagonal, which principal features make it nearly;
* ``omega`` by its exact conditional of stage 2 given delta.

Both take G's own mean off y first: what is known well is E[y | x], not mu. Rows weigh in the maps
by a rough estimate of their own noise. W needs no map: in principal features its posterior is
nearly diagonal, and the sampler's metric adapts to it.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from scipy import linalg

from bne._calibration import Construction, cosines, quadrature
from bne._gaussian import noise_scale
from bne._kernels import interpolation
from bne._priors import InverseGamma, Priors, half_normal_log_density
from bne._sampling import LowRank
from bne._typing import Array


class FullHyperparameters(NamedTuple):
    """Logarithms of the hyperparameters; `eta` in place of log sigma_eps."""

    log_sigma_omega: Any
    log_sigma_delta: Any
    log_sigma_G: Any
    eta: Any
    log_ell: Any
    log_ell_x: Any
    log_ell_t: Any


class FullPriors(NamedTuple):
    """Priors of the Gaussian stages, and of h: a half-Normal amplitude, two length-scales."""

    gaussian: Priors
    ell_x: InverseGamma
    ell_t: InverseGamma
    amplitude: float = 1.5


class FullData(NamedTuple):
    """Everything the log density reads, padded: rows to n, features to m and m_G.

    Attributes
    ----------
    y, mask : (n,); F : (n, K)
    weights : (n,)
        Relative precision of the rows in the maps, 0 where padded.
    A : (J, n, m)
        Principal features of delta; ``gram`` (J, m) their squares `without_experts`, ``share``
        (K, n) of `expert_share`.
    grid : (J,) log length-scales of delta.
    A_G : (J, n, m_G) features of h in x; ``grid_x`` (J,).
    roots : (J, M, P) of h in t; ``grid_t`` (J,).
    virtual : (J, V, m_G)
        Features of h at its own points, where a construction may set conditions.
    priors : FullPriors
    construction : Construction
    """

    y: Any
    mask: Any
    F: Any
    weights: Any
    A: Any
    gram: Any
    share: Any
    grid: Any
    A_G: Any
    grid_x: Any
    roots: Any
    grid_t: Any
    virtual: Any
    priors: FullPriors
    construction: Construction


class FullState(NamedTuple):
    """The model's own quantities at a position, and the log-determinant of the map."""

    h: FullHyperparameters
    omega: Any
    v: Any
    W: Any
    mu: Any
    log_sigma_eps: Any
    sigma_G: Any
    T: Any
    coefficients: Any
    log_Z: Any
    log_constraint: Any
    log_determinant: Any


def interpolate(table: Any, log_ell: Any, grid: Any) -> Any:
    """A table (J, ...) at one length-scale."""
    first, weights = interpolation(log_ell, grid, jnp)
    return jnp.tensordot(weights, jax.lax.dynamic_slice_in_dim(table, first, 4), axes=1)


def interpolate_product(table: Any, log_ell: Any, grid: Any, v: Any) -> Any:
    """``A(ell) v`` without forming A(ell)."""
    first, weights = interpolation(log_ell, grid, jnp)
    return weights @ (jax.lax.dynamic_slice_in_dim(table, first, 4) @ v)


def sizes(data: FullData) -> tuple[int, int, int, int]:
    """Experts, features of delta, features of h in x, coefficients of h in t."""
    return data.F.shape[1], data.A.shape[2], data.A_G.shape[2], data.roots.shape[2]


def dimension(data: FullData) -> int:
    """Length of a position."""
    K, m, m_G, P = sizes(data)
    return len(FullHyperparameters._fields) + K + m + m_G * P


def unpack(position: Any, data: FullData) -> tuple[FullHyperparameters, Any, Any, Any]:
    """Split a position into hyperparameters, z_omega (K,), z_delta (m,) and z_G (m_G, P)."""
    K, m, m_G, P = sizes(data)
    start = len(FullHyperparameters._fields)
    h = FullHyperparameters(*(position[i] for i in range(start)))
    rest = position[start + K + m :].reshape(m_G, P)
    return h, position[start : start + K], position[start + K : start + K + m], rest


def normaliser(
    construction: Construction, coefficients: Any, T: Any, sigma_G: Any, xp: Any = jnp
) -> Any:
    """``log Z``, and mean and log standard deviation of t under r phi: (3, n), by quadrature."""
    t, weights = quadrature()
    B = cosines(construction, t) @ T
    s = coefficients @ B.T + construction.offset(B, sigma_G, xp)[None, :]
    h = construction.log_link(s, xp)
    # any constant would do for `top`: it has no gradient
    top = xp.max(h if xp is np else jax.lax.stop_gradient(h), axis=1, keepdims=True)
    sums = xp.exp(h - top) @ weights.T
    mean = sums[:, 1] / sums[:, 0]
    log_sd = 0.5 * xp.log(sums[:, 2] / sums[:, 0] - mean**2)
    return xp.stack([xp.log(sums[:, 0]) + top[:, 0], mean, log_sd])


def log_ratio(
    construction: Construction, t: Any, coefficients: Any, T: Any, sigma_G: Any, xp: Any = jnp
) -> Any:
    """Log of the unnormalised ratio at (t_i, x_i), row by row: (n,)."""
    b = cosines(construction, t, xp) @ T
    s = xp.sum(b * coefficients, axis=1) + construction.offset(b, sigma_G, xp)
    return construction.log_link(s, xp)


def _map_v(z: Any, h: FullHyperparameters, target: Any, data: FullData) -> tuple[Any, Any]:
    """Stage 2's posterior of v for the outcome `target`, taken to be diagonal; log-determinant."""
    rho = jnp.exp(2.0 * (h.log_sigma_delta - h.eta))
    precision = 1.0 + rho * jnp.maximum(interpolate(data.gram, h.log_ell, data.grid), 0.0)
    left = data.weights * (target - data.F @ (data.share @ target))
    first, weights = interpolation(h.log_ell, data.grid, jnp)
    cross = weights @ (left @ jax.lax.dynamic_slice_in_dim(data.A, first, 4))
    mean = rho * jnp.exp(-h.log_sigma_delta) * cross / precision
    return mean + z / jnp.sqrt(precision), -0.5 * jnp.sum(jnp.log(precision))


def _map_omega(z: Any, h: FullHyperparameters, rest: Any, data: FullData) -> tuple[Any, Any]:
    """Stage 2's conditional of omega given target - delta: omega and the log-determinant."""
    K = data.F.shape[1]
    FW = (data.F * data.weights[:, None]).T * jnp.exp(-2.0 * h.eta)
    L = jnp.linalg.cholesky(FW @ data.F + jnp.eye(K) * jnp.exp(-2.0 * h.log_sigma_omega))
    half = jax.scipy.linalg.solve_triangular(L, FW @ rest, lower=True)
    omega = jax.scipy.linalg.solve_triangular(L, half + z, lower=True, trans=1)
    return omega, -jnp.sum(jnp.log(jnp.diagonal(L)))


def transform(position: Any, data: FullData) -> FullState:
    """Position -> the model's quantities."""
    h, z_omega, z_delta, W = unpack(position, data)
    sigma_G = data.construction.amplitude(h.log_sigma_G, jnp)
    T = interpolate(data.roots, h.log_ell_t, data.grid_t)
    coefficients = sigma_G * (interpolate(data.A_G, h.log_ell_x, data.grid_x) @ W)
    log_Z, mean, log_sd = normaliser(data.construction, coefficients, T, sigma_G)
    virtual = sigma_G * (interpolate(data.virtual, h.log_ell_x, data.grid_x) @ W)
    log_sigma_eps = h.eta - jnp.sum(data.mask * log_sd) / jnp.sum(data.mask)
    target = data.mask * (data.y - jnp.exp(log_sigma_eps) * mean)
    v, log_det_v = _map_v(z_delta, h, target, data)
    delta = jnp.exp(h.log_sigma_delta) * interpolate_product(data.A, h.log_ell, data.grid, v)
    omega, log_det_omega = _map_omega(z_omega, h, target - delta, data)
    return FullState(
        h=h,
        omega=omega,
        v=v,
        W=W,
        mu=data.F @ omega + delta,
        log_sigma_eps=log_sigma_eps,
        sigma_G=sigma_G,
        T=T,
        coefficients=coefficients,
        log_Z=log_Z,
        log_constraint=data.construction.log_constraint(virtual, T),
        log_determinant=log_det_v + log_det_omega,
    )


def log_prior(state: FullState, priors: FullPriors) -> Any:
    """Log prior of the hyperparameters, omega, v and W."""
    h, gaussian = state.h, priors.gaussian
    scales = (
        half_normal_log_density(h.log_sigma_omega, gaussian.omega, jnp)
        + half_normal_log_density(h.log_sigma_delta, gaussian.delta, jnp)
        + half_normal_log_density(h.log_sigma_G, priors.amplitude, jnp)
        + half_normal_log_density(state.log_sigma_eps, gaussian.noise, jnp)
    )
    length_scales = (
        gaussian.ell.log_density(h.log_ell, jnp)
        + priors.ell_x.log_density(h.log_ell_x, jnp)
        + priors.ell_t.log_density(h.log_ell_t, jnp)
    )
    squares = jnp.sum(state.v**2) + jnp.sum(state.W**2)
    squares += jnp.sum(state.omega**2) * jnp.exp(-2.0 * h.log_sigma_omega)
    normal = -0.5 * squares - state.omega.size * h.log_sigma_omega
    return scales + length_scales + normal + state.log_constraint


def log_likelihood(state: FullState, data: FullData) -> Any:
    """Pointwise log likelihood: ``h - log Z + log phi(t) - log sigma_eps``, (n,)."""
    sigma_eps = noise_scale(state.log_sigma_eps, jnp)
    t = (data.y - state.mu) / sigma_eps
    h = log_ratio(data.construction, t, state.coefficients, state.T, state.sigma_G)
    return h - state.log_Z - 0.5 * t**2 - 0.5 * np.log(2.0 * np.pi) - jnp.log(sigma_eps)


def preconditioned_log_density(z: Any, data: tuple[FullData, LowRank]) -> Any:
    """Joint log posterior in the sampler's coordinates."""
    return log_density(data[1](z), data[0])


def log_density(position: Any, data: FullData) -> Any:
    """Joint log posterior at a position, with the Jacobian of the map."""
    state = transform(position, data)
    likelihood = jnp.sum(data.mask * log_likelihood(state, data))
    return likelihood + log_prior(state, data.priors) + state.log_determinant


def expert_share(F: Array, weights: Array, ridge: float) -> Array:
    """Coefficients (K, n) of the experts' ridge regression, ``(F^T D F + ridge I)^{-1} F^T D``.

    D are the rows' weights, `ridge` is ``(sigma_eps / sigma_omega)^2``.
    """
    FW = (F * weights[:, None]).T
    return linalg.solve(FW @ F + ridge * np.eye(F.shape[1]), FW, assume_a="pos")


def without_experts(table: Array, F: Array, weights: Array, share: Array) -> Array:
    """Weighted features (J, n, m) less what the experts can take up: what data see of delta."""
    return np.sqrt(weights)[:, None] * (table - F @ (share @ table))
