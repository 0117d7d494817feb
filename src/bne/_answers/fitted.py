"""A fitted model as the answers see it: its posterior and its scaling."""

from typing import NamedTuple

from bne._answers.closed_form import HYPERPARAMETER_DRAWS, ClosedForm, closed_form
from bne._data.rows import Rows
from bne._data.scaling import Scaling
from bne._draws.posterior import Posterior
from bne._draws.stage import PREDICTIVE_DRAWS, Stage
from bne._law.averaged import make_law
from bne._law.distribution import Law

MIN_DRAWS = 200
"""Answers are averaged over at least this many draws of each shard.

With many shards the usual number of draws, divided among them, would be too few to average the
shards' quantiles. More draws a shard make the answers slower.
"""


class Fitted(NamedTuple):
    """The fitted quantities that every answer reads.

    Attributes
    ----------
    posterior : Posterior
        Draws of all stages, in the model's units.
    scaling : Scaling
        The map between the user's units and the model's.
    expert_names : list of str
        Names of the experts, in their order.
    """

    posterior: Posterior
    scaling: Scaling
    expert_names: list[str]

    def thinned(self, stage: str) -> list[Stage]:
        """Return the stage of every shard, thinned to the draws over which answers are averaged."""
        stages = self.posterior.stages(stage)
        limit = max(PREDICTIVE_DRAWS // len(stages), MIN_DRAWS)
        return [one.thinned(limit) for one in stages]

    def closed(self, stage: str) -> list[ClosedForm]:
        """Return the closed form of every shard.

        For the full stage it is that of `additive`, the last stage that has one.
        """
        shards = self.posterior.shards
        limit = max(HYPERPARAMETER_DRAWS // len(shards), MIN_DRAWS // 4)
        gaussian = self.posterior.stages("additive" if stage == "full" else stage)
        return [closed_form(g, shard, limit) for g, shard in zip(gaussian, shards, strict=True)]

    def law(self, rows: Rows, stage: str) -> Law:
        """Return the predictive distribution at rows that are in the model's units."""
        return make_law(self.thinned(stage), rows, self.scaling)
