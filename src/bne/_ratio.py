"""Draws of the ratio r(t | x) = dG/du: log density, CDF and moments in the coordinate t.

The ratio's predictor is kept as a cosine series, exact at any t. The CDF is the integral of a cubic
interpolant of the density on the quadrature nodes, with slopes limited so that the interpolant is
never negative: in every draw and at every x a CDF, whatever the coefficients.
"""

from typing import NamedTuple

import numpy as np
from scipy import special
from scipy.optimize import elementwise

from bne._calibration import HALF_WIDTH, NODE_SPACING, Construction, quadrature
from bne._typing import Array, Integers

ROW_ELEMENTS = 400
"""Numbers held for a draw at a row: three tables on the nodes, and temporaries as large."""

FAR = 12.0
"""|t| beyond which no draw has mass that a level of 1e-12 could see."""


TINY = np.finfo(np.float64).tiny

CDF_TABLES = ("density", "slope", "mass", "ends")
"""The fields that `Ratio.cdf` reads."""


class Ratio(NamedTuple):
    """S draws at n rows.

    Attributes
    ----------
    series : (S, n, L)
        Cosine coefficients of the predictor s.
    log_Z : (S, n)
    mean, variance, skewness : (S, n)
        Moments of t.
    information : (S, n)
        ``E[log r]``, the divergence of the law of t from N(0, 1).
    density, slope, mass : (S, n, Q)
        On the nodes: r phi, its limited derivative, and the CDF.
    ends : (S, n, 2)
        r at -L and L, and beyond them.
    construction : Construction
    """

    series: Array
    log_Z: Array
    mean: Array
    variance: Array
    skewness: Array
    information: Array
    density: Array
    slope: Array
    mass: Array
    ends: Array
    construction: Construction

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
        return self.construction.log_link(s) - self.log_Z[:, row]

    def cdf(self, t: Array, row: Integers) -> Array:
        """CDF of t (S, k), the k-th column at row[k]."""
        at, s = self._cell(t, row)
        inner = self.mass.take(at) + _hermite_integral(s, *self._ends_of_cell(at))
        lower = special.ndtr(t) * self.ends[:, row, 0]
        upper = 1.0 - special.ndtr(-t) * self.ends[:, row, 1]
        return np.where(t < -HALF_WIDTH, lower, np.where(t > HALF_WIDTH, upper, inner))

    def pdf(self, t: Array, row: Integers) -> Array:
        """Density of t (S, k), the derivative of `cdf`; quicker than `log_ratio`."""
        at, s = self._cell(t, row)
        inner = _hermite(s, *self._ends_of_cell(at))
        tail = np.where(t < 0, self.ends[:, row, 0], self.ends[:, row, 1])
        outer = tail * np.exp(-0.5 * t**2) / np.sqrt(2.0 * np.pi)
        return np.where(np.abs(t) > HALF_WIDTH, outer, inner)

    def _log_ratio_of_cdf(self, t: Array, row: Integers) -> Array:
        phi = np.exp(-0.5 * t**2) / np.sqrt(2.0 * np.pi)
        inside = np.log(np.maximum(self.pdf(t, row), TINY) / np.maximum(phi, TINY))
        ends = np.log(np.maximum(self.ends[:, row], TINY))
        beyond = np.where(t < 0, ends[:, :, 0], ends[:, :, 1])
        return np.where(np.abs(t) > HALF_WIDTH, beyond, inside)

    def _cell(self, t: Array, row: Integers) -> tuple[Integers, Array]:
        """Flat index of the node before t in (S, n, Q), and t's share of the cell after it."""
        S, n, Q = self.mass.shape
        position = np.clip((t + HALF_WIDTH) / NODE_SPACING, 0.0, Q - 1.000001)
        node = position.astype(np.intp)
        start = Q * (n * np.arange(S)[:, None] + row[None, :])
        return start + node, position - node

    def _ends_of_cell(self, at: Integers) -> tuple[Array, Array, Array, Array]:
        """Density at both ends of a cell, and its slope."""
        p, m = self.density, self.slope
        return p.take(at), p.take(at + 1), m.take(at), m.take(at + 1)

    def ppf(self, u: Array, draw: Integers, row: Integers) -> Array:
        """Quantiles of t at levels u, one draw and one row each; all of one shape."""

        def excess(t: Array, u: Array, draw: Integers, row: Integers) -> Array:
            one = self._replace(**{k: getattr(self, k)[draw, row][None] for k in CDF_TABLES})
            return one.cdf(t[None, :], np.arange(t.size))[0] - u

        ends = np.full(u.size, -FAR), np.full(u.size, FAR)
        levels = u.ravel(), draw.ravel(), row.ravel()
        return elementwise.find_root(excess, ends, args=levels).x.reshape(u.shape)


