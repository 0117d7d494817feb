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

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from bne._base.priors import InverseGamma, Priors, half_normal_log_density
from bne._calibration.construction import Construction, cosines, log_base, quadrature
from bne._mean.gaussian import noise_scale
from bne._process.kernels import interpolation

GAUGE = 0.25
"""Standard deviation, a priori, of the log of the noise's scale (the rows' root mean square) in
units of sigma_eps. sigma_eps and the stretch of G would share that scale at will otherwise."""


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
    """Everything the log density reads, padded: rows to n, places to U, features to m and m_G.

    Tables have a node for each of J length-scales, or one where the length-scale is held. Where
    few rows share their inputs, places are the rows.

    Attributes
    ----------
    y, mask : (n,); F : (n, K)
    place : (n,) or None
        The place of each row; None where places are the rows.
    counts : (U,)
        Rows at each place.
    power : float
        To which the likelihood is raised.
    pinned : (7,)
        Hyperparameters that are held where this is a number; in place of eta, log sigma_eps.
    evidence, grid_eta : (J,)
        Added to the log density, at nodes of eta.
    weights : (n,)
        Relative precision of the rows in the maps, times `power`; 0 where padded.
    A : (J, U, m)
        Principal features of delta; ``gram`` (J, m) their weighted squares clear of the experts,
        ``cross`` (J, m, K) their weighted products with ``E``; ``grid`` (J,) log length-scales.
    E : (n, K), s : (K,), U : (K, K)
        ``F U = E sqrt(s)``, the columns of E orthonormal in the weighted product (`expert_axes`).
    A_G : (J, U, m_G)
        Features of h in x; ``gram_x`` and ``sum_x`` (J, m_G) their squares and sums over rows;
        ``grid_x`` (J,).
    roots : (J, M, P)
        Of h in t; ``gram_t`` and ``bend_t`` (J, P) the squares of b(t) and its products with the
        offset under N(0, 1); ``grid_t`` (J,).
    virtual : (J, V, m_G)
        Features of h at its own points, where a construction may set conditions.
    priors : FullPriors
    construction : Construction
    """

    y: Any
    mask: Any
    place: Any
    counts: Any
    power: Any
    pinned: Any
    evidence: Any
    grid_eta: Any
    F: Any
    weights: Any
    A: Any
    gram: Any
    cross: Any
    E: Any
    s: Any
    U: Any
    grid: Any
    A_G: Any
    gram_x: Any
    sum_x: Any
    grid_x: Any
    roots: Any
    gram_t: Any
    bend_t: Any
    grid_t: Any
    virtual: Any
    priors: FullPriors
    construction: Construction

    def at_rows(self, values: Any) -> Any:
        """Values at the places (U, ...), row by row: (n, ...)."""
        return values if self.place is None else values[self.place]

    def at_places(self, values: Any) -> Any:
        """Sums of values at the rows (n,) over each place: (U,)."""
        if self.place is None:
            return values
        return jax.ops.segment_sum(values, self.place, num_segments=len(self.counts))


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


def interpolate(table: Any, log_ell: Any, grid: Any) -> Any:
    """A table (J, ...) at one length-scale; its only node where the length-scale is held."""
    if table.shape[0] == 1:
        return table[0]
    first, weights = interpolation(log_ell, grid, jnp)
    return jnp.tensordot(weights, jax.lax.dynamic_slice_in_dim(table, first, 4), axes=1)


class Interpolated(NamedTuple):
    """A large table at one length-scale, to be multiplied by: a matrix, and its derivative.

    The derivative in log_ell is carried along in place of being found by automatic differentiation,
    which would read the four matrices that are interpolated once more for every product.
    ``change`` is 0, and has the derivative of log_ell. Without a slope the length-scale is held.
    """

    matrix: Any
    slope: Any = None
    change: Any = None

    def times(self, v: Any) -> Any:
        """``A(ell) v``."""
        product = self.matrix @ v
        if self.slope is None:
            return product
        return product + self.change * (self.slope @ jax.lax.stop_gradient(v))

    def transposed_times(self, w: Any) -> Any:
        """``A(ell)^T w``."""
        product = w @ self.matrix
        if self.slope is None:
            return product
        return product + self.change * (jax.lax.stop_gradient(w) @ self.slope)


def interpolate_once(table: Any, log_ell: Any, grid: Any) -> Interpolated:
    """A table (J, n, m) at one length-scale; its only node where the length-scale is held."""
    if table.shape[0] == 1:
        return Interpolated(table[0])
    fixed = jax.lax.stop_gradient(log_ell)
    first, weights = interpolation(fixed, grid, jnp)
    slopes = jax.jacfwd(lambda q: interpolation(q, grid, jnp)[1])(fixed)
    nodes = [jax.lax.dynamic_index_in_dim(table, first + k, keepdims=False) for k in range(4)]
    matrix, slope = (sum(w[k] * nodes[k] for k in range(4)) for w in (weights, slopes))
    return Interpolated(matrix, slope, log_ell - fixed)


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


