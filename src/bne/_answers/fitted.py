"""A fitted model as the answers see it: its posterior, and its units."""

from typing import NamedTuple

from bne._answers.closed_form import HYPERPARAMETER_DRAWS, ClosedForm, closed_form
from bne._data.rows import Rows
from bne._data.scaling import Scaling
from bne._draws.posterior import Posterior
from bne._draws.stage import PREDICTIVE_DRAWS, Stage
from bne._law.averaged import make_law
from bne._law.distribution import Law

MIN_DRAWS = 200
"""Answers are averaged over at least this many draws of each shard."""


class Fitted(NamedTuple):
    """What every answer reads.

    Attributes
    ----------
    posterior : Posterior
    scaling : Scaling
    expert_names : list of str
    """

    posterior: Posterior
    scaling: Scaling
    expert_names: list[str]

    def thinned(self, stage: str) -> list[Stage]:
        """The stage of each shard, with its share of the draws that answers are averaged over."""
        stages = self.posterior.stages(stage)
        limit = max(PREDICTIVE_DRAWS // len(stages), MIN_DRAWS)
        return [one.thinned(limit) for one in stages]

    def closed(self, stage: str) -> list[ClosedForm]:
        """Closed forms of the Gaussian stage that goes with `stage`, of each shard."""
        shards = self.posterior.shards
        limit = max(HYPERPARAMETER_DRAWS // len(shards), MIN_DRAWS // 4)
        gaussian = self.posterior.stages("additive" if stage == "full" else stage)
        return [closed_form(g, shard, limit) for g, shard in zip(gaussian, shards, strict=True)]

    def law(self, rows: Rows, stage: str) -> Law:
        """Predictive distribution at rows in the model's units."""
        return make_law(self.thinned(stage), rows, self.scaling)
