"""Rows in the model's units -> the posterior of every stage, of all rows or of parts of them."""

from functools import partial
from typing import Any, NamedTuple

import numpy as np
from tqdm.auto import tqdm

from bne._base.priors import Priors
from bne._base.threads import single_blas_thread
from bne._base.typing import Array, Integers
from bne._data.places import find_places
from bne._draws.stage import Residual, Rows, Stage
from bne._fitting import shards as _partition
from bne._fitting.full_density import FullHyperparameters
from bne._fitting.full_stage import CONSTRUCTIONS, CalibrationFeatures, make_calibration
from bne._fitting.gaussian_stage import UNUSED, make_residual, sample_full, sample_stage
from bne._process.kernels import KernelFunction
from bne._sampler.checkpoint import NO_CHECKPOINT, Checkpoint
from bne._sampler.diagnostics import warn_if_unsettled
from bne._sampler.hmc import SamplerSettings

POINTS = 128
"""Feature points of delta where every row has inputs of its own."""

MOST_POINTS = 512
"""Where many rows share theirs. Tables of the Gaussian stages grow with the square of it."""


class Posterior(NamedTuple):
    """All stages of one fit, and the training rows they share, in the model's units.

    Attributes
    ----------
    stages : dict
        "ensemble" (Eq. 1) and, where the model has them, "additive" (Eq. 2) and "full" (Eq. 4).
    priors : Priors
    rows, y
        Training data.
    power : float
        To which the likelihood was raised.
    shards : list of Posterior
        Of parts of the rows, where they were partitioned; `stages` is then empty.
    """

    stages: dict[str, Stage]
    priors: Priors
    rows: Rows
    y: Array
    power: float = 1.0
    shards: list[Any] = []  # noqa: RUF012  of a named tuple, never changed

    @property
    def parts(self) -> "list[Posterior]":
        """The shards, or the whole where there are none."""
        return self.shards or [self]


class Design(NamedTuple):
    """What is chosen before sampling, from all rows.

    Attributes
    ----------
    residual : Residual or None
    features : CalibrationFeatures or None
    priors : Priors
    """

    residual: Residual | None
    features: CalibrationFeatures | None
    priors: Priors


def make_design(
    rows: Rows,
    y: Array,
    *,
    kernel: KernelFunction | None,
    calibration: str | None,
    orthogonalize: bool,
    per_input: bool,
    feature_points: int | None,
    seed: int,
    partitions: int = 1,
) -> Design:
    """Choose feature points, and priors from their spacing."""
    ell, residual, relevance = UNUSED, None, np.ones(rows.x.shape[1])
    if kernel is not None and rows.x.shape[1] > 0:
        if feature_points is None:
            places = len(rows.x) if orthogonalize else len(find_places(rows.x).first)
            feature_points = enough_points(len(rows.x) / partitions / places)
        ell, residual = make_residual(
            kernel,
            rows,
            y,
            orthogonalize=orthogonalize,
            per_input=per_input,
            feature_points=feature_points,
            seed=seed,
        )
        relevance = residual.feature_map.relevance
    features = None
    if calibration is not None:
        construction = CONSTRUCTIONS[calibration]
        features = make_calibration(construction, rows.x, relevance, seed, residual is not None)
    return Design(residual, features, Priors(ell))


