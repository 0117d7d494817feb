"""From rows in the model's units to the posterior of every stage, of all rows or of shards."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np
from tqdm.auto import tqdm

from bne._base.threads import single_blas_thread
from bne._base.typing import Array, Integers
from bne._data.rows import Rows
from bne._draws.posterior import Posterior, Shard
from bne._draws.stage import Stage
from bne._fitting.design import Choices, Design, make_design
from bne._fitting.full_stage import sample_full
from bne._fitting.gaussian_stage import sample_gaussian
from bne._fitting.shards import deal_rows, pilot_rows, pilot_settings, pinned_at, run_tasks
from bne._fitting.training import training
from bne._sampler.checkpoint import NO_CHECKPOINT, Checkpoint
from bne._sampler.diagnostics import warn_if_unsettled
from bne._sampler.hmc import Run, SamplerSettings

BARS = {"ensemble": "Ensemble", "additive": "+ residual", "full": "+ calibration"}
"""Text on the progress bar of each stage."""


def sample_stages(
    rows: Rows,
    y: Array,
    design: Design,
    settings: SamplerSettings,
    seeds: list[np.random.SeedSequence],
    *,
    power: float = 1.0,
    pinned: Array | None = None,
    verbose: bool = False,
    checkpoint: Checkpoint = NO_CHECKPOINT,
) -> Shard:
    """Sample every stage of the model (Eqs. 1, 2 and 4); each stage has its own posterior.

    `power` is the power of the likelihood in a shard, and `pinned` is as in `sample_full`.
    """
    stages: dict[str, Stage] = {}
    bar = partial(_bar, settings, verbose, checkpoint)
    with single_blas_thread():
        fixed = [term for term in design.terms if term.grid is None]
        data = training(rows, y, fixed, power)
        with bar("ensemble") as run:
            stages["ensemble"], mode = sample_gaussian(rows, data, fixed, run, seeds[0])
        if len(fixed) < len(design.terms):
            data = training(rows, y, design.terms, power)
            with bar("additive") as run:
                stages["additive"], mode = sample_gaussian(rows, data, design.terms, run, seeds[1])
        if design.features is not None:
            with bar("full") as run:
                stages["full"] = sample_full(rows, data, design, mode, run, seeds[2], pinned)
    return Shard(stages, rows, y, power)


@contextmanager
def _bar(
    settings: SamplerSettings, verbose: bool, checkpoint: Checkpoint, stage: str
) -> Iterator[Run]:
    """Show the progress of a stage while it is sampled."""
    total = settings.chains * (settings.warmup + settings.draws)
    with tqdm(total=total, disable=not verbose, unit="it", desc=BARS[stage]) as shown:
        yield Run(settings, 0, shown.update, checkpoint.part(stage))


def sample_posterior(
    rows: Rows,
    y: Array,
    *,
    choices: Choices,
    settings: SamplerSettings,
    seed: int,
    partitions: int = 1,
    verbose: bool = False,
    checkpoint: Checkpoint = NO_CHECKPOINT,
) -> Posterior:
    """Sample the posterior of all rows, or those of `partitions` equal shards.

    A shard's likelihood given omega, delta and G is raised to the power `partitions`, so that its
    posterior is as wide as that of all rows (Li, Srivastava and Dunson 2017). The hyperparameters
    must not see this power: they would take the noise of rows that count several times for signal.
    So in the full stage all hyperparameters are held at the means of their logarithms in a pilot,
    which is a plain fit of some of the rows. This includes the noise scale, because h varies over
    the distance ``ell_t sigma_eps`` in y. G can still stretch the noise.
    """
    points_seed, *stage_seeds = np.random.SeedSequence(seed).spawn(4)
    with single_blas_thread():
        points_seed = int(points_seed.generate_state(1)[0])
        design = make_design(rows, y, choices, points_seed, partitions)
    how: dict[str, Any] = {"checkpoint": checkpoint}
    if partitions == 1:
        shard = sample_stages(rows, y, design, settings, stage_seeds, verbose=verbose, **how)
        return Posterior([shard], rows, y)
    with tqdm(total=partitions, disable=not verbose, desc="Shards") as shown:
        how |= {"settings": settings, "seed": seed, "partitions": partitions}
        return Posterior(_sample_shards(rows, y, design, progress=shown.update, **how), rows, y)


def _sample_shards(
    rows: Rows,
    y: Array,
    design: Design,
    *,
    settings: SamplerSettings,
    seed: int,
    partitions: int,
    checkpoint: Checkpoint,
    progress: Callable[[int], object],
) -> list[Shard]:
    """Sample a pilot that finds the hyperparameters, and then all shards in parallel."""
    root = np.random.SeedSequence((seed, partitions))
    *seeds, pilot_seed, shards_seed = root.spawn(partitions + 3)
    dealt = deal_rows(rows, y, partitions, shards_seed)

    def sampling(kept: Integers, of: SamplerSettings, name: str, i: int, **how: Any) -> Any:
        following = {"checkpoint": checkpoint.part(name), "seeds": seeds[i].spawn(3)}
        return partial(sample_stages, rows.part(kept), y[kept], design, of, **following, **how)

    pinned = None
    if design.features is not None:
        some = pilot_rows(len(y), partitions, pilot_seed)
        pilot = sampling(some, pilot_settings(settings), "pilot", partitions)().stages["full"]
        warn_if_unsettled(pilot.quantities([str(k) for k in range(rows.f.shape[1])]))
        pinned = pinned_at(pilot)
    how = {"power": float(partitions), "pinned": pinned}
    alone = settings._replace(n_jobs=1)
    tasks = [sampling(kept, alone, f"shard{i}", i, **how) for i, kept in enumerate(dealt)]
    return run_tasks(tasks, settings.n_jobs, progress)
