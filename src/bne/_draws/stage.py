"""Posterior draws of a stage, with the terms and features to which they belong."""

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
"""Answers are averaged over at most this many draws, evenly spaced among all.

Neighbouring draws of a chain are alike, so that more of them add little but time and memory.
"""


class StageDraws(NamedTuple):
    """Posterior draws of one stage. The chains are joined: S = chains x draws.

    Attributes
    ----------
    terms : dict of str to TermDraws
        Draws of each term of the mean, by its name.
    sigma_eps : (S,)
        Noise scale.
    position : (chain, draw, dim)
        The coordinates that the sampler moved.
    statistics : dict of str to (chain, draw)
        Statistics of the sampler, by name.
    calibration : CalibrationDraws or None
        Draws of the process behind G; None if G = I.
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
        """Reshape values of shape (S, ...) to (chain, draw, ...)."""
        return values.reshape(*self.position.shape[:2], *values.shape[1:])


class Stage(NamedTuple):
    """Draws of one stage, and all that is needed to find F(y | x) at any row from them.

    Attributes
    ----------
    draws : StageDraws
        The posterior draws.
    terms : list of Term
        The terms of the mean, which is their sum.
    features : CalibrationFeatures or None
        Features of the process behind G; None if G = I.
    """

    draws: StageDraws
    terms: Sequence[Term]
    features: CalibrationFeatures | None = None

    @property
    def residual(self) -> Any:
        """The residual process, or None if the stage has none."""
        return moving(self.terms)

    @property
    def row_elements(self) -> int:
        """Memory of one draw at one row, in numbers; it decides how many rows make a chunk."""
        return 1 if self.features is None else ROW_ELEMENTS

    def mu(self, rows: Rows) -> Array:
        """Find mu at N rows in every draw: (S, N)."""
        return np.sum([self.value(term.name, rows) for term in self.terms], axis=0)

    def value(self, name: str, rows: Rows) -> Array:
        """Find a term of mu at N rows in every draw: (S, N); zeros if the stage lacks it."""
        for term in self.terms:
            if term.name == name:
                return term.values(self.draws.terms[name], rows)
        return np.zeros((self.draws.size, len(rows.f)))

    def thinned(self, limit: int = PREDICTIVE_DRAWS) -> "Stage":
        """Keep at most `limit` evenly spaced draws, and prepare them for answers at many rows."""
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
        """Return the stage as its likelihood saw it: no draw is completed.

        The variance that the features leave out is no part of the likelihood that was sampled.
        """
        draws, calibration = self.draws, self.draws.calibration
        terms = {name: _not_completed(term) for name, term in draws.terms.items()}
        if calibration is not None:
            calibration = _not_completed(calibration)
        return self._replace(draws=draws._replace(terms=terms, calibration=calibration))

    def named(self, expert_names: Sequence[str]) -> dict[str, Named]:
        """Return weights and hyperparameters by the names that users see, S values each."""
        draws, calibration = self.draws, self.draws.calibration
        first, *others = [t.named(draws.terms[t.name], expert_names) for t in self.terms]
        named = first | {"noise_scale": Named(draws.sigma_eps, in_units_of_y=True)}
        for quantities in others:
            named |= quantities
        return named if calibration is None else named | calibration.named()

    def quantities(self, expert_names: Sequence[str]) -> dict[str, Array]:
        """Return the weights and hyperparameters that were sampled, by name: (chain, draw) each."""
        named = {name: one.values for name, one in self.named(expert_names).items()}
        held = self.draws.calibration is not None and np.ptp(named["calibration_scale"]) == 0
        if held:  # the construction "cgp" holds its amplitude fixed
            del named["calibration_scale"]
        return {name: self.draws.by_chain(values) for name, values in named.items()}


def _within(term: Term, log_ell: Array | None) -> Term:
    return term if log_ell is None else term.within(log_ell)


def _not_completed(draws: Any) -> Any:
    """Set the numbers that complete the draws to 0."""
    return draws if draws.xi is None else draws._replace(xi=np.zeros_like(draws.xi))
