"""NUTS with window adaptation: (log density, data, starts) -> draws and statistics.

The log density takes its data as an argument, and data are padded by the caller, so that one
compiled program serves every data set of about the same size. A chain runs in blocks: between two
blocks Python is in control, for a progress bar or an interruption.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import blackjax
import jax
import jax.numpy as jnp
import numpy as np
from blackjax.adaptation.mass_matrix import mass_matrix_adaptation
from blackjax.adaptation.step_size import dual_averaging_adaptation
from blackjax.adaptation.window_adaptation import build_schedule
from blackjax.mcmc.hmc import HMCState
from joblib import Parallel, delayed
from scipy import optimize
from scipy.sparse.linalg import LinearOperator, eigsh

from bne._typing import Array

LogDensity = Callable[[Any, Any], Any]

BLOCK = 50
"""Iterations between two visits to Python."""


class Draws(NamedTuple):
    """Positions (chain, draw, dim), and the sampler's statistics by name, each (chain, draw)."""

    position: Array
    statistics: dict[str, Array]


class SamplerSettings(NamedTuple):
    """How long, how carefully and how many at a time to sample."""

    chains: int
    warmup: int
    draws: int
    target_acceptance: float
    n_jobs: int | None


class Adaptation(NamedTuple):
    """Blackjax's states of the step size and of the diagonal metric."""

    step: Any
    metric: Any


def sample(
    log_density: LogDensity,
    data: Any,
    starts: Array,
    *,
    seed: int,
    warmup: int,
    draws: int,
    target_acceptance: float = 0.8,
    n_jobs: int | None = None,
    progress: Callable[[int], object] = lambda n: None,
) -> Draws:
    """Run one chain from each row of `starts`.

    Parameters
    ----------
    log_density : function of (position, data)
        A module-level function: its identity is the key of the compiled program.
    progress : function
        Called with the number of iterations just done, from any thread.

    Notes
    -----
    Every chain has its own key, so that the numbers do not depend on `n_jobs`. Chains run in
    threads: the compiled program releases the interpreter's lock, and is compiled once.
    """
    seeds = np.random.SeedSequence(seed).generate_state(len(starts))
    chain = partial(
        _run_chain, log_density, data, warmup, draws, target_acceptance, progress=progress
    )
    _run_chain(log_density, data, 0, 0, target_acceptance, starts[0], 0, progress)  # compile once
    results = Parallel(n_jobs=n_jobs, prefer="threads")(
        delayed(chain)(start, int(s)) for start, s in zip(starts, seeds, strict=True)
    )
    position, statistics = jax.tree.map(lambda *a: np.stack(a), *results)
    return Draws(position, statistics)


def _run_chain(
    log_density: LogDensity,
    data: Any,
    warmup: int,
    draws: int,
    target_acceptance: float,
    start: Array,
    seed: int,
    progress: Callable[[int], object],
) -> tuple[Array, dict[str, Array]]:
    """One chain: `warmup` adapting iterations, then `draws` with everything fixed."""
    plan = np.zeros((warmup + draws, 3), dtype=np.int32)  # stage, end of a window, adapting
    if warmup:
        plan[:warmup, :2], plan[:warmup, 2] = np.asarray(build_schedule(warmup)), 1
    with jax.enable_x64(True):
        data = jax.tree.map(jnp.asarray, data)
        key = jax.random.key(seed)
        state, adaptation = _start(log_density, jnp.asarray(start), data)
        blocks = []
        for first in range(0, max(len(plan), 1), BLOCK):
            block = np.zeros((BLOCK, 3), dtype=np.int32)
            used = min(BLOCK, len(plan) - first)
            block[:used] = plan[first : first + used]
            key, state, adaptation, out = _block(
                log_density, key, block, used, state, adaptation, target_acceptance, data
            )
            blocks.append(jax.tree.map(lambda a, used=used: np.asarray(a)[:used], out))
            progress(used)
    return jax.tree.map(lambda *a: np.concatenate(a)[warmup:], *blocks)


@partial(jax.jit, static_argnums=0)
def _value_and_grad(log_density: LogDensity, position: Any, data: Any) -> Any:
    return jax.value_and_grad(log_density)(position, data)


def _start(log_density: LogDensity, position: Any, data: Any) -> Any:
    """Initial states of the sampler and of its adaptation, with the types that a block returns."""
    value, gradient = _value_and_grad(log_density, position, data)
    state = HMCState(position, value, gradient)
    adaptation = Adaptation(
        dual_averaging_adaptation(0.8)[0](1.0),
        mass_matrix_adaptation(is_diagonal_matrix=True)[0](position.size),
    )
    return jax.tree.map(lambda a: jnp.asarray(a, jnp.result_type(a)), (state, adaptation))


def _adapt(
    target: Any, adaptation: Adaptation, stage: Any, window_end: Any, position: Any, acceptance: Any
) -> Adaptation:
    """Stan's scheme: the step size at every iteration, the metric after each slow window."""
    restart, update_step, final_step = dual_averaging_adaptation(target)
    _, update_metric, final_metric = mass_matrix_adaptation(is_diagonal_matrix=True)
    step = update_step(adaptation.step, acceptance)
    updated = update_metric(adaptation.metric, position)
    slow = Adaptation(step, _choose(stage == 1, updated, adaptation.metric))
    closed = Adaptation(restart(final_step(step)), final_metric(updated))
    return _choose(window_end == 1, closed, slow)


def _choose(condition: Any, yes: Any, no: Any) -> Any:
    return jax.tree.map(lambda a, b: jnp.where(condition, a, b), yes, no)


