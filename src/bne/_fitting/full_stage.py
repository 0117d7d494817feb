"""The joint posterior of the full stage: build its data, sample, and unpack the draws."""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from scipy.spatial import cKDTree

from bne._base.priors import InverseGamma, Priors, fit_inverse_gamma, length_scale_grid
from bne._base.typing import Array
from bne._calibration.cgp import ConstrainedGP
from bne._calibration.construction import Basis, Construction, cosines, quadrature
from bne._calibration.logistic import Logistic
from bne._calibration.ratio import Ratio, make_ratio
from bne._data.places import Places, every_row
from bne._fitting.full_density import (
    FullData,
    FullHyperparameters,
    FullPriors,
    dimension,
    log_density,
    transform,
)
from bne._mean.axes import expert_axes, without_experts
from bne._process.kernels import (
    N_NODES,
    FeatureMap,
    choose_points,
    interpolate,
    interpolation,
    make_feature_map,
    missing_variance,
    nodes_between,
    principal_rotations,
    process_draws,
    resolve_kernel,
    spacing_and_range,
)
from bne._sampler.checkpoint import NO_CHECKPOINT, Checkpoint
from bne._sampler.hmc import FULL, Draws, Reach, SamplerSettings, sample

CONSTRUCTIONS: dict[str, Construction] = {"logistic": Logistic(), "cgp": ConstrainedGP()}

SHORT = Reach(3.0, 128)
"""Of trajectories where all hyperparameters are held: they are what long ones are for."""

CALIBRATION_POINTS = 32
"""Feature points of h in x: G varies slowly with x, and each point carries 16 coefficients."""

COORDINATE_ROWS = 50_000
"""Rows at the most that h's features are made orthogonal on: those of all are not held at once."""

ROUGHLY = 100_000
"""Neighbourhoods hold the root of the number of rows, up to this number."""

ROW_BUCKETS = np.round(64 * 2 ** np.append(np.arange(8) / 2, np.arange(64, 384) / 16)).astype(int)
"""Rows are padded to the next of these: data sets of nearby sizes share one compiled program.
Beyond a thousand rows idle ones cost more than a compilation, and there are at most 5% of them."""


