"""Time of the full stage as n grows, with a fixed number of features and short chains.

``python benchmarks/full.py`` takes about eight minutes on two cores.
"""

import time
import warnings
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from stages import EXPERTS, min_ess

from bne import BNERegressor
from bne._fitting import full_stage
from bne._fitting.full_density import log_density
from bne.datasets import make_wave_1d

SIZES = (100, 300, 1000, 3000)
LOOP_ROWS = 300_000
"""Rows times gradients in one timed loop, which takes about half a second."""


def capture(model, data):
    """Fit a model. Return the data of the joint sampler, its seconds and its draws."""
    kept = {}
    sample_joint = full_stage.sample_joint

    def timed(full_data, *args):
        start = time.perf_counter()
        draws = sample_joint(full_data, *args)
        kept.update(data=full_data, seconds=time.perf_counter() - start, position=draws.position)
        return draws

    full_stage.sample_joint = timed
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model.fit(data.X, data.y)
    finally:
        full_stage.sample_joint = sample_joint
    return kept


def gradient_times(cases, rounds=8):
    """Measure the milliseconds per gradient of each (data, position): the best of some rounds.

    In every round all sizes take turns, so that other work on the machine slows all of them. The
    loops take about the same time at every size.
    """
    with jax.enable_x64(True):
        cases = [(jnp.asarray(q), jax.tree.map(jnp.asarray, data)) for data, q in cases]
        counts = [max(1, LOOP_ROWS // len(data.y)) for _, data in cases]
        times = np.empty((rounds + 1, len(cases)))
        for times_of_round in times:
            for k, (q, data) in enumerate(cases):
                start = time.perf_counter()
                jax.block_until_ready(_gradients(q, data, counts[k]))
                times_of_round[k] = time.perf_counter() - start
    return 1000.0 * np.min(times[1:], axis=0) / counts  # the first round compiles


@partial(jax.jit, static_argnums=2)
def _gradients(q, data, count):
    step = jax.grad(log_density)
    return jax.lax.fori_loop(0, count, lambda i, q: q + 1e-12 * step(q, data), q)


def run():
    """Return one row for each size, and the exponent of the time per gradient."""
    results, gradients = [], {}
    for n in SIZES:
        model = BNERegressor(
            EXPERTS, inputs=["x"], random_state=0, n_jobs=2, chains=2, warmup=200, draws=300
        )
        kept = capture(model, make_wave_1d(n, random_state=1))
        draws = model._stages("full")[0].draws
        ess = min_ess(model._stages("full")[0].quantities(model.expert_names_))
        gradients[n] = gradient_times([(kept["data"], kept["position"][0, -1])])[0]
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
