"""Hamiltonian Monte Carlo, from a log density, its data and starting points to draws.

Trajectories have random lengths, in coordinates of about unit scale. The warm-up finds these
coordinates in rounds (`fisher_map`).

The log density takes its data as an argument, and the caller pads the data. So one compiled program
serves all data sets of about the same size. A chain runs in blocks of iterations. Between two
blocks Python is in control: it shows progress, writes a checkpoint, or stops.
"""

import time
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import blackjax
import jax
import jax.numpy as jnp
import numpy as np
from blackjax.adaptation.step_size import dual_averaging_adaptation
from blackjax.mcmc.hmc import HMCState
from joblib import Parallel, delayed

from bne._base.typing import Array
from bne._sampler.checkpoint import NO_CHECKPOINT, ChainLog, Checkpoint
from bne._sampler.coordinates import LogDensity, LowRank, fisher_map, scales_only
from bne._sampler.progress import Here, no_report

START = -1
"""Number of the iteration before the first. It only evaluates the density at the start."""

BLOCK = 50
"""Largest number of iterations in a block. A block returns arrays of this length."""

BLOCK_SECONDS = 2.0
"""About how long a block may take: within it no progress is shown and no draw is written."""


class Reach(NamedTuple):
    """The length of trajectories: their mean length, and the largest number of leapfrog steps."""

    length: float
    max_steps: int


FULL = Reach(4.0, 128)
"""Usual reach: a quarter turn in a direction of 2.5 times unit scale. With lengths of 2 and 8 the
noise scale had fewer effective draws per step (docs/lab/sampler.md)."""

FIRST = Reach(4.0, 32)
"""Reach in the first round, in which the coordinates are only guesses. There a step is a fifth of
its later size, so that a whole trajectory would take more than a hundred steps."""

SPREAD = 0.7
"""Lengths of trajectories are uniform within this share of their mean. With a fixed length, a
direction whose period it matches would return to where it started."""

JITTER = 0.3
"""Step sizes are uniform within this share of the adapted one. The shorter steps get chains out of
places where the posterior bends sharply."""

ROUNDS = (0.2, 0.3)
"""Lengths of the warm-up's rounds, as shares of it. New coordinates are found after each of them;
earlier and later ones did not pay (docs/lab/sampler.md)."""

DIRECTIONS = 48
"""Number of directions that the coordinates stretch. More of them follow the posterior more
closely, but take more time in every step."""

DAMPING = 0.2
"""Damping of dual averaging, which adapts the step size. With the customary 0.05, one refused
trajectory made the next steps seventeen times shorter (docs/lab/sampler.md)."""


class Draws(NamedTuple):
    """Positions and gradients (chain, draw, dim), and statistics by name, each (chain, draw)."""

    position: Any
    gradient: Any
    statistics: dict[str, Any]


class OnDevice:
    """Arrays on JAX's device, which are sent to other processes as numpy arrays."""

    def __init__(self, tree: Any) -> None:
        self.tree = jax.tree.map(jnp.asarray, tree)

    def __getstate__(self) -> Any:
        """Turn the arrays into numpy arrays."""
        return jax.tree.map(np.asarray, self.tree)

    def __setstate__(self, tree: Any) -> None:
        """Keep the numpy arrays: JAX would narrow them to 32 bits unless 64 are enabled."""
        self.tree = tree


class SamplerSettings(NamedTuple):
    """Settings of the sampler, as `BNERegressor` has them."""

    chains: int
    warmup: int
    draws: int
    target_acceptance: float
    n_jobs: int | None


class Run(NamedTuple):
    """How a density is sampled, and how the run reports.

    Attributes
    ----------
    settings : SamplerSettings
    seed : int
    progress : function
        It is called with the number of iterations just done, from any thread.
    checkpoint : Checkpoint
        Where chains store their draws, and from where they continue.
    """

    settings: SamplerSettings
    seed: int = 0
    progress: Callable[[int], object] = no_report
    checkpoint: Checkpoint = NO_CHECKPOINT


