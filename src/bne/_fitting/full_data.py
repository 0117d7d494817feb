"""The data of the full density: padded, tabulated, and weighted."""

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
    """Logarithms of the hyperparameters; `eta` in place of log sigma_eps."""

    log_sigma_omega: Any
    log_sigma_delta: Any
    log_sigma_G: Any
    eta: Any
    log_ell: Any
    log_ell_x: Any
    log_ell_t: Any


class FullPriors(NamedTuple):
    """Priors of the Gaussian stages, and of h: a half-Normal amplitude, two length-scales."""

    gaussian: Priors
    ell_x: InverseGamma
    ell_t: InverseGamma
    amplitude: float = 1.5


class FullData(NamedTuple):
    """Everything the log density reads, padded: rows to n, places to U, features to m and m_G.

    Tables have a node for each of J length-scales, or one where the length-scale is held. Where
    few rows share their inputs, places are the rows.

    Attributes
    ----------
    y, mask : (n,); F : (n, K)
    place : (n,) or None
        The place of each row; None where places are the rows.
    counts : (U,)
        Rows at each place.
    power : float
        To which the likelihood is raised.
    pinned : (7,)
        Hyperparameters that are held where this is a number; in place of eta, log sigma_eps.
    evidence, grid_eta : (J,)
        Added to the log density, at nodes of eta.
    weights : (n,)
        Relative precision of the rows in the maps, times `power`; 0 where padded.
    A : (J, U, m)
        Principal features of delta; ``gram`` (J, m) their weighted squares clear of the experts,
        ``cross`` (J, m, K) their weighted products with ``E``; ``grid`` (J,) log length-scales.
    E : (n, K), s : (K,), U : (K, K)
        ``F U = E sqrt(s)``, the columns of E orthonormal in the weighted product (`expert_axes`).
    A_G : (J, U, m_G)
        Features of h in x; ``gram_x`` and ``sum_x`` (J, m_G) their squares and sums over rows;
        ``grid_x`` (J,).
    roots : (J, M, P)
        Of h in t; ``gram_t`` and ``bend_t`` (J, P) the squares of b(t) and its products with the
        offset under N(0, 1); ``grid_t`` (J,).
    virtual : (J, V, m_G)
        Features of h at its own points, where a construction may set conditions.
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
    U: Any
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
        """Values at the places (U, ...), row by row: (n, ...)."""
        return values if self.place is None else values[self.place]

    def at_places(self, values: Any) -> Any:
        """Sums of values at the rows (n,) over each place: (U,)."""
        if self.place is None:
            return values
        return jax.ops.segment_sum(values, self.place, num_segments=len(self.counts))


def sizes(data: FullData) -> tuple[int, int, int, int]:
    """Experts, features of delta, features of h in x, coefficients of h in t."""
    return data.F.shape[1], data.A.shape[2], data.A_G.shape[2], data.roots.shape[2]


def dimension(data: FullData) -> int:
    """Length of a position."""
    K, m, m_G, P = sizes(data)
    return len(FullHyperparameters._fields) + K + m + m_G * P


ROUGHLY = 100_000
"""Neighbourhoods hold the root of the number of rows, up to this number."""

ROW_BUCKETS = np.round(64 * 2 ** np.append(np.arange(8) / 2, np.arange(64, 384) / 16)).astype(int)
"""Rows are padded to the next of these: data sets of nearby sizes share one compiled program.
Beyond a thousand rows idle ones cost more than a compilation, and there are at most 5% of them."""


def row_weights(x: Array, resid: Array) -> Array:
    """Rough relative precision of the rows: a neighbourhood's mean squared residual, inverted.

    Only the sampler's coordinates depend on it. Its geometric mean is 1, as eta's definition asks.
    """
    k = int(np.ceil(np.sqrt(min(len(resid), ROUGHLY))))
    if x.shape[1] == 0 or k < 3:
        return np.ones(len(resid))
    tree, square = cKDTree(x), resid**2
    parts = np.array_split(x, -(-len(x) // COORDINATE_ROWS))
    local = np.concatenate([np.mean(square[tree.query(p, k=k)[1]], axis=1) for p in parts])
    log_variance = np.log(local + 1e-3 * np.mean(square))
    return np.exp(np.mean(log_variance) - log_variance)


def build_data(
    data: Training,
    features: CalibrationFeatures,
    table_G: Array,
    weights: Array,
    pinned: Array | None = None,
    evidence: tuple[Array, Array] | None = None,
) -> FullData:
    """Pad and assemble the data of the log density; the fields are those of `FullData`.

    Parameters
    ----------
    table_G : (J, U, m_G)
        Features of h at the places.
    weights : (n,)
        Relative precision of the rows.
    pinned : (7,)
        Hyperparameters that are held where this is a number.
    evidence : pair of (J,)
        Nodes of eta, and what is added to the log density there.
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
    """Fields of `FullData` that the rows and the terms of the mean fill."""
    table = _at_held(data.table, held.log_ell, data.grid)
    n, n_places = _bucket(len(data.y)), _bucket(len(counts))
    m = max(1, 32 * -(-table.shape[2] // 32))  # without delta one idle coordinate
    pad = partial(_pad, axis=0, n=n)
    E, s, U = expert_axes(data.F, weights)
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
        "U": U,
        "grid": data.grid,
    }


def _calibration_part(
    features: CalibrationFeatures,
    table_G: Array,
    counts: Array,
    power: float,
    held: FullHyperparameters,
) -> dict[str, Any]:
    """Fields of `FullData` that G fills."""
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
    """Number of rows that n rows are padded to."""
    return int(ROW_BUCKETS[np.searchsorted(ROW_BUCKETS, n)])


def _at_held(table: Array, log_ell: float, grid: Array) -> Array:
    """A table (J, ...) at a length-scale that is held, its only node; as it is at a free one."""
    return table if np.isnan(log_ell) else interpolate(table, log_ell, grid)[None]


def _pad(a: Any, axis: int, n: int) -> Any:
    widths = [(0, n - a.shape[axis]) if i == axis else (0, 0) for i in range(a.ndim)]
    return np.pad(a, widths)
