"""The design of a model: its terms, their feature points and priors, chosen from all rows.

It is fixed before sampling begins.
"""

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
"""Number of feature points of delta if every row has its own inputs.

The cost of a gradient grows with this number times the number of rows. More points let delta vary
over shorter distances.
"""

MOST_POINTS = 512
"""Largest default number of feature points, used if many rows share their inputs.

There more points cost little in a gradient and make predictions better (docs/lab/scaling.md). But
the Gram tables grow with the square of this number.
"""


class Choices(NamedTuple):
    """The user's choices about the model.

    Attributes
    ----------
    kernel : function or None
        Kernel of delta; None leaves delta out.
    calibration : str or None
        Name of the construction of G; None leaves G out.
    orthogonalize : bool
        Whether delta is made orthogonal to the experts on the training rows.
    per_input : bool
        Whether each input has its own length-scale.
    feature_points : int or None
        Number of feature points of delta; if None, `enough_points` chooses it.
    """

    kernel: KernelFunction | None = None
    calibration: str | None = None
    orthogonalize: bool = False
    per_input: bool = False
    feature_points: int | None = None


class Design(NamedTuple):
    """The design of a model.

    Attributes
    ----------
    terms : list of Term
        The terms of the mean, which is their sum. Terms with a length-scale come last. The stage
        "ensemble" has only the others.
    features : CalibrationFeatures or None
        Features of the process behind G; None if G = I.
    """

    terms: Sequence[Term]
    features: CalibrationFeatures | None


def make_design(rows: Rows, y: Array, choices: Choices, seed: int, partitions: int = 1) -> Design:
    """Choose the terms, the feature points, and the priors that follow from their spacing."""
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
    """Choose the number of feature points.

    It grows with the number of rows at each place, so that the features at the places cost about as
    much as the rows.
    """
    return int(np.clip(POINTS * rows_a_place, POINTS, MOST_POINTS))


def make_residual(rows: Rows, y: Array, choices: Choices, seed: int) -> Residual:
    """Choose the feature points of delta, and the prior of its length-scale from their spacing.

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
