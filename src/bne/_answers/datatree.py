"""Posterior draws as an ArviZ DataTree, in the user's units and words."""

from typing import Any

import arviz_base
import numpy as np

from bne._base.typing import Array
from bne._data.scaling import Scaling
from bne._draws.posterior import Shard
from bne._draws.stage import Stage
from bne._law.conditional import log_likelihood_draws


def to_datatree(stage: Stage, shard: Shard, scaling: Scaling, expert_names: list[str]) -> Any:
    """Make a DataTree of one shard's draws, with dimensions (chain, draw, ...).

    The log likelihood is that of y in the user's units.
    """
    stage = stage.as_sampled()
    draws, rows = stage.draws, shard.rows
    named = _named(stage, shard, scaling, expert_names)
    log_p = log_likelihood_draws(stage, rows, shard.y) - np.log(scaling.y_scale)
    return arviz_base.from_dict(
        {
            "posterior": {k: draws.by_chain(v) for k, v in named.items()},
            "unconstrained_posterior": {"position": draws.position},
            "sample_stats": draws.statistics,
            "log_likelihood": {"y": draws.by_chain(log_p)},
            "observed_data": {"y": scaling.undo_outcome(shard.y)},
        },
        coords={"expert": expert_names, "row": np.arange(len(shard.y))},
        dims={
            "weights": ["expert"],
            "mean": ["row"],
            "residual": ["row"],
            "y": ["row"],
            "position": ["coordinate"],
        },
        attrs={"/": {"inference_library": "bne"}},
    )


def _named(
    stage: Stage, shard: Shard, scaling: Scaling, expert_names: list[str]
) -> dict[str, Array]:
    """Collect the weights, the hyperparameters, the mean and the residual, S draws each."""
    scale = scaling.y_scale
    named = {"weights": stage.draws.omega, "mean": scaling.undo_outcome(stage.mu(shard.rows))}
    for name, quantity in stage.named(expert_names).items():
        if not name.startswith("weights["):
            named[name] = quantity.values * (scale if quantity.in_units_of_y else 1.0)
    if stage.residual is not None:
        named["residual"] = scale * stage.value("residual", shard.rows)
    return named
