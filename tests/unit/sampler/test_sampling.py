"""Hamiltonian Monte Carlo on a Gaussian whose moments are known, and how its steps adapt."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from blackjax.adaptation.step_size import dual_averaging_adaptation

from bne._sampler import hmc as _sampling
from bne._sampler.hmc import FIRST, FULL, Reach, Run, SamplerSettings, sample
from conftest import shifted

DIM = 5
SETTINGS = SamplerSettings(chains=4, warmup=200, draws=500, target_acceptance=0.95, n_jobs=2)


def log_density(q, data):
    mean, precision = data
    return -0.5 * (q - mean) @ precision @ (q - mean)


@pytest.fixture(scope="module")
def gaussian():
    rng = np.random.default_rng(shifted(0))
    root = rng.normal(size=(DIM, DIM))
    covariance = root @ root.T + 0.1 * np.eye(DIM)
    return rng.normal(size=DIM), covariance


def drawn(gaussian, **options):
    mean, covariance = gaussian
    data = mean, np.linalg.inv(covariance)
    starts = np.random.default_rng(shifted(1)).normal(size=(SETTINGS.chains, DIM))
    return sample(log_density, data, starts, np.ones(DIM), Run(SETTINGS, shifted(0)), **options)


@pytest.mark.parametrize("reach", [FULL, Reach(3.0, 128)])
def test_moments_of_a_gaussian(gaussian, reach):
    """Tolerances are four standard errors of 1,000 independent draws; 2,000 are made."""
    mean, covariance = gaussian
    draws = drawn(gaussian, reach=reach)
    whitened = np.linalg.solve(np.linalg.cholesky(covariance), (draws.position - mean)[..., None])
    z = whitened.reshape(-1, DIM)
    np.testing.assert_allclose(np.mean(z, axis=0), 0.0, atol=4 / np.sqrt(1000))
    np.testing.assert_allclose(np.cov(z.T), np.eye(DIM), atol=4 * np.sqrt(2 / 1000))
    assert not np.any(draws.statistics["diverging"])


def test_trajectories_are_as_long_as_asked(gaussian):
    """The number of steps is a length over a step size, both drawn independently."""
    for length in (4.0, 2.0):
        statistics = drawn(gaussian, reach=Reach(length, 128)).statistics
        lengths = statistics["n_steps"] * statistics["step_size"]
        rounding = np.mean(statistics["step_size"])
        np.testing.assert_allclose(np.mean(lengths), length, atol=rounding)
        assert np.min(lengths) > 0.3 * length - 1e-9


def test_the_first_round_has_short_trajectories(gaussian, monkeypatch):
    """In coordinates that are a thousand times too wide, 32 steps and not 128.

    In such coordinates every later trajectory would have 128 steps.
    """
    steps, run = [], _sampling._run_chains

    def watched(*arguments):
        z = run(*arguments)
        steps.append(z.statistics["n_steps"])
        return z

    monkeypatch.setattr(_sampling, "_run_chains", watched)
    mean, covariance = gaussian
    data = mean, 1e6 * np.linalg.inv(covariance)
    starts = np.tile(mean, (SETTINGS.chains, 1))
    sample(log_density, data, starts, np.ones(DIM), Run(SETTINGS._replace(draws=10), shifted(0)))
    assert np.max(steps[0]) == FIRST.max_steps
    assert len(steps) == 3
    assert max(np.median(s) for s in steps[1:]) < FIRST.max_steps  # the coordinates are found


def test_one_refusal_does_not_make_steps_tiny():
    """With the customary damping the step falls to less than a tenth."""

    def fallen(damping):
        update = dual_averaging_adaptation(SETTINGS.target_acceptance, gamma=damping)[1]
        state = _sampling._unstarted(jnp.zeros(DIM))[1]
        for _ in range(20):
            state = update(state, SETTINGS.target_acceptance)
        return float(jnp.exp(update(state, 0.0).log_step_size - state.log_step_size))

    with jax.enable_x64(True):
        assert fallen(_sampling.DAMPING) > 0.45
        assert fallen(0.05) < 0.1


def test_steps_adapt_to_the_target(gaussian):
    """A longer warm-up comes nearer to the target, because it averages more step sizes.

    For a target of .8 the rate was .833, .817 and .811 after 200, 1,000 and 2,000 iterations (means
    of 16 seeds, with sds of .014, .010 and .007). So .05 is six sds away after 2,000.
    """
    for target in (0.8, 0.95):
        mean, covariance = gaussian
        settings = SETTINGS._replace(target_acceptance=target, warmup=2000)
        starts = np.tile(mean, (settings.chains, 1))
        data = mean, np.linalg.inv(covariance)
        draws = sample(log_density, data, starts, np.ones(DIM), Run(settings, shifted(0)))
        found = np.mean(draws.statistics["acceptance_rate"])
        assert abs(found - target) < 0.05
