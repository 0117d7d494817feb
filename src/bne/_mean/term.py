"""The mean of the model is a sum of Gaussian terms; this says what a term is.

A term is ``scale * (a(row; ell)^T v + rest)`` with coefficients ``v ~ N(0, I)``: features a of the
row, which may depend on a length-scale ell, and what the features leave out of the term's variance.
`bne._mean.weights` and `bne._mean.residual` are the two terms that there are.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np

from bne._base.priors import InverseGamma, Priors
from bne._base.typing import Array
from bne._data.rows import Rows

UNUSED = InverseGamma(2.0, 1.0)
"""Prior of a length-scale that no term depends on: no likelihood sees it."""


class TermPrior(NamedTuple):
    """Prior of a term's hyperparameters.

    Attributes
    ----------
    scale : float
        Scale of the half-Normal on the term's own scale.
    ell : InverseGamma
        On the term's length-scale, where it has one.
    """

    scale: float = 1.0
    ell: InverseGamma = UNUSED


class TermDraws(NamedTuple):
    """Posterior draws of one term.

    Attributes
    ----------
    coefficients : (S, m)
        Weights of the features; the term says in which unit.
    scale : (S,)
    log_ell, xi : (S,) or None
        Log length-scale, and the number that completes a draw where the features leave out some of
        the variance. None where the features depend on no length-scale.
    """

    coefficients: Array
    scale: Array
    log_ell: Array | None = None
    xi: Array | None = None


class Named(NamedTuple):
    """A quantity that users see: a value for each draw, and whether its unit is that of y."""

    values: Array
    in_units_of_y: bool = False


class Term(Protocol):
    """One Gaussian part of mu."""

    @property
    def name(self) -> str:
        """Name of the term among the draws of a stage."""
        ...

    @property
    def part(self) -> str:
        """Name of the term's part in decompositions."""
        ...

    @property
    def prior(self) -> TermPrior:
        """Prior of its scale and its length-scale."""
        ...

    @property
    def grid(self) -> Array | None:
        """Log length-scales of its nodes: (J,); None where its features are always the same."""
        ...

    def tabulate(self, rows: Rows) -> Array:
        """Features of N rows at every node: (J, N, m), or one node where they never change."""
        ...

    def left_out(self, rows: Rows, log_ell: Array) -> Array | float:
        """Share of the term's variance that its features leave out: (S, N)."""
        ...

    def within(self, log_ell: Array) -> "Term":
        """The same term with the nodes that these length-scales need."""
        ...

    def values(self, draws: TermDraws, rows: Rows) -> Array:
        """The term at N rows in every draw, completed: (S, N)."""
        ...

    def named(self, draws: TermDraws, expert_names: Sequence[str]) -> dict[str, Named]:
        """What users call the draws, and what diagnostics look at."""
        ...


def moving(terms: Sequence[Any]) -> Any:
    """Return the only term whose features depend on a length-scale, or None."""
    found = [term for term in terms if term.grid is not None]
    if len(found) > 1:
        raise NotImplementedError(
            f"One term may depend on a length-scale; got {[term.name for term in found]}. Closed "
            "forms of several such terms are still to be written."
        )
    return found[0] if found else None


def fixed_features(terms: Sequence[Term], rows: Rows) -> Array:
    """Features, side by side, of the terms that depend on no length-scale: (N, K)."""
    columns = [term.tabulate(rows)[0] for term in terms if term.grid is None]
    return np.ascontiguousarray(np.concatenate(columns, axis=1))


def split_fixed(
    terms: Sequence[Term], rows: Rows, coefficients: Array, scale: Array
) -> dict[str, TermDraws]:
    """Share the coefficients of `fixed_features` (S, K) out among their terms, by name.

    These terms have one scale in common.
    """
    named, first = {}, 0
    for term in terms:
        if term.grid is None:
            last = first + term.tabulate(rows).shape[2]
            named[term.name] = TermDraws(coefficients[:, first:last], scale)
            first = last
    return named


def priors_of(terms: Sequence[Term]) -> Priors:
    """Priors of the terms' hyperparameters, by their names."""
    by_name = {term.name: term.prior for term in terms}
    weights, residual = by_name["weights"], by_name.get("residual", TermPrior())
    return Priors(ell=residual.ell, omega=weights.scale, delta=residual.scale)
