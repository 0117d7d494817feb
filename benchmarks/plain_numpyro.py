"""Eqs. (2) and (4) as a user would write them in numpyro, to compare our sampler with.

Kernels and their Cholesky factors are computed again for every gradient. All parameters are sampled
directly.
"""

import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist

HALF = 5.0
"""Half width of the interval of t on which G has its basis."""


def matern32(a, b, ell):
    """Return the Matern-3/2 kernel matrix of two sets of points."""
    r = jnp.sqrt(jnp.sum((a[:, None] - b[None]) ** 2, axis=-1) + 1e-12)
    return (1 + jnp.sqrt(3.0) * r / ell) * jnp.exp(-jnp.sqrt(3.0) * r / ell)


def scales():
    """Sample the scales of the weights, of the residual process and of the noise."""
    names = ("sigma_omega", "sigma_delta", "sigma_eps")
    return [numpyro.sample(name, dist.HalfNormal(1.0)) for name in names]


def additive(x, f, y, ell_shape, ell_rate):
    """Eq. (2): the original ensemble plus a residual process, non-centred."""
    n, K = f.shape
    sigma_omega, sigma_delta, sigma_eps = scales()
    ell = numpyro.sample("ell", dist.InverseGamma(ell_shape, ell_rate))
    omega = sigma_omega * numpyro.sample("z_omega", dist.Normal(0, 1).expand([K]))
    v = numpyro.sample("v", dist.Normal(0, 1).expand([n]))
    kernel = matern32(x, x, ell) + 1e-6 * jnp.eye(n)
    delta = sigma_delta * jnp.linalg.cholesky(kernel) @ v
    numpyro.deterministic("omega", omega)
    numpyro.sample("y", dist.Normal(f @ omega + delta, sigma_eps), obs=y)


def frequencies():
    """Return the frequencies of the 16 cosines."""
    return jnp.pi * jnp.arange(16) / (2 * HALF)


def cosines(t):
    """Return the 16 cosines at every t, (n, 16)."""
    angle = (jnp.clip(t, -HALF, HALF) + HALF)[:, None] * frequencies()[None, :]
    first = jnp.arange(16) == 0
    return jnp.cos(angle) * jnp.where(first, jnp.sqrt(0.5), 1.0)[None, :] / jnp.sqrt(HALF)


def quadrature():
    """Return the nodes of t and their weights under the normal density."""
    nodes = jnp.linspace(-HALF, HALF, 81)
    return nodes, jnp.exp(-0.5 * nodes**2) / jnp.sqrt(2 * jnp.pi) * (nodes[1] - nodes[0])


def roots(ell_t, nodes, weights):
    """Return the root of the prior covariance of G's coefficients, given that G keeps mean 0.

    The cosines have the spectral density of a Matern-3/2 process. The condition takes out what the
    quadrature weights see of 1 and t.
    """
    rate = jnp.sqrt(3.0) / ell_t
    spectrum = 4 * rate**3 / (rate**2 + frequencies() ** 2) ** 2
    R = cosines(nodes).T @ jnp.stack([weights, weights * nodes], axis=1)
    covariance = jnp.diag(spectrum) - (spectrum[:, None] * R) @ jnp.linalg.solve(
        R.T @ (spectrum[:, None] * R), R.T * spectrum[None, :]
    )
    return jnp.linalg.cholesky(covariance + 1e-8 * jnp.eye(16))


def calibrate(t, c, T, sigma_G, nodes, weights):
    """Return log G'(t) of rows with coefficients c (n, 16), and the log of the noise's scale."""

    def h(b):
        return b @ T, -0.5 * sigma_G**2 * jnp.sum((b @ T) ** 2, axis=1)

    B, centring = h(cosines(nodes))
    r = jnp.exp(c @ B.T + centring[None, :])
    Z, first, second = (r @ (weights * nodes**k) for k in range(3))
    log_scale = jnp.log(jnp.sqrt(jnp.mean(second / Z - (first / Z) ** 2)))
    b, centring = h(cosines(t))
    return jnp.sum(b * c, axis=1) + centring - jnp.log(Z), log_scale


def full(x, f, y, points, ell, ell_x, ell_t):
    """Eq. (4) with the logistic G: the same priors, quadrature and 32 points in x as ours.

    ``ell``, ``ell_x``, ``ell_t`` are (shape, rate) of the length-scales' inverse-Gamma priors.
    """
    n, K = f.shape
    sigma_omega, sigma_delta, sigma_eps = scales()
    sigma_G = numpyro.sample("sigma_G", dist.HalfNormal(1.5))
    ell = numpyro.sample("ell", dist.InverseGamma(*ell))
    ell_x = numpyro.sample("ell_x", dist.InverseGamma(*ell_x))
    ell_t = numpyro.sample("ell_t", dist.InverseGamma(*ell_t))
    omega = sigma_omega * numpyro.sample("z_omega", dist.Normal(0, 1).expand([K]))
    numpyro.deterministic("omega", omega)
    v = numpyro.sample("v", dist.Normal(0, 1).expand([n]))
    delta = sigma_delta * jnp.linalg.cholesky(matern32(x, x, ell) + 1e-6 * jnp.eye(n)) @ v
    mu = f @ omega + delta

    L = jnp.linalg.cholesky(matern32(points, points, ell_x) + 1e-6 * jnp.eye(len(points)))
    a = jnp.linalg.solve(L, matern32(points, x, ell_x)).T
    W = numpyro.sample("W", dist.Normal(0, 1).expand([len(points), 16]))
    t, rule = (y - mu) / sigma_eps, quadrature()
    log_r, log_scale = calibrate(t, sigma_G * a @ W, roots(ell_t, *rule), sigma_G, *rule)
    numpyro.factor("gauge", dist.Normal(0.0, 0.25).log_prob(log_scale))
    inside = jnp.clip(t, -HALF, HALF)
    log_phi = -0.5 * inside**2 - 6 * jnp.log1p(HALF / 6 * jnp.abs(t - inside))
    numpyro.factor("y", jnp.sum(log_r + log_phi - jnp.log(sigma_eps)))
