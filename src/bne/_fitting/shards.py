"""Shards of a partitioned posterior: how rows are dealt out, and how shards are sampled."""

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
"""Rows that a shard needs at the least."""

PILOT_ROWS = 2000
"""Rows that hyperparameters are learned from at the least, if they are no more than half."""

ATTEMPTS = 3
"""How often a shard is begun when its worker is lost."""


class ShardError(RuntimeError):
    """A shard could not be sampled."""


def deal_rows(
    rows: Rows, y: Array, partitions: int, seed: np.random.SeedSequence
) -> list[Integers]:
    """Rows of each shard, equally many to within one: groups of like rows are dealt out at random.

    The powered likelihood of a shard stands for that of all rows, and is the nearer to it the more
    the shards resemble each other. A group has a row for every shard; its rows are near each other
    in their inputs and in the residual of y from the experts' least squares.
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
    """Groups of `size` near rows, the last one smaller: halved where they are spread the most."""
    if len(rows) <= size:
        return [rows]
    widest = np.argmax(np.ptp(coordinates[rows], axis=0))
    ordered = rows[np.argsort(coordinates[rows, widest], kind="stable")]
    half = size * -(-len(rows) // (2 * size))
    return alike(coordinates, ordered[:half], size) + alike(coordinates, ordered[half:], size)


def pilot_rows(n: int, partitions: int, seed: np.random.SeedSequence) -> Integers:
    """Rows for the hyperparameters, drawn at random: those dealt to a shard are too regular."""
    enough = max(min(PILOT_ROWS, n // 2), n // partitions)
    return np.sort(np.random.default_rng(seed).permutation(n)[:enough])


def run_tasks(
    tasks: Sequence[Callable[[], Any]], n_jobs: int | None, progress: Callable[[int], object]
) -> list[Any]:
    """Results of all tasks, through joblib; those whose worker was lost are begun again."""
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
        with parallel_config(backend="sequential"):  # a shard is one worker's work
            return i, task()
    except Exception as error:
        raise ShardError(f"Shard {i} of {total} failed: {error}") from error


def pilot_settings(settings: SamplerSettings) -> SamplerSettings:
    """Half the draws: means need fewer. A shorter warm-up has not found the posterior's shape."""
    return settings._replace(draws=-(-settings.draws // 2))


def pinned_at(stage: Stage) -> Array:
    """Posterior means of the full stage's hyperparameters; that of the noise scale for eta."""
    means = np.mean(stage.draws.position, axis=(0, 1))[: len(FullHyperparameters._fields)]
    log_sigma_eps = np.mean(np.log(stage.draws.sigma_eps))
    return np.array(FullHyperparameters(*means)._replace(eta=log_sigma_eps))