class CalibrationFeatures(NamedTuple):
    """Features of h in x; without inputs h is the same everywhere.

    Attributes
    ----------
    feature_map : FeatureMap or None
    ell_x : InverseGamma
    basis : Basis
    construction : Construction
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
        """Log length-scales in x."""
        if self.feature_map is None:
            return length_scale_grid(self.ell_x, N_NODES)
        return self.feature_map.log_ell

    def tabulate(self, x: Array) -> Array:
        """Features (J, N, m_G)."""
        if self.feature_map is None:
            return np.ones((N_NODES, len(x), 1))
        return self.feature_map.tabulate(x)

    def within(self, log_ell_x: Array) -> "CalibrationFeatures":
        """With the nodes that these length-scales in x need."""
        if self.feature_map is None:
            return self
        nodes = nodes_between(log_ell_x, self.grid_x)
        return self._replace(feature_map=self.feature_map.within(nodes))

    def virtual(self) -> Array:
        """Features at their own points (J, m_G, m_G)."""
        if self.feature_map is None:
            return np.ones((N_NODES, 1, 1))
        return self.feature_map.tabulate(self.feature_map.points)


def make_calibration(
    construction: Construction, x: Array, relevance: Array, seed: int, has_residual: bool
) -> CalibrationFeatures:
    """Choose the feature points of h, and the prior of its length-scale in x from their spacing."""
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


class CalibrationDraws(NamedTuple):
    """Posterior draws of h.

    Attributes
    ----------
    sigma_G, log_ell_x, log_ell_t : (S,)
    W : (S, m_G, P)
    xi : (S, P)
        Complete the coefficients off the feature points, one number a draw and coefficient.
    stretch : (S,)
        Standard deviation of t = (y - mu) / sigma_eps, its geometric mean over the training rows.
    roots : (S, M, P) or None
        T(ell_t) of every draw, where it was worked out beforehand.
    """

    sigma_G: Array
    log_ell_x: Array
    log_ell_t: Array
    W: Array
    xi: Array
    stretch: Array
    roots: Array | None = None

    def prepared(self, features: CalibrationFeatures) -> "CalibrationDraws":
        """The same draws, ready to be asked at many rows, a few at a time."""
        return self._replace(roots=roots_at(features.basis, self.log_ell_t))

    def ratio(self, features: CalibrationFeatures, x: Array) -> Ratio:
        """The ratio dG/du of every draw at N rows."""
        roots = self.prepared(features).roots if self.roots is None else self.roots
        assert roots is not None
        return make_ratio(
            features.construction, self.coefficients(features, x), roots, self.sigma_G
        )

    def coefficients(self, features: CalibrationFeatures, x: Array) -> Array:
        """``sigma_G`` times the coefficients of b(t) at N rows, completed: (S, N, P)."""
        table, grid = features.tabulate(x), features.grid_x
        explained = process_draws(table, grid, self.log_ell_x, self.W)
        missing = np.sqrt(missing_variance(table, grid, self.log_ell_x))
        whole = explained + missing[:, :, None] * self.xi[:, None, :]
        return self.sigma_G[:, None, None] * whole


def products_in_t(construction: Construction, basis: Basis) -> tuple[Array, Array]:
    """Squares of b(t), and its products with the offset at sigma_G = 1, under N(0, 1): (J, P)."""
    t, weights = quadrature()
    b = cosines(construction, t) @ basis.roots
    offset = construction.offset(b, 1.0)
    return weights[0] @ b**2, np.einsum("q,jq,jqp->jp", weights[0], offset, b)


def roots_at(basis: Basis, log_ell_t: Array) -> Array:
    """Roots T of every draw: (S, M, P)."""
    first, weights = interpolation(log_ell_t, basis.log_ell)
    return np.einsum("sj,sjmp->smp", weights, basis.roots[first[:, None] + np.arange(4)])


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
    F: Array,
    y: Array,
    table: Array,
    grid: Array,
    table_G: Array,
    features: CalibrationFeatures,
    priors: Priors,
    weights: Array,
    power: float = 1.0,
    pinned: Array | None = None,
    evidence: tuple[Array, Array] | None = None,
    places: Places | None = None,
) -> FullData:
    """Pad and assemble the data of the log density; the fields are those of `FullData`."""
    places = every_row(len(y)) if places is None else places
    counts, weights = places.sums(np.ones(len(y))), power * weights
    free = np.full(len(FullHyperparameters._fields), np.nan)
    held = FullHyperparameters(*(free if pinned is None else pinned))
    table = _at_held(table, held.log_ell, grid)
    table_G, virtual = (
        _at_held(a, held.log_ell_x, features.grid_x) for a in (table_G, features.virtual())
    )
    basis = features.basis
    basis = basis._replace(roots=_at_held(basis.roots, held.log_ell_t, basis.log_ell))
    grid_eta, evidence_eta = evidence or (np.arange(float(N_NODES)), np.zeros(N_NODES))
    n, n_places = (int(ROW_BUCKETS[np.searchsorted(ROW_BUCKETS, len(a))]) for a in (y, counts))
    m = max(1, 32 * -(-table.shape[2] // 32))  # without delta one idle coordinate
    m_G = CALIBRATION_POINTS if features.feature_map else 1
    pad, pad_places = partial(_pad, n=n), partial(_pad, axis=1, n=n_places)
    gram_t, bend_t = products_in_t(features.construction, basis)
    E, s, U = expert_axes(F, weights)
    gram = np.sum(without_experts(table, E, weights, places) ** 2, axis=1)
    cross = table.transpose(0, 2, 1) @ places.sums(weights[:, None] * E)
    return FullData(
        y=pad(y, 0),
        mask=pad(np.ones(len(y)), 0),
        place=pad(places.of_row, 0) if places.shared else None,
        counts=_pad(counts, 0, n_places),
        power=power,
        pinned=np.array(held),
        evidence=evidence_eta,
        grid_eta=grid_eta,
        F=pad(F, 0),
        weights=pad(weights, 0),
        A=_pad(pad_places(table), 2, m),
        gram=_pad(gram, 1, m),
        cross=_pad(cross, 1, m),
        E=pad(E, 0),
        s=s,
        U=U,
        grid=grid,
        A_G=_pad(pad_places(table_G), 2, m_G),
        gram_x=_pad(power * np.sum(counts[:, None] * table_G**2, axis=1), 1, m_G),
        sum_x=_pad(power * np.sum(counts[:, None] * table_G, axis=1), 1, m_G),
        grid_x=features.grid_x,
        roots=basis.roots,
        gram_t=gram_t,
        bend_t=bend_t,
        grid_t=basis.log_ell,
        virtual=_pad(_pad(virtual, 1, m_G), 2, m_G),
        priors=FullPriors(priors, features.ell_x, basis.prior),
        construction=features.construction,
    )


def _at_held(table: Array, log_ell: float, grid: Array) -> Array:
    """A table (J, ...) at a length-scale that is held, its only node; as it is at a free one."""
    return table if np.isnan(log_ell) else interpolate(table, log_ell, grid)[None]


def _pad(a: Any, axis: int, n: int) -> Any:
    widths = [(0, n - a.shape[axis]) if i == axis else (0, 0) for i in range(a.ndim)]
    return np.pad(a, widths)


def starts(data: FullData, mode: Array, chains: int, rng: np.random.Generator) -> Array:
    """Start at stage 2's mode with a small G, jittered."""
    h = FullHyperparameters(
        log_sigma_omega=mode[0],
        log_sigma_delta=mode[1],
        log_sigma_G=np.log(0.3),
        eta=mode[2],
        log_ell=mode[3],
        log_ell_x=np.log(data.priors.ell_x.quantile(0.5)),
        log_ell_t=np.log(data.priors.ell_t.quantile(0.5)),
    )
    out = rng.normal(size=(chains, dimension(data)))
    out[:, : len(h)] = np.array(h) + 0.1 * out[:, : len(h)]
    return out


