"""Draws of the ratio r(t | x) = dG/du: log density, CDF and moments in the coordinate t.

The ratio's predictor is kept as a cosine series, exact at any t. The CDF is the integral of a cubic
interpolant of the density on the quadrature nodes, with slopes limited so that the interpolant is
never negative: in every draw and at every x a CDF, whatever the coefficients.

Moments and quantiles come from compiled programs that see a block of rows and keep no table; the
CDF at given values reads tables, which are made when they are first asked for.
"""

from collections.abc import Callable
from functools import cached_property
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import ndtri
from scipy.optimize import elementwise

from bne._base.divergence import divergences, equispaced
from bne._base.typing import Array, Integers
from bne._calibration.construction import (
    HALF_WIDTH,
    NODE_SPACING,
    TAIL_MOMENTS,
    Construction,
    log_base,
    quadrature,
    tail_mass,
    tail_pdf,
)

BLOCK = 2
"""Rows that a compiled program sees at a time: few, so that their tables stay in the cache."""

ROW_ELEMENTS = 125
"""Weight of a draw at a row where chunks are made: 32 rows of 1,000 draws take some 100 MB."""

FAR = 200.0
"""|t| beyond which no draw has mass that a level of 1e-12 could see: r(L) is below 1e5."""

MAX_ITERATIONS = 100
"""Of Newton's method with halvings; about six are needed."""

TINY = np.finfo(np.float64).tiny


class Moments(NamedTuple):
    """Of S draws at n rows, (S, n) each.

    Attributes
    ----------
    log_Z
        Log normaliser.
    mean, variance, skewness, entropy
        Of t.
    """

    log_Z: Array
    mean: Array
    variance: Array
    skewness: Array
    entropy: Array


class Tables(NamedTuple):
    """What the CDF reads.

    Attributes
    ----------
    nodes : (S, n, Q, 3)
        On the nodes, side by side: the density r phi, its limited derivative, and the CDF.
    ends : (S, n, 2)
        r at -L and L, and beyond them.
    """

    nodes: Array
    ends: Array

    def cdf(self, t: Array, row: Integers) -> Array:
        """CDF of t (S, k), the k-th column at row[k]."""
        at, s = self._cell(t, row)
        inner = self.nodes.take(at + 2) + _hermite_integral(s, *self._ends_of_cell(at))
        beyond = tail_mass(t)
        lower, upper = beyond * self.ends[:, row, 0], 1.0 - beyond * self.ends[:, row, 1]
        return np.where(t < -HALF_WIDTH, lower, np.where(t > HALF_WIDTH, upper, inner))

    def pdf(self, t: Array, row: Integers) -> Array:
        """Density of t (S, k), the derivative of `cdf`."""
        at, s = self._cell(t, row)
        inner = _hermite(s, *self._ends_of_cell(at))
        tail = np.where(t < 0, self.ends[:, row, 0], self.ends[:, row, 1])
        return np.where(np.abs(t) > HALF_WIDTH, tail * tail_pdf(t), inner)

    def _cell(self, t: Array, row: Integers) -> tuple[Integers, Array]:
        """Flat index in `nodes` of the node before t, and t's share of the cell after it."""
        S, n, Q, width = self.nodes.shape
        position = np.clip((t + HALF_WIDTH) / NODE_SPACING, 0.0, Q - 1.000001)
        node = position.astype(np.intp)
        start = Q * (n * np.arange(S)[:, None] + row[None, :])
        return width * (start + node), position - node

    def _ends_of_cell(self, at: Integers) -> tuple[Array, Array, Array, Array]:
        """Density at both ends of a cell, and its slope."""
        p0, m0, p1, m1 = (self.nodes.take(at + k) for k in (0, 1, 3, 4))
        return p0, p1, m0, m1


