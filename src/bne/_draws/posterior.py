"""All stages of a fit, as a list of shards. A fit that is not partitioned has one shard."""

from typing import NamedTuple

from bne._base.typing import Array
from bne._data.rows import Rows
from bne._draws.stage import Stage

STAGES = ("ensemble", "additive", "full")
"""Names of the paper's nested models, Eq. (1), Eq. (2) and Eq. (4)."""


class Shard(NamedTuple):
    """The posterior of the rows of one shard, in the model's units.

    Attributes
    ----------
    stages : dict of str to Stage
        The stage "ensemble", and "additive" and "full" if the model has them.
    rows : Rows
        Inputs and experts' predictions at the shard's training rows.
    y : (n,)
        Outcomes at these rows.
    power : float
        The power to which the likelihood was raised: the number of shards.
    """

    stages: dict[str, Stage]
    rows: Rows
    y: Array
    power: float = 1.0


class Posterior(NamedTuple):
    """All stages of one fit.

    Attributes
    ----------
    shards : list of Shard
        One for each part of the rows; a fit that is not partitioned has one.
    rows : Rows
        Inputs and experts' predictions at all training rows, in the model's units.
    y : (n,)
        Outcomes at all training rows, in the model's units.
    """

    shards: list[Shard]
    rows: Rows
    y: Array

    def stages(self, name: str) -> list[Stage]:
        """Return the stage `name` of every shard, or the one that stands for it.

        In a model without delta, Eq. (2) is Eq. (1), so "ensemble" stands for "additive". In a
        model without G, Eq. (4) is Eq. (2), so "additive" stands for "full".
        """
        if name not in STAGES:
            raise ValueError(f"`stage` must be one of {list(STAGES)}; got {name!r}.")
        wanted = STAGES[: STAGES.index(name) + 1]
        last = [stage for stage in wanted if stage in self.shards[0].stages][-1]
        return [shard.stages[last] for shard in self.shards]