def _hermite(s: Array, p0: Array, p1: Array, m0: Array, m1: Array) -> Array:
    """The cubic with these values and slopes at the ends of a cell, at the share s of it."""
    r = 1.0 - s
    values = p0 * r**2 * (1.0 + 2.0 * s) + p1 * s**2 * (3.0 - 2.0 * s)
    return values + NODE_SPACING * s * r * (m0 * r - m1 * s)


def _hermite_integral(s: Array, p0: Array, p1: Array, m0: Array, m1: Array) -> Array:
    """Integral from the left node to the share s of a cell of the cubic with these ends."""
    cubic = s**3 * (1.0 - 0.5 * s)
    return NODE_SPACING * (
        p0 * (s - cubic)
        + p1 * cubic
        + NODE_SPACING * (m0 * s**2 * (0.5 + s * (0.25 * s - 2.0 / 3.0)))
        + NODE_SPACING * (m1 * s**3 * (0.25 * s - 1.0 / 3.0))
    )


def make_ratio(
    construction: Construction, coefficients: Array, roots: Array, sigma_G: Array
) -> Ratio:
    """Tabulate the ratio.

    Parameters
    ----------
    construction : Construction
    coefficients : (S, n, P)
        Of b(t), sigma_G included.
    roots : (S, M, P)
        ``T(ell_t)``: b(t) = T^T psi(t).
    sigma_G : (S,)
    """
    series = construction.series(coefficients, roots, sigma_G)
    t, weights = quadrature()
    order = np.arange(series.shape[2])[:, None]
    angle, turn = construction.angle(t), construction.angle_slope(t)
    s, s_slope = series @ np.cos(order * angle), series @ (-np.sin(order * angle) * order * turn)
    h, h_slope = construction.log_link(s), construction.log_link_slope(s) * s_slope
    top = np.max(h, axis=2, keepdims=True)
    r = np.exp(h - top)
    Z = r @ weights[0]
    r /= Z[:, :, None]
    mean, square, cube = (r @ w for w in weights[1:])
    variance = square - mean**2
    density = r * (np.exp(-0.5 * t**2) / np.sqrt(2.0 * np.pi))
    bound = 3.0 * density / NODE_SPACING
    slope = np.clip(density * (h_slope - t), -bound, bound)
    cells = 0.5 * NODE_SPACING * (density[:, :, 1:] + density[:, :, :-1])
    cells += NODE_SPACING**2 / 12.0 * (slope[:, :, :-1] - slope[:, :, 1:])
    tail = special.ndtr(-HALF_WIDTH) * r[:, :, :1]
    mass = np.concatenate([tail, tail + np.cumsum(cells, axis=2)], axis=2)
    total = mass[:, :, -1:] + special.ndtr(-HALF_WIDTH) * r[:, :, -1:]
    return Ratio(
        series=series,
        log_Z=np.log(Z) + top[:, :, 0],
        mean=mean,
        variance=variance,
        skewness=(cube - 3.0 * mean * square + 2.0 * mean**3) / variance**1.5,
        information=(r * (h - top - np.log(Z)[:, :, None])) @ weights[0],
        density=density / total,
        slope=slope / total,
        mass=mass / total,
        ends=r[:, :, [0, -1]] / total,
        construction=construction,
    )
