"""The data that the log density of the full stage reads: padded, tabulated and weighted.

In this file F is the matrix of the experts' predictions at the training rows, and not a CDF.
"""

from functools import partial
from typing import Any, NamedTuple

import jax
import numpy as np
from scipy.spatial import cKDTree

from bne._base.priors import InverseGamma, Priors
from bne._base.typing import Array
from bne._calibration.construction import Construction
from bne._calibration.features import (
    CALIBRATION_POINTS,
    COORDINATE_ROWS,
    CalibrationFeatures,
    products_in_t,
)
from bne._fitting.axes import expert_axes, without_experts
from bne._fitting.training import Training
from bne._process.interpolation import N_NODES, interpolate


class FullHyperparameters(NamedTuple):
    """Logarithms of the hyperparameters of the full stage.

    `eta` stands in place of log sigma_eps: it is the log standard deviation of y, averaged over the
    training rows.
    """

    log_sigma_omega: Any
    log_sigma_delta: Any
    log_sigma_G: Any
    eta: Any
    log_ell: Any
    log_ell_x: Any
    log_ell_t: Any


class FullPriors(NamedTuple):
    """Priors of the full stage.

    Attributes
    ----------
    gaussian : Priors
        Priors that the Gaussian stages share.
    ell_x, ell_t : InverseGamma
        Priors of the length-scales of the process behind G, in x and in t.
    amplitude : float
        Scale of the half-Normal prior of the amplitude sigma_G. A smaller scale would pull
        G towards the identity; skewed data ask for amplitudes of 2 and more.
    """

    gaussian: Priors
    ell_x: InverseGamma
    ell_t: InverseGamma
    amplitude: float = 1.5


class FullData(NamedTuple):
    """All quantities that the log density reads.

    Arrays are padded: rows to n, places to U, features to m and m_G. A table has a node for each of
    J length-scales, or one node if the length-scale is held. If few rows share their inputs, each
    row is a place.

    Attributes
    ----------
    y, mask : (n,)
        Outcomes; and a mask that is 1 for real rows and 0 for padding.
    place : (n,) or None
        Place of each row; None if each row is a place.
    counts : (U,)
        Number of rows at each place.
    power : float
        Power to which the likelihood is raised.
    pinned : (7,)
        Values of hyperparameters that are held; NaN for those that are sampled. The entry of eta
        holds log sigma_eps.
    evidence, grid_eta : (J,)
        A function of eta that is added to the log density: its values, and the nodes of eta.
    F : (n, K)
        The experts' predictions.
    weights : (n,)
        Relative precision of the rows, times `power`, which the maps use; 0 for padding.
    A : (J, U, m)
        Principal features of delta.
    gram : (J, m)
        Weighted squares of these features without what the experts can express.
    cross : (J, m, K)
        Weighted products of these features with E.
    E, s, axes : (n, K), (K,), (K, K)
        Axes of the experts: ``F axes = E sqrt(s)``. The columns of E are orthonormal in the
        weighted product (`expert_axes`).
    grid : (J,)
        Log length-scales of delta at the nodes.
    A_G : (J, U, m_G)
        Features in x of the process behind G.
    gram_x, sum_x : (J, m_G)
        Squares of these features, and the features themselves, summed over rows.
    grid_x : (J,)
        Log length-scales in x at the nodes.
    roots : (J, M, P)
        Roots T of the process behind G, in t.
    gram_t, bend_t : (J, P)
        Squares of the basis b(t), and its products with the offset, integrated under phi.
    grid_t : (J,)
        Log length-scales in t at the nodes.
    virtual : (J, V, m_G)
        Features in x at their own points, where a construction may set constraints.
    priors : FullPriors
    construction : Construction
    """

    y: Any
    mask: Any
    place: Any
    counts: Any
    power: Any
    pinned: Any
    evidence: Any
    grid_eta: Any
    F: Any
    weights: Any
    A: Any
    gram: Any
    cross: Any
    E: Any
    s: Any
    axes: Any
    grid: Any
    A_G: Any
    gram_x: Any
    sum_x: Any
    grid_x: Any
    roots: Any
    gram_t: Any
    bend_t: Any
    grid_t: Any
    virtual: Any
    priors: FullPriors
    construction: Construction

    def at_rows(self, values: Any) -> Any:
        """Look up values (U, ...) of the places for every row: (n, ...)."""
        return values if self.place is None else values[self.place]

    def at_places(self, values: Any) -> Any:
        """Sum values (n,) of the rows over each place: (U,)."""
        if self.place is None:
            return values
        return jax.ops.segment_sum(values, self.place, num_segments=len(self.counts))


def sizes(data: FullData) -> tuple[int, int, int, int]:
    """Count experts (K), features of delta (m), and features of h in x (m_G) and in t (P)."""
    return data.F.shape[1], data.A.shape[2], data.A_G.shape[2], data.roots.shape[2]


def dimension(data: FullData) -> int:
    """Return the length of a position of the sampler."""
    K, m, m_G, P = sizes(data)
    return len(FullHyperparameters._fields) + K + m + m_G * P


ROUGHLY = 100_000
"""A neighbourhood in `row_weights` holds sqrt(n) of the n rows, and no more than for this n.

Larger neighbourhoods take longer to find, and only the sampler's coordinates depend on them.
"""

ROW_BUCKETS = np.round(64 * 2 ** np.append(np.arange(8) / 2, np.arange(64, 384) / 16)).astype(int)
"""Numbers of rows to which data are padded, so that similar data sets share a compiled program.

The smallest are a factor of 1.41 apart. Beyond a thousand rows they are 5% apart, because there
padded rows cost more time than another compilation.
"""


