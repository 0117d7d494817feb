"""Stages ensemble and additive: time of cold and warm fits, and min-ESS per second."""

import time
import warnings

import numpy as np
from arviz_stats.base.array import array_stats

from bne import BNERegressor
from bne._law.conditional import conditional_draws
from bne.datasets import make_wave_1d

EXPERTS = [(c, c) for c in ("rbf_short", "rbf_long", "periodic")]


def fit(n, **settings):
    data = make_wave_1d(n, random_state=1)
    model = BNERegressor(
        EXPERTS, inputs=["x"], calibration=None, random_state=0, n_jobs=2, **settings
    )
    start = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(data.X, data.y)
    return model, time.perf_counter() - start


def min_ess(quantities):
    """Return the smallest bulk ESS of some quantities, (chain, draw) each."""
    return min(
        float(array_stats.ess(np.asarray(q), chain_axis=0, draw_axis=1))
        for q in quantities.values()
    )


def min_ess_of_answers(model, places):
    """Return the smallest ESS of quantities at some training rows.

    The data hardly separate `noise_scale` and `mu` from G; they do determine `mean`, `log_sd` and
    `cdf`.
    """
    stage, posterior = model._stages("full")[0], model.posterior_
    kept = slice(0, len(posterior.y), len(posterior.y) // places)
    y = posterior.y[kept]
    conditional, row = conditional_draws(stage, posterior.rows.part(kept)), np.arange(len(y))
    mean, variance = conditional.moments()
    draws = {
        "noise_scale": stage.draws.sigma_eps[:, None],
        "mu": conditional.mu,
        "mean": mean,
        "log_sd": 0.5 * np.log(variance),
        "cdf": conditional.ratio.cdf(conditional.standardise(y, row), row),
    }
    return {
        f"min_ess_{name}": min_ess({i: stage.draws.by_chain(d) for i, d in enumerate(values.T)})
        for name, values in draws.items()
    }


def plain(n, warmup=200, draws=200, chains=1):
    """Sample `plain_numpyro.additive`: smallest ESS, seconds with compilation, leapfrog steps."""
    import jax
    import numpyro
    from plain_numpyro import additive

    model, _ = fit(n, warmup=20, draws=20, chains=1)
    rows, y = model.posterior_.rows, model.posterior_.y
    ell = model.posterior_.priors.ell
    with jax.enable_x64(True):
        mcmc = numpyro.infer.MCMC(
            numpyro.infer.NUTS(additive),
            num_warmup=warmup,
            num_samples=draws,
            num_chains=chains,
            chain_method="sequential",
            progress_bar=False,
        )
        args = (rows.x, rows.f, y, ell.shape, ell.rate)
        start = time.perf_counter()
        mcmc.run(jax.random.key(0), *args, extra_fields=("num_steps",))
        # `run` does not wait for the draws, so they are read before the clock stops
        samples = {k: np.asarray(v) for k, v in mcmc.get_samples(group_by_chain=True).items()}
        seconds = time.perf_counter() - start
        steps = float(np.mean(mcmc.get_extra_fields()["num_steps"]))
    named = {k: samples[k] for k in ("sigma_omega", "sigma_delta", "sigma_eps", "ell")}
    named |= {f"omega{k}": samples["omega"][..., k] for k in range(rows.f.shape[1])}
    return min_ess(named), seconds, steps


def run():
    results = []
    for n in (51, 500):
        for state in ("cold" if n == 51 else "first at this size", "warm"):
            _, seconds = fit(n)
            results.append({"case": f"both stages, n = {n}, {state}", "seconds": seconds})
    model, seconds = fit(100)
    stage = model._stages("additive")[0]
    ours = min_ess(stage.quantities(model.expert_names_))
    results.append(
        {"case": "ours, n = 100, both stages, warm", "seconds": seconds, "min_ess": ours}
    )
    ess, plain_seconds, steps = plain(100)
    results.append(
        {
            "case": f"plain numpyro, n = 100, stage 2 alone ({steps:.0f} leapfrog steps)",
            "seconds": plain_seconds,
            "min_ess": ess,
        }
    )
    ratio = (ours / seconds) / (ess / plain_seconds)
    results.append({"case": "min-ESS per second, ours over plain", "ratio": ratio})
    return results
