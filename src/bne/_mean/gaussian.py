"""Closed forms of a mean that is a sum of Gaussian terms (paper Eqs. 1 and 2).

With ``G = I`` the model is ``y = F omega + delta + eps``, ``delta = sigma_delta A(ell) v``. Given
the hyperparameters, ``theta = (omega / sigma_omega, v)`` is Gaussian with precision
``I + B^T B / sigma_eps^2``, ``B = [sigma_omega F, sigma_delta A]`` (`posterior`).
"""

from typing import Any, NamedTuple

import numpy as np
from scipy import linalg

from bne._base.typing import Array
from bne._data.places import Places, every_row
from bne._process.interpolation import interpolation


class Hyperparameters(NamedTuple):
    """Logarithms of the four hyperparameters; each a scalar or an array of draws."""

    log_sigma_omega: Any
    log_sigma_delta: Any
    log_sigma_eps: Any
    log_ell: Any


NOISE_FLOOR = 1e-6
"""Noise is never less than this share of sd(y), so that a perfect fit stays proper."""


def noise_scale(log_sigma_eps: Any, xp: Any = np) -> Any:
    """Return sigma_eps of the coordinate the sampler moves."""
    return xp.sqrt(xp.exp(2.0 * log_sigma_eps) + NOISE_FLOOR**2)


class GaussianPosterior(NamedTuple):
    """The posterior of ``theta = (omega / sigma_omega, v)``: N(mean, L^{-T} L^{-1})."""

    mean: Array
    precision_factor: Array

    def covariance(self) -> Array:
        """Dense covariance of theta."""
        return linalg.cho_solve((self.precision_factor, True), np.eye(len(self.mean)))

    def draw(self, z: Array) -> Array:
        """Map standard normals z to a draw of theta."""
        return self.mean + linalg.solve_triangular(
            self.precision_factor, z, lower=True, trans="T", check_finite=False
        )


def posterior(gram: Array, cross: Array, scale: Array, sigma_eps: float) -> GaussianPosterior:
    """Closed-form posterior of theta given the hyperparameters (Eqs. 1 and 2).

    Parameters
    ----------
    gram : (M, M) array
        ``T^T T``, T the features of all terms side by side: ``[F, A]``.
    cross : (M,) array
        ``T^T y``.
    scale : (M,) array
        Prior standard deviation of each coefficient: its term's scale.
    """
    scale = scale / sigma_eps
    precision = gram * np.outer(scale, scale)
    precision[np.diag_indices_from(precision)] += 1.0
    L = linalg.cholesky(precision, lower=True, overwrite_a=True, check_finite=False)
    mean = linalg.cho_solve((L, True), scale * cross / sigma_eps, check_finite=False)
    return GaussianPosterior(mean, L)


class GramTable(NamedTuple):
    """Inner products of ``[F, A_j]`` and y for all pairs of nodes that are interpolated together.

    Attributes
    ----------
    log_ell : (J,) grid.
    gram : (J, 4, K + m, K + m)
        ``[F, A_j]^T [F, A_{j+d}]`` for d = 0..3.
    cross : (J, K + m)
        ``[F, A_j]^T y``.
    """

    log_ell: Array
    gram: Array
    cross: Array

    def repeated(self, times: float) -> "GramTable":
        """The table of the same rows, each so many times."""
        return GramTable(self.log_ell, times * self.gram, times * self.cross)

    def at(self, log_ell: float) -> tuple[Array, Array]:
        """Gram matrix and cross products at one length-scale: O(m^2), whatever n."""
        first, w = interpolation(np.asarray(log_ell), self.log_ell)
        gram = np.zeros(self.gram.shape[2:])
        for p in range(4):
            for d in range(4 - p):
                gram += (w[p] * w[p + d] * (0.5 if d == 0 else 1.0)) * self.gram[first + p, d]
        return gram + gram.T, w @ self.cross[first : first + 4]


def gram_table(
    F: Array, y: Array, table: Array, log_ell: Array, places: Places | None = None
) -> GramTable:
    """Tabulate the inner products of features (J, U, m)."""
    J, U, m = table.shape
    n, K = F.shape
    places = every_row(n) if places is None else places
    folded = np.broadcast_to(places.folded(F), (J, U, K))
    features = np.concatenate([folded, places.raised(table)], axis=2)
    gram = np.zeros((J, 4, K + m, K + m))
    for d in range(4):
        gram[: J - d, d] = features[: J - d].transpose(0, 2, 1) @ features[d:]
    gram[:, :, :K, :K] = F.T @ F
    cross = features.transpose(0, 2, 1) @ places.folded(y)
    cross[:, :K] = F.T @ y
    return GramTable(log_ell, gram, cross)
