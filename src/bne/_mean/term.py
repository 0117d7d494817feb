"""A term of the mean: the mean mu is a sum of Gaussian terms.

A term is ``scale * (a(row; ell)^T v + rest)`` with coefficients ``v ~ N(0, I)``. The features a of
the row may depend on a length-scale ell. The rest has the variance that the features leave out.
There are two terms, in `bne._mean.weights` and `bne._mean.residual`.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np

from bne._base.priors import InverseGamma, Priors
from bne._base.typing import Array
from bne._data.rows import Rows

UNUSED = InverseGamma(2.0, 1.0)
"""Prior of a length-scale on which no term depends. No likelihood sees it: any prior would do."""


class TermPrior(NamedTuple):
    """Prior of a term's hyperparameters.

    Attributes
    ----------
    scale : float
        Scale of the half-Normal prior of the term's scale.
    ell : InverseGamma
        Prior of the term's length-scale, if it has one.
    """

    scale: float = 1.0
    ell: InverseGamma = UNUSED


class TermDraws(NamedTuple):
    """Posterior draws of one term.

    Attributes
    ----------
    coefficients : (S, m)
        Coefficients of the features. Those of `Weights` are omega, those of `Residual` are v.
    scale : (S,)
        Scale of the term.
    log_ell : (S,) or None
        Log length-scale; None if the features depend on none.
    xi : (S,) or None
        Standard normal number that completes the draw at rows where the features leave out some of
        the variance; None if they leave out nothing.
    """

    coefficients: Array
    scale: Array
    log_ell: Array | None = None
    xi: Array | None = None


class Named(NamedTuple):
    """A quantity that users see: its value in each draw, and whether it has the unit of y."""

    values: Array
    in_units_of_y: bool = False


class Term(Protocol):
    """The interface of a Gaussian term of mu."""

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
        """Prior of the scale and the length-scale."""
        ...

    @property
    def grid(self) -> Array | None:
        """Log length-scales of the nodes: (J,); None if the features depend on no length-scale."""
        ...

    def tabulate(self, rows: Rows) -> Array:
        """Find the features of N rows at every node: (J, N, m); without a grid J = 1."""
        ...

    def left_out(self, rows: Rows, log_ell: Array) -> Array | float:
        """Find the share of the term's variance that its features leave out: (S, N)."""
        ...

    def within(self, log_ell: Array) -> "Term":
        """Return the same term with only the nodes that these length-scales need."""
        ...

    def values(self, draws: TermDraws, rows: Rows) -> Array:
        """Find the term at N rows in every draw, with the variance left out: (S, N)."""
        ...

    def named(self, draws: TermDraws, expert_names: Sequence[str]) -> dict[str, Named]:
        """Return the quantities that users see and that diagnostics check, by name."""
        ...


def moving(terms: Sequence[Any]) -> Any:
    """Return the only term whose features depend on a length-scale, or None."""
    found = [term for term in terms if term.grid is not None]
    if len(found) > 1:
        raise NotImplementedError(
            f"Only one term may depend on a length-scale; got {[term.name for term in found]}. "
            "Leave out all but one of them: closed forms for several are not written yet."
        )
    return found[0] if found else None


def fixed_features(terms: Sequence[Term], rows: Rows) -> Array:
    """Join the features of all terms that depend on no length-scale: (N, K)."""
    columns = [term.tabulate(rows)[0] for term in terms if term.grid is None]
    return np.ascontiguousarray(np.concatenate(columns, axis=1))


def split_fixed(
    terms: Sequence[Term], rows: Rows, coefficients: Array, scale: Array
) -> dict[str, TermDraws]:
    """Divide the coefficients (S, K) of `fixed_features` among their terms, by name.

    All these terms have the same scale.
    """
    named, first = {}, 0
    for term in terms:
        if term.grid is None:
            last = first + term.tabulate(rows).shape[2]
            named[term.name] = TermDraws(coefficients[:, first:last], scale)
            first = last
    return named


def priors_of(terms: Sequence[Term]) -> Priors:
    """Collect the priors of the terms' hyperparameters."""
    by_name = {term.name: term.prior for term in terms}
    weights, residual = by_name["weights"], by_name.get("residual", TermPrior())
    return Priors(ell=residual.ell, omega=weights.scale, delta=residual.scale)
