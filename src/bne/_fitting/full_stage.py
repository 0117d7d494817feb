"""The joint posterior of the full stage (Eq. 4): build its data, sample, and unpack the draws.

In this file F is the matrix of the experts' predictions at the training rows, and not a CDF.
"""

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
"""Reach of trajectories if all hyperparameters are held; long ones are only needed to move them."""


def starts(data: FullData, mode: Hyperparameters, chains: int, rng: np.random.Generator) -> Array:
    """Draw starting points near the mode of the stage additive, with a small G.

    A small amplitude (0.3) starts chains near G = I, where the mode was found.
    """
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
    """Sample positions of the full stage.

    `n_rows` is the number of rows times the power of the likelihood. It gives the typical scale of
    eta, which is the error of the log of a standard deviation.
    """
    sampler_seed, start_seed = (int(s) for s in seed.generate_state(2))
    scale = np.ones(dimension(data))
    typical = FullHyperparameters(0.5, 0.4, 0.3, 1.0 / np.sqrt(2.0 * n_rows), 0.4, 0.3, 0.3)
    scale[: len(typical)] = typical
    begin = starts(data, mode, run.settings.chains, np.random.default_rng(start_seed))
    reach = FULL if np.isnan(data.pinned).any() else SHORT
    return sample(log_density, data, begin, scale, run._replace(seed=sampler_seed), reach)


class JointDraws(NamedTuple):
    """The model's quantities at S positions, as numpy arrays. The fields are as in `FullState`."""

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

    return jax.lax.map(at, positions)  # batches take longer to run and to compile


def sample_full(
    rows: Rows,
    data: Training,
    design: Design,
    mode: Hyperparameters,
    run: Run,
    seed: np.random.SeedSequence,
    pinned: Array | None = None,
) -> Stage:
    """Sample the joint posterior of omega, delta, G and all hyperparameters (Eq. 4).

    In a shard the likelihood is raised to a power. Then the hyperparameters are held at the values
    `pinned` (7,), except where this is NaN; the entry of eta holds log sigma_eps. The standard
    deviation of y gets the evidence that it has in the stage additive (`excess_evidence`).
    """
    features = design.features
    assert features is not None
    weights = row_weights(rows.x, _additive_residuals(data, mode))
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
    """Rotate the features of delta so that their columns are nearly orthogonal.

    The coordinates of the sampler are then nearly independent.
    """
    residual = moving(terms)
    if residual is None:
        return terms, data
    reference = int(np.argmin(np.abs(data.grid - mode.log_ell)))
    E = expert_axes(data.F, weights)[0]
    # a direction that the experts express fully has no defined rotation: keep 5% of it
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
    """Name the draws, and leave out those of padding and of terms that the model does not have."""
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
    """Find the excess evidence at noise scales around the mode of the stage additive.

    Returns the logarithms of the noise scales, and the excess evidence of each.
    """
    eta = mode.log_sigma_eps + np.linspace(-2.0, 2.0, N_NODES)
    if data.power == 1.0:
        return eta, np.zeros(N_NODES)
    spectrum = spectrum_of(data)
    at = [mode._replace(log_sigma_eps=e) for e in eta]
    with jax.enable_x64(True):
        excess = [float(excess_evidence(h, spectrum, data.power)) for h in at]
    return eta, np.array(excess) - np.max(excess)


def _additive_residuals(data: Training, mode: Hyperparameters) -> Array:
    """Find the residuals of the stage additive, at the mode of its hyperparameters: (n,)."""
    at_rows = interpolate(data.table, mode.log_ell, data.grid)[data.places.of_row]
    T, K = np.column_stack([data.F, at_rows]), data.F.shape[1]
    scale = np.full(T.shape[1], np.exp(mode.log_sigma_delta))
    scale[:K] = np.exp(mode.log_sigma_omega)
    gram, cross = data.power * (T.T @ T), data.power * (T.T @ data.y)
    theta = posterior(gram, cross, scale, float(noise_scale(mode.log_sigma_eps))).mean
    return data.y - T @ (scale * theta)
