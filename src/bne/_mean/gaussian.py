"""Stages 1 and 2 (paper Eqs. 1 and 2): everything that is Gaussian given the hyperparameters.

With ``G = I`` the model is ``y = F omega + delta + eps``, ``delta = sigma_delta A(ell) v``, and

* the hyperparameters have a *collapsed* posterior with omega and delta integrated out, whose
  likelihood is read off a spectral table in O(m K^2) (`log_marginal`);
* given them, ``theta = (omega / sigma_omega, v)`` is Gaussian with precision
  ``I + B^T B / sigma_eps^2``, ``B = [sigma_omega F, sigma_delta A]`` (`posterior`).

Stage 1 is stage 2 with no features.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from scipy import linalg

from bne._base.priors import Priors, half_normal_log_density
from bne._base.typing import Array
from bne._data.places import Places, every_row
from bne._process.kernels import interpolation
from bne._sampler.coordinates import Laplace


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


class SpectralTable(NamedTuple):
    """What the marginal likelihood needs, at every node of the length-scale grid.

    With the thin SVD ``A_j = U_j diag(s_j) W_j^T`` and ``T = [F, y]``.

    Attributes
    ----------
    log_ell : (J,) grid.
    s2 : (J, r) squared singular values of the features.
    projected : (J, r, K + 1)
        ``U_j^T T``.
    rest : (J, K + 1, K + 1)
        ``T^T (I - U_j U_j^T) T``.
    n_rows : float
        Number of rows.
    """

    log_ell: Any
    s2: Any
    projected: Any
    rest: Any
    n_rows: Any

    def repeated(self, times: float) -> "SpectralTable":
        """The table of the same rows, each so many times: the likelihood to that power."""
        return SpectralTable(
            self.log_ell,
            times * self.s2,
            np.sqrt(times) * self.projected,
            times * self.rest,
            times * self.n_rows,
        )


def spectral_table(
    F: Array, y: Array, table: Array, log_ell: Array, rank: int, places: Places | None = None
) -> SpectralTable:
    """Decompose the features (J, U, m) at every node, padded with zeros to `rank` directions.

    A zero direction has ``s = 0`` and no projection: it does not change the likelihood, so that
    data sets of nearby sizes share one compiled program.
    """
    T = np.column_stack([F, y])
    n, k = T.shape
    J = len(table)
    places = every_row(n) if places is None else places
    folded = places.folded(T)
    s2, projected = np.zeros((J, rank)), np.zeros((J, rank, k))
    rest = np.empty((J, k, k))
    for j in range(J):
        s2_j, UT = _spectrum(places.raised(table[j]), folded)
        s2[j, : len(s2_j)], projected[j, : len(s2_j)] = s2_j, UT
        rest[j] = T.T @ T - UT.T @ UT
    return SpectralTable(log_ell, s2, projected, rest, float(n))


def _spectrum(A: Array, T: Array) -> tuple[Array, Array]:
    """Squared singular values of A and ``U^T T``, from the smaller of A^T A and A A^T."""
    if A.shape[1] == 0:
        return np.zeros(0), np.zeros((0, T.shape[1]))
    if A.shape[0] < A.shape[1]:
        s2, U = linalg.eigh(A @ A.T, check_finite=False)
        return np.maximum(s2, 0.0), U.T @ T
    s2, W = linalg.eigh(A.T @ A, check_finite=False)
    kept = s2 > 1e-13 * max(np.max(s2, initial=0.0), 1e-300)
    s2, W = s2[kept], W[:, kept]
    return s2, (W.T @ (A.T @ T)) / np.sqrt(s2)[:, None]


def _log_marginal_at_node(h: Hyperparameters, s2: Any, projected: Any, rest: Any, n: Any) -> Any:
    """Log N(y | 0, sigma_omega^2 F F^T + sigma_delta^2 A A^T + sigma_eps^2 I), up to a constant."""
    noise = noise_scale(h.log_sigma_eps, jnp) ** 2
    spectrum = jnp.exp(2.0 * h.log_sigma_delta) * s2 + noise
    # M = T^T D^{-1} T with D = sigma_delta^2 A A^T + sigma_eps^2 I
    M = jnp.einsum("ra,rb,r->ab", projected, projected, 1.0 / spectrum) + rest / noise
    log_det_D = jnp.sum(jnp.log(spectrum / noise)) + n * jnp.log(noise)
    sigma_omega = jnp.exp(h.log_sigma_omega)
    K = M.shape[0] - 1
    L = jnp.linalg.cholesky(jnp.eye(K) + sigma_omega**2 * M[:K, :K])
    c = jax.scipy.linalg.solve_triangular(L, sigma_omega * M[:K, K], lower=True)
    log_det = log_det_D + 2.0 * jnp.sum(jnp.log(jnp.diagonal(L)))
    return -0.5 * (log_det + M[K, K] - c @ c)


def log_marginal(h: Hyperparameters, table: SpectralTable) -> Any:
    """Collapsed log likelihood, interpolated between the four nearest length-scales."""
    first, weights = interpolation(h.log_ell, table.log_ell, jnp)
    s2, projected, rest = (
        jax.lax.dynamic_slice_in_dim(a, first, 4) for a in (table.s2, table.projected, table.rest)
    )
    at_nodes = jax.vmap(_log_marginal_at_node, in_axes=(None, 0, 0, 0, None))
    values = at_nodes(h, s2, projected, rest, table.n_rows)
    return weights @ values


def log_prior(h: Hyperparameters, priors: Priors) -> Any:
    """Log prior of the hyperparameters on the log scale."""
    return (
        half_normal_log_density(h.log_sigma_omega, priors.omega, jnp)
        + half_normal_log_density(h.log_sigma_delta, priors.delta, jnp)
        + half_normal_log_density(h.log_sigma_eps, priors.noise, jnp)
        + priors.ell.log_density(h.log_ell, jnp)
    )


def log_density(z: Any, data: tuple[SpectralTable, Any, Priors, Laplace]) -> Any:
    """Collapsed log posterior of the hyperparameters, in coordinates of unit scale.

    The second of `data` is the power to which the collapsed likelihood is raised.
    """
    table, power, priors, whitening = data
    h = Hyperparameters(*whitening(z))
    return power * log_marginal(h, table) + log_prior(h, priors)


def excess_evidence(h: Hyperparameters, table: SpectralTable, power: float) -> Any:
    """``power log m_1 - log m_power``: what raising the likelihood *given* theta does to h.

    m_p is the marginal likelihood of rows that each count p times. Such rows look as if their noise
    came again every time: they would have delta follow it. Adding this to the log posterior gives
    the hyperparameters the evidence that the rows have.
    """
    return power * log_marginal(h, table) - log_marginal(h, table.repeated(power))


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


def posterior(
    gram: Array, cross: Array, K: int, sigma_omega: float, sigma_delta: float, sigma_eps: float
) -> GaussianPosterior:
    """Closed-form posterior of theta given the hyperparameters (Eqs. 1 and 2).

    Parameters
    ----------
    gram : (K + m, K + m) array
        ``[F, A]^T [F, A]``.
    cross : (K + m,) array
        ``[F, A]^T y``.
    """
    scale = np.full(len(cross), sigma_delta / sigma_eps)
    scale[:K] = sigma_omega / sigma_eps
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
