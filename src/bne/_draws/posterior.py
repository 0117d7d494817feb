"""All stages of a fit: a list of shards, of which a whole fit has one."""

from typing import NamedTuple

from bne._base.typing import Array
from bne._data.rows import Rows
from bne._draws.stage import Stage

STAGES = ("ensemble", "additive", "full")
"""The nested models of the paper: Eq. (1), Eq. (2) and Eq. (4)."""


class Shard(NamedTuple):
    """The posterior of some rows, in the model's units.

    Attributes
    ----------
    stages : dict of Stage
        "ensemble" and, where the model has them, "additive" and "full".
    rows, y
        Training data.
    power : float
        To which the likelihood was raised: the number of shards.
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
    rows, y
        All training data, in the model's units.
    """

    shards: list[Shard]
    rows: Rows
    y: Array

    def stages(self, name: str) -> list[Stage]:
        """The stage that stands for `name`, of every shard.

        Without delta, Eq. (2) is Eq. (1); without G, Eq. (4) is Eq. (2).
        """
        if name not in STAGES:
            raise ValueError(f"`stage` must be one of {list(STAGES)}; got {name!r}.")
        wanted = STAGES[: STAGES.index(name) + 1]
        last = [stage for stage in wanted if stage in self.shards[0].stages][-1]
        return [shard.stages[last] for shard in self.shards]
