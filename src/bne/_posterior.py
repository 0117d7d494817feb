"""Rows in the model's units -> posterior draws of each stage, and what they say at new rows."""

from collections.abc import Callable
from typing import NamedTuple

import jax
import numpy as np
from tqdm.auto import tqdm

from bne import _gaussian, _joint
from bne._gaussian import Hyperparameters
from bne._joint import CalibrationDraws, CalibrationFeatures, make_calibration
from bne._kernels import (
    N_NODES,
    FeatureMap,
    KernelFunction,
    choose_points,
    interpolate,
    make_feature_map,
    missing_variance,
    principal_rotations,
    process_draws,
    spacing_and_range,
)
from bne._linalg import projection_coefficients
from bne._model import expert_share, without_experts
from bne._predictive import ConditionalDraws, chunks
from bne._priors import InverseGamma, Priors, fit_inverse_gamma, length_scale_grid
from bne._ratio import ROW_ELEMENTS
from bne._relevance import fit_relevance
from bne._sampling import Laplace, SamplerSettings, laplace, sample
from bne._threads import single_blas_thread
from bne._typing import Array

RANK = 128
"""Spectral tables are padded to this many directions, so that most fits share one program."""


CAREFUL = 0.95
"""Target acceptance of stages 1 and 2, where a leapfrog step costs next to nothing."""

UNUSED = InverseGamma(2.0, 1.0)
"""Prior of a length-scale that no likelihood sees: stage 1 is stage 2 without features."""


class Rows(NamedTuple):
    """Rows in the model's units: inputs x (N, d) and experts' predictions f (N, K)."""

    x: Array
    f: Array


class Residual(NamedTuple):
    """The process delta: its features, and what is taken off them to keep clear of the experts.

    Attributes
    ----------
    feature_map : FeatureMap
    overlap : (J, K, m) array or None
        Coefficients of the features on the experts at the training rows (``orthogonalize=True``).
    """

    feature_map: FeatureMap
    overlap: Array | None

    def rotated(self, rotations: Array) -> "Residual":
        """The same process in rotated features (`principal_rotations`)."""
        overlap = None if self.overlap is None else self.overlap @ rotations
        return Residual(self.feature_map._replace(rotations=rotations), overlap)

    def tabulate(self, rows: Rows) -> tuple[Array, Array]:
        """Features, and the features before orthogonalisation: (J, N, m) each."""
        table = self.feature_map.tabulate(rows.x)
        return (table if self.overlap is None else table - rows.f @ self.overlap), table


class StageDraws(NamedTuple):
    """Posterior draws of one stage, chains joined: S = chains x draws.

    Attributes
    ----------
    omega : (S, K); sigma_omega, sigma_eps : (S,)
    sigma_delta, log_ell, xi : (S,) or None
        ``xi`` completes delta off the training rows, one number a draw.
    v : (S, m) or None
    position : (chain, draw, dim)
        What the sampler moved.
    statistics : dict of (chain, draw)
    calibration : CalibrationDraws or None
        Draws of h; None is G = I.
    """

    omega: Array
    sigma_omega: Array
    sigma_eps: Array
    sigma_delta: Array | None
    log_ell: Array | None
    v: Array | None
    xi: Array | None
    position: Array
    statistics: dict[str, Array]
    calibration: CalibrationDraws | None = None

    @property
    def shape(self) -> tuple[int, int]:
        """Chains and draws."""
        return self.position.shape[:2]

    def quantities(self, expert_names: list[str]) -> dict[str, Array]:
        """Weights and hyperparameters by name, (chain, draw) each: what diagnostics look at."""
        named = {f"weights[{n}]": w for n, w in zip(expert_names, self.omega.T, strict=True)}
        named |= {"weight_scale": self.sigma_omega, "noise_scale": self.sigma_eps}
        if self.sigma_delta is not None and self.log_ell is not None:
            named |= {"residual_scale": self.sigma_delta, "length_scale": np.exp(self.log_ell)}
        if self.calibration is not None:
            named |= {
                "calibration_scale": self.calibration.sigma_G,
                "calibration_length_scale_t": np.exp(self.calibration.log_ell_t),
                "calibration_length_scale_x": np.exp(self.calibration.log_ell_x),
            }
        return {name: self.by_chain(values) for name, values in named.items()}

    def by_chain(self, values: Array) -> Array:
        """Reshape (S, ...) to (chain, draw, ...)."""
        return values.reshape(*self.shape, *values.shape[1:])


PREDICTIVE_DRAWS = 1000
"""Draws that answers are averaged over, evenly spaced among all; neighbours add little."""