class Ratio:
    """S draws of the ratio at n rows.

    Parameters
    ----------
    construction : Construction
    series : (S, n, L)
        Cosine coefficients of the predictor s.
    """

    def __init__(self, construction: Construction, series: Array) -> None:
        self.construction = construction
        self.series = series

    @cached_property
    def moments(self) -> Moments:
        """Normaliser and moments of t."""
        return in_blocks(_moments_of, self.series, self.construction)

    @cached_property
    def tables(self) -> Tables:
        """Density and CDF of t on the nodes."""
        return in_blocks(_tables_of, self.series, self.construction)

    def cdf(self, t: Array, row: Integers) -> Array:
        """CDF of t (S, k), the k-th column at row[k]."""
        return self.tables.cdf(t, row)

    def pdf(self, t: Array, row: Integers) -> Array:
        """Density of t (S, k), the derivative of `cdf`; quicker than `log_ratio`."""
        return self.tables.pdf(t, row)

    def log_ratio(self, t: Array, row: Integers) -> Array:
        """Log r at t (S, k), the k-th column at row[k]: Clenshaw's sum of the series.

        Where the link has kinks that no quadrature sees, the derivative of `cdf` is used instead.
        """
        if self.construction.has_kinks:
            return self._log_ratio_of_cdf(t, row)
        twice = 2.0 * np.cos(self.construction.angle(t))
        series = self.series[:, row]
        last, previous = np.zeros_like(t), np.zeros_like(t)
        for k in range(series.shape[2] - 1, 0, -1):
            last, previous = series[:, :, k] + twice * last - previous, last
        s = series[:, :, 0] + 0.5 * twice * last - previous
        return self.construction.log_link(s) - self.moments.log_Z[:, row]

    def _log_ratio_of_cdf(self, t: Array, row: Integers) -> Array:
        inside = np.log(np.maximum(self.pdf(t, row), TINY)) - log_base(t)
        ends = np.log(np.maximum(self.tables.ends[:, row], TINY))
        beyond = np.where(t < 0, ends[:, :, 0], ends[:, :, 1])
        return np.where(np.abs(t) > HALF_WIDTH, beyond, inside)

    def ppf(self, u: Array, draw: Integers, row: Integers) -> Array:
        """Quantiles of t at levels u, one draw and one row each; all of one shape."""

        def excess(t: Array, u: Array, draw: Integers, row: Integers) -> Array:
            one = Tables(*(a[draw, row][None] for a in self.tables))
            return one.cdf(t[None, :], np.arange(t.size))[0] - u

        ends = np.full(u.size, -FAR), np.full(u.size, FAR)
        levels = u.ravel(), draw.ravel(), row.ravel()
        return elementwise.find_root(excess, ends, args=levels).x.reshape(u.shape)

    def mixture_quantiles(self, mu: Array, sigma: Array, levels: Array) -> Array:
        """Quantiles of the average over draws of the laws of ``mu + sigma t``.

        Parameters
        ----------
        mu : (S, n); sigma : (S,); levels : (n, Q)

        Returns
        -------
        (n, Q) array
        """
        rows = self.series, mu, levels.T
        found, self.moments = in_blocks(_mixture_quantiles, rows, sigma, self.construction)
        return found.T

    def divergences(self, mu: Array, sigma: Array, low: Array, high: Array) -> Array:
        """Of the law of ``mu + sigma t`` of each draw from the average over draws: (S, n).

        Parameters
        ----------
        mu : (S, n); sigma : (S,)
        low, high : (n,)
            Ends of the grid in y.
        """
        rows = self.series, mu, np.stack([low, high])
        return in_blocks(_divergences, rows, sigma, self.construction)


def make_ratio(
    construction: Construction, coefficients: Array, roots: Array, sigma_G: Array
) -> Ratio:
    """Draws of the ratio from those of its process.

    Parameters
    ----------
    construction : Construction
    coefficients : (S, n, P)
        Of b(t), sigma_G included.
    roots : (S, M, P)
        ``T(ell_t)``: b(t) = T^T psi(t).
    sigma_G : (S,)
    """
    return Ratio(construction, construction.series(coefficients, roots, sigma_G))


def _hermite(s: Any, p0: Any, p1: Any, m0: Any, m1: Any) -> Any:
    """The cubic with these values and slopes at the ends of a cell, at the share s of it."""
    r = 1.0 - s
    values = p0 * r**2 * (1.0 + 2.0 * s) + p1 * s**2 * (3.0 - 2.0 * s)
    return values + NODE_SPACING * s * r * (m0 * r - m1 * s)


def _hermite_integral(s: Any, p0: Any, p1: Any, m0: Any, m1: Any) -> Any:
    """Integral from the left node to the share s of a cell of the cubic with these ends."""
    cubic = s**3 * (1.0 - 0.5 * s)
    return NODE_SPACING * (
        p0 * (s - cubic)
        + p1 * cubic
        + NODE_SPACING * (m0 * s**2 * (0.5 + s * (0.25 * s - 2.0 / 3.0)))
        + NODE_SPACING * (m1 * s**3 * (0.25 * s - 1.0 / 3.0))
    )


