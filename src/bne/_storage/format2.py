"""Readers for files of format 2, which early copies of bne 0.1.0 wrote.

In format 2 the draws of a stage had a field for each hyperparameter; now they have a field for each
term. A partitioned posterior held posteriors; now every posterior holds shards.
"""

from typing import Any

from bne._base.typing import Array
from bne._calibration.features import CalibrationFeatures
from bne._data.rows import Rows
from bne._draws.calibration import CalibrationDraws
from bne._draws.posterior import Posterior, Shard
from bne._draws.stage import Stage, StageDraws
from bne._mean.residual import Residual
from bne._mean.term import TermDraws
from bne._mean.weights import Weights


def read_stage_draws(
    *,
    sigma_eps: Array,
    position: Array,
    statistics: dict[str, Array],
    calibration: CalibrationDraws | None = None,
    **terms: Any,
) -> StageDraws:
    """Make the draws of terms from the fields omega, sigma_omega, sigma_delta, log_ell, v, xi."""
    named = {"weights": TermDraws(terms["omega"], terms["sigma_omega"])}
    if terms["v"] is not None:
        fields = (terms[name] for name in ("v", "sigma_delta", "log_ell", "xi"))
        named["residual"] = TermDraws(*fields)
    return StageDraws(named, sigma_eps, position, statistics, calibration)


def read_stage(
    *, draws: StageDraws, residual: Residual | None, features: CalibrationFeatures | None
) -> Stage:
    """Make the list of terms from the residual process, which may be None."""
    terms = [Weights()] if residual is None else [Weights(), residual]
    return Stage(draws, terms, features)


def read_posterior(
    *,
    stages: dict[str, Stage],
    rows: Rows,
    y: Array,
    power: float,
    shards: list[Posterior],
    priors: Any,
) -> Posterior:
    """Make the list of shards. A posterior that is not partitioned becomes the only shard."""
    del priors  # no answer reads them
    if shards:
        return Posterior([one.shards[0] for one in shards], rows, y)
    return Posterior([Shard(stages, rows, y, power)], rows, y)
