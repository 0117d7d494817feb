"""Bayesian mixture of experts (Waterhouse et al. 1996): weights vary with x and are sampled."""

from dataclasses import dataclass
from typing import Any, NamedTuple, Self

import jax
import jax.numpy as jnp
import numpy as np
from scipy import special
from sklearn.base import BaseEstimator
from sklearn.preprocessing import StandardScaler

from bne._base.priors import (
    InverseGamma,
    fit_inverse_gamma,
    half_normal_log_density,
    length_scale_grid,
)
from bne._base.typing import Array
from bne._process.features import make_feature_map, process_draws
from bne._process.interpolation import N_NODES, interpolate
from bne._process.kernels import resolve_kernel
from bne._process.points import choose_points, spacing_and_range
from bne._sampler.hmc import Run, SamplerSettings, sample
from bne.baselines._laws import Mixture

POINTS = 32
"""Number of feature points that approximate the Gaussian processes of the weights."""

KEPT = 100
"""Most posterior draws that the predictive mixture holds."""

AMPLITUDE = 2.0
"""Prior scale of the log weights. A ratio of e^2 between two weights is already a clear choice."""


class GateData(NamedTuple):
    """What the log density is computed from.

    Attributes
    ----------
    y : (n,)
        Outcomes.
    f : (n, K)
        Experts' predictions.
    A : (J, n, m)
        Features of the Gaussian processes, for each of J length-scales.
    grid : (J,)
        Logarithms of these length-scales.
    ell : InverseGamma
        Prior of the length-scale.
    """

    y: Any
    f: Any
    A: Any
    grid: Any
    ell: InverseGamma


def unpack(position: Any, K: int) -> tuple[Any, Any, Any, Any]:
    """Split a position of the sampler into its four parts.

    They are log sigma (..., K), log amplitude (...), log ell (...) and the coefficients of the
    Gaussian processes (..., m, K).
    """
    rest = position[..., K + 2 :]
    v = rest.reshape(*rest.shape[:-1], -1, K)
    return position[..., :K], position[..., K], position[..., K + 1], v


def log_density(position: Any, data: GateData) -> Any:
    """Return the log posterior density of ``y ~ sum_k softmax_k(g(x)) N(f_k, sigma_k)``.

    Every ``g_k`` is a Gaussian process. All scales have half-Normal priors.
    """
    log_sigma, log_amplitude, log_ell, v = unpack(position, data.f.shape[1])
    A = interpolate(data.A, log_ell, data.grid, jnp)
    log_gate = jax.nn.log_softmax(jnp.exp(log_amplitude) * (A @ v), axis=1)
    t = (data.y[:, None] - data.f) / jnp.exp(log_sigma)[None, :]
    log_parts = log_gate - 0.5 * t**2 - log_sigma[None, :]
    prior = (
        jnp.sum(half_normal_log_density(log_sigma, 1.0, jnp))
        + half_normal_log_density(log_amplitude, AMPLITUDE, jnp)
        + data.ell.log_density(log_ell, jnp)
        - 0.5 * jnp.sum(v**2)
    )
    return jnp.sum(jax.scipy.special.logsumexp(log_parts, axis=1)) + prior


@dataclass(eq=False, repr=False)
class MixtureOfExperts(BaseEstimator):
    """The mixture ``sum_k pi_k(x) phi(y | f_k(x), sigma_k)``, with weights that vary with x.

    The weights pi_k(x) are a softmax of Gaussian processes.

    Parameters
    ----------
    experts, inputs : list of str
        Columns of the experts' predictions and of the inputs.
    chains, warmup, draws : int
        Number of chains; iterations of each chain before its first draw; draws of each chain.
    n_jobs : int or None
        Chains at a time.
    random_state : int, default=0
    """

    experts: list[str]
    inputs: list[str]
    chains: int = 2
    warmup: int = 300
    draws: int = 300
    n_jobs: int | None = None
    random_state: int = 0

    def fit(self, X: Any, y: Array) -> Self:
        """Sample the posterior of the weights and the noise scales."""
        self._scaler = StandardScaler().fit(X[self.inputs].to_numpy(float))
        x = self._scaler.transform(X[self.inputs].to_numpy(float))
        kernel = resolve_kernel("matern32")
        points = choose_points(kernel, x, POINTS, self.random_state)
        ell = fit_inverse_gamma(*spacing_and_range(points))
        grid = length_scale_grid(ell, N_NODES)
        self._features = make_feature_map(kernel, points, grid, np.ones(x.shape[1]))
        self._unit = float(np.std(y))
        f = X[self.experts].to_numpy(float) / self._unit
        data = GateData(y / self._unit, f, self._features.tabulate(x), grid, ell)
        rng = np.random.default_rng(self.random_state)
        size = f.shape[1] + 2 + len(points) * f.shape[1]
        starts = 0.1 * rng.normal(size=(self.chains, size))
        starts[:, f.shape[1] + 1] += np.log(ell.quantile(0.5))
        settings = SamplerSettings(self.chains, self.warmup, self.draws, 0.9, self.n_jobs)
        drawn = sample(log_density, data, starts, np.ones(size), Run(settings, self.random_state))
        self.draws_: Array = drawn.position
        return self

    def predict_distribution(self, X: Any) -> Mixture:
        """Return a mixture with one component for each posterior draw and expert."""
        flat = self.draws_.reshape(-1, self.draws_.shape[-1])
        flat = flat[np.linspace(0, len(flat) - 1, min(KEPT, len(flat))).astype(int)]
        f = X[self.experts].to_numpy(float)
        log_sigma, log_amplitude, log_ell, v = unpack(flat, f.shape[1])
        table = self._features.tabulate(self._scaler.transform(X[self.inputs].to_numpy(float)))
        gates = process_draws(table, self._features.log_ell, log_ell, v)
        weights = special.softmax(np.exp(log_amplitude)[:, None, None] * gates, axis=2) / len(flat)
        sigma = self._unit * np.exp(log_sigma)[:, None, :]
        parts = np.broadcast_arrays(f[None], sigma, weights)
        return Mixture(*(a.transpose(1, 0, 2).reshape(len(f), -1) for a in parts))