def row_weights(x: Array, resid: Array) -> Array:
    """Estimate the relative precision of the rows roughly: (n,).

    It is the inverse of the mean squared residual among the nearest rows. Only the sampler's
    coordinates depend on it. Its geometric mean is 1, because eta is an average of log
    standard deviations over rows.
    """
    k = int(np.ceil(np.sqrt(min(len(resid), ROUGHLY))))
    if x.shape[1] == 0 or k < 3:
        return np.ones(len(resid))
    tree, square = cKDTree(x), resid**2
    parts = np.array_split(x, -(-len(x) // COORDINATE_ROWS))
    local = np.concatenate([np.mean(square[tree.query(p, k=k)[1]], axis=1) for p in parts])
    # this bounds the weight of a neighbourhood without residuals; there may be none at all
    least = max(1e-3 * np.mean(square), np.finfo(np.float64).tiny)
    log_variance = np.log(local + least)
    return np.exp(np.mean(log_variance) - log_variance)


def build_data(
    data: Training,
    features: CalibrationFeatures,
    table_G: Array,
    weights: Array,
    pinned: Array | None = None,
    evidence: tuple[Array, Array] | None = None,
) -> FullData:
    """Pad and assemble the data of the log density.

    Parameters
    ----------
    table_G : (J, U, m_G)
        Features of h at the places.
    weights : (n,)
        Relative precision of the rows.
    pinned : (7,) or None
        Values of hyperparameters that are held, NaN for the others; None holds none.
    evidence : pair of (J,) or None
        Nodes of eta, and the values that are added to the log density there; None adds nothing.
    """
    free = np.full(len(FullHyperparameters._fields), np.nan)
    held = FullHyperparameters(*(free if pinned is None else pinned))
    counts = data.places.sums(np.ones(len(data.y)))
    grid_eta, evidence_eta = evidence or (np.arange(float(N_NODES)), np.zeros(N_NODES))
    parts = _rows_part(data, counts, data.power * weights, held)
    parts |= _calibration_part(features, table_G, counts, data.power, held)
    return FullData(
        power=data.power,
        pinned=np.array(held),
        evidence=evidence_eta,
        grid_eta=grid_eta,
        priors=FullPriors(data.priors, features.ell_x, features.basis.prior),
        construction=features.construction,
        **parts,
    )


def _rows_part(
    data: Training, counts: Array, weights: Array, held: FullHyperparameters
) -> dict[str, Any]:
    """Make the fields of `FullData` that belong to the rows and the terms of the mean."""
    table = _at_held(data.table, held.log_ell, data.grid)
    n, n_places = _bucket(len(data.y)), _bucket(len(counts))
    m = max(1, 32 * -(-table.shape[2] // 32))  # without delta one idle coordinate
    pad = partial(_pad, axis=0, n=n)
    E, s, axes = expert_axes(data.F, weights)
    gram = np.sum(without_experts(table, E, weights, data.places) ** 2, axis=1)
    cross = table.transpose(0, 2, 1) @ data.places.sums(weights[:, None] * E)
    return {
        "y": pad(data.y),
        "mask": pad(np.ones(len(data.y))),
        "place": pad(data.places.of_row) if data.places.shared else None,
        "counts": _pad(counts, 0, n_places),
        "F": pad(data.F),
        "weights": pad(weights),
        "A": _pad(_pad(table, 1, n_places), 2, m),
        "gram": _pad(gram, 1, m),
        "cross": _pad(cross, 1, m),
        "E": pad(E),
        "s": s,
        "axes": axes,
        "grid": data.grid,
    }


def _calibration_part(
    features: CalibrationFeatures,
    table_G: Array,
    counts: Array,
    power: float,
    held: FullHyperparameters,
) -> dict[str, Any]:
    """Make the fields of `FullData` that belong to G."""
    table_G, virtual = (
        _at_held(a, held.log_ell_x, features.grid_x) for a in (table_G, features.virtual())
    )
    basis = features.basis
    basis = basis._replace(roots=_at_held(basis.roots, held.log_ell_t, basis.log_ell))
    m_G = CALIBRATION_POINTS if features.feature_map else 1
    gram_t, bend_t = products_in_t(features.construction, basis)
    return {
        "A_G": _pad(_pad(table_G, 1, _bucket(len(counts))), 2, m_G),
        "gram_x": _pad(power * np.sum(counts[:, None] * table_G**2, axis=1), 1, m_G),
        "sum_x": _pad(power * np.sum(counts[:, None] * table_G, axis=1), 1, m_G),
        "grid_x": features.grid_x,
        "roots": basis.roots,
        "gram_t": gram_t,
        "bend_t": bend_t,
        "grid_t": basis.log_ell,
        "virtual": _pad(_pad(virtual, 1, m_G), 2, m_G),
    }


def _bucket(n: int) -> int:
    """Return the number of rows to which n rows are padded."""
    return int(ROW_BUCKETS[np.searchsorted(ROW_BUCKETS, n)])


def _at_held(table: Array, log_ell: float, grid: Array) -> Array:
    """Reduce a table (J, ...) to one node if its length-scale is held.

    The table of a length-scale that is sampled (NaN) is returned as it is.
    """
    return table if np.isnan(log_ell) else interpolate(table, log_ell, grid)[None]


def _pad(a: Any, axis: int, n: int) -> Any:
    widths = [(0, n - a.shape[axis]) if i == axis else (0, 0) for i in range(a.ndim)]
    return np.pad(a, widths)
