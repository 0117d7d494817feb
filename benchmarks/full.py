"""The full stage: min-ESS per second beside plain numpyro, and how its time grows with n.

``python benchmarks/full.py`` takes about half an hour on two cores.
"""

import time
import warnings

import jax
import jax.numpy as jnp
import numpy as np
from stages import EXPERTS, min_ess

from bne import BNERegressor, _joint
from bne._model import log_density
from bne.datasets import make_wave_1d

SIZES = (100, 300, 1000, 3000)


def capture(model, data):
    """Fit, and keep what the joint sampler was given and how long it took."""
    kept = {}
    sample_joint = _joint.sample_joint

    def timed(full_data, *args):
        start = time.perf_counter()
        draws = sample_joint(full_data, *args)
        kept.update(data=full_data, seconds=time.perf_counter() - start, position=draws.position)
        return draws

    _joint.sample_joint = timed
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model.fit(data.X, data.y)
    finally:
        _joint.sample_joint = sample_joint
    return kept


def gradient_time(data, position, repeats=5):
    """Milliseconds a gradient, the best of some loops of 100."""

    @jax.jit
    def loop(q, data):
        step = jax.grad(log_density)
        return jax.lax.fori_loop(0, 100, lambda i, q: q + 1e-12 * step(q, data), q)

    with jax.enable_x64(True):
        q, data = jnp.asarray(position), jax.tree.map(jnp.asarray, data)
        jax.block_until_ready(loop(q, data))
        times = []
        for _ in range(repeats):
            start = time.perf_counter()
            jax.block_until_ready(loop(q, data))
            times.append(time.perf_counter() - start)
    return 10.0 * min(times)


def plain(model, features, warmup=100, draws=100):
    """The same posterior by `plain_numpyro.full`: smallest ESS, seconds, leapfrog steps a draw."""
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
        seconds = time.perf_counter() - start
        samples = {k: np.asarray(v) for k, v in mcmc.get_samples(group_by_chain=True).items()}
        steps = float(np.mean(mcmc.get_extra_fields()["num_steps"]))
    scales = ("sigma_omega", "sigma_delta", "sigma_eps", "sigma_G", "ell", "ell_x", "ell_t")
    named = {k: samples[k] for k in scales}
    named |= {f"omega{k}": samples["omega"][..., k] for k in range(rows.f.shape[1])}
    return min_ess(named), seconds, steps


def run():
    """Growth with n at fixed features, then the comparison at n = 100."""
    results, gradients, models = [], {}, {}
    for n in SIZES:
        model = BNERegressor(
            EXPERTS, inputs=["x"], random_state=0, n_jobs=2, chains=2, warmup=200, draws=300
        )
        kept = capture(model, make_wave_1d(n, random_state=1))
        draws = model._stage("full").draws
        ess = min_ess(draws.quantities(model.expert_names_))
        gradients[n] = gradient_time(kept["data"], kept["position"][0, -1])
        models[n] = model
        results.append(
            {
                "case": f"ours, n = {n}",
                "seconds": kept["seconds"],
                "min_ess": ess,
                "seconds_to_ess_400": 400 * kept["seconds"] / ess,
                "ms_per_gradient": gradients[n],
                "steps_per_draw": float(np.mean(draws.statistics["n_steps"])),
            }
        )
        print(results[-1], flush=True)
    exponent = np.log(gradients[3000] / gradients[300]) / np.log(10.0)
    results.append({"case": "exponent of time per gradient, 300 to 3,000", "ratio": exponent})
    ess, seconds, steps = plain(models[100], models[100]._stage("full").features)
    results.append(
        {
            "case": "plain numpyro, n = 100",
            "seconds": seconds,
            "min_ess": ess,
            "seconds_to_ess_400": 400 * seconds / ess,
            "steps_per_draw": steps,
        }
    )
    ratio = results[-1]["seconds_to_ess_400"] / results[0]["seconds_to_ess_400"]
    results.append({"case": "min-ESS per second, ours over plain, n = 100", "ratio": ratio})
    return results


if __name__ == "__main__":
    for row in run():
        print(row)
