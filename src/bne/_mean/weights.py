"""The experts' weights omega: the term ``sum_k omega_k f_k(x)`` of the mean (Eq. 1)."""

from collections.abc import Sequence
from typing import NamedTuple

from bne._base.typing import Array
from bne._data.rows import Rows
from bne._mean.term import Named, TermDraws, TermPrior


class Weights(NamedTuple):
    """Constant weights with the prior N(0, sigma_omega^2); the methods are those of `Term`.

    The coefficients of its draws are the weights omega themselves, not whitened: (S, K).
    """

    prior: TermPrior = TermPrior()

    @property
    def name(self) -> str:
        """Name of the term among the draws of a stage."""
        return "weights"

    @property
    def part(self) -> str:
        """Name of the term's part in decompositions."""
        return "parametric"

    @property
    def grid(self) -> None:
        """None: the features are the experts' predictions, which depend on no length-scale."""
        return None

    def tabulate(self, rows: Rows) -> Array:
        """Return the experts' predictions as the only node: (1, N, K)."""
        return rows.f[None]

    def left_out(self, rows: Rows, log_ell: Array) -> float:
        """Return 0: the features leave nothing out."""
        del rows, log_ell
        return 0.0

    def within(self, log_ell: Array) -> "Weights":
        """Return the term itself, which has no nodes."""
        del log_ell
        return self

    def values(self, draws: TermDraws, rows: Rows) -> Array:
        """Find the weighted sum of the experts in every draw: (S, N)."""
        return draws.coefficients @ rows.f.T

    def named(self, draws: TermDraws, expert_names: Sequence[str]) -> dict[str, Named]:
        """Return the weights and their scale by the names that users see."""
        each = zip(expert_names, draws.coefficients.T, strict=True)
        named = {f"weights[{name}]": Named(values) for name, values in each}
        return named | {"weight_scale": Named(draws.scale)}
