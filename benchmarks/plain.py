"""Min-ESS per second of the full stage, and of the same posterior written by hand in numpyro.

Ours runs with default settings on two cores; its time includes the other stages and compilation.
Plain numpyro runs one chain; its time includes compilation. ``python benchmarks/plain.py`` takes
about six minutes.
"""

import time

import jax
import numpy as np
from stages import EXPERTS, min_ess

from bne import BNERegressor
from bne.datasets import make_wave_1d


def plain(model, features, warmup=300, draws=2000):
    """Sample `plain_numpyro.full`: smallest ESS, seconds, and leapfrog steps per draw."""
    import numpyro
    from plain_numpyro import full

    rows, y = model.posterior_.rows, model.posterior_.y
    priors = [model.posterior_.priors.ell, features.ell_x, features.basis.prior]
    with jax.enable_x64(True):
        mcmc = numpyro.infer.MCMC(
            numpyro.infer.NUTS(full),
            num_warmup=warmup,
            num_samples=draws,
            num_chains=1,
            progress_bar=False,
        )
        args = (rows.x, rows.f, y, features.feature_map.points)
        shapes = [(p.shape, p.rate) for p in priors]
        start = time.perf_counter()
        mcmc.run(jax.random.key(0), *args, *shapes, extra_fields=("num_steps",))
        # `run` does not wait for the draws, so they are read before the clock stops
        samples = {k: np.asarray(v) for k, v in mcmc.get_samples(group_by_chain=True).items()}
        seconds = time.perf_counter() - start
        steps = float(np.mean(mcmc.get_extra_fields()["num_steps"]))
    scales = ("sigma_omega", "sigma_delta", "sigma_eps", "sigma_G", "ell", "ell_x", "ell_t")
    named = {k: samples[k] for k in scales}
    named |= {f"omega{k}": samples["omega"][..., k] for k in range(rows.f.shape[1])}
    return min_ess(named), seconds, steps


def run(n=100):
    """Run both on one data set of the 1-D experiment, and compare them."""
    data = make_wave_1d(n, random_state=1)
    model = BNERegressor(EXPERTS, inputs=["x"], random_state=0, n_jobs=2)
    start = time.perf_counter()
    model.fit(data.X, data.y)
    seconds = time.perf_counter() - start
    draws = model._stages("full")[0].draws
    ess = min_ess(model._stages("full")[0].quantities(model.expert_names_))
    cases = {"ours": (ess, seconds, float(np.mean(draws.statistics["n_steps"])))}
    cases["plain numpyro"] = plain(model, model._stages("full")[0].features)
    results = [
        {"case": case, "n": n, "seconds": seconds, "min_ess": ess, "steps_per_draw": steps}
        | {"ess_per_second": ess / seconds}
        for case, (ess, seconds, steps) in cases.items()
    ]
    ratio = results[0]["ess_per_second"] / results[1]["ess_per_second"]
    return [*results, {"case": "ours over plain", "ess_per_second": ratio}]


if __name__ == "__main__":
    for row in run():
        print(row)
