"""The residual process delta: a Gaussian process that corrects what all experts get wrong."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from bne._base.typing import Array
from bne._data.places import Places, every_row, find_places
from bne._data.rows import Rows
from bne._mean.term import Named, TermDraws, TermPrior
from bne._process.features import FeatureMap, missing_variance, process_draws
from bne._process.interpolation import nodes_between


class Residual(NamedTuple):
    """The process delta, the second term of the mean (Eq. 2); its methods are those of `Term`.

    The coefficients v of its draws are whitened: ``delta = sigma_delta a(x; ell)^T v``.

    Attributes
    ----------
    feature_map : FeatureMap
        The features a(x; ell).
    overlap : (J, K, m) array or None
        Least-squares coefficients of the features on the experts at the training rows, at every
        node. With ``orthogonalize=True`` this part is subtracted from the features, so that delta
        is orthogonal to the experts there. None if delta is not orthogonalised.
    prior : TermPrior
        Prior of the scale and the length-scale.
    """

    feature_map: FeatureMap
    overlap: Array | None
    prior: TermPrior = TermPrior()

    @property
    def name(self) -> str:
        """Name of the term among the draws of a stage."""
        return "residual"

    @property
    def part(self) -> str:
        """Name of the term's part in decompositions."""
        return "structural_delta"

    @property
    def grid(self) -> Array:
        """Log length-scales of the nodes."""
        return self.feature_map.log_ell

    def rotated(self, rotations: Array) -> "Residual":
        """Return the same process in rotated features (`principal_rotations`)."""
        overlap = None if self.overlap is None else self.overlap @ rotations
        feature_map = self.feature_map._replace(rotations=rotations)
        return self._replace(feature_map=feature_map, overlap=overlap)

    def within(self, log_ell: Array) -> "Residual":
        """Return the same process with only the nodes that these length-scales need."""
        nodes = nodes_between(log_ell, self.grid)
        overlap = None if self.overlap is None else self.overlap[nodes]
        return self._replace(feature_map=self.feature_map.within(nodes), overlap=overlap)

    def tabulate(self, rows: Rows) -> Array:
        """Find the features of N rows at every node: (J, N, m)."""
        return self._clear(self.feature_map.tabulate(rows.x), rows)

    def _clear(self, table: Array, rows: Rows) -> Array:
        """Subtract from the features what the experts can express, with `orthogonalize` only."""
        return table if self.overlap is None else table - rows.f @ self.overlap

    def left_out(self, rows: Rows, log_ell: Array) -> Array:
        """Find the share of the prior variance that the features leave out: (S, N)."""
        return missing_variance(self.feature_map.tabulate(rows.x), self.grid, log_ell)

    def values(self, draws: TermDraws, rows: Rows) -> Array:
        """Find delta at N rows in every draw, completed with the variance left out: (S, N)."""
        assert draws.log_ell is not None and draws.xi is not None
        table = self.feature_map.tabulate(rows.x)
        clear = self._clear(table, rows)
        explained = process_draws(clear, self.grid, draws.log_ell, draws.coefficients)
        missing = np.sqrt(missing_variance(table, self.grid, draws.log_ell))
        return draws.scale[:, None] * (explained + missing * draws.xi[:, None])

    def named(self, draws: TermDraws, expert_names: Sequence[str]) -> dict[str, Named]:
        """Return the scale and the length-scale by the names that users see."""
        del expert_names
        assert draws.log_ell is not None
        return {
            "residual_scale": Named(draws.scale, in_units_of_y=True),
            "length_scale": Named(np.exp(draws.log_ell)),
        }


def places_of(rows: Rows, residual: Residual | None) -> Places:
    """Find the places: rows that delta and G cannot tell apart.

    An orthogonalised delta depends on the experts' predictions, too. Then each row is a place.
    """
    if residual is not None and residual.overlap is not None:
        return every_row(len(rows.f))
    return find_places(rows.x)
