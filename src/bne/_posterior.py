"""Rows in the model's units -> posterior draws of each stage, and what they say at new rows."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from tqdm.auto import tqdm

from bne import _gaussian
from bne._gaussian import Hyperparameters
from bne._kernels import (
    N_NODES,
    FeatureMap,
    KernelFunction,
    choose_points,
    make_feature_map,
    missing_variance,
    process_draws,
    spacing_and_range,
)
from bne._linalg import projection_coefficients
from bne._predictive import ConditionalDraws
from bne._priors import InverseGamma, Priors, fit_inverse_gamma, length_scale_grid
from bne._relevance import fit_relevance
from bne._sampling import Laplace, laplace, sample
from bne._threads import single_blas_thread
from bne._typing import Array

RANK = 128
"""Spectral tables are padded to this many directions, so that most fits share one program."""


UNUSED = InverseGamma(2.0, 1.0)
"""Prior of a length-scale that no likelihood sees: stage 1 is stage 2 without features."""


class Rows(NamedTuple):
    """Rows in the model's units: inputs x (N, d) and experts' predictions f (N, K)."""

    x: Array
    f: Array


class SamplerSettings(NamedTuple):
    """How long, how carefully and how many at a time to sample."""

    chains: int
    warmup: int
    draws: int
    target_acceptance: float
    n_jobs: int | None


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

    @property
    def shape(self) -> tuple[int, int]:
        """Chains and draws."""
        return self.position.shape[:2]

    def residual(self, residual: Residual | None, rows: Rows) -> Array:
        """Draws of delta at N rows, completed with the variance the features leave out: (S, N)."""
        if residual is None:
            return np.zeros((len(self.omega), len(rows.f)))
        assert self.v is not None and self.xi is not None
        assert self.sigma_delta is not None and self.log_ell is not None
        grid = residual.feature_map.log_ell
        table, raw = residual.tabulate(rows)
        explained = process_draws(table, grid, self.log_ell, self.v)
        missing = np.sqrt(missing_variance(raw, grid, self.log_ell))
        return self.sigma_delta[:, None] * (explained + missing * self.xi[:, None])

    def conditional(self, residual: Residual | None, rows: Rows) -> ConditionalDraws:
        """The posterior of F(y | x) at N rows (Eq. 4)."""
        mu = self.omega @ rows.f.T + self.residual(residual, rows)
        return ConditionalDraws(mu, self.sigma_eps)

    def log_likelihood(self, residual: Residual | None, rows: Rows, y: Array) -> Array:
        """Pointwise log likelihood in the model's units: (S, n)."""
        return self.conditional(residual, rows).log_pdf_draws(y[:, None])[:, :, 0]

    def quantities(self, expert_names: list[str]) -> dict[str, Array]:
        """Weights and hyperparameters by name, (chain, draw) each: what diagnostics look at."""
        named = {f"weights[{n}]": w for n, w in zip(expert_names, self.omega.T, strict=True)}
        named |= {"weight_scale": self.sigma_omega, "noise_scale": self.sigma_eps}
        if self.sigma_delta is not None and self.log_ell is not None:
            named |= {"residual_scale": self.sigma_delta, "length_scale": np.exp(self.log_ell)}
        return {name: self.by_chain(values) for name, values in named.items()}

    def by_chain(self, values: Array) -> Array:
        """Reshape (S, ...) to (chain, draw, ...)."""
        return values.reshape(*self.shape, *values.shape[1:])


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
) -> StageDraws:
    """Posterior draws of stage 1 (`residual` None) or stage 2.

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
        target_acceptance=settings.target_acceptance,
        n_jobs=settings.n_jobs,
        progress=progress,
    )
    position = whitening(z)
    h = Hyperparameters(*position.reshape(-1, 4).T)
    grams = _gaussian.gram_table(rows.f, y, table, grid)
    theta, xi = _draw_theta(grams, h, rows.f.shape[1], np.random.default_rng(closed_seed))
    K = rows.f.shape[1]
    sigma_omega = np.exp(h.log_sigma_omega)
    return StageDraws(
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


class Posterior(NamedTuple):
    """All stages of one fit, and the training rows they share.

    Attributes
    ----------
    stages : dict
        "ensemble" (Eq. 1) and, with a residual, "additive" (Eq. 2).
    residual : Residual or None
    priors : Priors
    rows, y
        Training data in the model's units.
    """

    stages: dict[str, StageDraws]
    residual: Residual | None
    priors: Priors
    rows: Rows
    y: Array

    def residual_of(self, stage: str) -> Residual | None:
        """The residual process of a stage: none in the original ensemble."""
        return None if stage == "ensemble" else self.residual


def sample_posterior(
    rows: Rows,
    y: Array,
    *,
    kernel: KernelFunction | None,
    orthogonalize: bool,
    per_input: bool,
    feature_points: int,
    settings: SamplerSettings,
    seed: int,
    verbose: bool,
) -> Posterior:
    """Sample every stage of the model, each its own posterior."""
    seeds = np.random.SeedSequence(seed)
    points_seed, *stage_seeds = seeds.spawn(3)
    ell, residual = UNUSED, None
    if kernel is not None and rows.x.shape[1] > 0:
        ell, residual = make_residual(
            kernel,
            rows,
            y,
            orthogonalize=orthogonalize,
            per_input=per_input,
            feature_points=feature_points,
            seed=int(points_seed.generate_state(1)[0]),
        )
    priors = Priors(ell)
    wanted = {"ensemble": None} | ({"additive": residual} if residual else {})
    total = len(wanted) * settings.chains * (settings.warmup + settings.draws)
    bar = tqdm(total=total, desc="Sampling", disable=not verbose, unit="it")
    with bar, single_blas_thread():
        stages = {
            name: sample_stage(rows, y, r, priors, settings, stage_seed, bar.update)
            for (name, r), stage_seed in zip(wanted.items(), stage_seeds, strict=False)
        }
    return Posterior(stages, residual, priors, rows, y)
