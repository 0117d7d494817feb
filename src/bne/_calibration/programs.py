"""Compiled programs that find moments, tables, quantiles and divergences of draws of the ratio."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import ndtri

from bne._base.divergence import divergences, equispaced
from bne._base.typing import Array
from bne._calibration.base_law import (
    HALF_WIDTH,
    NODE_SPACING,
    TAIL_MOMENTS,
    log_base,
    quadrature,
    tail_mass,
    tail_pdf,
)
from bne._calibration.construction import Construction
from bne._calibration.tables import Tables, hermite, hermite_integral

FAR = 200.0
"""No draw has a mass of 1e-12 or more beyond this |t|, if r(L) is below 1e5.

Quantiles are sought between -FAR and FAR.
"""

MAX_ITERATIONS = 100
"""Limit on the steps of Newton's method with halvings. About six steps are needed."""

TINY = np.finfo(np.float64).tiny
"""Smallest normal number: a lower bound that keeps divisors and logarithms finite."""


class Moments(NamedTuple):
    """Moments of t in S draws at n rows.

    Attributes
    ----------
    log_Z : (S, n)
        Log normaliser of the ratio.
    mean, variance, skewness, entropy : (S, n)
        Moments and differential entropy of t.
    """

    log_Z: Array
    mean: Array
    variance: Array
    skewness: Array
    entropy: Array


class OnNodes(NamedTuple):
    """The ratio on the nodes of the quadrature, in S draws at n rows.

    Attributes
    ----------
    h : (S, n, Q)
        Log of the ratio, relative to its largest value.
    slope : (S, n, Q)
        Its derivative in t.
    top : (S, n, 1)
        Log of the largest value, before normalisation.
    r : (S, n, Q)
        The ratio, relative to its largest value.
    sums : (S, n, 5)
        The integrals of `quadrature`, before normalisation.
    """

    h: Any
    slope: Any
    top: Any
    r: Any
    sums: Any


def _on_nodes(series: Any, construction: Construction) -> OnNodes:
    """Evaluate the ratio on the nodes from the cosine series of s (S, n, C)."""
    t, weights = quadrature()
    order = np.arange(series.shape[2])[:, None]
    angle, turn = construction.angle(t), construction.angle_slope(t)
    s, s_slope = series @ np.cos(order * angle), series @ (-np.sin(order * angle) * order * turn)
    h, slope = jax.jvp(lambda s: construction.log_link(s, jnp), (s,), (s_slope,))
    top = jnp.max(h, axis=2, keepdims=True)
    h -= top
    r = jnp.exp(h)
    return OnNodes(h, slope, top, r, r @ weights.T)


def _moments(on: OnNodes) -> Moments:
    """Find the moments of t by quadrature."""
    _, mean, square, cube, surprise = jnp.moveaxis(on.sums / on.sums[:, :, :1], 2, 0)
    Z = on.sums[:, :, 0]
    variance = square - mean**2
    return Moments(
        log_Z=jnp.log(Z) + on.top[:, :, 0],
        mean=mean,
        variance=variance,
        skewness=(cube - 3.0 * mean * square + 2.0 * mean**3) / variance**1.5,
        entropy=surprise - (on.r * on.h) @ quadrature()[1][0] / Z + jnp.log(Z),
    )


def _tabulate(on: OnNodes) -> Tables:
    """Tabulate the density and the CDF of t.

    The slopes of the density are limited, so that the cubic between two nodes is never negative.
    """
    t = quadrature()[0]
    r = on.r / on.sums[:, :, :1]
    density = r * np.exp(log_base(t))[None, None]
    bound = 3.0 * density / NODE_SPACING
    slope = jnp.clip(density * (on.slope - t[None, None]), -bound, bound)
    cells = 0.5 * NODE_SPACING * (density[:, :, 1:] + density[:, :, :-1])
    cells += NODE_SPACING**2 / 12.0 * (slope[:, :, :-1] - slope[:, :, 1:])
    tail = TAIL_MOMENTS[0] * r[:, :, :1]
    mass = jnp.concatenate([tail, tail + _running_sums(cells)], axis=2)
    total = mass[:, :, -1:] + TAIL_MOMENTS[0] * r[:, :, -1:]
    nodes = jnp.stack([density, slope, mass], axis=3)
    return Tables(nodes / total[..., None], r[:, :, jnp.array([0, -1])] / total)


def _running_sums(a: Any) -> Any:
    """Find cumulative sums along the last axis, by products with triangular matrices.

    Sums are taken within groups, and then over groups. XLA's own function takes three times as
    long.
    """
    size = next(k for k in (10, 8, 5, 4, 2, 1) if a.shape[-1] % k == 0)
    groups = a.reshape(*a.shape[:-1], -1, size)
    within = groups @ np.triu(np.ones((size, size)))
    before = within[..., -1] @ np.triu(np.ones((groups.shape[-2],) * 2), 1)
    return (within + before[..., None]).reshape(a.shape)


