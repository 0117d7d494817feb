"""The log density of the full stage (Eq. 4), in coordinates that suit HMC.

A position is ``(hyperparameters, z_omega, z_delta, z_G)``. Triangular maps turn it into the model's
quantities, so that the joint posterior has about unit scale in the position. No gradient needs a
factorisation larger than K x K:

* ``eta``, the log standard deviation of y averaged over the rows, is moved in place of
  ``log sigma_eps``. The data know the product of the noise scale and the stretch of G far better
  than either of them.
* ``z_delta`` stands for ``v``: v is its posterior mean in the stage additive at the current
  hyperparameters, with omega integrated out, plus a root of its posterior covariance times
  z_delta. In principal features the precision of v is nearly
  diagonal, plus a part of rank K for the experts.
* ``z_omega`` stands for ``omega`` in the same way, by its exact conditional in the stage additive
  given delta.
* ``z_G`` stands for ``W`` in the same way, by a Gaussian with diagonal covariance: about the
  posterior that W has if the noise is Gaussian.

The maps of v and omega subtract the mean of G from y first, because the data know E[y | x] better
than mu. They weight each row by a rough estimate of the precision of its noise.

The prior has two conditions. Location belongs to delta, as in the paper. And sigma_eps is about the
scale of the noise (`GAUGE`), which the paper does not ask. Without it a posterior of many rows has
a second region, where sigma_eps is twice as large and G undoes it.

In this file ``data.F`` is the matrix of the experts' predictions at the training rows, not a CDF.
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
"""Prior standard deviation of log tau, where tau is the scale of the noise over sigma_eps.

tau is the root mean square over the rows of the standard deviation of t. Without this factor of the
prior, sigma_eps and the stretch of G could share the scale of the noise in any way, and chains mix
badly. A smaller value would tie sigma_eps more closely to the noise, while skewed noise asks for a
larger sigma_eps (docs/lab/sampler.md).
"""


class FullState(NamedTuple):
    """The model's quantities at a position, and the log-determinant of the map.

    Attributes
    ----------
    h : FullHyperparameters
        Logarithms of the hyperparameters.
    omega, v, W : (K,), (m,), (m_G, P)
        Weights, and whitened coefficients of delta and of the process behind G.
    mu : (n,)
        The mean function at the rows.
    log_sigma_eps, sigma_G : float
        Log noise scale, and amplitude of the process behind G.
    T : (M, P)
        Roots of the process in t.
    coefficients : (U, P)
        Coefficients of b(t) at the places, times sigma_G.
    log_Z : (U,)
        Log normaliser of the ratio at the places.
    log_scale : float
        Log of tau, the root mean square over rows of the standard deviation of t (see `GAUGE`).
    log_constraint : float
        Log of the prior factor of the construction of G.
    log_determinant : float
        Log-determinant of the map from the position to omega, v and W.
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
    """Find ``log Z``, and the mean and log standard deviation of t under r phi: (3, n).

    The integrals are sums over the nodes of `quadrature`.
    """
    t, weights = quadrature()
    B = cosines(construction, t) @ T
    s = coefficients @ B.T + construction.offset(B, sigma_G, xp)[None, :]
    log_r = construction.log_link(s, xp)
    # `top` prevents overflow; the result does not depend on it, so it needs no gradient
    top = xp.max(log_r if xp is np else jax.lax.stop_gradient(log_r), axis=1, keepdims=True)
    sums = xp.exp(log_r - top) @ weights[:3].T
    mean = sums[:, 1] / sums[:, 0]
    log_sd = 0.5 * xp.log(sums[:, 2] / sums[:, 0] - mean**2)
    return xp.stack([xp.log(sums[:, 0]) + top[:, 0], mean, log_sd])


def log_ratio(
    construction: Construction, t: Any, coefficients: Any, T: Any, sigma_G: Any, xp: Any = jnp
) -> Any:
    """Find the log of the unnormalised ratio at (t_i, x_i) for every row i: (n,)."""
    b = cosines(construction, t, xp) @ T
    s = xp.sum(b * coefficients, axis=1) + construction.offset(b, sigma_G, xp)
    return construction.log_link(s, xp)


def transform(position: Any, data: FullData) -> FullState:
    """Map a position to the model's quantities."""
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
    """Find the log prior of the hyperparameters, omega, v and W, up to a constant."""
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
    """Find the log likelihood of every row: (n,).

    It is ``log r(t) - log Z + log phi(t) - log sigma_eps``.
    """
    sigma_eps = noise_scale(state.log_sigma_eps, jnp)
    t = (data.y - state.mu) / sigma_eps
    coefficients, log_Z = (data.at_rows(a) for a in (state.coefficients, state.log_Z))
    log_r = log_ratio(data.construction, t, coefficients, state.T, state.sigma_G)
    return log_r - log_Z + log_base(t, jnp) - jnp.log(sigma_eps)


def log_density(position: Any, data: FullData) -> Any:
    """Find the joint log posterior at a position, with the Jacobian of the map (Eq. 4)."""
    state = transform(position, data)
    likelihood = data.power * jnp.sum(data.mask * log_likelihood(state, data))
    extra = interpolate(data.evidence, state.h.eta, data.grid_eta, jnp)
    # nothing depends on the coordinates of held hyperparameters: give them a proper density
    idle = jnp.where(jnp.isnan(data.pinned), 0.0, position[: len(data.pinned)] - data.pinned)
    extra -= 0.5 * jnp.sum(idle**2)
    return likelihood + log_prior(state, data.priors) + state.log_determinant + extra
