"""Linear maps to coordinates in which a density has about unit scale in every direction."""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from scipy import optimize

from bne._base.typing import Array

LogDensity = Callable[[Any, Any], Any]


class LowRank(NamedTuple):
    """``q = scale * (z + U (stretch * U^T z))``: scales, and a few directions stretched besides.

    ``scale`` (dim,), ``stretch`` (r,), ``U`` (dim, r) with orthonormal columns. The Jacobian is a
    constant.
    """

    scale: Any
    stretch: Any
    U: Any

    def __call__(self, z: Any) -> Any:
        """Map coordinates (..., dim) to the density's own."""
        return (z + ((z @ self.U) * self.stretch) @ self.U.T) * self.scale.reshape(
            (1,) * (z.ndim - 1) + (-1,)
        )

    def inverse(self, q: Array) -> Array:
        """Map back."""
        z = q / self.scale
        return z + ((z @ self.U) * (1.0 / (1.0 + self.stretch) - 1.0)) @ self.U.T

    def pull_back(self, gradient: Array) -> Array:
        """Gradients (..., dim) in z, taken back to the density's own coordinates."""
        g = gradient + ((gradient @ self.U) * (1.0 / (1.0 + self.stretch) - 1.0)) @ self.U.T
        return g / self.scale


def scales_only(scale: Array, rank: int) -> LowRank:
    """The map that only scales, in the shape of one with `rank` directions."""
    return LowRank(scale, np.zeros(rank), np.zeros((len(scale), rank)))


PRIOR_WEIGHT = 100.0
"""How many draws of a unit Gaussian `fisher_map` adds to those it is given."""


def fisher_map(position: Array, gradient: Array, before: LowRank) -> LowRank:
    """Find the map that makes draws (N, dim) and their scores alike; in the shape of `before`.

    In the coordinates of a Gaussian's own scale the score is minus the draw. So the map has the
    covariance M with ``M C_g M = C_q``, the geometric mean of the draws' covariance C_q and the
    inverse of the scores' C_g: it minimises the Fisher divergence to a Gaussian. Both covariances
    are shrunk to the identity, and of M the directions farthest from 1 are kept. A coordinate that
    has not moved keeps its scale.
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
    """The symmetric M with ``M B M = A``; A and B positive definite."""
    values, axes = np.linalg.eigh(B)
    root, inverse = (axes * values**p @ axes.T for p in (0.5, -0.5))
    values, axes = np.linalg.eigh(root @ A @ root)
    return inverse @ (axes * np.sqrt(values)) @ axes.T @ inverse


@partial(jax.jit, static_argnums=0)
def value_and_grad(log_density: LogDensity, position: Any, data: Any) -> Any:
    """Compiled once for all data of a shape."""
    return jax.value_and_grad(log_density)(position, data)


class Laplace(NamedTuple):
    """The mode of a log density and a factor L of its inverse negative Hessian, ``L L^T``."""

    mode: Array
    factor: Array

    def __call__(self, z: Any) -> Any:
        """Map coordinates of unit scale, (..., dim), to the density's own."""
        return self.mode + z @ self.factor.T


MAX_SCALE = 2.0
"""A direction flatter than this (in logarithms) at the mode is taken to have this scale."""


def laplace(log_density: LogDensity, data: Any, start: Array, bounds: Array) -> Laplace:
    """Find the mode within `bounds` (dim, 2), and the curvature there by central differences."""
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