def enough_points(rows_a_place: float) -> int:
    """As many feature points as cost about what the rows of a part do."""
    return int(np.clip(POINTS * rows_a_place, POINTS, MOST_POINTS))


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
) -> Posterior:
    """Sample every stage of the model, each its own posterior; `pinned` as in `sample_full`."""
    total = settings.chains * (settings.warmup + settings.draws)
    bar = partial(tqdm, total=total, disable=not verbose, unit="it")
    stages: dict[str, Stage] = {}

    def following(name: str, shown: Any) -> dict[str, Any]:
        part = checkpoint.part(name)
        return {"power": power, "progress": shown.update, "checkpoint": part}

    with single_blas_thread():
        with bar(desc="Ensemble") as shown:
            stages["ensemble"], mode = sample_stage(
                rows, y, None, design.priors, settings, seeds[0], **following("ensemble", shown)
            )
        if design.residual is not None:
            with bar(desc="+ residual") as shown:
                stages["additive"], mode = sample_stage(
                    rows,
                    y,
                    design.residual,
                    design.priors,
                    settings,
                    seeds[1],
                    **following("additive", shown),
                )
        if design.features is not None:
            with bar(desc="+ calibration") as shown:
                stages["full"] = sample_full(
                    rows,
                    y,
                    design.residual,
                    design.features,
                    design.priors,
                    mode,
                    settings,
                    seeds[2],
                    pinned=pinned,
                    **following("full", shown),
                )
    return Posterior(stages, design.priors, rows, y, power)


def sample_posterior(
    rows: Rows,
    y: Array,
    *,
    settings: SamplerSettings,
    seed: int,
    partitions: int = 1,
    verbose: bool = False,
    checkpoint: Checkpoint = NO_CHECKPOINT,
    **choices: Any,
) -> Posterior:
    """Sample the posterior of all rows, or those of `partitions` equal parts of them.

    A part's likelihood is raised to the power `partitions`, so that its posterior is as wide as
    that of all rows (Li, Srivastava and Dunson 2017). That is done to the likelihood given omega,
    delta and G. The hyperparameters would take rows that count several times for a process that
    repeats its noise: those of the full stage are held where the plain posterior of a pilot's rows
    has them, the noise scale with them (h resolves y to `ell_t sigma_eps`, which is one, too; G is
    left to stretch it). `choices` are those of `make_design`.
    """
    points_seed, *stage_seeds = np.random.SeedSequence(seed).spawn(4)
    with single_blas_thread():
        points_seed = int(points_seed.generate_state(1)[0])
        design = make_design(rows, y, seed=points_seed, partitions=partitions, **choices)
    if partitions == 1:
        return sample_stages(
            rows, y, design, settings, stage_seeds, verbose=verbose, checkpoint=checkpoint
        )
    root = np.random.SeedSequence((seed, partitions))
    *seeds, pilot_seed, shards_seed = root.spawn(partitions + 3)
    shards = _partition.deal_rows(rows, y, partitions, shards_seed)

    def sampling(kept: Integers, of: SamplerSettings, name: str, i: int, **how: Any) -> Any:
        following = {"checkpoint": checkpoint.part(name), "seeds": seeds[i].spawn(3)}
        part = Rows(rows.x[kept], rows.f[kept])
        return partial(sample_stages, part, y[kept], design, of, **following, **how)

    with tqdm(total=partitions, disable=not verbose, desc="Shards") as shown:
        pinned = None
        if design.features is not None:
            some = _partition.pilot_rows(len(y), partitions, pilot_seed)
            pilot = sampling(some, _pilot(settings), "pilot", partitions)().stages["full"]
            warn_if_unsettled(pilot.draws.quantities([str(k) for k in range(rows.f.shape[1])]))
            pinned = pinned_at(pilot)
        how = {"power": float(partitions), "pinned": pinned}
        alone = settings._replace(n_jobs=1)
        tasks = [sampling(kept, alone, f"shard{i}", i, **how) for i, kept in enumerate(shards)]
        parts = _partition.run(tasks, settings.n_jobs, shown.update)
    return Posterior({}, design.priors, rows, y, 1.0, parts)


def _pilot(settings: SamplerSettings) -> SamplerSettings:
    """Half the draws: means need fewer. A shorter warm-up has not found the posterior's shape."""
    return settings._replace(draws=-(-settings.draws // 2))


def pinned_at(stage: Stage) -> Array:
    """Posterior means of the full stage's hyperparameters; that of the noise scale for eta."""
    means = np.mean(stage.draws.position, axis=(0, 1))[: len(FullHyperparameters._fields)]
    log_sigma_eps = np.mean(np.log(stage.draws.sigma_eps))
    return np.array(FullHyperparameters(*means)._replace(eta=log_sigma_eps))