def in_blocks(function: Callable[..., Any], rows: Any, *shared: Any) -> Any:
    """Apply a compiled function to `BLOCK` rows at a time, the last one repeated at the end.

    Blocks have one shape, so that it is compiled once whatever the number of rows.

    Parameters
    ----------
    rows : array or tree of arrays
        The second axis is that of rows, in the answer too.
    """
    n = jax.tree.leaves(rows)[0].shape[1]
    pieces = []
    with jax.enable_x64(True):
        for first in range(0, n, BLOCK):
            kept = np.minimum(np.arange(first, first + BLOCK), n - 1)
            block = jax.tree.map(lambda a, kept=kept: a[:, kept], rows)
            # what is repeated goes here, not at the end: look-ups would copy a cut array every time
            real = slice(n - first)
            answer = function(block, *shared)
            pieces.append(jax.tree.map(lambda a, real=real: np.asarray(a)[:, real], answer))
    return jax.tree.map(lambda *a: np.concatenate(a, axis=1), *pieces)


class OnNodes(NamedTuple):
    """The ratio on the nodes: relative to its largest value, and what goes with it."""

    h: Any
    slope: Any
    top: Any
    r: Any
    sums: Any


def _on_nodes(series: Any, construction: Construction) -> OnNodes:
    """Log of the ratio, its slope in t, and its moments up to the normaliser."""
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
    """Cumulative sums along the last axis by products with triangles, within and between groups.

    XLA's own take three times as long.
    """
    size = next(k for k in (10, 8, 5, 4, 2, 1) if a.shape[-1] % k == 0)
    groups = a.reshape(*a.shape[:-1], -1, size)
    within = groups @ np.triu(np.ones((size, size)))
    before = within[..., -1] @ np.triu(np.ones((groups.shape[-2],) * 2), 1)
    return (within + before[..., None]).reshape(a.shape)


@jax.jit
def _moments_of(series: Any, construction: Construction) -> Moments:
    return _moments(_on_nodes(series, construction))


@jax.jit
def _tables_of(series: Any, construction: Construction) -> Tables:
    return _tabulate(_on_nodes(series, construction))


@jax.jit
def _mixture_quantiles(rows: tuple[Any, Any, Any], sigma: Any, construction: Construction) -> Any:
    """By Newton's method, from the quantiles of a Gaussian with the mixture's moments: (Q, n).

    Where a step would leave what is known to hold the quantile, that is halved instead. The moments
    of t come along.
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
        # the step squares what is missing
        near = jnp.abs(excess) < 1e-5 * jnp.minimum(levels, 1.0 - levels)
        y = jnp.where(inside, newton, jnp.where(near, y, 0.5 * (low + high)))
        return i + 1, y, low, high, jnp.any(~near)

    def unfinished(state: Any) -> Any:
        return state[4] & (state[0] < MAX_ITERATIONS)

    begin = 0, jnp.clip(start, low, high), low, high, jnp.array(True)
    return jax.lax.while_loop(unfinished, step, begin)[1].T, moments


@jax.jit
def _divergences(rows: tuple[Any, Any, Any], sigma: Any, construction: Construction) -> Any:
    series, mu, (low, high) = rows
    y, step = equispaced(low, high, jnp)
    t = (y[None] - mu[:, :, None]) / sigma[:, None, None]
    f = _laws(t, _tabulate(_on_nodes(series, construction)))[1] / sigma[:, None, None]
    return divergences(f, step, jnp)


def _laws(t: Any, tables: Tables) -> tuple[Any, Any]:
    """CDF and density of t (S, n, Q) in every draw, as `Tables.cdf` and `Tables.pdf` have them."""
    S, n, nodes, width = tables.nodes.shape
    position = jnp.clip((t + HALF_WIDTH) / NODE_SPACING, 0.0, nodes - 1.000001)
    node = position.astype(jnp.int32)
    pick = jax.vmap(lambda row, at: jax.lax.dynamic_slice(row, (at,), (2 * width,)), (None, 0))
    cell = jax.vmap(jax.vmap(pick))(tables.nodes.reshape(S, n, -1), width * node)
    # kept apart from the look-up, the arithmetic is vectorised
    p0, m0, mass, p1, m1, _ = jnp.moveaxis(jax.lax.optimization_barrier(cell), 3, 0)
    outside, lower = jnp.abs(t) > HALF_WIDTH, t < 0
    r = jnp.where(lower, tables.ends[:, :, :1], tables.ends[:, :, 1:])
    tail, beyond = r * tail_pdf(t, jnp), r * tail_mass(t, jnp)
    s = position - node
    inner = mass + _hermite_integral(s, p0, p1, m0, m1)
    F = jnp.where(outside, jnp.where(lower, beyond, 1.0 - beyond), inner)
    f = jnp.where(outside, tail, _hermite(s, p0, p1, m0, m1))
    return F, f
