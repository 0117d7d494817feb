"""Rows in the model's units -> posterior draws of one stage (Eqs. 1, 2 and 4).

With a `power` the likelihood is raised to it: every row counts that many times.
"""

from collections.abc import Callable

import jax
import numpy as np

from bne._base.linalg import projection_coefficients
from bne._base.priors import InverseGamma, Priors, fit_inverse_gamma, length_scale_grid
from bne._base.typing import Array
from bne._data.places import Places
from bne._draws.stage import Residual, Rows, Stage, StageDraws, places_of
from bne._fitting import full_stage as _joint
from bne._fitting.full_stage import CalibrationDraws, CalibrationFeatures
from bne._mean import gaussian as _gaussian
from bne._mean.axes import expert_axes, without_experts
from bne._mean.gaussian import Hyperparameters
from bne._process.kernels import (
    N_NODES,
    KernelFunction,
    choose_points,
    interpolate,
    make_feature_map,
    principal_rotations,
    spacing_and_range,
)
from bne._process.relevance import fit_relevance
from bne._sampler.checkpoint import NO_CHECKPOINT, Checkpoint
from bne._sampler.coordinates import Laplace, laplace
from bne._sampler.hmc import SamplerSettings, sample

RANK = 128
"""Spectral tables are padded to this many directions, so that most fits share one program."""

CAREFUL = 0.95
"""Target acceptance of stages 1 and 2, where a leapfrog step costs next to nothing."""

UNUSED = InverseGamma(2.0, 1.0)
"""Prior of a length-scale that no likelihood sees: stage 1 is stage 2 without features."""


def make_residual(
    kernel: KernelFunction,
    rows: Rows,
    y: Array,
    *,
    orthogonalize: bool,
    per_input: bool,
    feature_points: int,
    seed: int,
) -> tuple[InverseGamma, Residual]:
    """Choose feature points, the length-scale's prior from their spacing, and tabulate.

    With `orthogonalize`, delta is restricted to what the experts cannot express on these rows.
    """
    d = rows.x.shape[1]
    per_input = per_input and d > 1
    relevance = fit_relevance(kernel, *rows, y, seed) if per_input else np.ones(d)
    points = choose_points(kernel, rows.x * relevance, feature_points, seed) / relevance
    ell = fit_inverse_gamma(*spacing_and_range(points * relevance))
    feature_map = make_feature_map(kernel, points, length_scale_grid(ell, N_NODES), relevance)
    if not orthogonalize:
        return ell, Residual(feature_map, None)
    nodes = (feature_map.within(slice(j, j + 1)).tabulate(rows.x)[0] for j in range(N_NODES))
    overlap = np.stack([projection_coefficients(rows.f, A) for A in nodes])
    return ell, Residual(feature_map, overlap)


def sample_stage(
    rows: Rows,
    y: Array,
    residual: Residual | None,
    priors: Priors,
    settings: SamplerSettings,
    seed: np.random.SeedSequence,
    *,
    power: float = 1.0,
    progress: Callable[[int], object] = lambda n: None,
    checkpoint: Checkpoint = NO_CHECKPOINT,
) -> tuple[Stage, Array]:
    """Stage 1 (`residual` None) or stage 2, and the mode of its hyperparameters.

    Hyperparameters by HMC on the collapsed posterior, then omega and delta in closed form.
    """
    if residual is None:
        priors = priors._replace(ell=UNUSED)
    grid = length_scale_grid(priors.ell, N_NODES)
    places, table = _tabulate(rows, residual)
    sampler_seed, start_seed, closed_seed = (int(s) for s in seed.generate_state(3))
    rank = max(RANK, table.shape[2])
    spectrum = _gaussian.spectral_table(rows.f, y, table, grid, rank, places)
    whitening = _whiten(spectrum, power, priors)
    jitter = np.random.default_rng(start_seed).normal(size=(settings.chains, 4))
    z = sample(
        _gaussian.log_density,
        (spectrum, power, priors, whitening),
        jitter,
        np.ones(4),
        settings._replace(target_acceptance=CAREFUL),
        sampler_seed,
        progress,
        checkpoint,
    )
    position = whitening(z.position)
    h = Hyperparameters(*position.reshape(-1, 4).T)
    grams = _gaussian.gram_table(rows.f, y, table, grid, places).repeated(power)
    theta, xi = _draw_theta(grams, h, rows.f.shape[1], np.random.default_rng(closed_seed))
    K = rows.f.shape[1]
    sigma_omega = np.exp(h.log_sigma_omega)
    draws = StageDraws(
        omega=sigma_omega[:, None] * theta[:, :K],
        sigma_omega=sigma_omega,
        sigma_eps=_gaussian.noise_scale(h.log_sigma_eps),
        sigma_delta=np.exp(h.log_sigma_delta) if residual else None,
        log_ell=h.log_ell if residual else None,
        v=theta[:, K:] if residual else None,
        xi=xi if residual else None,
        position=position if residual else position[..., [0, 2]],
        statistics=z.statistics,
    )
    return Stage(draws, residual), whitening.mode


def _tabulate(rows: Rows, residual: Residual | None) -> tuple[Places, Array]:
    """Places of the rows, and the features of delta there: (J, U, m)."""
    places = places_of(rows, residual)
    if residual is None:
        return places, np.zeros((N_NODES, len(places.first), 0))
    return places, residual.tabulate(rows.part(places.first))[0]


