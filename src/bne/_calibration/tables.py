"""Tables of the density and the CDF of t. Between nodes the density is a cubic, never negative."""

from typing import Any, NamedTuple

import numpy as np

from bne._base.typing import Array, Integers
from bne._calibration.base_law import HALF_WIDTH, NODE_SPACING, tail_mass, tail_pdf


class Tables(NamedTuple):
    """The density and the CDF of t on the Q nodes, in S draws at n rows.

    Attributes
    ----------
    nodes : (S, n, Q, 3)
        The density r phi, its limited derivative, and the CDF at each node.
    ends : (S, n, 2)
        The ratio r at -L and at L. It keeps these values beyond them.
    """

    nodes: Array
    ends: Array

    def cdf(self, t: Array, row: Integers) -> Array:
        """Find the CDF at t (S, k), where column i belongs to row[i]."""
        at, s = self._cell(t, row)
        inner = self.nodes.take(at + 2) + hermite_integral(s, *self._ends_of_cell(at))
        beyond = tail_mass(t)
        lower, upper = beyond * self.ends[:, row, 0], 1.0 - beyond * self.ends[:, row, 1]
        return np.where(t < -HALF_WIDTH, lower, np.where(t > HALF_WIDTH, upper, inner))

    def pdf(self, t: Array, row: Integers) -> Array:
        """Find the density at t (S, k), the derivative of `cdf`."""
        at, s = self._cell(t, row)
        inner = hermite(s, *self._ends_of_cell(at))
        tail = np.where(t < 0, self.ends[:, row, 0], self.ends[:, row, 1])
        return np.where(np.abs(t) > HALF_WIDTH, tail * tail_pdf(t), inner)

    def _cell(self, t: Array, row: Integers) -> tuple[Integers, Array]:
        """Find the flat index in `nodes` of the node before t, and t's position in the cell."""
        S, n, Q, width = self.nodes.shape
        position = np.clip((t + HALF_WIDTH) / NODE_SPACING, 0.0, Q - 1.000001)
        node = position.astype(np.intp)
        start = Q * (n * np.arange(S)[:, None] + row[None, :])
        return width * (start + node), position - node

    def _ends_of_cell(self, at: Integers) -> tuple[Array, Array, Array, Array]:
        """Look up the density at both ends of a cell, and its slopes there."""
        p0, m0, p1, m1 = (self.nodes.take(at + k) for k in (0, 1, 3, 4))
        return p0, p1, m0, m1


def hermite(s: Any, p0: Any, p1: Any, m0: Any, m1: Any) -> Any:
    """Find the cubic with values p and slopes m at the ends of a cell, at position s in [0, 1]."""
    r = 1.0 - s
    values = p0 * r**2 * (1.0 + 2.0 * s) + p1 * s**2 * (3.0 - 2.0 * s)
    return values + NODE_SPACING * s * r * (m0 * r - m1 * s)


def hermite_integral(s: Any, p0: Any, p1: Any, m0: Any, m1: Any) -> Any:
    """Integrate this cubic from the left end of the cell to position s in [0, 1]."""
    cubic = s**3 * (1.0 - 0.5 * s)
    return NODE_SPACING * (
        p0 * (s - cubic)
        + p1 * cubic
        + NODE_SPACING * (m0 * s**2 * (0.5 + s * (0.25 * s - 2.0 / 3.0)))
        + NODE_SPACING * (m1 * s**3 * (0.25 * s - 1.0 / 3.0))
    )
