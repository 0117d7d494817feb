"""From the training rows of a `BNERegressor` to its scaling and its posterior."""

from typing import Any

import numpy as np
from sklearn.utils import check_random_state

from bne._base.typing import Array
from bne._data.rows import Rows
from bne._data.scaling import Scaling, fit_scaling
from bne._draws.posterior import Posterior
from bne._fitting.design import Choices
from bne._fitting.posterior import sample_posterior
from bne._process.kernels import resolve_kernel
from bne._sampler.checkpoint import Checkpoint, open_checkpoint
from bne._sampler.diagnostics import health, warn_if_unhealthy
from bne._sampler.hmc import SamplerSettings

SAMPLING = (
    "calibration",
    "length_scales",
    "orthogonalize",
    "feature_points",
    "chains",
    "warmup",
    "draws",
    "target_acceptance",
    "partitions",
)
"""Parameters on which the draws depend. A checkpoint is continued only if none has changed.

`residual` is missing here: a function cannot be stored, so its values are compared instead.
"""


def sample_model(
    model: Any, x: Array, f: Array, y: Array, geographic: tuple[int, int] | None
) -> tuple[Scaling, Posterior]:
    """Sample the posterior of every stage, and warn if one cannot be trusted yet."""
    scaling = fit_scaling(x, f, y, geographic)
    rows, y = Rows(scaling.inputs(x), scaling.outcome(f)), scaling.outcome(y)
    checkpoint, seed = _open(model, {"inputs": rows.x, "predictions": rows.f, "y": y})
    choices = Choices(
        kernel=None if model.residual is None else resolve_kernel(model.residual),
        calibration=model.calibration,
        orthogonalize=model.orthogonalize,
        per_input=model.length_scales == "per_input",
        feature_points=model.feature_points,
    )
    settings = SamplerSettings(
        model.chains, model.warmup, model.draws, model.target_acceptance, model.n_jobs
    )
    posterior = sample_posterior(
        rows,
        y,
        choices=choices,
        settings=settings,
        seed=seed,
        partitions=model.partitions,
        verbose=bool(model.verbose),
        checkpoint=checkpoint,
    )
    for name in posterior.shards[0].stages:
        stages = [shard.stages[name] for shard in posterior.shards]
        quantities = [stage.quantities(model.expert_names_) for stage in stages]
        warn_if_unhealthy(name, *health(quantities, [s.draws.statistics for s in stages]))
    return scaling, posterior


def _open(model: Any, data: dict[str, Array]) -> tuple[Checkpoint, int]:
    """Open the checkpoint of this fit, and return it with the seed.

    Only an integer `random_state` is compared with that of the checkpoint. Any other value gives a
    new seed at every call, so a fit that continues takes the seed of the checkpoint.
    """
    seed = int(check_random_state(model.random_state).randint(np.iinfo(np.int32).max))
    settings = {name: getattr(model, name) for name in SAMPLING}
    if model.residual is not None:
        data = data | {"residual": resolve_kernel(model.residual)(np.linspace(0.0, 5.0, 64))}
    number = isinstance(model.random_state, int | np.integer)
    settings["random_state"] = seed if number else None
    return open_checkpoint(model.checkpoint, data, settings, seed)
