"""The collapsed posterior of the hyperparameters, in the stages ensemble and additive.

The terms of the mean are integrated out of Eqs. (1) and (2). The likelihood that is left is read
off a spectral table in O(m K^2) (`log_marginal`). The stage ensemble is the stage additive without
features. In this file F is the matrix of the experts' predictions at the training rows, (n, K), and
not a CDF.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from scipy import linalg

from bne._base.priors import Priors, half_normal_log_density
from bne._base.typing import Array
from bne._data.places import Places, every_row
from bne._mean.gaussian import Hyperparameters, noise_scale
from bne._process.interpolation import interpolation
from bne._sampler.coordinates import Laplace


class SpectralTable(NamedTuple):
    """All quantities that the marginal likelihood needs, at every node of the length-scale grid.

    The features at node j have the thin SVD ``A_j = U_j diag(s_j) W_j^T``, and ``T = [F, y]`` holds
    the experts' predictions and the outcomes.

    Attributes
    ----------
    log_ell : (J,)
        Log length-scales of the nodes.
    s2 : (J, r)
        Squared singular values of the features.
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
        """Return the table of rows that are each repeated so many times."""
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
    """Decompose the features (J, U, m) at every node, and pad with zeros to `rank` directions.

    A padded direction has ``s = 0`` and no projection, so it does not change the likelihood. Padded
    tables have the same shape, so that data sets of similar size share one compiled program.
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
    """Find the squared singular values of A and ``U^T T``, from the smaller of A^T A and A A^T."""
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
    """Find log N(y | 0, sigma_omega^2 F F^T + sigma_delta^2 A A^T + sigma_eps^2 I) at a node.

    A constant is left out.
    """
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
    """Find the collapsed log likelihood (Eqs. 1 and 2).

    It is interpolated between the four nearest length-scales of the grid.
    """
    first, weights = interpolation(h.log_ell, table.log_ell, jnp)
    s2, projected, rest = (
        jax.lax.dynamic_slice_in_dim(a, first, 4) for a in (table.s2, table.projected, table.rest)
    )
    at_nodes = jax.vmap(_log_marginal_at_node, in_axes=(None, 0, 0, 0, None))
    values = at_nodes(h, s2, projected, rest, table.n_rows)
    return weights @ values


def log_hyperprior(h: Hyperparameters, priors: Priors) -> Any:
    """Find the log prior density of the logarithms of the hyperparameters."""
    return (
        half_normal_log_density(h.log_sigma_omega, priors.omega, jnp)
        + half_normal_log_density(h.log_sigma_delta, priors.delta, jnp)
        + half_normal_log_density(h.log_sigma_eps, priors.noise, jnp)
        + priors.ell.log_density(h.log_ell, jnp)
    )


def log_collapsed_density(z: Any, data: tuple[SpectralTable, Any, Priors, Laplace]) -> Any:
    """Find the collapsed log posterior of the hyperparameters at coordinates z of unit scale.

    `data` holds the spectral table, the power to which the collapsed likelihood is raised, the
    priors, and the map from z to the hyperparameters.
    """
    table, power, priors, whitening = data
    h = Hyperparameters(*whitening(z))
    return power * log_marginal(h, table) + log_hyperprior(h, priors)


def excess_evidence(h: Hyperparameters, table: SpectralTable, power: float) -> Any:
    """Find ``power log m_1 - log m_power``, which corrects the evidence about h in a shard.

    m_p is the marginal likelihood of rows that each count p times. The likelihood of a shard given
    theta is raised to a power, so its rows count several times. They look as if their noise
    repeated itself, and the hyperparameters would make delta follow this noise. When this
    difference is added to the log posterior with theta integrated out, ``log p(h) + log m_power``,
    the sum is ``log p(h) + power log m_1``.
    """
    return power * log_marginal(h, table) - log_marginal(h, table.repeated(power))
