"""How a comparator is declared."""

from dataclasses import dataclass
from math import inf
from typing import Any

GIVEN = ("experts", "inputs", "random_state")
"""What a comparator may be given: names of columns, and a seed."""


@dataclass(frozen=True)
class Comparator:
    """Declaration of one comparator: its name, its class, and the data that it can be fitted to.

    Attributes
    ----------
    name : str
        Short name in tables and figures.
    method : type
        Class with ``fit(X, y)`` and ``predict_distribution(X)``.
    needs : tuple of str
        Which of ``experts``, ``inputs`` and ``random_state`` its constructor takes.
    least_experts, least_inputs, most_inputs, most_rows : float
        Limits of the data. Outside them the method is not defined, or takes too long.
    """

    name: str
    method: type
    needs: tuple[str, ...] = GIVEN
    least_experts: int = 1
    least_inputs: int = 0
    most_inputs: float = inf
    most_rows: float = inf

    def applies_to(self, n_experts: int, n_inputs: int, n_rows: int) -> bool:
        """Say whether the method can be fitted to data of this size."""
        return (
            n_experts >= self.least_experts
            and self.least_inputs <= n_inputs <= self.most_inputs
            and n_rows <= self.most_rows
        )

    def build(self, **given: Any) -> Any:
        """Return the method, not yet fitted, with those of the given arguments that it needs."""
        return self.method(**{name: given[name] for name in self.needs})