def sample(
    log_density: LogDensity,
    data: Any,
    starts: Array,
    scale: Array,
    run: Run,
    reach: Reach = FULL,
) -> Draws:
    """Run one chain from each row of `starts`.

    Parameters
    ----------
    log_density : function of (position, data)
        A function of a module, not a closure: its identity is the key of the compiled program.
    starts : (chain, dim)
    scale : (dim,)
        Rough scale of every coordinate, to begin with.
    run : Run
    reach : Reach
        Reach of trajectories after the first round.

    Notes
    -----
    Every chain has its own key, so that the numbers do not depend on `n_jobs`. Chains run in
    threads: the compiled program releases the interpreter's lock, and is compiled once.
    """
    warmup, draws = run.settings.warmup, run.settings.draws
    coordinates = scales_only(scale, min(DIRECTIONS, len(scale)))
    lengths = [int(share * warmup) for share in ROUNDS]
    chains = partial(_run_chains, log_density, data, run)
    for i, length in enumerate(lengths):
        if length == 0:
            continue
        span = Round(f"round{i}", (run.seed, i), length, 0, reach if i else FIRST)
        z = chains(coordinates, starts, span)
        settled = slice(length // 2, None)
        q, g = coordinates(z.position), coordinates.pull_back(z.gradient)
        starts = q[:, -1]
        q, g = (_flat(a[:, settled]) for a in (q, g))
        if len(q) > 1:
            coordinates = fisher_map(q, g, coordinates)
    adapting = warmup - sum(lengths)
    last = Round("draws", (run.seed, len(ROUNDS)), adapting, draws, reach)
    z = chains(coordinates, starts, last)
    z = jax.tree.map(lambda a: a[:, adapting:], z)
    return Draws(coordinates(z.position), coordinates.pull_back(z.gradient), z.statistics)


def _flat(a: Array) -> Array:
    return a.reshape(-1, a.shape[-1])


class Round(NamedTuple):
    """A part of the run in which the coordinates do not change.

    It has `adapting` iterations, in which the step size adapts, and then `draws` iterations.
    `seed` is the seed of its chains, and `name` its folder in the checkpoint.
    """

    name: str
    seed: tuple[int, ...]
    adapting: int
    draws: int
    reach: Reach


def _run_chains(
    log_density: LogDensity, data: Any, run: Run, coordinates: LowRank, starts: Array, span: Round
) -> Draws:
    """Run all chains of a round in the given coordinates."""
    seeds = np.random.SeedSequence(span.seed).generate_state(len(starts))
    with jax.enable_x64(True):
        data = OnDevice((data, coordinates))
    acceptance = run.settings.target_acceptance
    here = Here(run.progress)
    chain = partial(_run_chain, log_density, data, acceptance, progress=here)
    z = coordinates.inverse(starts)
    folder = run.checkpoint.part(span.name)
    logs = [folder.chain(f"chain{i}") for i in range(len(z))]
    compiling = span._replace(adapting=0, draws=0)
    chain(compiling, z[0], 0, ChainLog(None))  # compile once, before there are threads
    try:
        results = Parallel(n_jobs=run.settings.n_jobs, prefer="threads")(
            delayed(chain)(span, start, int(s), log)
            for start, s, log in zip(z, seeds, logs, strict=True)
        )
    except BaseException:
        here.stop()
        raise
    return jax.tree.map(lambda *a: np.stack(a), *results)


def _run_chain(
    log_density: LogDensity,
    on_device: OnDevice,
    target_acceptance: float,
    span: Round,
    start: Array,
    seed: int,
    log: ChainLog,
    progress: Here,
) -> Draws:
    """Run one chain of a round. It continues from the last block in its log."""
    total = span.adapting + span.draws
    with progress, jax.enable_x64(True):
        data = jax.tree.map(jnp.asarray, on_device.tree)
        begin = jax.random.key_data(jax.random.key(seed)), *_unstarted(jnp.asarray(start))
        blocks, state, done = log.resume(_no_draws(len(start)), begin)
        progress(max(done + START, 0))
        state = begin if state is None else jax.tree.map(jnp.asarray, state)
        first, length = START + done, 1
        while first < total:
            began = time.monotonic()
            used = min(length, total - first)
            ends = np.array([first, first + used, span.adapting])
            *state, out = _block(log_density, ends, *state, target_acceptance, span.reach, data)
            blocks.append(jax.tree.map(lambda a, used=used: np.asarray(a)[:used], out))
            log.add(blocks[-1], state, last=first + used == total)
            progress(used - (first == START))
            each = max(time.monotonic() - began, 1e-3) / used  # a coarse clock may say 0
            first, length = first + used, int(np.clip(BLOCK_SECONDS / each, 1, BLOCK))
    return jax.tree.map(lambda *a: np.concatenate(a)[-START:], *blocks)


def _unstarted(z: Any) -> Any:
    """Make the states of the sampler and of its step size before iteration `START`.

    The density is not known there yet. Dual averaging pulls the step size to its first value, which
    has the right order in coordinates of unit scale. (The custom is ten times the first value.)
    """
    step = dual_averaging_adaptation(0.8)[0](z.size**-0.25)
    step = step._replace(mu=step.log_step_size)
    state = HMCState(z, jnp.asarray(-jnp.inf, z.dtype), jnp.zeros_like(z)), step
    return jax.tree.map(lambda a: jnp.asarray(a, jnp.result_type(a)), state)


def _transformed(log_density: LogDensity, z: Any, data: tuple[Any, LowRank]) -> Any:
    """Find the log density in the sampler's coordinates; the Jacobian is constant and left out."""
    return log_density(data[1](z), data[0])


@partial(jax.jit, static_argnums=0)
def _block(
    log_density: LogDensity,
    ends: Any,
    key_data: Any,
    state: Any,
    adaptation: Any,
    target_acceptance: Any,
    reach: Reach,
    data: Any,
) -> Any:
    """Run iterations `ends[0]` to `ends[1]` of a round, at most `BLOCK` of them.

    The step size adapts in iterations before `ends[2]`. Iteration `START` takes one step of size 0,
    which finds the density and its gradient at the start. So these need not be compiled twice.
    """
    key = jax.random.wrap_key_data(key_data)
    kernel = blackjax.hmc.build_kernel()
    density = partial(_transformed, log_density, data=data)
    metric = jnp.ones(state.position.size)
    _, update, _ = dual_averaging_adaptation(target_acceptance, gamma=DAMPING)

    def iterate(i: Any, carry: Any) -> Any:
        key, state, adaptation, out = carry
        key, jitter_key, step_key = jax.random.split(key, 3)
        adapting = (i < ends[2]) & (i != START)
        log_step = jnp.where(adapting, adaptation.log_step_size, adaptation.log_step_size_avg)
        longer, coarser = jax.random.uniform(jitter_key, (2,), minval=-1.0, maxval=1.0)
        step_size = jnp.exp(log_step) * (1.0 + JITTER * coarser)
        length = reach.length * (1.0 + SPREAD * longer)
        n_steps = jnp.clip(jnp.ceil(length / step_size), 1, reach.max_steps).astype(int)
        n_steps = jnp.where(i == START, 1, n_steps)
        step_size = jnp.where(i == START, 0.0, step_size)
        state, info = kernel(step_key, state, density, step_size, metric, n_steps)
        adapted = update(adaptation, info.acceptance_rate)
        adaptation = jax.tree.map(lambda a, b: jnp.where(adapting, a, b), adapted, adaptation)
        statistics = {
            "lp": state.logdensity,
            "energy": info.energy,
            "diverging": info.is_divergent,
            "n_steps": n_steps,
            "acceptance_rate": info.acceptance_rate,
            "step_size": step_size,
        }
        new = Draws(state.position, state.logdensity_grad, statistics)
        at = i - ends[0]
        return key, state, adaptation, jax.tree.map(lambda a, b: a.at[at].set(b), out, new)

    begin = key, state, adaptation, _no_draws(state.position.size)
    key, state, adaptation, out = jax.lax.fori_loop(ends[0], ends[1], iterate, begin)
    return jax.random.key_data(key), state, adaptation, out


def _no_draws(size: int) -> Draws:
    """Make an empty block of draws, to be filled."""
    zeros = jnp.zeros((BLOCK, size))
    numbers = {k: jnp.zeros(BLOCK) for k in ("lp", "energy", "acceptance_rate", "step_size")}
    statistics = numbers | {
        "diverging": jnp.zeros(BLOCK, bool),
        "n_steps": jnp.zeros(BLOCK, jnp.int64),
    }
    return Draws(zeros, zeros, statistics)