@jax.jit
def moments_of(series: Any, construction: Construction) -> Moments:
    """Find the moments of t from the cosine series of s (S, n, C)."""
    return _moments(_on_nodes(series, construction))


@jax.jit
def tables_of(series: Any, construction: Construction) -> Tables:
    """Tabulate the density and the CDF of t from the cosine series of s (S, n, C)."""
    return _tabulate(_on_nodes(series, construction))


@jax.jit
def mixture_quantiles(rows: tuple[Any, Any, Any], sigma: Any, construction: Construction) -> Any:
    """Find quantiles of the mixture of all draws (Q, n), and the moments of t.

    Newton's method starts at the quantiles of a Gaussian with the mixture's mean and variance. If a
    step would leave the interval that is known to hold the quantile, its midpoint is taken instead.

    `rows` holds the cosine series (S, n, C), mu (S, n) and the levels (Q, n).
    """
    series, mu, levels = rows[0], rows[1], rows[2].T
    on = _on_nodes(series, construction)
    tables, moments = _tabulate(on), _moments(on)
    scale = sigma[:, None]
    center = mu + scale * moments.mean
    variance = jnp.mean(scale**2 * moments.variance, axis=0) + jnp.var(center, axis=0)
    start = jnp.mean(center, axis=0)[:, None] + jnp.sqrt(variance)[:, None] * ndtri(levels)
    ends = jnp.min(mu - FAR * scale, axis=0), jnp.max(mu + FAR * scale, axis=0)
    low, high = (jnp.broadcast_to(end[:, None], levels.shape) for end in ends)

    def step(state: Any) -> Any:
        i, y, low, high, _ = state
        laws = _laws((y[None] - mu[:, :, None]) / scale[:, :, None], tables)
        F, f = jnp.mean(laws[0], axis=0), jnp.mean(laws[1] / scale[:, :, None], axis=0)
        excess = F - levels
        low, high = jnp.where(excess < 0, y, low), jnp.where(excess < 0, high, y)
        newton = y - excess / jnp.maximum(f, TINY)
        inside = (newton > low) & (newton < high)
        # the next step squares the error: from 1e-5 it goes to 1e-10
        near = jnp.abs(excess) < 1e-5 * jnp.minimum(levels, 1.0 - levels)
        y = jnp.where(inside, newton, jnp.where(near, y, 0.5 * (low + high)))
        return i + 1, y, low, high, jnp.any(~near)

    def unfinished(state: Any) -> Any:
        return state[4] & (state[0] < MAX_ITERATIONS)

    begin = 0, jnp.clip(start, low, high), low, high, jnp.array(True)
    return jax.lax.while_loop(unfinished, step, begin)[1].T, moments


@jax.jit
def divergences_of(rows: tuple[Any, Any, Any], sigma: Any, construction: Construction) -> Any:
    """Find the divergence KL of each draw's law of y from their average: (S, n).

    `rows` holds the cosine series (S, n, C), mu (S, n) and the ends (2, n) of the grid in y.
    """
    series, mu, (low, high) = rows
    y, step = equispaced(low, high, jnp)
    t = (y[None] - mu[:, :, None]) / sigma[:, None, None]
    f = _laws(t, _tabulate(_on_nodes(series, construction)))[1] / sigma[:, None, None]
    return divergences(f, step, jnp)


def _laws(t: Any, tables: Tables) -> tuple[Any, Any]:
    """Find the CDF and the density of t (S, n, Q) in every draw, as `Tables` does, but compiled."""
    S, n, nodes, width = tables.nodes.shape
    position = jnp.clip((t + HALF_WIDTH) / NODE_SPACING, 0.0, nodes - 1.000001)
    node = position.astype(jnp.int32)
    pick = jax.vmap(lambda row, at: jax.lax.dynamic_slice(row, (at,), (2 * width,)), (None, 0))
    cell = jax.vmap(jax.vmap(pick))(tables.nodes.reshape(S, n, -1), width * node)
    # the barrier keeps the look-up apart from the arithmetic, which is then vectorised
    p0, m0, mass, p1, m1, _ = jnp.moveaxis(jax.lax.optimization_barrier(cell), 3, 0)
    outside, lower = jnp.abs(t) > HALF_WIDTH, t < 0
    r = jnp.where(lower, tables.ends[:, :, :1], tables.ends[:, :, 1:])
    tail, beyond = r * tail_pdf(t, jnp), r * tail_mass(t, jnp)
    inside = position - node
    inner = mass + hermite_integral(inside, p0, p1, m0, m1)
    F = jnp.where(outside, jnp.where(lower, beyond, 1.0 - beyond), inner)
    f = jnp.where(outside, tail, hermite(inside, p0, p1, m0, m1))
    return F, f
