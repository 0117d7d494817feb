"""The partitioned posterior beside the full one, on data sets that both can fit."""

import time
import warnings
from contextlib import contextmanager

import numpy as np
from scaling_world import World, features, regressor
from store import resume

from bne._fitting import posterior

FAIR = {"chains": 2, "warmup": 250, "draws": 350, "n_jobs": 2, "random_state": 0}
"""Settings of every fit that is compared."""

LEVELS = (0.05, 0.25, 0.5, 0.75, 0.95)
"""Levels of the quantiles that are compared."""

N_PARTITION = 4000
"""Rows of a data set."""


def answers(model, grid, fresh):
    """Return the answers that are compared: quantiles, coverage, epistemic entropy."""
    quantiles = model.predict_quantiles(grid, LEVELS).to_numpy()
    inside = model.predict_interval(fresh.X, 0.9).to_numpy()
    covered = np.mean((fresh.y >= inside[:, 0]) & (fresh.y <= inside[:, 1]))
    parts = model.decompose(grid, measure="entropy")
    return quantiles, covered, np.mean(parts.epistemic)


def partitioned(seed):
    """Fit one data set whole, in 4 shards and in 8 shards, with equally many draws."""
    world, fresh = World(N_PARTITION, seed), World(1000, 10_000 + seed)
    grid = features(np.random.default_rng(seed).uniform(-3.0, 3.0, size=(60, 2)))
    rows, reference = [], None
    for partitions in (1, 4, 8):
        start = time.perf_counter()
        with warnings.catch_warnings(), first_shard_timed() as shard:
            warnings.simplefilter("ignore")
            model = regressor(**FAIR, partitions=partitions).fit(world.X, world.y)
        seconds = time.perf_counter() - start - sum(shard)
        found = answers(model, grid, fresh)
        reference = found if reference is None else reference
        width = np.mean(reference[0][:, -1] - reference[0][:, 0])
        rows.append(
            {
                "partitions": partitions,
                "seconds": seconds,
                "shard_seconds": shard[0] if shard else seconds,
                "quantile_difference": np.mean(np.abs(found[0] - reference[0])) / width,
                "coverage_90": found[1],
                "epistemic": found[2],
            }
        )
        print(rows[-1], flush=True)
    return rows


@contextmanager
def first_shard_timed():
    """Time the first shard alone: run it once more before all shards, with chains on both cores.

    The context yields a list, into which the seconds are put.
    """
    seconds, run_tasks = [], posterior.run_tasks

    def timed(tasks, n_jobs, progress):
        rows, y, design, settings = tasks[0].args
        start = time.perf_counter()
        tasks[0].func(rows, y, design, settings._replace(n_jobs=2), **tasks[0].keywords)
        seconds.append(time.perf_counter() - start)
        return run_tasks(tasks, n_jobs, progress)

    posterior.run_tasks = timed
    try:
        yield seconds
    finally:
        posterior.run_tasks = run_tasks


def partition():
    """Return the stored comparison.

    While the method was developed, seeds 1 to 4 were used: 1, 3 and 4 for the pilots, 2 for the way
    in which rows are dealt to shards.
    """
    keys = [{"seed": seed} for seed in (5, 3, 6)]
    return resume("scaling_partition", keys, partitioned).assign(case="partition")
