"""Rows in the model's units."""

from typing import NamedTuple

from bne._base.typing import Array, Integers


class Rows(NamedTuple):
    """Rows in the model's units: inputs x (N, d) and experts' predictions f (N, K)."""

    x: Array
    f: Array

    def part(self, rows: slice | Integers) -> "Rows":
        """Some of the rows."""
        return Rows(self.x[rows], self.f[rows])