def _whiten(spectrum: _gaussian.SpectralTable, power: float, priors: Priors) -> Laplace:
    """Coordinates of unit scale for the hyperparameters, from the mode of their posterior."""
    scales = np.log([0.5 * priors.omega, 0.5 * priors.delta, 0.5 * priors.noise])
    start = np.append(scales, np.log(priors.ell.quantile(0.5)))
    bounds = np.column_stack([start - 15.0, start + 5.0])
    bounds[3] = np.log(priors.ell.quantile(1e-3)), np.log(priors.ell.quantile(1 - 1e-2))
    unit = Laplace(np.zeros(4), np.eye(4))
    return laplace(_gaussian.log_density, (spectrum, power, priors, unit), start, bounds)


def _draw_theta(
    grams: _gaussian.GramTable, h: Hyperparameters, K: int, rng: np.random.Generator
) -> tuple[Array, Array]:
    """One draw of theta, and one completing number, for each draw of the hyperparameters."""
    S, width = len(h.log_ell), grams.cross.shape[1]
    z, xi = rng.standard_normal((S, width)), rng.standard_normal(S)
    for s in range(S):
        gram, cross = grams.at(h.log_ell[s])
        scales = np.exp(h.log_sigma_omega[s]), np.exp(h.log_sigma_delta[s])
        sigma_eps = _gaussian.noise_scale(h.log_sigma_eps[s])
        z[s] = _gaussian.posterior(gram, cross, K, *scales, sigma_eps).draw(z[s])
    return z, xi


def sample_full(
    rows: Rows,
    y: Array,
    residual: Residual | None,
    features: CalibrationFeatures,
    priors: Priors,
    mode: Array,
    settings: SamplerSettings,
    seed: np.random.SeedSequence,
    *,
    power: float = 1.0,
    pinned: Array | None = None,
    progress: Callable[[int], object] = lambda n: None,
    checkpoint: Checkpoint = NO_CHECKPOINT,
) -> Stage:
    """The joint posterior of omega, delta, G and all hyperparameters (Eq. 4).

    With a `power`, hyperparameters are held where `pinned` (7,) is a number (log sigma_eps in place
    of eta), and the standard deviation of y gets the evidence of stage 2.
    """
    grid = length_scale_grid(priors.ell, N_NODES)
    places, table = _tabulate(rows, residual)
    rest = _stage_two_residuals(rows.f, y, table, grid, mode, power, places)
    weights = _joint.row_weights(rows.x, rest)
    if residual is not None:
        reference = int(np.argmin(np.abs(grid - mode[3])))
        E = expert_axes(rows.f, weights)[0]
        # all but all of it: directions that are quite invisible would turn freely with ell
        visible = without_experts(table, E, weights, places, share=0.95)
        rotations = principal_rotations(visible, reference)
        residual, table = residual.rotated(rotations), table @ rotations
    data = _joint.build_data(
        F=rows.f,
        y=y,
        table=table,
        grid=grid,
        table_G=features.tabulate(rows.x[places.first]),
        features=features,
        priors=priors,
        weights=weights,
        power=power,
        pinned=pinned,
        evidence=_noise_evidence(rows.f, y, table, grid, mode, power, places),
        places=places,
    )
    joint = _joint.sample_joint(data, mode, power * len(y), settings, seed, progress, checkpoint)
    state = _joint.unpack_draws(joint.position, data)
    S = len(state.omega)
    rng = np.random.default_rng(seed.spawn(1)[0])
    roots = _joint.roots_at(features.basis, state.h.log_ell_t)
    calibration = CalibrationDraws(
        sigma_G=state.sigma_G,
        log_ell_x=state.h.log_ell_x,
        log_ell_t=state.h.log_ell_t,
        W=state.W[:, : features.n_points],
        xi=features.construction.completion(roots, state.sigma_G, rng),
        stretch=np.exp(state.h.eta - state.log_sigma_eps),
    )
    draws = StageDraws(
        omega=state.omega,
        sigma_omega=np.exp(state.h.log_sigma_omega),
        sigma_eps=_gaussian.noise_scale(state.log_sigma_eps),
        sigma_delta=np.exp(state.h.log_sigma_delta) if residual else None,
        log_ell=state.h.log_ell if residual else None,
        v=state.v[:, : table.shape[2]] if residual else None,
        xi=rng.standard_normal(S) if residual else None,
        position=joint.position,
        statistics=joint.statistics,
        calibration=calibration,
    )
    return Stage(draws, residual, features)


def _noise_evidence(
    F: Array, y: Array, table: Array, grid: Array, mode: Array, power: float, places: Places
) -> tuple[Array, Array]:
    """Log noise scales about stage 2's mode, and the excess evidence of each."""
    eta = mode[2] + np.linspace(-2.0, 2.0, N_NODES)
    if power == 1.0:
        return eta, np.zeros(N_NODES)
    spectrum = _gaussian.spectral_table(F, y, table, grid, max(RANK, table.shape[2]), places)
    at = [Hyperparameters(mode[0], mode[1], e, mode[3]) for e in eta]
    with jax.enable_x64(True):
        excess = [float(_gaussian.excess_evidence(h, spectrum, power)) for h in at]
    return eta, np.array(excess) - np.max(excess)


def _stage_two_residuals(
    F: Array, y: Array, table: Array, grid: Array, mode: Array, power: float, places: Places
) -> Array:
    """Y minus stage 2's posterior mean of mu at the mode of the hyperparameters."""
    T = np.column_stack([F, interpolate(table, mode[3], grid)[places.of_row]])
    K = F.shape[1]
    sigma_omega, sigma_delta = np.exp(mode[0]), np.exp(mode[1])
    sigma_eps = float(_gaussian.noise_scale(mode[2]))
    gram, cross = power * (T.T @ T), power * (T.T @ y)
    theta = _gaussian.posterior(gram, cross, K, sigma_omega, sigma_delta, sigma_eps).mean
    scale = np.r_[np.full(K, sigma_omega), np.full(T.shape[1] - K, sigma_delta)]
    return y - T @ (scale * theta)
