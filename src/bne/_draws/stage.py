"""Posterior draws of a stage, with the terms and features that they belong to."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from bne._base.typing import Array
from bne._calibration.features import CalibrationFeatures
from bne._calibration.ratio import ROW_ELEMENTS
from bne._data.rows import Rows
from bne._draws.calibration import CalibrationDraws
from bne._mean.term import Named, Term, TermDraws, moving

PREDICTIVE_DRAWS = 1000
"""Answers are averaged over this many draws, evenly spaced among all; neighbours add little."""


class StageDraws(NamedTuple):
    """Posterior draws of one stage, chains joined: S = chains x draws.

    Attributes
    ----------
    terms : dict of TermDraws
        Draws of each term of the mean, by its name.
    sigma_eps : (S,)
    position : (chain, draw, dim)
        What the sampler moved.
    statistics : dict of (chain, draw)
    calibration : CalibrationDraws or None
        Draws of h; None is G = I.
    """

    terms: dict[str, TermDraws]
    sigma_eps: Array
    position: Array
    statistics: dict[str, Array]
    calibration: CalibrationDraws | None = None

    @property
    def omega(self) -> Array:
        """Weights of the experts: (S, K)."""
        return self.terms["weights"].coefficients

    @property
    def size(self) -> int:
        """Number of draws S."""
        return len(self.sigma_eps)

    def by_chain(self, values: Array) -> Array:
        """Reshape (S, ...) to (chain, draw, ...)."""
        return values.reshape(*self.position.shape[:2], *values.shape[1:])


class Stage(NamedTuple):
    """Draws of one stage with what they belong to: the posterior of F(y | x) anywhere.

    Attributes
    ----------
    draws : StageDraws
    terms : list of Term
        The mean is their sum.
    features : CalibrationFeatures or None
        Features of h; None is G = I.
    """

    draws: StageDraws
    terms: Sequence[Term]
    features: CalibrationFeatures | None = None

    @property
    def residual(self) -> Any:
        """The residual process, or None where the stage has none."""
        return moving(self.terms)

    @property
    def row_elements(self) -> int:
        """Numbers that one draw takes at one row; chunks of rows are made by it."""
        return 1 if self.features is None else ROW_ELEMENTS

    def mu(self, rows: Rows) -> Array:
        """Draws of mu at N rows: (S, N)."""
        return np.sum([self.value(term.name, rows) for term in self.terms], axis=0)

    def value(self, name: str, rows: Rows) -> Array:
        """Draws of one term of mu at N rows: (S, N); zeros where the stage does not have it."""
        for term in self.terms:
            if term.name == name:
                return term.values(self.draws.terms[name], rows)
        return np.zeros((self.draws.size, len(rows.f)))

    def thinned(self, limit: int = PREDICTIVE_DRAWS) -> "Stage":
        """The stage with at most `limit` draws, ready to be asked at many rows."""
        S = self.draws.size
        kept = np.linspace(0, S - 1, min(S, limit)).round().astype(int)
        fields = self.draws._asdict()
        shared = {k: fields.pop(k) for k in ("position", "statistics")}
        draws = StageDraws(**jax.tree.map(lambda a: a[kept], fields), **shared)
        terms = [_within(term, draws.terms[term.name].log_ell) for term in self.terms]
        features = self.features
        if features is not None and draws.calibration is not None:
            features = features.within(draws.calibration.log_ell_x)
            draws = draws._replace(calibration=draws.calibration.prepared(features))
        return Stage(draws, terms, features)

    def as_sampled(self) -> "Stage":
        """The stage as its likelihood saw it at the training rows: nothing is completed."""
        draws, calibration = self.draws, self.draws.calibration
        terms = {name: _not_completed(term) for name, term in draws.terms.items()}
        if calibration is not None:
            calibration = _not_completed(calibration)
        return self._replace(draws=draws._replace(terms=terms, calibration=calibration))

    def named(self, expert_names: Sequence[str]) -> dict[str, Named]:
        """Weights and hyperparameters by the names that users know, S values each."""
        draws, calibration = self.draws, self.draws.calibration
        first, *others = [t.named(draws.terms[t.name], expert_names) for t in self.terms]
        named = first | {"noise_scale": Named(draws.sigma_eps, in_units_of_y=True)}
        for quantities in others:
            named |= quantities
        return named if calibration is None else named | calibration.named()

    def quantities(self, expert_names: Sequence[str]) -> dict[str, Array]:
        """Draws of weights and hyperparameters that move, by name: (chain, draw) each."""
        named = {name: one.values for name, one in self.named(expert_names).items()}
        held = self.draws.calibration is not None and np.ptp(named["calibration_scale"]) == 0
        if held:  # one construction of G holds its amplitude
            del named["calibration_scale"]
        return {name: self.draws.by_chain(values) for name, values in named.items()}


def _within(term: Term, log_ell: Array | None) -> Term:
    return term if log_ell is None else term.within(log_ell)


def _not_completed(draws: Any) -> Any:
    """Draws whose completing numbers are 0."""
    return draws if draws.xi is None else draws._replace(xi=np.zeros_like(draws.xi))