class Laplace(NamedTuple):
    """The mode of a log density and a factor L of its inverse negative Hessian, ``L L^T``."""

    mode: Array
    factor: Array

    def __call__(self, z: Any) -> Any:
        """Map coordinates of unit scale, (..., dim), to the density's own."""
        return self.mode + z @ self.factor.T


MAX_SCALE = 2.0
"""A direction flatter than this (in logarithms) at the mode is taken to have this scale."""


def laplace(log_density: LogDensity, data: Any, start: Array, bounds: Array) -> Laplace:
    """Find the mode within `bounds` (dim, 2), and the curvature there by central differences."""
    with jax.enable_x64(True):
        data = jax.tree.map(jnp.asarray, data)

        def loss(q: Array) -> tuple[float, Array]:
            value, gradient = _value_and_grad(log_density, jnp.asarray(q), data)
            return -float(value), -np.asarray(gradient)

        mode = optimize.minimize(loss, start, jac=True, method="L-BFGS-B", bounds=bounds).x
        steps = 1e-3 * np.eye(len(mode))
        H = np.stack([(loss(mode + e)[1] - loss(mode - e)[1]) / 2e-3 for e in steps])
    curvature, axes = np.linalg.eigh(0.5 * (H + H.T))
    return Laplace(mode, axes / np.sqrt(np.maximum(curvature, MAX_SCALE**-2)))


class LowRank(NamedTuple):
    """A linear map that takes the stiffest directions of a density to unit scale.

    ``q = scale * (z + U ((lambda^(-1/2) - 1) * U^T z))``, (lambda, U) the leading eigenpairs of the
    scaled negative Hessian: (r,) and (dim, r). Its Jacobian is a constant.
    """

    scale: Any
    shrink: Any
    U: Any

    def __call__(self, z: Any) -> Any:
        """Map coordinates (..., dim) to the density's own."""
        return (z + ((z @ self.U) * self.shrink) @ self.U.T) * self.scale.reshape(
            (1,) * (z.ndim - 1) + (-1,)
        )

    def inverse(self, q: Array) -> Array:
        """Map back."""
        z = q / self.scale
        return z + ((z @ self.U) * (1.0 / (1.0 + self.shrink) - 1.0)) @ self.U.T


def no_directions(scale: Array, rank: int) -> LowRank:
    """The map that only scales, in the shape of one with `rank` directions."""
    return LowRank(scale, np.zeros(rank), np.zeros((len(scale), rank)))


def stiff_directions(
    log_density: LogDensity, data: Any, points: Array, scale: Array, rank: int
) -> LowRank:
    """Find the stiffest directions of the average Hessian at some points.

    By Lanczos iteration on differences of gradients: `log_density` is that of coordinates with this
    `scale`, whose gradient is compiled already.
    """
    with jax.enable_x64(True):
        data = jax.tree.map(jnp.asarray, data)

        def gradient(z: Array) -> Array:
            return np.asarray(_value_and_grad(log_density, jnp.asarray(z), data)[1])

        def curvature(direction: Array) -> Array:
            step = 1e-4 * direction.ravel() / np.linalg.norm(direction)
            change = [gradient(z - step) - gradient(z + step) for z in points / scale]
            return np.mean(change, axis=0) * np.linalg.norm(direction) / 2e-4

        size = len(scale)
        operator = LinearOperator((size, size), matvec=curvature, dtype=np.float64)
        start = np.random.default_rng(0).normal(size=size)
        values, U = eigsh(operator, k=rank, which="LA", tol=1e-2, v0=start)
    return LowRank(scale, np.maximum(values, 1.0) ** -0.5 - 1.0, U)


@partial(jax.jit, static_argnums=0)
def _block(
    log_density: LogDensity,
    key: Any,
    plan: Any,
    used: Any,
    state: Any,
    adaptation: Any,
    target_acceptance: Any,
    data: Any,
) -> Any:
    """Run the first `used` iterations of a block of `BLOCK`; one program warms up and draws."""
    kernel = blackjax.nuts.build_kernel()

    def density(q: Any) -> Any:
        return log_density(q, data)

    def iterate(i: Any, carry: Any) -> Any:
        key, state, adaptation, (positions, statistics) = carry
        key, subkey = jax.random.split(key)
        stage, window_end, adapting = plan[i]
        log_step = adaptation.step
        step_size = jnp.exp(jnp.where(adapting, log_step.log_step_size, log_step.log_step_size_avg))
        metric = adaptation.metric.inverse_mass_matrix
        state, info = kernel(subkey, state, density, step_size, metric)
        adapted = _adapt(
            target_acceptance, adaptation, stage, window_end, state.position, info.acceptance_rate
        )
        adaptation = _choose(adapting, adapted, adaptation)
        row = {
            "lp": state.logdensity,
            "energy": info.energy,
            "diverging": info.is_divergent,
            "n_steps": info.num_integration_steps,
            "acceptance_rate": info.acceptance_rate,
            "step_size": step_size,
        }
        positions = positions.at[i].set(state.position)
        statistics = {k: statistics[k].at[i].set(v) for k, v in row.items()}
        return key, state, adaptation, (positions, statistics)

    numbers = {k: jnp.zeros(BLOCK) for k in ("lp", "energy", "acceptance_rate", "step_size")}
    statistics = numbers | {
        "diverging": jnp.zeros(BLOCK, bool),
        "n_steps": jnp.zeros(BLOCK, jnp.int64),
    }
    out = jnp.zeros((BLOCK, state.position.size)), statistics
    return jax.lax.fori_loop(0, used, iterate, (key, state, adaptation, out))
