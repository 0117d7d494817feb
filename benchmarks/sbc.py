"""Simulation-based calibration of the full stage's sampler (Talts et al. 2018).

Parameters and data are drawn from the prior, with fixed scaling and hyperpriors. The rank of each
true value among the posterior draws must then be uniform. Results are stored one by one in
``benchmarks/results/sbc_ranks.csv``, so that a killed run can be continued.

``python benchmarks/sbc.py --sets 200`` runs the long version. ``--broken`` leaves the
log-determinant of the map out of the density, and must fail.
"""

import argparse

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
from scipy import stats
from store import resume

from bne._base.priors import InverseGamma, Priors, length_scale_grid
from bne._calibration.features import CalibrationFeatures
from bne._calibration.logistic import Logistic
from bne._calibration.ratio import make_ratio
from bne._data.places import every_row
from bne._fitting import full_data, full_density, full_stage
from bne._fitting import full_density as _model
from bne._fitting.training import Training
from bne._mean.gaussian import Hyperparameters
from bne._process.features import make_feature_map
from bne._process.interpolation import interpolate
from bne._process.kernels import resolve_kernel
from bne._process.rotations import principal_rotations
from bne._sampler.hmc import Run, SamplerSettings

LOGISTIC = Logistic()
N, K = 24, 2
PRIORS = Priors(InverseGamma(4.0, 4.0))
ELL_X = InverseGamma(4.0, 4.0)
X = np.linspace(-1.7, 1.7, N)[:, None]
EXPERTS = np.column_stack([np.sin(2 * X[:, 0]), X[:, 0]])
SETTINGS = SamplerSettings(chains=2, warmup=250, draws=400, target_acceptance=0.85, n_jobs=2)
AT = 7  # the row at which delta and F are ranked
LEVEL = 0.3  # F is ranked at y0 = LEVEL


def world():
    """Return the features that all data sets share."""
    kernel = resolve_kernel("matern32")
    grid = length_scale_grid(PRIORS.ell, 32)
    table = make_feature_map(kernel, X, grid).tabulate(X)
    table = table @ principal_rotations(table, 16)
    feature_map = make_feature_map(kernel, X[::3], length_scale_grid(ELL_X, 32))
    rotations = principal_rotations(feature_map.tabulate(X), 16)
    features = CalibrationFeatures(
        feature_map._replace(rotations=rotations), ELL_X, LOGISTIC.make_basis(True), LOGISTIC
    )
    return table, grid, features


def from_prior(rng, table, grid, features):
    """Draw parameters from the prior, and y given them: dict of true values, y.

    The prior has a factor for the scale of the noise; rejection sampling takes it into account.
    """
    while True:
        truth, y, log_scale = before_gauge(rng, table, grid, features)
        if rng.uniform() < np.exp(-0.5 * (log_scale / _model.GAUGE) ** 2):
            return truth, y


def before_gauge(rng, table, grid, features):
    """Draw parameters and y from the prior without that factor; return the log scale as well."""
    half_normal = np.abs(rng.normal(size=4)) * [1.0, 1.0, 1.0, 1.5]
    sigma_omega, sigma_delta, sigma_eps, sigma_G = half_normal
    ell, ell_x = stats.invgamma.rvs(4.0, scale=4.0, size=2, random_state=rng)
    prior_t = features.basis.prior
    ell_t = stats.invgamma.rvs(prior_t.shape, scale=prior_t.rate, random_state=rng)
    omega = sigma_omega * rng.normal(size=K)
    A = interpolate(table, np.log(ell), grid)
    delta = sigma_delta * A @ rng.normal(size=A.shape[1])
    A_G = interpolate(features.tabulate(X), np.log(ell_x), features.grid_x)
    T = interpolate(features.basis.roots, np.log(ell_t), features.basis.log_ell)
    coefficients = sigma_G * A_G @ rng.normal(size=(A_G.shape[1], T.shape[1]))
    ratio = make_ratio(LOGISTIC, coefficients[None], T[None], np.array([sigma_G]))
    rows = np.arange(N)
    t = ratio.ppf(rng.uniform(size=N), np.zeros(N, dtype=int), rows)
    mu = EXPERTS @ omega + delta
    t0 = np.array([[(LEVEL - mu[AT]) / sigma_eps]])
    truth = {
        "omega": omega[0],
        "sigma_omega": sigma_omega,
        "sigma_delta": sigma_delta,
        "sigma_eps": sigma_eps,
        "sigma_G": sigma_G,
        "ell_delta": ell,
        "ell_x": ell_x,
        "ell_t": ell_t,
        "delta(x0)": delta[AT],
        "F(y0|x0)": ratio.cdf(t0, np.array([AT]))[0, 0],
    }
    log_scale = 0.5 * np.log(np.mean(ratio.moments.variance))
    return truth, mu + sigma_eps * t, log_scale


