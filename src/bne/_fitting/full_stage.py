"""The joint posterior of the full stage: build its data, sample, and unpack the draws."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from bne._base.typing import Array
from bne._calibration.features import CalibrationFeatures, roots_at
from bne._data.rows import Rows
from bne._draws.calibration import CalibrationDraws
from bne._draws.stage import Stage, StageDraws
from bne._fitting.axes import expert_axes, without_experts
from bne._fitting.collapsed import excess_evidence
from bne._fitting.design import Design
from bne._fitting.full_data import FullData, FullHyperparameters, build_data, dimension, row_weights
from bne._fitting.full_density import log_density, transform
from bne._fitting.gaussian_stage import spectrum_of
from bne._fitting.training import Training
from bne._mean.gaussian import Hyperparameters, noise_scale, posterior
from bne._mean.term import Term, TermDraws, moving, split_fixed
from bne._process.interpolation import N_NODES, interpolate
from bne._process.rotations import principal_rotations
from bne._sampler.hmc import FULL, Draws, Reach, Run, sample

SHORT = Reach(3.0, 128)
"""Trajectories where all hyperparameters are held: they are what long ones are for."""


def starts(data: FullData, mode: Hyperparameters, chains: int, rng: np.random.Generator) -> Array:
    """Start at stage 2's mode with a small G, jittered."""
    h = FullHyperparameters(
        log_sigma_omega=mode.log_sigma_omega,
        log_sigma_delta=mode.log_sigma_delta,
        log_sigma_G=np.log(0.3),
        eta=mode.log_sigma_eps,
        log_ell=mode.log_ell,
        log_ell_x=np.log(data.priors.ell_x.quantile(0.5)),
        log_ell_t=np.log(data.priors.ell_t.quantile(0.5)),
    )
    out = rng.normal(size=(chains, dimension(data)))
    out[:, : len(h)] = np.array(h) + 0.1 * out[:, : len(h)]
    return out


def sample_joint(
    data: FullData, mode: Hyperparameters, n_rows: float, run: Run, seed: np.random.SeedSequence
) -> Draws:
    """Sample positions of the full model; `n_rows` counts a row as often as the power says."""
    sampler_seed, start_seed = (int(s) for s in seed.generate_state(2))
    scale = np.ones(dimension(data))
    typical = FullHyperparameters(0.5, 0.4, 0.3, 1.0 / np.sqrt(2.0 * n_rows), 0.4, 0.3, 0.3)
    scale[: len(typical)] = typical
    begin = starts(data, mode, run.settings.chains, np.random.default_rng(start_seed))
    reach = FULL if np.isnan(data.pinned).any() else SHORT
    return sample(log_density, data, begin, scale, run._replace(seed=sampler_seed), reach)


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


def sample_full(
    rows: Rows,
    data: Training,
    design: Design,
    mode: Hyperparameters,
    run: Run,
    seed: np.random.SeedSequence,
    pinned: Array | None = None,
) -> Stage:
    """The joint posterior of omega, delta, G and all hyperparameters (Eq. 4).

    Where the likelihood is raised to a power, hyperparameters are held where `pinned` (7,) is a
    number (log sigma_eps in place of eta), and the standard deviation of y gets the evidence of
    stage 2.
    """
    features = design.features
    assert features is not None
    weights = row_weights(rows.x, _stage_two_residuals(data, mode))
    terms, data = _straightened(design.terms, data, weights, mode)
    table_G = features.tabulate(rows.x[data.places.first])
    evidence = _noise_evidence(data, mode)
    full = build_data(data, features, table_G, weights, pinned=pinned, evidence=evidence)
    joint = sample_joint(full, mode, data.power * len(data.y), run, seed)
    state = unpack_draws(joint.position, full)
    rng = np.random.default_rng(seed.spawn(1)[0])
    draws = _stage_draws(rows, terms, state, joint, features, rng)
    return Stage(draws, terms, features)


def _straightened(
    terms: Sequence[Term], data: Training, weights: Array, mode: Hyperparameters
) -> tuple[Sequence[Term], Training]:
    """Rotate the residual's features until their columns are nearly orthogonal.

    The sampler then sees coordinates that are nearly independent.
    """
    residual = moving(terms)
    if residual is None:
        return terms, data
    reference = int(np.argmin(np.abs(data.grid - mode.log_ell)))
    E = expert_axes(data.F, weights)[0]
    # all but all of it: directions that are quite invisible would turn freely with ell
    visible = without_experts(data.table, E, weights, data.places, share=0.95)
    rotations = principal_rotations(visible, reference)
    rotated = residual.rotated(rotations)
    return [rotated if term is residual else term for term in terms], data.rotated(rotations)


def _stage_draws(
    rows: Rows,
    terms: Sequence[Term],
    state: JointDraws,
    joint: Draws,
    features: CalibrationFeatures,
    rng: np.random.Generator,
) -> StageDraws:
    """Draws by their names; those of padding and of terms that are not there are left out."""
    h, mover = state.h, moving(terms)
    roots = roots_at(features.basis, h.log_ell_t)
    calibration = CalibrationDraws(
        sigma_G=state.sigma_G,
        log_ell_x=h.log_ell_x,
        log_ell_t=h.log_ell_t,
        W=state.W[:, : features.n_points],
        xi=features.construction.completion(roots, state.sigma_G, rng),
        stretch=np.exp(h.eta - state.log_sigma_eps),
    )
    named = split_fixed(terms, rows, state.omega, np.exp(h.log_sigma_omega))
    if mover is not None:
        v = state.v[:, : len(mover.feature_map.points)]
        xi = rng.standard_normal(len(state.omega))
        named[mover.name] = TermDraws(v, np.exp(h.log_sigma_delta), h.log_ell, xi)
    sigma_eps = noise_scale(state.log_sigma_eps)
    return StageDraws(named, sigma_eps, joint.position, joint.statistics, calibration)


def _noise_evidence(data: Training, mode: Hyperparameters) -> tuple[Array, Array]:
    """Log noise scales about stage 2's mode, and the excess evidence of each."""
    eta = mode.log_sigma_eps + np.linspace(-2.0, 2.0, N_NODES)
    if data.power == 1.0:
        return eta, np.zeros(N_NODES)
    spectrum = spectrum_of(data)
    at = [mode._replace(log_sigma_eps=e) for e in eta]
    with jax.enable_x64(True):
        excess = [float(excess_evidence(h, spectrum, data.power)) for h in at]
    return eta, np.array(excess) - np.max(excess)


def _stage_two_residuals(data: Training, mode: Hyperparameters) -> Array:
    """Y minus stage 2's posterior mean of mu at the mode of the hyperparameters."""
    at_rows = interpolate(data.table, mode.log_ell, data.grid)[data.places.of_row]
    T, K = np.column_stack([data.F, at_rows]), data.F.shape[1]
    scale = np.full(T.shape[1], np.exp(mode.log_sigma_delta))
    scale[:K] = np.exp(mode.log_sigma_omega)
    gram, cross = data.power * (T.T @ T), data.power * (T.T @ data.y)
    theta = posterior(gram, cross, scale, float(noise_scale(mode.log_sigma_eps))).mean
    return data.y - T @ (scale * theta)
