"""Rows: inputs and experts' predictions, in the model's units."""

from typing import NamedTuple

from bne._base.typing import Array, Integers


class Rows(NamedTuple):
    """Rows in the model's units.

    Attributes
    ----------
    x : (N, d)
        Inputs.
    f : (N, K)
        Experts' predictions.
    """

    x: Array
    f: Array

    def part(self, rows: slice | Integers) -> "Rows":
        """Take some of the rows."""
        return Rows(self.x[rows], self.f[rows])
