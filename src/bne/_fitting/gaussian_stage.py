"""The Gaussian stages, ensemble (Eq. 1) and additive (Eq. 2).

The hyperparameters are sampled by HMC, and then the terms of the mean are drawn in closed form. In
this file ``data.F`` is the matrix of the experts' predictions at the training rows, not a CDF.
"""

from collections.abc import Sequence

import numpy as np

from bne._base.priors import Priors
from bne._base.typing import Array
from bne._data.rows import Rows
from bne._draws.stage import Stage, StageDraws
from bne._fitting.collapsed import SpectralTable, log_collapsed_density, spectral_table
from bne._fitting.training import Training
from bne._mean.gaussian import GramTable, Hyperparameters, gram_table, noise_scale, posterior
from bne._mean.term import Term, TermDraws, moving, split_fixed
from bne._sampler.coordinates import Laplace, laplace
from bne._sampler.hmc import Draws, Run, sample

RANK = 128
"""Spectral tables are padded to this many directions, so that most fits share one program.

It is the usual number of feature points of delta.
"""

CAREFUL = 0.95
"""Target acceptance of the Gaussian stages: high, because a leapfrog step costs little here."""


def sample_gaussian(
    rows: Rows, data: Training, terms: Sequence[Term], run: Run, seed: np.random.SeedSequence
) -> tuple[Stage, Hyperparameters]:
    """Sample the stage that these terms make, and find the mode of its hyperparameters.

    With the weights alone it is the stage ensemble; with delta it is the stage additive. The
    hyperparameters are sampled by HMC from the collapsed posterior. Then omega and delta are drawn
    in closed form, once for each draw of the hyperparameters.
    """
    sampler_seed, start_seed, closed_seed = (int(s) for s in seed.generate_state(3))
    spectrum = spectrum_of(data)
    whitening = _whiten(spectrum, data.power, data.priors)
    size = len(Hyperparameters._fields)
    jitter = np.random.default_rng(start_seed).normal(size=(run.settings.chains, size))
    careful = run.settings._replace(target_acceptance=CAREFUL)
    z = sample(
        log_collapsed_density,
        (spectrum, data.power, data.priors, whitening),
        jitter,
        np.ones(size),
        run._replace(settings=careful, seed=sampler_seed),
    )
    position = whitening(z.position)
    h = Hyperparameters(*position.reshape(-1, size).T)
    grams = gram_table(data.F, data.y, data.table, data.grid, data.places).repeated(data.power)
    drawn = _draw_theta(grams, h, data.F.shape[1], np.random.default_rng(closed_seed))
    draws = _stage_draws(terms, rows, h, drawn, z._replace(position=position))
    return Stage(draws, terms), Hyperparameters(*whitening.mode)


def spectrum_of(data: Training) -> SpectralTable:
    """Make the spectral table of the training rows, padded to `RANK` directions or more."""
    rank = max(RANK, data.table.shape[2])
    return spectral_table(data.F, data.y, data.table, data.grid, rank, data.places)


def _stage_draws(
    terms: Sequence[Term], rows: Rows, h: Hyperparameters, drawn: tuple[Array, Array], z: Draws
) -> StageDraws:
    """Name the draws of the terms, and leave out hyperparameters that have no term."""
    (theta, xi), mover = drawn, moving(terms)
    K = theta.shape[1] if mover is None else theta.shape[1] - len(mover.feature_map.points)
    sigma_omega, position = np.exp(h.log_sigma_omega), z.position
    named = split_fixed(terms, rows, sigma_omega[:, None] * theta[:, :K], sigma_omega)
    if mover is None:
        used = [h._fields.index(name) for name in ("log_sigma_omega", "log_sigma_eps")]
        position = position[..., used]
    else:
        sigma_delta = np.exp(h.log_sigma_delta)
        named[mover.name] = TermDraws(theta[:, K:], sigma_delta, h.log_ell, xi)
    return StageDraws(named, noise_scale(h.log_sigma_eps), position, z.statistics)


def _whiten(spectrum: SpectralTable, power: float, priors: Priors) -> Laplace:
    """Find coordinates in which the posterior of the hyperparameters has about unit scale.

    They come from the mode of the posterior and the curvature there.
    """
    start = Hyperparameters(
        log_sigma_omega=np.log(0.5 * priors.omega),
        log_sigma_delta=np.log(0.5 * priors.delta),
        log_sigma_eps=np.log(0.5 * priors.noise),
        log_ell=np.log(priors.ell.quantile(0.5)),
    )
    ends = np.log(priors.ell.quantile(1e-3)), np.log(priors.ell.quantile(1 - 1e-2))
    low = Hyperparameters(*(v - 15.0 for v in start))._replace(log_ell=ends[0])
    high = Hyperparameters(*(v + 5.0 for v in start))._replace(log_ell=ends[1])
    unit = Laplace(np.zeros(len(start)), np.eye(len(start)))
    data = spectrum, power, priors, unit
    bounds = np.column_stack([low, high])
    return laplace(log_collapsed_density, data, np.array(start), bounds)


def _draw_theta(
    grams: GramTable, h: Hyperparameters, K: int, rng: np.random.Generator
) -> tuple[Array, Array]:
    """Draw theta, and the number xi that completes delta, for each draw of the hyperparameters."""
    S, width = len(h.log_ell), grams.cross.shape[1]
    z, xi = rng.standard_normal((S, width)), rng.standard_normal(S)
    for s in range(S):
        gram, cross = grams.at(h.log_ell[s])
        scale = np.full(width, np.exp(h.log_sigma_delta[s]))
        scale[:K] = np.exp(h.log_sigma_omega[s])
        z[s] = posterior(gram, cross, scale, noise_scale(h.log_sigma_eps[s])).draw(z[s])
    return z, xi
