"""Shards of a partitioned posterior: how rows are dealt out, and how shards are run."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from joblib import delayed, parallel_config
from joblib.externals.loky.process_executor import TerminatedWorkerError
from scipy.stats import rankdata

from bne._base.parallel import parallel
from bne._base.typing import Array, Integers
from bne._data.rows import Rows
from bne._draws.stage import Stage
from bne._fitting.full_data import FullHyperparameters
from bne._sampler.hmc import SamplerSettings

MIN_SHARD = 10
"""Smallest number of rows in a shard. It refuses absurd values; keep a thousand rows or more."""

PILOT_ROWS = 2000
"""Number of rows in the pilot, if this is not more than half of all rows.

A pilot of more rows knows the hyperparameters better and takes longer; 500 rows were too few
(docs/lab/sampler.md).
"""

ATTEMPTS = 3
"""Largest number of times that a shard is started, if workers are lost."""


class ShardError(RuntimeError):
    """An error for a shard that could not be sampled."""


def deal_rows(
    rows: Rows, y: Array, partitions: int, seed: np.random.SeedSequence
) -> list[Integers]:
    """Deal the rows out to shards, whose sizes differ by at most one.

    The rows are put into groups with one row for every shard. The rows of a group are near each
    other in their inputs and in the residual of y from a least-squares fit of the experts. Every
    shard gets one row of each group, at random. So the shards are alike, and the powered likelihood
    of each is close to the likelihood of all rows.
    """
    n = len(y)
    if n < partitions * MIN_SHARD:
        raise ValueError(
            f"`partitions`={partitions} leaves {n // partitions} of {n} rows to a shard; at least "
            f"{MIN_SHARD} are needed. Use fewer partitions."
        )
    residual = y - rows.f @ np.linalg.lstsq(rows.f, y)[0]
    ranks = rankdata(np.column_stack([rows.x, residual]), axis=0)
    rng = np.random.default_rng(seed)
    order = np.concatenate([rng.permutation(g) for g in alike(ranks, np.arange(n), partitions)])
    return [np.sort(order[i::partitions]) for i in range(partitions)]


def alike(coordinates: Array, rows: Integers, size: int) -> list[Integers]:
    """Put rows into groups of `size` neighbours; the last group may be smaller.

    The rows are halved again and again along the coordinate in which they are spread the most.
    """
    if len(rows) <= size:
        return [rows]
    widest = np.argmax(np.ptp(coordinates[rows], axis=0))
    ordered = rows[np.argsort(coordinates[rows, widest], kind="stable")]
    half = size * -(-len(rows) // (2 * size))
    return alike(coordinates, ordered[:half], size) + alike(coordinates, ordered[half:], size)


def pilot_rows(n: int, partitions: int, seed: np.random.SeedSequence) -> Integers:
    """Draw the rows of the pilot at random.

    The rows of a shard would not do: they are dealt more regularly than a random sample.
    """
    enough = max(min(PILOT_ROWS, n // 2), n // partitions)
    return np.sort(np.random.default_rng(seed).permutation(n)[:enough])


def run_tasks(
    tasks: Sequence[Callable[[], Any]], n_jobs: int | None, progress: Callable[[int], object]
) -> list[Any]:
    """Run all tasks with joblib, and return their results.

    A task whose worker is lost runs again, at most `ATTEMPTS` times in all.
    """
    results: dict[int, Any] = {}
    for attempt in range(1, ATTEMPTS + 1):
        left = [i for i in range(len(tasks)) if i not in results]
        work = (delayed(_named)(i, len(tasks), tasks[i]) for i in left)
        try:
            for i, result in parallel(n_jobs, "generator_unordered")(work):
                results[i] = result
                progress(1)
            break
        except TerminatedWorkerError:
            if attempt == ATTEMPTS:
                raise
    return [results[i] for i in range(len(tasks))]


def _named(i: int, total: int, task: Callable[[], Any]) -> tuple[int, Any]:
    try:
        with parallel_config(backend="sequential"):  # a shard runs in one worker
            return i, task()
    except Exception as error:
        raise ShardError(f"Shard {i} of {total} failed: {error}") from error


def pilot_settings(settings: SamplerSettings) -> SamplerSettings:
    """Return the settings of the pilot: half the draws, because only their means are used.

    The warm-up is not shortened: a shorter one does not find the shape of the posterior.
    """
    return settings._replace(draws=-(-settings.draws // 2))


def pinned_at(stage: Stage) -> Array:
    """Find the posterior means of the full stage's hyperparameters: (7,).

    The entry of eta holds the mean of log sigma_eps.
    """
    means = np.mean(stage.draws.position, axis=(0, 1))[: len(FullHyperparameters._fields)]
    log_sigma_eps = np.mean(np.log(stage.draws.sigma_eps))
    return np.array(FullHyperparameters(*means)._replace(eta=log_sigma_eps))