def _map_v(
    z: Any, h: FullHyperparameters, target: Any, A: Interpolated, data: FullData
) -> tuple[Any, Any]:
    """Stage 2's posterior of v for the outcome `target`: v and the log-determinant.

    Its precision is ``Lambda + B B^T``: Lambda, diagonal, for the features clear of the experts,
    and what the prior of omega keeps the experts from taking up. With X = Lambda^(-1/2) B and
    ``I + X^T X = L L^T``, ``I - X L^-T (L + I)^-1 X^T`` is a root of (I + X X^T)^-1 (Andrews 1968).
    """
    rho = jnp.exp(2.0 * (h.log_sigma_delta - h.eta))
    kept = 1.0 / (1.0 + data.s * jnp.exp(2.0 * (h.log_sigma_omega - h.eta)))  # kappa / (s + kappa)
    gram, cross = (interpolate(a, h.log_ell, data.grid) for a in (data.gram, data.cross))
    scale = 1.0 / jnp.sqrt(1.0 + rho * jnp.maximum(gram, 0.0))
    X = scale[:, None] * cross * jnp.sqrt(rho * kept)[None, :]
    K = len(data.s)
    L = jnp.linalg.cholesky(jnp.eye(K) + X.T @ X)
    solve = partial(jax.scipy.linalg.solve_triangular, lower=True)
    weighted = data.weights * (
        target - data.E @ ((1.0 - kept) * (data.E.T @ (data.weights * target)))
    )
    pull = rho * jnp.exp(-h.log_sigma_delta) * scale
    pull *= A.transposed_times(data.at_places(weighted))
    mean = pull - X @ solve(L, solve(L, X.T @ pull), trans=1)
    moved = z - X @ solve(L, solve(L + jnp.eye(K), X.T @ z), trans=1)
    log_determinant = jnp.sum(jnp.log(scale)) - jnp.sum(jnp.log(jnp.diagonal(L)))
    return scale * (mean + moved), log_determinant


def _map_omega(z: Any, h: FullHyperparameters, rest: Any, data: FullData) -> tuple[Any, Any]:
    """Stage 2's conditional of omega given target - delta: omega and the log-determinant."""
    precision = data.s * jnp.exp(-2.0 * h.eta) + jnp.exp(-2.0 * h.log_sigma_omega)
    pull = jnp.sqrt(data.s) * jnp.exp(-2.0 * h.eta) * (data.E.T @ (data.weights * rest))
    along = pull / precision + z / jnp.sqrt(precision)
    return data.U @ along, -0.5 * jnp.sum(jnp.log(precision))


def _map_W(z: Any, h: FullHyperparameters, sigma_G: Any, data: FullData) -> tuple[Any, Any]:
    """Posterior of W were r = 1 and the data said h = 0, taken to be diagonal; log-determinant.

    Data know h, not its parts: sigma_G W where they are many, W where they are few; and W makes up
    for the offset, which grows with sigma_G^2.
    """
    gram_x, sum_x = (interpolate(a, h.log_ell_x, data.grid_x) for a in (data.gram_x, data.sum_x))
    gram_t, bend_t = (interpolate(a, h.log_ell_t, data.grid_t) for a in (data.gram_t, data.bend_t))
    precision = 1.0 + sigma_G**2 * jnp.maximum(jnp.outer(gram_x, gram_t), 0.0)
    mean = -(sigma_G**3) * jnp.outer(sum_x, bend_t) / precision
    return mean + z / jnp.sqrt(precision), -0.5 * jnp.sum(jnp.log(precision))


def transform(position: Any, data: FullData) -> FullState:
    """Position -> the model's quantities."""
    free, z_omega, z_delta, z_G = unpack(position, data)
    h = FullHyperparameters(*jnp.where(jnp.isnan(data.pinned), jnp.stack(free), data.pinned))
    sigma_G = data.construction.amplitude(h.log_sigma_G, jnp)
    W, log_det_W = _map_W(z_G, h, sigma_G, data)
    T = interpolate(data.roots, h.log_ell_t, data.grid_t)
    A_G = interpolate_once(data.A_G, h.log_ell_x, data.grid_x)
    coefficients = sigma_G * A_G.times(W)
    log_Z, mean, log_sd = normaliser(data.construction, coefficients, T, sigma_G)
    virtual = sigma_G * (interpolate(data.virtual, h.log_ell_x, data.grid_x) @ W)
    share = data.counts / jnp.sum(data.counts)
    stretch = jnp.sum(share * log_sd)
    log_scale = 0.5 * jnp.log(jnp.sum(share * jnp.exp(2.0 * log_sd)))
    held = FullHyperparameters(*data.pinned).eta
    log_sigma_eps = jnp.where(jnp.isnan(held), h.eta - stretch, held)
    h = h._replace(eta=log_sigma_eps + stretch)
    target = data.mask * (data.y - jnp.exp(log_sigma_eps) * data.at_rows(mean))
    A = interpolate_once(data.A, h.log_ell, data.grid)
    v, log_det_v = _map_v(z_delta, h, target, A, data)
    delta = data.at_rows(jnp.exp(h.log_sigma_delta) * A.times(v))
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
    extra = interpolate(data.evidence, state.h.eta, data.grid_eta)
    # coordinates of hyperparameters that are held are idle
    idle = jnp.where(jnp.isnan(data.pinned), 0.0, position[: len(data.pinned)] - data.pinned)
    extra -= 0.5 * jnp.sum(idle**2)
    return likelihood + log_prior(state, data.priors) + state.log_determinant + extra
