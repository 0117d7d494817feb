"""What a user would write by hand in numpyro for Eq. (2): the yardstick of the benchmarks.

The kernel and its Cholesky factor are rebuilt in every gradient; omega and delta are sampled.
"""

import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist


def additive(x, f, y, ell_shape, ell_rate):
    """Non-centred model of the original ensemble plus a Matern-3/2 residual."""
    n, K = f.shape
    sigma_omega = numpyro.sample("sigma_omega", dist.HalfNormal(1.0))
    sigma_delta = numpyro.sample("sigma_delta", dist.HalfNormal(1.0))
    sigma_eps = numpyro.sample("sigma_eps", dist.HalfNormal(1.0))
    ell = numpyro.sample("ell", dist.InverseGamma(ell_shape, ell_rate))
    omega = sigma_omega * numpyro.sample("z_omega", dist.Normal(0, 1).expand([K]))
    v = numpyro.sample("v", dist.Normal(0, 1).expand([n]))
    r = jnp.sqrt(3.0) * jnp.sqrt(jnp.sum((x[:, None] - x[None]) ** 2, axis=-1) + 1e-12) / ell
    kernel = (1 + r) * jnp.exp(-r) + 1e-6 * jnp.eye(n)
    delta = sigma_delta * jnp.linalg.cholesky(kernel) @ v
    numpyro.deterministic("omega", omega)
    numpyro.sample("y", dist.Normal(f @ omega + delta, sigma_eps), obs=y)