def sample_joint(
    data: FullData,
    mode: Array,
    n_rows: float,
    settings: SamplerSettings,
    seed: np.random.SeedSequence,
    progress: Callable[[int], object],
    checkpoint: Checkpoint = NO_CHECKPOINT,
) -> Draws:
    """Sample positions of the full model."""
    sampler_seed, start_seed = (int(s) for s in seed.generate_state(2))
    scale = np.ones(dimension(data))
    typical = FullHyperparameters(0.5, 0.4, 0.3, 1.0 / np.sqrt(2.0 * n_rows), 0.4, 0.3, 0.3)
    scale[: len(typical)] = typical
    begin = starts(data, mode, settings.chains, np.random.default_rng(start_seed))
    reach = FULL if np.isnan(data.pinned).any() else SHORT
    return sample(
        log_density, data, begin, scale, settings, sampler_seed, progress, checkpoint, reach
    )


class JointDraws(NamedTuple):
    """The model's quantities at S positions, as numpy arrays; fields as in `FullState`."""

    h: FullHyperparameters
    omega: Array
    v: Array
    W: Array
    log_sigma_eps: Array
    sigma_G: Array


def unpack_draws(position: Array, data: FullData) -> JointDraws:
    """Map positions (chain, draw, dim) to the model's quantities, chains joined."""
    with jax.enable_x64(True):
        flat = jnp.asarray(position.reshape(-1, position.shape[-1]))
        return jax.tree.map(np.asarray, _quantities(flat, jax.tree.map(jnp.asarray, data)))


@jax.jit
def _quantities(positions: Any, data: FullData) -> JointDraws:
    def at(position: Any) -> JointDraws:
        state = transform(position, data)
        return JointDraws(
            state.h, state.omega, state.v, state.W, state.log_sigma_eps, state.sigma_G
        )

    return jax.lax.map(at, positions)  # in batches it is slower, and so is its compilation
