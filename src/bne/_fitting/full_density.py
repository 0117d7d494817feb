"""The log density of the full model (Eq. 4), in coordinates that HMC can walk.

The position is ``(hyperparameters, z_omega, z_delta, z_G)``. Triangular maps straighten the
joint posterior, and cost no factorisation larger than K x K in a gradient:

* ``eta`` stands for ``log sigma_eps``: the rows' average log standard deviation of y. The noise
  scale and the stretch of G are known far worse than their product;
* ``v`` is mapped by the closed-form posterior of stage 2 at the current hyperparameters, omega
  integrated out: diagonal (principal features make it nearly that) plus a part of rank K for the
  experts;
* ``omega`` by its exact conditional of stage 2 given delta;
* ``W`` by the posterior it would have if the data said h = 0.

The prior asks that sigma_eps be about the noise's scale (`GAUGE`), as it asks that location belong
to delta: without it a posterior of many rows has a second region, where sigma_eps is twice as large
and G undoes it.

The maps of v and omega take G's own mean off y first: what is known well is E[y | x], not mu. Rows
weigh in them by a rough estimate of their own noise.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from bne._base.priors import half_normal_log_density
from bne._calibration.base_law import log_base, quadrature
from bne._calibration.construction import Construction, cosines
from bne._fitting.full_data import FullData, FullHyperparameters, FullPriors, sizes
from bne._fitting.maps import map_omega, map_v, map_W
from bne._mean.gaussian import noise_scale
from bne._process.interpolation import interpolate, interpolate_once

GAUGE = 0.25
"""Standard deviation, a priori, of the log of the noise's scale (the rows' root mean square) in
units of sigma_eps. sigma_eps and the stretch of G would share that scale at will otherwise."""


class FullState(NamedTuple):
    """The model's own quantities at a position, and the log-determinant of the map.

    ``log_scale`` is the log of the root mean square over rows of t's standard deviation;
    ``coefficients`` and ``log_Z`` are those of the places.
    """

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
    log_scale: Any
    log_constraint: Any
    log_determinant: Any


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
    sums = xp.exp(h - top) @ weights[:3].T
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


def transform(position: Any, data: FullData) -> FullState:
    """Position -> the model's quantities."""
    free, z_omega, z_delta, z_G = unpack(position, data)
    h = FullHyperparameters(*jnp.where(jnp.isnan(data.pinned), jnp.stack(free), data.pinned))
    sigma_G = data.construction.amplitude(h.log_sigma_G, jnp)
    W, log_det_W = map_W(z_G, h, sigma_G, data)
    T = interpolate(data.roots, h.log_ell_t, data.grid_t, jnp)
    A_G = interpolate_once(data.A_G, h.log_ell_x, data.grid_x)
    coefficients = sigma_G * A_G.times(W)
    log_Z, mean, log_sd = normaliser(data.construction, coefficients, T, sigma_G)
    virtual = sigma_G * (interpolate(data.virtual, h.log_ell_x, data.grid_x, jnp) @ W)
    share = data.counts / jnp.sum(data.counts)
    stretch = jnp.sum(share * log_sd)
    log_scale = 0.5 * jnp.log(jnp.sum(share * jnp.exp(2.0 * log_sd)))
    held = FullHyperparameters(*data.pinned).eta
    log_sigma_eps = jnp.where(jnp.isnan(held), h.eta - stretch, held)
    h = h._replace(eta=log_sigma_eps + stretch)
    target = data.mask * (data.y - jnp.exp(log_sigma_eps) * data.at_rows(mean))
    A = interpolate_once(data.A, h.log_ell, data.grid)
    v, log_det_v = map_v(z_delta, h, target, A, data)
    delta = data.at_rows(jnp.exp(h.log_sigma_delta) * A.times(v))
    omega, log_det_omega = map_omega(z_omega, h, target - delta, data)
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
        log_scale=log_scale,
        log_constraint=data.construction.log_constraint(virtual, T),
        log_determinant=log_det_v + log_det_omega + log_det_W,
    )


def log_prior(state: FullState, priors: FullPriors) -> Any:
    """Log prior of the hyperparameters, omega, v and W, up to a constant."""
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
    gauge = -0.5 * (state.log_scale / GAUGE) ** 2
    return scales + length_scales + normal + gauge + state.log_constraint


def log_likelihood(state: FullState, data: FullData) -> Any:
    """Pointwise log likelihood: ``h - log Z + log phi(t) - log sigma_eps``, (n,)."""
    sigma_eps = noise_scale(state.log_sigma_eps, jnp)
    t = (data.y - state.mu) / sigma_eps
    coefficients, log_Z = (data.at_rows(a) for a in (state.coefficients, state.log_Z))
    h = log_ratio(data.construction, t, coefficients, state.T, state.sigma_G)
    return h - log_Z + log_base(t, jnp) - jnp.log(sigma_eps)


def log_density(position: Any, data: FullData) -> Any:
    """Joint log posterior at a position, with the Jacobian of the map."""
    state = transform(position, data)
    likelihood = data.power * jnp.sum(data.mask * log_likelihood(state, data))
    extra = interpolate(data.evidence, state.h.eta, data.grid_eta, jnp)
    # coordinates of hyperparameters that are held are idle
    idle = jnp.where(jnp.isnan(data.pinned), 0.0, position[: len(data.pinned)] - data.pinned)
    extra -= 0.5 * jnp.sum(idle**2)
    return likelihood + log_prior(state, data.priors) + state.log_determinant + extra
