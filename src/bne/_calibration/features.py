"""Features of the process behind G: in x from feature points, in t from the construction."""

from typing import NamedTuple

import numpy as np

from bne._base.priors import InverseGamma, fit_inverse_gamma, length_scale_grid
from bne._base.typing import Array
from bne._calibration.base_law import quadrature
from bne._calibration.construction import Basis, Construction, cosines
from bne._process.features import FeatureMap, make_feature_map
from bne._process.interpolation import N_NODES, interpolation, nodes_between
from bne._process.kernels import resolve_kernel
from bne._process.points import choose_points, spacing_and_range
from bne._process.rotations import principal_rotations

CALIBRATION_POINTS = 32
"""Number of feature points of the process behind G in x.

Each point has about 14 coefficients, so more points cost much time; fewer let G vary less with x.
"""

COORDINATE_ROWS = 50_000
"""Largest number of rows on which the features are made orthogonal.

The features of more rows would take too much memory at once, and only coordinates depend on them.
"""


class CalibrationFeatures(NamedTuple):
    """Features of the process behind G, in x and in t.

    Attributes
    ----------
    feature_map : FeatureMap or None
        Features in x; None if there are no inputs, so that G is the same everywhere.
    ell_x : InverseGamma
        Prior of the length-scale in x.
    basis : Basis
        Basis in t.
    construction : Construction
        The construction of G.
    """

    feature_map: FeatureMap | None
    ell_x: InverseGamma
    basis: Basis
    construction: Construction

    @property
    def n_points(self) -> int:
        """Number of features in x."""
        return 1 if self.feature_map is None else len(self.feature_map.points)

    @property
    def grid_x(self) -> Array:
        """Log length-scales in x at the nodes: (J,)."""
        if self.feature_map is None:
            return length_scale_grid(self.ell_x, N_NODES)
        return self.feature_map.log_ell

    def tabulate(self, x: Array) -> Array:
        """Find the features of N rows at every node: (J, N, m_G)."""
        if self.feature_map is None:
            return np.ones((N_NODES, len(x), 1))
        return self.feature_map.tabulate(x)

    def within(self, log_ell_x: Array) -> "CalibrationFeatures":
        """Keep only the nodes that these length-scales in x need."""
        if self.feature_map is None:
            return self
        nodes = nodes_between(log_ell_x, self.grid_x)
        return self._replace(feature_map=self.feature_map.within(nodes))

    def virtual(self) -> Array:
        """Find the features at their own points, at every node: (J, m_G, m_G)."""
        if self.feature_map is None:
            return np.ones((N_NODES, 1, 1))
        return self.feature_map.tabulate(self.feature_map.points)


def make_calibration(
    construction: Construction, x: Array, relevance: Array, seed: int, has_residual: bool
) -> CalibrationFeatures:
    """Choose the feature points in x, and the prior of the length-scale from their spacing."""
    basis = construction.make_basis(has_residual)
    if x.shape[1] == 0:
        return CalibrationFeatures(None, InverseGamma(2.0, 1.0), basis, construction)
    kernel = resolve_kernel("matern32")
    points = choose_points(kernel, x * relevance, CALIBRATION_POINTS, seed) / relevance
    ell_x = fit_inverse_gamma(*spacing_and_range(points * relevance))
    grid = length_scale_grid(ell_x, N_NODES)
    feature_map = make_feature_map(kernel, points, grid, relevance)
    some = x[np.linspace(0, len(x) - 1, min(len(x), COORDINATE_ROWS)).round().astype(int)]
    rotations = principal_rotations(feature_map.tabulate(some), N_NODES // 2)
    return CalibrationFeatures(
        feature_map._replace(rotations=rotations), ell_x, basis, construction
    )


def products_in_t(construction: Construction, basis: Basis) -> tuple[Array, Array]:
    """Integrate the squares of b(t), and its products with the offset, under phi: (J, P) each.

    The offset is that at sigma_G = 1.
    """
    t, weights = quadrature()
    b = cosines(construction, t) @ basis.roots
    offset = construction.offset(b, 1.0)
    return weights[0] @ b**2, np.einsum("q,jq,jqp->jp", weights[0], offset, b)


def roots_at(basis: Basis, log_ell_t: Array) -> Array:
    """Find the roots T in every draw: (S, M, P)."""
    first, weights = interpolation(log_ell_t, basis.log_ell)
    return np.einsum("sj,sjmp->smp", weights, basis.roots[first[:, None] + np.arange(4)])
