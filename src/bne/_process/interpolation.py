"""Interpolation on a grid of log length-scales, with one formula for numpy and JAX."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from bne._base.typing import Array

N_NODES = 32
"""Number of length-scales on the grid: about 0.2 apart in log(ell) over a wide prior.

The interpolated kernel is then within 1e-3 of the exact one (docs/deviations.md). More nodes would
be more exact, but tables grow with their number.
"""


def interpolation(log_ell: Any, grid: Any, xp: Any = np) -> tuple[Any, Any]:
    """Find the weights of Catmull-Rom interpolation on an equispaced grid.

    Returns the index of the first of four neighbouring nodes, and their weights (..., 4). Beyond
    the ends of the grid the nearest inner node is used. Inside the grid the result has a continuous
    derivative in `log_ell`. `xp` is numpy or jax.numpy, so that fitting and predicting share one
    formula.
    """
    J = grid.shape[0]
    if J < 4:
        raise ValueError(f"Interpolation needs at least 4 nodes; got {J}. Pass a longer grid.")
    position = xp.clip((log_ell - grid[0]) / (grid[1] - grid[0]), 1.0, J - 2.0)
    start = xp.clip(xp.floor(position), 1, J - 3).astype(int)
    s = (position - start)[..., None]
    weights = xp.concatenate(
        [
            0.5 * s * (-1.0 + s * (2.0 - s)),
            1.0 + 0.5 * s**2 * (3.0 * s - 5.0),
            0.5 * s * (1.0 + s * (4.0 - 3.0 * s)),
            0.5 * s**2 * (s - 1.0),
        ],
        axis=-1,
    )
    return start - 1, weights


def nodes_between(log_ell: Array, grid: Array) -> slice:
    """Find the nodes that interpolation reads at any of these length-scales."""
    first = interpolation(log_ell, grid)[0]
    return slice(int(np.min(first)), int(np.max(first)) + 4)


def interpolate(table: Any, log_ell: Any, grid: Any, xp: Any = np) -> Any:
    """Interpolate a table (J, ...) at one length-scale.

    The table of a length-scale that is held has only one node, which is returned.
    """
    if table.shape[0] == 1:
        return table[0]
    first, weights = interpolation(xp.asarray(log_ell), grid, xp)
    near = table[first : first + 4] if xp is np else jax.lax.dynamic_slice_in_dim(table, first, 4)
    return xp.tensordot(weights, near, axes=1)


class Interpolated(NamedTuple):
    """A large table at one length-scale: a matrix with its derivative, for use in products.

    Automatic differentiation would read the four interpolated matrices again for every product. So
    the derivative in log_ell is carried along instead.

    Attributes
    ----------
    matrix : (n, m)
        The interpolated matrix A(ell).
    slope : (n, m) or None
        Its derivative in log_ell; None if the length-scale is held.
    change : float or None
        The number 0, with the derivative of log_ell: JAX then finds the gradient in log_ell.
    """

    matrix: Any
    slope: Any = None
    change: Any = None

    def times(self, v: Any) -> Any:
        """Find ``A(ell) v``."""
        product = self.matrix @ v
        if self.slope is None:
            return product
        return product + self.change * (self.slope @ jax.lax.stop_gradient(v))

    def transposed_times(self, w: Any) -> Any:
        """Find ``A(ell)^T w``."""
        product = w @ self.matrix
        if self.slope is None:
            return product
        return product + self.change * (jax.lax.stop_gradient(w) @ self.slope)


def interpolate_once(table: Any, log_ell: Any, grid: Any) -> Interpolated:
    """Interpolate a table (J, n, m) at one length-scale, with its derivative.

    The table of a length-scale that is held has only one node, which is returned.
    """
    if table.shape[0] == 1:
        return Interpolated(table[0])
    fixed = jax.lax.stop_gradient(log_ell)
    first, weights = interpolation(fixed, grid, jnp)
    slopes = jax.jacfwd(lambda q: interpolation(q, grid, jnp)[1])(fixed)
    nodes = [jax.lax.dynamic_index_in_dim(table, first + k, keepdims=False) for k in range(4)]
    matrix, slope = (sum(w[k] * nodes[k] for k in range(4)) for w in (weights, slopes))
    return Interpolated(matrix, slope, log_ell - fixed)
