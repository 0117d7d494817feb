"""Linear maps from coordinates in which a density has about unit scale in every direction."""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from scipy import optimize

from bne._base.typing import Array

LogDensity = Callable[[Any, Any], Any]
"""A log density: a function of the position and the data."""


class LowRank(NamedTuple):
    """The map ``q = scale * (z + U (stretch * U^T z))``, whose Jacobian is a constant.

    Attributes
    ----------
    scale : (dim,)
        Scale of each coordinate.
    stretch : (r,)
        A few directions are stretched by 1 + this.
    U : (dim, r)
        These directions, as orthonormal columns.
    """

    scale: Any
    stretch: Any
    U: Any

    def __call__(self, z: Any) -> Any:
        """Map coordinates z (..., dim) to the coordinates q of the density."""
        return (z + ((z @ self.U) * self.stretch) @ self.U.T) * self.scale.reshape(
            (1,) * (z.ndim - 1) + (-1,)
        )

    def inverse(self, q: Array) -> Array:
        """Map coordinates q of the density back to z."""
        z = q / self.scale
        return z + ((z @ self.U) * (1.0 / (1.0 + self.stretch) - 1.0)) @ self.U.T

    def pull_back(self, gradient: Array) -> Array:
        """Turn gradients (..., dim) in z into gradients in q."""
        g = gradient + ((gradient @ self.U) * (1.0 / (1.0 + self.stretch) - 1.0)) @ self.U.T
        return g / self.scale


def scales_only(scale: Array, rank: int) -> LowRank:
    """Make the map that only scales, with `rank` directions that are not stretched."""
    return LowRank(scale, np.zeros(rank), np.zeros((len(scale), rank)))


PRIOR_WEIGHT = 100.0
"""`fisher_map` shrinks its covariances as if so many draws of a unit Gaussian were added.

More shrinking protects against the noise of few draws; less follows the draws more closely.
"""


def fisher_map(position: Array, gradient: Array, before: LowRank) -> LowRank:
    """Find the map under which draws (N, dim) and their gradients have the same covariance.

    For a Gaussian of unit scale, the gradient of the log density is minus the draw. So the
    covariance M of the map solves ``M C_g M = C_q``, where C_q is the covariance of the draws and
    C_g that of the gradients. This M minimises the Fisher divergence to a Gaussian.

    Both covariances are shrunk to the identity. The map keeps the directions of M whose eigenvalues
    are farthest from 1, as many as `before` has. A coordinate that has not moved keeps its scale.
    """
    q, g = np.std(position, axis=0), np.std(gradient, axis=0)
    moved = (q > 0.0) & (g > 0.0) & np.isfinite(g)
    scale = np.where(
        moved, np.sqrt(np.divide(q, g, where=moved, out=before.scale**2)), before.scale
    )
    shrink = PRIOR_WEIGHT / (len(position) + PRIOR_WEIGHT)
    unit = shrink * np.eye(len(scale))
    C_q = unit + (1.0 - shrink) * np.cov(position / scale, rowvar=False)
    C_g = unit + (1.0 - shrink) * np.cov(gradient * scale, rowvar=False)
    values, axes = np.linalg.eigh(geometric_mean(C_q, C_g))
    far = np.argsort(-np.abs(np.log(values)))[: len(before.stretch)]
    return LowRank(scale, np.sqrt(values[far]) - 1.0, axes[:, far])


def geometric_mean(A: Array, B: Array) -> Array:
    """Find the symmetric M with ``M B M = A``, for positive definite A and B."""
    values, axes = np.linalg.eigh(B)
    root, inverse = (axes * values**p @ axes.T for p in (0.5, -0.5))
    values, axes = np.linalg.eigh(root @ A @ root)
    return inverse @ (axes * np.sqrt(values)) @ axes.T @ inverse


@partial(jax.jit, static_argnums=0)
def value_and_grad(log_density: LogDensity, position: Any, data: Any) -> Any:
    """Find the log density and its gradient; compiled once for all data of the same shapes."""
    return jax.value_and_grad(log_density)(position, data)


class Laplace(NamedTuple):
    """The Laplace approximation of a log density.

    Attributes
    ----------
    mode : (dim,)
        Mode of the density.
    factor : (dim, dim)
        L, where ``L L^T`` is the inverse of the negative Hessian at the mode.
    """

    mode: Array
    factor: Array

    def __call__(self, z: Any) -> Any:
        """Map coordinates of unit scale (..., dim) to the coordinates of the density."""
        return self.mode + z @ self.factor.T


MAX_SCALE = 2.0
"""Largest scale of a direction, in logarithms of hyperparameters.

A direction that is flatter at the mode is given this scale, because its curvature there says little
about its width.
"""


def laplace(log_density: LogDensity, data: Any, start: Array, bounds: Array) -> Laplace:
    """Find the mode within `bounds` (dim, 2), and the Hessian there by central differences."""
    with jax.enable_x64(True):
        data = jax.tree.map(jnp.asarray, data)

        def loss(q: Array) -> tuple[float, Array]:
            value, gradient = value_and_grad(log_density, jnp.asarray(q), data)
            return -float(value), -np.asarray(gradient)

        mode = optimize.minimize(loss, start, jac=True, method="L-BFGS-B", bounds=bounds).x
        steps = 1e-3 * np.eye(len(mode))
        H = np.stack([(loss(mode + e)[1] - loss(mode - e)[1]) / 2e-3 for e in steps])
    curvature, axes = np.linalg.eigh(0.5 * (H + H.T))
    return Laplace(mode, axes / np.sqrt(np.maximum(curvature, MAX_SCALE**-2)))
