"""What a user would write by hand in numpyro for Eqs. (2) and (4): the yardstick of the benchmarks.

Kernels and their Cholesky factors are rebuilt in every gradient; all is sampled as it stands.
"""

import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist


def matern32(a, b, ell):
    """Kernel matrix of two sets of points."""
    r = jnp.sqrt(jnp.sum((a[:, None] - b[None]) ** 2, axis=-1) + 1e-12)
    return (1 + jnp.sqrt(3.0) * r / ell) * jnp.exp(-jnp.sqrt(3.0) * r / ell)


def additive(x, f, y, ell_shape, ell_rate):
    """Non-centred model of the original ensemble plus a Matern-3/2 residual."""
    n, K = f.shape
    sigma_omega = numpyro.sample("sigma_omega", dist.HalfNormal(1.0))
    sigma_delta = numpyro.sample("sigma_delta", dist.HalfNormal(1.0))
    sigma_eps = numpyro.sample("sigma_eps", dist.HalfNormal(1.0))
    ell = numpyro.sample("ell", dist.InverseGamma(ell_shape, ell_rate))
    omega = sigma_omega * numpyro.sample("z_omega", dist.Normal(0, 1).expand([K]))
    v = numpyro.sample("v", dist.Normal(0, 1).expand([n]))
    kernel = matern32(x, x, ell) + 1e-6 * jnp.eye(n)
    delta = sigma_delta * jnp.linalg.cholesky(kernel) @ v
    numpyro.deterministic("omega", omega)
    numpyro.sample("y", dist.Normal(f @ omega + delta, sigma_eps), obs=y)


def full(x, f, y, points, ell, ell_x, ell_t):
    """Eq. (4) with the logistic G: the same priors, quadrature and 32 points in x as ours.

    ``ell``, ``ell_x``, ``ell_t`` are (shape, rate) of the length-scales' inverse-Gamma priors.
    """
    n, K = f.shape
    sigma_omega = numpyro.sample("sigma_omega", dist.HalfNormal(1.0))
    sigma_delta = numpyro.sample("sigma_delta", dist.HalfNormal(1.0))
    sigma_eps = numpyro.sample("sigma_eps", dist.HalfNormal(1.0))
    sigma_G = numpyro.sample("sigma_G", dist.HalfNormal(1.5))
    ell = numpyro.sample("ell", dist.InverseGamma(*ell))
    ell_x = numpyro.sample("ell_x", dist.InverseGamma(*ell_x))
    ell_t = numpyro.sample("ell_t", dist.InverseGamma(*ell_t))
    omega = sigma_omega * numpyro.sample("z_omega", dist.Normal(0, 1).expand([K]))
    numpyro.deterministic("omega", omega)
    v = numpyro.sample("v", dist.Normal(0, 1).expand([n]))
    delta = sigma_delta * jnp.linalg.cholesky(matern32(x, x, ell) + 1e-6 * jnp.eye(n)) @ v
    mu = f @ omega + delta

    half, order = 5.0, jnp.arange(16)
    frequency = jnp.pi * order / (2 * half)

    def cosines(t):
        angle = (jnp.clip(t, -half, half) + half)[:, None] * frequency[None, :]
        return jnp.cos(angle) * jnp.where(order == 0, jnp.sqrt(0.5), 1.0)[None, :] / jnp.sqrt(half)

    rate = jnp.sqrt(3.0) / ell_t
    S = 4 * rate**3 / (rate**2 + frequency**2) ** 2
    nodes = jnp.linspace(-half, half, 81)
    weights = jnp.exp(-0.5 * nodes**2) / jnp.sqrt(2 * jnp.pi) * (nodes[1] - nodes[0])
    R = cosines(nodes).T @ jnp.stack([weights, weights * nodes], axis=1)
    covariance = jnp.diag(S) - (S[:, None] * R) @ jnp.linalg.solve(
        R.T @ (S[:, None] * R), R.T * S[None, :]
    )
    T = jnp.linalg.cholesky(covariance + 1e-8 * jnp.eye(16))
    L = jnp.linalg.cholesky(matern32(points, points, ell_x) + 1e-6 * jnp.eye(len(points)))
    a = jnp.linalg.solve(L, matern32(points, x, ell_x)).T
    W = numpyro.sample("W", dist.Normal(0, 1).expand([len(points), 16]))
    c = sigma_G * a @ W

    def h(b):
        return b @ T, -0.5 * sigma_G**2 * jnp.sum((b @ T) ** 2, axis=1)

    B, centring = h(cosines(nodes))
    r = jnp.exp(c @ B.T + centring[None, :])
    Z, first, second = (r @ (weights * nodes**k) for k in range(3))
    scale = jnp.sqrt(jnp.mean(second / Z - (first / Z) ** 2))
    numpyro.factor("gauge", dist.Normal(0.0, 0.25).log_prob(jnp.log(scale)))
    t = (y - mu) / sigma_eps
    b, centring = h(cosines(t))
    log_r = jnp.sum(b * c, axis=1) + centring - jnp.log(Z)
    inside = jnp.clip(t, -half, half)
    log_phi = -0.5 * inside**2 - 6 * jnp.log1p(half / 6 * jnp.abs(t - inside))
    numpyro.factor("y", jnp.sum(log_r + log_phi - jnp.log(sigma_eps)))
