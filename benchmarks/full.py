"""The full stage: how its time grows with n, at fixed features and with short chains.

``python benchmarks/full.py`` takes about eight minutes on two cores.
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


def run():
    """One row a size, and the exponent of the time per gradient."""
    results, gradients = [], {}
    for n in SIZES:
        model = BNERegressor(
            EXPERTS, inputs=["x"], random_state=0, n_jobs=2, chains=2, warmup=200, draws=300
        )
        kept = capture(model, make_wave_1d(n, random_state=1))
        draws = model._stage("full").draws
        ess = min_ess(draws.quantities(model.expert_names_))
        gradients[n] = gradient_time(kept["data"], kept["position"][0, -1])
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
    return results


if __name__ == "__main__":
    for row in run():
        print(row)