class Stage(NamedTuple):
    """Draws of one stage with the features they belong to: the posterior of F(y | x) anywhere.

    Attributes
    ----------
    draws : StageDraws
    residual : Residual or None
    features : CalibrationFeatures or None
    """

    draws: StageDraws
    residual: Residual | None = None
    features: CalibrationFeatures | None = None

    def thinned(self) -> "Stage":
        """The stage with at most `PREDICTIVE_DRAWS` draws."""
        S = len(self.draws.omega)
        if S <= PREDICTIVE_DRAWS:
            return self
        kept = np.linspace(0, S - 1, PREDICTIVE_DRAWS).round().astype(int)
        fields = self.draws._asdict()
        shared = {k: fields.pop(k) for k in ("position", "statistics")}
        thin = jax.tree.map(lambda a: a[kept], fields)
        return self._replace(draws=StageDraws(**thin, **shared))

    @property
    def row_elements(self) -> int:
        """Numbers that a draw at a row takes: what chunks of rows are made by."""
        return 1 if self.features is None else ROW_ELEMENTS

    def delta(self, rows: Rows) -> Array:
        """Draws of delta at N rows, completed with the variance the features leave out: (S, N)."""
        draws = self.draws
        if self.residual is None:
            return np.zeros((len(draws.omega), len(rows.f)))
        assert draws.v is not None and draws.xi is not None
        assert draws.sigma_delta is not None and draws.log_ell is not None
        grid = self.residual.feature_map.log_ell
        table, raw = self.residual.tabulate(rows)
        explained = process_draws(table, grid, draws.log_ell, draws.v)
        missing = np.sqrt(missing_variance(raw, grid, draws.log_ell))
        return draws.sigma_delta[:, None] * (explained + missing * draws.xi[:, None])

    def mu(self, rows: Rows) -> Array:
        """Draws of mu at N rows: (S, N)."""
        return self.draws.omega @ rows.f.T + self.delta(rows)

    def conditional(self, rows: Rows) -> ConditionalDraws:
        """The posterior of F(y | x) at N rows (Eq. 4)."""
        ratio = None
        if self.features is not None and self.draws.calibration is not None:
            ratio = self.draws.calibration.ratio(self.features, rows.x)
        return ConditionalDraws(self.mu(rows), self.draws.sigma_eps, ratio)

    def log_likelihood(self, rows: Rows, y: Array) -> Array:
        """Pointwise log likelihood in the model's units: (S, n)."""
        parts = []
        for part in chunks(len(y), self.row_elements * len(self.draws.omega)):
            conditional = self.conditional(Rows(rows.x[part], rows.f[part]))
            parts.append(conditional.log_pdf_draws(y[part], np.arange(len(y[part]))))
        return np.concatenate(parts, axis=1)


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
    table = feature_map.tabulate(rows.x)
    overlap = np.stack([projection_coefficients(rows.f, A) for A in table])
    return ell, Residual(feature_map, overlap)


def sample_stage(
    rows: Rows,
    y: Array,
    residual: Residual | None,
    priors: Priors,
    settings: SamplerSettings,
    seed: np.random.SeedSequence,
    progress: Callable[[int], object] = lambda n: None,
) -> tuple[Stage, Array]:
    """Stage 1 (`residual` None) or stage 2, and the mode of its hyperparameters.

    Hyperparameters by NUTS on the collapsed posterior, then omega and delta in closed form.
    """
    if residual is None:
        priors = priors._replace(ell=UNUSED)
    grid = length_scale_grid(priors.ell, N_NODES)
    table = residual.tabulate(rows)[0] if residual else np.zeros((N_NODES, len(y), 0))
    sampler_seed, start_seed, closed_seed = (int(s) for s in seed.generate_state(3))
    spectrum = _gaussian.spectral_table(rows.f, y, table, grid, max(RANK, table.shape[2]))
    whitening = _whiten(spectrum, priors)
    jitter = np.random.default_rng(start_seed).normal(size=(settings.chains, 4))
    z, statistics = sample(
        _gaussian.log_density,
        (spectrum, priors, whitening),
        jitter,
        seed=sampler_seed,
        warmup=settings.warmup,
        draws=settings.draws,
        target_acceptance=CAREFUL,
        n_jobs=settings.n_jobs,
        progress=progress,
    )
    position = whitening(z)
    h = Hyperparameters(*position.reshape(-1, 4).T)
    grams = _gaussian.gram_table(rows.f, y, table, grid)
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
        statistics=statistics,
    )
    return Stage(draws, residual), whitening.mode


