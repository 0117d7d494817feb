"""Closed forms of a mean that is a sum of Gaussian terms (Eqs. 1 and 2).

If ``G = I``, the model at the n training rows is ``y = F omega + delta + eps`` with
``delta = sigma_delta A(ell) v``. Here F (n, K) is the matrix of the experts' predictions (in other
files F is a CDF), and A(ell) (n, m) holds the features of delta. Given the hyperparameters,
``theta = (omega / sigma_omega, v)`` is Gaussian with precision ``I + B^T B / sigma_eps^2``, where
``B = [sigma_omega F, sigma_delta A]`` (`posterior`).
"""

from typing import Any, NamedTuple

import numpy as np
from scipy import linalg

from bne._base.typing import Array
from bne._data.places import Places, every_row
from bne._process.interpolation import interpolation


class Hyperparameters(NamedTuple):
    """Logarithms of the hyperparameters of the Gaussian stages: scalars, or arrays of draws."""

    log_sigma_omega: Any
    log_sigma_delta: Any
    log_sigma_eps: Any
    log_ell: Any


NOISE_FLOOR = 1e-6
"""Smallest noise scale, as a share of sd(y).

An expert that fits perfectly would give an improper posterior without it.
"""


def noise_scale(log_sigma_eps: Any, xp: Any = np) -> Any:
    """Return sigma_eps for the coordinate that the sampler moves; it is above `NOISE_FLOOR`."""
    return xp.sqrt(xp.exp(2.0 * log_sigma_eps) + NOISE_FLOOR**2)


class GaussianPosterior(NamedTuple):
    """The posterior of ``theta = (omega / sigma_omega, v)``: N(mean, L^{-T} L^{-1}).

    Attributes
    ----------
    mean : (M,)
        Posterior mean of theta.
    precision_factor : (M, M)
        The lower Cholesky factor L of the posterior precision.
    """

    mean: Array
    precision_factor: Array

    def covariance(self) -> Array:
        """Find the covariance matrix of theta: (M, M)."""
        return linalg.cho_solve((self.precision_factor, True), np.eye(len(self.mean)))

    def draw(self, z: Array) -> Array:
        """Map standard normal numbers z (M,) to a draw of theta."""
        return self.mean + linalg.solve_triangular(
            self.precision_factor, z, lower=True, trans="T", check_finite=False
        )


def posterior(gram: Array, cross: Array, scale: Array, sigma_eps: float) -> GaussianPosterior:
    """Find the closed-form posterior of theta given the hyperparameters (Eqs. 1 and 2).

    Parameters
    ----------
    gram : (M, M) array
        ``T^T T``, where ``T = [F, A]`` holds the features of all terms side by side.
    cross : (M,) array
        ``T^T y``.
    scale : (M,) array
        Prior standard deviation of each coefficient, which is the scale of its term.
    sigma_eps : float
        Noise scale.
    """
    scale = scale / sigma_eps
    precision = gram * np.outer(scale, scale)
    precision[np.diag_indices_from(precision)] += 1.0
    L = linalg.cholesky(precision, lower=True, overwrite_a=True, check_finite=False)
    mean = linalg.cho_solve((L, True), scale * cross / sigma_eps, check_finite=False)
    return GaussianPosterior(mean, L)


class GramTable(NamedTuple):
    """Inner products of ``[F, A_j]`` and y for all pairs of nodes that are interpolated together.

    F is the matrix of the experts' predictions, and A_j the features of delta at node j of the grid
    of length-scales.

    Attributes
    ----------
    log_ell : (J,)
        Log length-scales of the nodes.
    gram : (J, 4, K + m, K + m)
        ``[F, A_j]^T [F, A_{j+d}]`` for d = 0..3.
    cross : (J, K + m)
        ``[F, A_j]^T y``.
    """

    log_ell: Array
    gram: Array
    cross: Array

    def repeated(self, times: float) -> "GramTable":
        """Return the table of rows that are each repeated so many times."""
        return GramTable(self.log_ell, times * self.gram, times * self.cross)

    def at(self, log_ell: float) -> tuple[Array, Array]:
        """Find the Gram matrix and the cross products at one length-scale, in O(m^2) for any n."""
        first, w = interpolation(np.asarray(log_ell), self.log_ell)
        gram = np.zeros(self.gram.shape[2:])
        for p in range(4):
            for d in range(4 - p):
                gram += (w[p] * w[p + d] * (0.5 if d == 0 else 1.0)) * self.gram[first + p, d]
        return gram + gram.T, w @ self.cross[first : first + 4]


def gram_table(
    F: Array, y: Array, table: Array, log_ell: Array, places: Places | None = None
) -> GramTable:
    """Tabulate the inner products of the experts' predictions, the features of delta and y.

    Parameters
    ----------
    F : (n, K) array
        The experts' predictions at the training rows.
    y : (n,) array
    table : (J, U, m) array
        Features of delta at the places of the rows, at every node.
    log_ell : (J,) array
        Log length-scales of the nodes.
    places : Places or None
        The rows that share their inputs; None means that each row is a place of its own.
    """
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