@jax.jit
def at_row(positions, data):
    """Return mu, delta, and the coefficients and roots of h at one row, for every position."""

    def one(position):
        state = _model.transform(position, data)
        delta = state.mu[AT] - data.F[AT] @ state.omega
        return state.mu[AT], delta, state.coefficients[AT], state.T

    return jax.lax.map(one, positions)


def posterior(y, table, grid, features, settings, seed):
    """Return posterior draws of the same quantities, chain after chain."""
    rows = Training(y, EXPERTS, table, grid, every_row(N), PRIORS)
    data = full_data.build_data(rows, features, features.tabulate(X), np.ones(N))
    mode = Hyperparameters(
        log_sigma_omega=-0.3,
        log_sigma_delta=-0.3,
        log_sigma_eps=np.log(np.std(y) + 1e-3),
        log_ell=np.log(PRIORS.ell.quantile(0.5)),
    )
    sequence = np.random.SeedSequence(seed)
    position = full_stage.sample_joint(data, mode, N, Run(settings), sequence).position
    draws = full_stage.unpack_draws(position, data)
    h = draws.h
    with jax.enable_x64(True):
        flat = jnp.asarray(position.reshape(-1, position.shape[-1]))
        here = at_row(flat, jax.tree.map(jnp.asarray, data))
        mu, delta, coefficients, roots = jax.tree.map(np.asarray, here)
    sigma_eps, sigma_G = np.exp(draws.log_sigma_eps), np.exp(h.log_sigma_G)
    ratio = make_ratio(LOGISTIC, coefficients[:, None], roots, sigma_G)
    t0 = ((LEVEL - mu) / sigma_eps)[:, None]
    return {
        "omega": draws.omega[:, 0],
        "sigma_omega": np.exp(h.log_sigma_omega),
        "sigma_delta": np.exp(h.log_sigma_delta),
        "sigma_eps": sigma_eps,
        "sigma_G": sigma_G,
        "ell_delta": np.exp(h.log_ell),
        "ell_x": np.exp(h.log_ell_x),
        "ell_t": np.exp(h.log_ell_t),
        "delta(x0)": delta,
        "F(y0|x0)": ratio.cdf(t0, np.array([0]))[:, 0],
    }


def ranks(seed, shared, settings, thin=10):
    """Return the rank of each true value among thinned posterior draws, as a fraction in [0, 1].

    Ties are broken at random. They occur where F is exactly 0 or 1 in floating point.
    """
    truth, y = from_prior(np.random.default_rng([seed, 1]), *shared)
    draws = posterior(y, *shared, settings, seed)
    rng = np.random.default_rng([seed, 2])
    out = {}
    for name, value in truth.items():
        kept = draws[name][::thin]
        ties = rng.uniform() * (np.sum(kept == value) + 1)
        out[name] = (np.sum(kept < value) + ties) / (len(kept) + 1)
    return out


def uniformity(table):
    """Return the Kolmogorov-Smirnov p-value of each column, uniform if the ranks are."""
    return {name: stats.kstest(table[name], "uniform").pvalue for name in table.columns}


def broken_log_density(position, data):
    """Return the log density without the log-determinant of the map, which is wrong on purpose."""
    return _model.log_density(position, data) - _model.transform(position, data).log_determinant


def run(sets=200, broken=False):
    """Rank the true values of `sets` data sets; return a p-value for each quantity."""
    if broken:
        full_density.log_density = broken_log_density
    shared = world()
    done = resume(
        "sbc_ranks_broken" if broken else "sbc_ranks",
        [{"seed": seed} for seed in range(sets)],
        lambda seed: ranks(seed, shared, SETTINGS),
    ).drop(columns="seed")
    p_values = uniformity(done)
    verdict = min(p_values.values()) > 0.01 / len(p_values)
    rows = [{"quantity": name, "p_value": p, "sets": len(done)} for name, p in p_values.items()]
    return [*rows, {"quantity": f"all uniform at 1% (Bonferroni): {verdict}"}]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sets", type=int, default=200)
    parser.add_argument("--broken", action="store_true")
    print(pd.DataFrame(run(**vars(parser.parse_args()))).to_string(index=False))
