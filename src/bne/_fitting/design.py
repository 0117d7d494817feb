"""What is chosen before sampling, from all rows: the terms, their feature points and priors."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from bne._base.linalg import projection_coefficients
from bne._base.priors import fit_inverse_gamma, length_scale_grid
from bne._base.typing import Array
from bne._calibration.features import CalibrationFeatures, make_calibration
from bne._calibration.registry import construction
from bne._data.places import find_places
from bne._data.rows import Rows
from bne._mean.residual import Residual
from bne._mean.term import Term, TermPrior
from bne._mean.weights import Weights
from bne._process.features import make_feature_map
from bne._process.interpolation import N_NODES
from bne._process.kernels import KernelFunction
from bne._process.points import choose_points, spacing_and_range
from bne._process.relevance import fit_relevance

POINTS = 128
"""Feature points of delta where every row has inputs of its own."""

MOST_POINTS = 512
"""Feature points where many rows share theirs. Tables grow with the square of their number."""


class Choices(NamedTuple):
    """What the user chose of the model.

    Attributes
    ----------
    kernel : function or None
        Of delta; None leaves it out.
    calibration : str or None
        Construction of G; None leaves it out.
    orthogonalize, per_input : bool
        Keep delta clear of the experts; one length-scale for each input.
    feature_points : int or None
        How many feature points delta has; None lets `enough_points` decide.
    """

    kernel: KernelFunction | None = None
    calibration: str | None = None
    orthogonalize: bool = False
    per_input: bool = False
    feature_points: int | None = None


class Design(NamedTuple):
    """What is chosen before sampling, from all rows.

    Attributes
    ----------
    terms : list of Term
        The mean is their sum. Terms with a length-scale come last; "ensemble" has the others.
    features : CalibrationFeatures or None
        Features of h; None is G = I.
    """

    terms: Sequence[Term]
    features: CalibrationFeatures | None


def make_design(rows: Rows, y: Array, choices: Choices, seed: int, partitions: int = 1) -> Design:
    """Choose feature points, and priors from their spacing."""
    terms: list[Term] = [Weights()]
    relevance, has_residual = np.ones(rows.x.shape[1]), False
    if choices.kernel is not None and rows.x.shape[1] > 0:
        if choices.feature_points is None:
            alone = choices.orthogonalize
            places = len(rows.x) if alone else len(find_places(rows.x).first)
            enough = enough_points(len(rows.x) / partitions / places)
            choices = choices._replace(feature_points=enough)
        residual = make_residual(rows, y, choices, seed)
        relevance, has_residual = residual.feature_map.relevance, True
        terms.append(residual)
    features = None
    if choices.calibration is not None:
        G = construction(choices.calibration)
        features = make_calibration(G, rows.x, relevance, seed, has_residual)
    return Design(terms, features)


def enough_points(rows_a_place: float) -> int:
    """Choose as many feature points as cost about what the rows of a shard do."""
    return int(np.clip(POINTS * rows_a_place, POINTS, MOST_POINTS))


def make_residual(rows: Rows, y: Array, choices: Choices, seed: int) -> Residual:
    """Choose feature points, and the length-scale's prior from their spacing.

    With `orthogonalize`, delta is restricted to what the experts cannot express on these rows.
    """
    kernel, limit = choices.kernel, choices.feature_points
    assert kernel is not None and limit is not None
    d = rows.x.shape[1]
    per_input = choices.per_input and d > 1
    relevance = fit_relevance(kernel, *rows, y, seed) if per_input else np.ones(d)
    points = choose_points(kernel, rows.x * relevance, limit, seed) / relevance
    prior = TermPrior(ell=fit_inverse_gamma(*spacing_and_range(points * relevance)))
    grid = length_scale_grid(prior.ell, N_NODES)
    feature_map = make_feature_map(kernel, points, grid, relevance)
    if not choices.orthogonalize:
        return Residual(feature_map, None, prior)
    nodes = (feature_map.within(slice(j, j + 1)).tabulate(rows.x)[0] for j in range(N_NODES))
    overlap = np.stack([projection_coefficients(rows.f, A) for A in nodes])
    return Residual(feature_map, overlap, prior)
