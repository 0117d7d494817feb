"""Triangular maps from standard normal coordinates to omega, v and W in the full stage.

Each map is the posterior of a simpler, Gaussian model. The sampler moves the coordinates z, in
which the full posterior has about unit scale.
"""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from bne._fitting.full_data import FullData, FullHyperparameters
from bne._process.interpolation import Interpolated, interpolate


def map_v(
    z: Any, h: FullHyperparameters, target: Any, A: Interpolated, data: FullData
) -> tuple[Any, Any]:
    """Map z by the posterior of v in the stage additive, given outcomes `target`.

    The posterior precision is ``Lambda + B B^T``. Lambda is diagonal and belongs to the features
    without what the experts can express. B B^T has rank K: it belongs to the part of the features
    along the experts that is left to delta after omega is integrated out. With
    ``X = Lambda^(-1/2) B`` and ``I + X^T X = L L^T``, the matrix ``I - X L^-T (L + I)^-1 X^T`` is
    a root of ``(I + X X^T)^-1`` (Andrews 1968).

    Returns v and the log-determinant of the map.
    """
    rho = jnp.exp(2.0 * (h.log_sigma_delta - h.eta))
    # share of the experts' axes that the prior of omega keeps from them
    kept = 1.0 / (1.0 + data.s * jnp.exp(2.0 * (h.log_sigma_omega - h.eta)))
    gram, cross = (interpolate(a, h.log_ell, data.grid, jnp) for a in (data.gram, data.cross))
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


def map_omega(z: Any, h: FullHyperparameters, rest: Any, data: FullData) -> tuple[Any, Any]:
    """Map z by the conditional of omega in the stage additive, given ``rest = target - delta``.

    Returns omega and the log-determinant of the map.
    """
    precision = data.s * jnp.exp(-2.0 * h.eta) + jnp.exp(-2.0 * h.log_sigma_omega)
    pull = jnp.sqrt(data.s) * jnp.exp(-2.0 * h.eta) * (data.E.T @ (data.weights * rest))
    along = pull / precision + z / jnp.sqrt(precision)
    return data.axes @ along, -0.5 * jnp.sum(jnp.log(precision))


def map_W(z: Any, h: FullHyperparameters, sigma_G: Any, data: FullData) -> tuple[Any, Any]:
    """Map z by a diagonal Gaussian: about the posterior that W has if the noise is Gaussian.

    The data determine the product ``sigma_G W``, not its factors. So with many rows the scale of W
    falls with sigma_G; with few rows W keeps its prior. The mean of W makes up for the offset of
    the process, which grows with sigma_G^2.

    Returns W and the log-determinant of the map.
    """
    gram_x, sum_x = (
        interpolate(a, h.log_ell_x, data.grid_x, jnp) for a in (data.gram_x, data.sum_x)
    )
    gram_t, bend_t = (
        interpolate(a, h.log_ell_t, data.grid_t, jnp) for a in (data.gram_t, data.bend_t)
    )
    precision = 1.0 + sigma_G**2 * jnp.maximum(jnp.outer(gram_x, gram_t), 0.0)
    mean = -(sigma_G**3) * jnp.outer(sum_x, bend_t) / precision
    return mean + z / jnp.sqrt(precision), -0.5 * jnp.sum(jnp.log(precision))