def _whiten(spectrum: _gaussian.SpectralTable, priors: Priors) -> Laplace:
    """Coordinates of unit scale for the hyperparameters, from the mode of their posterior."""
    scales = np.log([0.5 * priors.omega, 0.5 * priors.delta, 0.5 * priors.noise])
    start = np.append(scales, np.log(priors.ell.quantile(0.5)))
    bounds = np.column_stack([start - 15.0, start + 5.0])
    bounds[3] = np.log(priors.ell.quantile(1e-3)), np.log(priors.ell.quantile(1 - 1e-2))
    unit = Laplace(np.zeros(4), np.eye(4))
    return laplace(_gaussian.log_density, (spectrum, priors, unit), start, bounds)


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
    progress: Callable[[int], object] = lambda n: None,
) -> Stage:
    """The joint posterior of omega, delta, G and all hyperparameters (Eq. 4)."""
    grid = length_scale_grid(priors.ell, N_NODES)
    table = residual.tabulate(rows)[0] if residual else np.zeros((N_NODES, len(y), 0))
    weights = _joint.row_weights(rows.x, _stage_two_residuals(rows.f, y, table, grid, mode))
    share = expert_share(rows.f, weights, float(np.exp(2.0 * (mode[2] - mode[0]))))
    visible = without_experts(table, rows.f, weights, share)
    if residual is not None:
        rotations = principal_rotations(visible, int(np.argmin(np.abs(grid - mode[3]))))
        residual, table, visible = (
            residual.rotated(rotations),
            table @ rotations,
            visible @ rotations,
        )
    data = _joint.build_data(
        F=rows.f,
        y=y,
        table=table,
        gram=np.sum(visible**2, axis=1),
        grid=grid,
        table_G=features.tabulate(rows.x),
        features=features,
        priors=priors,
        weights=weights,
        share=share,
    )
    position, statistics = _joint.sample_joint(data, mode, len(y), settings, seed, progress)
    state = _joint.unpack_draws(position, data)
    S = len(state.omega)
    rng = np.random.default_rng(seed.spawn(1)[0])
    calibration = CalibrationDraws(
        sigma_G=np.exp(state.h.log_sigma_G),
        log_ell_x=state.h.log_ell_x,
        log_ell_t=state.h.log_ell_t,
        W=state.W[:, : features.n_points],
        xi=rng.standard_normal((S, state.W.shape[2])),
    )
    draws = StageDraws(
        omega=state.omega,
        sigma_omega=np.exp(state.h.log_sigma_omega),
        sigma_eps=_gaussian.noise_scale(state.log_sigma_eps),
        sigma_delta=np.exp(state.h.log_sigma_delta) if residual else None,
        log_ell=state.h.log_ell if residual else None,
        v=state.v[:, : table.shape[2]] if residual else None,
        xi=rng.standard_normal(S) if residual else None,
        position=position,
        statistics=statistics,
        calibration=calibration,
    )
    return Stage(draws, residual, features)


def _stage_two_residuals(F: Array, y: Array, table: Array, grid: Array, mode: Array) -> Array:
    """Y minus stage 2's posterior mean of mu at the mode of the hyperparameters."""
    T = np.column_stack([F, interpolate(table, mode[3], grid)])
    K = F.shape[1]
    sigma_omega, sigma_delta = np.exp(mode[0]), np.exp(mode[1])
    sigma_eps = float(_gaussian.noise_scale(mode[2]))
    theta = _gaussian.posterior(T.T @ T, T.T @ y, K, sigma_omega, sigma_delta, sigma_eps).mean
    scale = np.r_[np.full(K, sigma_omega), np.full(T.shape[1] - K, sigma_delta)]
    return y - T @ (scale * theta)


class Posterior(NamedTuple):
    """All stages of one fit, and the training rows they share, in the model's units.

    Attributes
    ----------
    stages : dict
        "ensemble" (Eq. 1) and, where the model has them, "additive" (Eq. 2) and "full" (Eq. 4).
    priors : Priors
    rows, y
        Training data.
    """

    stages: dict[str, Stage]
    priors: Priors
    rows: Rows
    y: Array


def sample_posterior(
    rows: Rows,
    y: Array,
    *,
    kernel: KernelFunction | None,
    calibration: str | None,
    orthogonalize: bool,
    per_input: bool,
    feature_points: int,
    settings: SamplerSettings,
    seed: int,
    verbose: bool,
) -> Posterior:
    """Sample every stage of the model, each its own posterior."""
    points_seed, *stage_seeds = np.random.SeedSequence(seed).spawn(4)
    point_seed = int(points_seed.generate_state(1)[0])
    ell, residual, relevance = UNUSED, None, np.ones(rows.x.shape[1])
    if kernel is not None and rows.x.shape[1] > 0:
        ell, residual = make_residual(
            kernel,
            rows,
            y,
            orthogonalize=orthogonalize,
            per_input=per_input,
            feature_points=feature_points,
            seed=point_seed,
        )
        relevance = residual.feature_map.relevance
    priors = Priors(ell)
    n_stages = 1 + (residual is not None) + (calibration is not None)
    total = n_stages * settings.chains * (settings.warmup + settings.draws)
    bar = tqdm(total=total, desc="Sampling", disable=not verbose, unit="it")
    with bar, single_blas_thread():
        first, mode = sample_stage(rows, y, None, priors, settings, stage_seeds[0], bar.update)
        stages = {"ensemble": first}
        if residual is not None:
            stages["additive"], mode = sample_stage(
                rows, y, residual, priors, settings, stage_seeds[1], bar.update
            )
        if calibration is not None:
            features = make_calibration(rows.x, relevance, point_seed, residual is not None)
            stages["full"] = sample_full(
                rows, y, residual, features, priors, mode, settings, stage_seeds[2], bar.update
            )
    return Posterior(stages, priors, rows, y)
