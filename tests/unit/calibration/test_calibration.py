"""G: the basis, its conditions, the normaliser, and draws that are CDFs."""

from itertools import pairwise

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import integrate, optimize, special, stats

from bne._base.divergence import divergences, equispaced
from bne._calibration import cgp as _cgp
from bne._calibration import logistic as _logistic
from bne._calibration.base_law import (
    HALF_WIDTH,
    NODE_SPACING,
    TAIL_MOMENTS,
    log_base,
    quadrature,
    sharpest_peak,
    tail_mass,
    tail_pdf,
)
from bne._calibration.cgp import ConstrainedGP
from bne._calibration.construction import cosines as cosines_of
from bne._calibration.logistic import Logistic
from bne._calibration.ratio import Ratio, make_ratio
from bne._fitting import full_density as _model
from bne._process.interpolation import interpolate
from conftest import base_pdf, rule_error, sharpness, shifted

LOGISTIC = Logistic()
CGP = ConstrainedGP()
BASES = {c: c.make_basis(has_residual=True) for c in (LOGISTIC, CGP)}
BASIS = BASES[LOGISTIC]
both = pytest.mark.parametrize("construction", [LOGISTIC, CGP], ids=["logistic", "cgp"])


def cosines(t):
    return cosines_of(LOGISTIC, t)


def root(ell, construction=LOGISTIC):
    basis = BASES[construction]
    return interpolate(basis.roots, np.log(ell), basis.log_ell)


def prior_draws(S, n, amplitude, seed=shifted(0), construction=LOGISTIC):
    """Coefficients of G drawn from the (unconstrained) prior, length-scales too."""
    rng = np.random.default_rng(seed)
    quantiles = rng.uniform(0.005, 0.995, S)
    prior = BASES[construction].prior
    roots = np.stack([root(prior.quantile(q), construction) for q in quantiles])
    sigma_G = rng.uniform(0.1, amplitude, S)
    z = rng.normal(size=(S, n, roots.shape[2]))
    return sigma_G[:, None, None] * z, roots, sigma_G


def log_r_of(t, coefficients, T, sigma_G, construction=LOGISTIC):
    """The formulas of the modules' docstrings, written out; not normalised."""
    if construction is LOGISTIC:
        b = cosines(np.asarray(t)) @ T
        return b @ coefficients - 0.5 * sigma_G**2 * np.sum(b**2, axis=-1)
    u = special.ndtr(np.clip(t, -HALF_WIDTH, HALF_WIDTH))
    k = np.arange(len(T))
    slope = 1 + np.sum(
        T @ coefficients * np.sqrt(2) * k * np.pi * np.cos(np.multiply.outer(u, k) * np.pi), -1
    )
    return np.log(_cgp.FLOOR) + np.log(np.logaddexp(slope / _cgp.FLOOR, 0))


def test_cosines_are_orthonormal_and_flat_at_the_ends():
    t = np.linspace(-HALF_WIDTH, HALF_WIDTH, 20_001)
    gram = integrate.trapezoid(cosines(t)[:, :, None] * cosines(t)[:, None, :], t, axis=0)
    np.testing.assert_allclose(gram, np.eye(gram.shape[0]), atol=1e-6)
    direct = np.cos((t[:, None] + HALF_WIDTH) * _logistic.FREQUENCIES) * LOGISTIC.norms
    np.testing.assert_allclose(cosines(t), direct, atol=1e-12)
    beyond = cosines(np.array([HALF_WIDTH, HALF_WIDTH + 3.0, -9.0, -HALF_WIDTH]))
    np.testing.assert_allclose(beyond[0], beyond[1])
    np.testing.assert_allclose(beyond[2], beyond[3])


def test_the_basis_approximates_the_matern_kernel():
    ell = 1.0
    S = _logistic.spectral_density(ell)
    t = np.linspace(-2, 2, 9)
    approximate = (cosines(t) * S) @ cosines(t).T
    r = np.sqrt(3) * np.abs(t[:, None] - t[None]) / ell
    np.testing.assert_allclose(approximate, (1 + r) * np.exp(-r), atol=0.02)


@pytest.mark.parametrize("ell", [0.4, 0.77, 1.3, 4.0])
def test_h_has_no_mean_and_no_slope_under_the_normal(ell):
    t = np.linspace(-12, 12, 40_001)
    b = cosines(t) @ root(ell)
    for moment in (np.ones_like(t), t):
        product = integrate.trapezoid(stats.norm.pdf(t)[:, None] * moment[:, None] * b, t, axis=0)
        np.testing.assert_allclose(product, 0, atol=1e-8)


def test_conditioning_equals_the_dense_formula_at_a_node():
    j = 12
    D = np.diag(_logistic.spectral_density(np.exp(BASIS.log_ell[j])))
    t = np.linspace(-12, 12, 40_001)
    moments = stats.norm.pdf(t) * np.stack([np.ones_like(t), t])
    R = integrate.trapezoid(moments[:, :, None] * cosines(t)[None], t, axis=1).T
    dense = D - D @ R @ np.linalg.solve(R.T @ D @ R, R.T @ D)
    T = BASIS.roots[j]
    np.testing.assert_allclose(T @ T.T, dense, atol=1e-8)


@both
@pytest.mark.slow
def test_normaliser_equals_adaptive_quadrature(construction):
    """For cgp with slopes that stay off the floor, whose kinks no fixed rule could see."""
    coefficients, roots, sigma_G = prior_draws(30, 2, 3.0, construction=construction)
    if construction is CGP:
        bend = coefficients @ (cosines_of(CGP, quadrature()[0]) @ roots).transpose(0, 2, 1)
        coefficients *= 0.7 / np.max(np.abs(bend), axis=2, keepdims=True)
    for s in range(30):
        log_Z, mean, log_sd = _model.normaliser(
            construction, coefficients[s], roots[s], sigma_G[s], xp=np
        )
        for i in range(2):

            def integrand(t, power=0, s=s, i=i):
                parts = coefficients[s, i], roots[s], sigma_G[s]
                log_r = log_r_of(t, *parts, construction)
                return np.exp(log_r) * base_pdf(t) * t**power

            def moment(power, integrand=integrand):
                pieces = np.linspace(-HALF_WIDTH, HALF_WIDTH, 11)
                ends = [-np.inf, *pieces, np.inf]
                return sum(
                    integrate.quad(integrand, a, b, args=(power,), epsabs=1e-13, epsrel=1e-11)[0]
                    for a, b in pairwise(ends)
                )

            Z = moment(0)
            np.testing.assert_allclose(np.exp(log_Z[i]), Z, rtol=1e-6)
            np.testing.assert_allclose(mean[i], moment(1) / Z, atol=1e-6)
            variance = moment(2) / Z - (moment(1) / Z) ** 2
            np.testing.assert_allclose(np.exp(2 * log_sd[i]), variance, rtol=1e-5)


@both
def test_every_draw_is_a_cdf(construction):
    coefficients, roots, sigma_G = prior_draws(500, 20, 3.0, construction=construction)
    ratio = make_ratio(construction, coefficients, roots, sigma_G)  # 10,000 (draw, x) pairs
    t = np.concatenate([[-4000.0], np.linspace(-8, 8, 401), [4000.0]])
    fine = np.tile(np.linspace(-10, 10, 481), (500, 1))  # nodes are among them
    for row in range(20):
        F = ratio.cdf(np.tile(t, (500, 1)), np.full(len(t), row))
        assert np.all(np.diff(F, axis=1) >= -1e-12)
        np.testing.assert_allclose(F[:, 0], 0, atol=1e-12)
        np.testing.assert_allclose(F[:, -1], 1, atol=1e-12)
        log_r = ratio.log_ratio(fine, np.full(fine.shape[1], row))
        pdf = np.exp(log_r) * base_pdf(fine)
        mass = integrate.simpson(pdf, x=fine, axis=1)  # exact for the cubics of cgp
        np.testing.assert_allclose(mass, 1, atol=1e-6)


@pytest.mark.slow
def test_ratio_tables_equal_the_formula():
    coefficients, roots, sigma_G = prior_draws(8, 4, amplitude=1.5, seed=shifted(3))
    ratio = make_ratio(LOGISTIC, coefficients, roots, sigma_G)
    rng = np.random.default_rng(shifted(0))
    t, row = rng.uniform(-6, 6, size=(8, 9)), rng.integers(4, size=9)
    log_r, F = ratio.log_ratio(t, row), ratio.cdf(t, row)
    for s in range(8):
        for k in range(9):
            c = coefficients[s, row[k]]

            def density(u, s=s, c=c):
                return np.exp(log_r_of(u, c, roots[s], sigma_G[s])) * base_pdf(u)

            ends = np.unique(np.r_[-np.inf, np.arange(-5, 6), np.inf])
            Z = sum(integrate.quad(density, a, b)[0] for a, b in pairwise(ends))
            np.testing.assert_allclose(
                log_r[s, k], log_r_of(t[s, k], c, roots[s], sigma_G[s]) - np.log(Z), atol=1e-6
            )
            below = [e for e in ends if e < t[s, k]] + [t[s, k]]
            mass = sum(integrate.quad(density, a, b)[0] for a, b in pairwise(below))
            np.testing.assert_allclose(F[s, k], mass / Z, atol=2e-5)
    u = rng.uniform(size=6)
    draw, rows = rng.integers(8, size=6), rng.integers(4, size=6)
    q = ratio.ppf(u, draw, rows)
    back = [ratio.cdf(np.full((8, 1), q[k]), rows[k : k + 1])[draw[k], 0] for k in range(6)]
    np.testing.assert_allclose(back, u, atol=1e-8)


def test_the_base_is_normal_up_to_the_ends_of_the_basis_and_a_power_beyond():
    inside = np.linspace(-HALF_WIDTH, HALF_WIDTH, 101)
    np.testing.assert_allclose(log_base(inside), stats.norm.logpdf(inside), rtol=1e-12)
    t = np.array([-300.0, -17.0, -5.01, 5.01, 6.0, 40.0])
    np.testing.assert_allclose(log_base(t), np.log(base_pdf(t)), rtol=1e-12)
    outside = t[np.abs(t) >= HALF_WIDTH]
    np.testing.assert_allclose(tail_pdf(outside), base_pdf(outside), rtol=1e-12)
    for x in (5.0, 5.3, 12.0):
        mass = integrate.quad(base_pdf, x, np.inf, epsabs=0.0)[0]
        np.testing.assert_allclose([tail_mass(x), tail_mass(-x)], mass, rtol=1e-9)
    with jax.enable_x64(True):
        slopes = jax.vmap(jax.grad(lambda u: log_base(u, jnp)))(jnp.array([4.999, 5.001, -5.001]))
    np.testing.assert_allclose(slopes, [-5.0, -5.0, 5.0], rtol=1e-3)


def test_moments_and_entropy_count_the_tails():
    """The ratio is large at the ends, where tails have a hundred times their mass."""
    coefficients, roots, sigma_G = prior_draws(8, 1, amplitude=3.0, seed=shifted(8))
    ratio = make_ratio(LOGISTIC, coefficients, roots, sigma_G)
    m, row = ratio.moments, np.zeros(1, dtype=int)
    ends = [-np.inf, *np.arange(-5, 6), np.inf]
    for s in range(8):

        def log_r(t, s=s):
            return ratio.log_ratio(np.full((8, 1), t), row)[s, 0]

        def expect(value, log_r=log_r):
            def integrand(t):
                return np.exp(log_r(t)) * base_pdf(t) * value(t)

            return sum(integrate.quad(integrand, a, b)[0] for a, b in pairwise(ends))

        mean, square = expect(lambda t: t), expect(lambda t: t**2)
        entropy = expect(lambda t, log_r=log_r: -log_r(t) - np.log(base_pdf(t)))
        ours = [m.mean[s, 0], m.variance[s, 0], m.entropy[s, 0]]
        np.testing.assert_allclose(ours, [mean, square - mean**2, entropy], atol=2e-5)


def test_an_outlier_far_beyond_the_basis_is_harmless():
    coefficients, roots, sigma_G = prior_draws(20, 2, amplitude=2.0)
    ratio = make_ratio(LOGISTIC, coefficients, roots, sigma_G)
    t = np.array([-30.0, -8.0, -HALF_WIDTH, HALF_WIDTH, 8.0, 30.0])
    log_r = ratio.log_ratio(np.tile(t, (20, 1)), np.zeros(6, dtype=int))
    np.testing.assert_allclose(log_r[:, 0], log_r[:, 2])
    np.testing.assert_allclose(log_r[:, 5], log_r[:, 3])
    assert np.all(np.isfinite(log_r))


def test_prior_predictive_is_close_to_the_normal():
    """Centring h makes E[r] about 1: the identity mean of the paper, far off the data."""
    rng = np.random.default_rng(shifted(0))
    for sigma in (1.0, 2.0):
        z = rng.normal(size=(4000, 1, BASIS.roots.shape[2]))
        roots = np.stack([root(BASIS.prior.quantile(q)) for q in rng.uniform(0.01, 0.99, 4000)])
        ratio = make_ratio(LOGISTIC, sigma * z, roots, np.full(4000, sigma))
        m = ratio.moments
        total = np.mean(m.variance + m.mean**2) - np.mean(m.mean) ** 2
        assert abs(np.sqrt(total) - 1) < 0.05
        F = np.mean(ratio.tables.nodes[:, 0, :, 2], axis=0)
        assert np.max(np.abs(F - special.ndtr(quadrature()[0]))) < 0.02


def test_without_delta_h_keeps_its_slope():
    assert LOGISTIC.make_basis(has_residual=False).roots.shape[2] == BASIS.roots.shape[2] + 1


def random_ratio(rng, S=60, n=5):
    """Rough draws of the ratio, at more rows than a block and not a multiple of it."""
    basis = LOGISTIC.make_basis(has_residual=True)
    sigma_G = rng.uniform(0.2, 2.0, S)
    coefficients = sigma_G[:, None, None] * rng.normal(size=(S, n, basis.roots.shape[2]))
    roots = basis.roots[rng.integers(len(basis.roots), size=S)]
    return make_ratio(LOGISTIC, coefficients, roots, sigma_G)


def test_tables_are_whole_where_the_last_block_is_not_full():
    """A look-up in an array with gaps would copy all of it, every time."""
    ratio = random_ratio(np.random.default_rng(shifted(4)), n=5)
    first = Ratio(LOGISTIC, ratio.series[:, :2])
    assert ratio.tables.nodes.shape[:2] == (60, 5)
    for ours, theirs in zip(ratio.tables, first.tables, strict=True):
        assert ours.flags.c_contiguous
        np.testing.assert_array_equal(ours[:, :2], theirs)


def test_mixture_quantiles_equal_a_bracketing_root_finder():
    """Also where the draws are far apart, so that most are in their tails at a quantile."""
    rng = np.random.default_rng(shifted(5))
    ratio, sigma = random_ratio(rng), rng.uniform(0.5, 2.0, 60)
    for spread in (0.1, 30.0):
        mu = spread * rng.normal(size=(60, 5))
        levels = np.tile([1e-8, 1e-3, 0.05, 0.5, 0.95, 1 - 1e-8], (5, 1))
        ours = ratio.mixture_quantiles(mu, sigma, levels)
        for i in range(5):
            for level, y in zip(levels[i], ours[i], strict=True):
                row = np.array([i])

                def excess(v, row=row, level=level, mu=mu):
                    t = (v - mu[:, row]) / sigma[:, None]
                    return np.mean(ratio.cdf(t, row)) - level

                ends = mu[:, i].min() - 400.0, mu[:, i].max() + 400.0
                expected = optimize.brentq(excess, *ends, xtol=1e-13, rtol=1e-14)
                np.testing.assert_allclose(y, expected, atol=1e-7 * (1.0 + abs(expected)))


def test_divergences_equal_those_of_the_tables():
    rng = np.random.default_rng(shifted(6))
    ratio, sigma, mu = random_ratio(rng), rng.uniform(0.5, 2.0, 60), rng.normal(size=(60, 5))
    low, high = np.full(5, -20.0), np.full(5, 21.0)
    y, step = equispaced(low, high)
    row = np.repeat(np.arange(5), y.shape[1])
    t = (y.ravel()[None] - mu[:, row]) / sigma[:, None]
    f = (ratio.pdf(t, row) / sigma[:, None]).reshape(60, *y.shape)
    np.testing.assert_allclose(
        ratio.divergences(mu, sigma, low, high), divergences(f, step), rtol=1e-10
    )


@pytest.mark.parametrize("amplitude", [1.0, 3.0, 5.0])
@pytest.mark.slow
def test_the_normaliser_keeps_its_promise(amplitude):
    """The rule at twelve times as many nodes says how exact it is, beside what Poisson's sum says.

    With draws of amplitude 5 some peaks are too sharp for 1e-6; they are too sharp for a rule with
    nodes 0.125 apart by far.
    """
    rng = np.random.default_rng(shifted(7))
    roots = np.stack([root(BASIS.prior.quantile(q)) for q in rng.uniform(0.005, 0.995, 400)])
    z = rng.normal(size=(400, 5, roots.shape[2]))
    ratio = make_ratio(LOGISTIC, amplitude * z, roots, np.full(400, amplitude))
    t = np.linspace(-HALF_WIDTH, HALF_WIDTH, 1441)
    step, coarse = t[1] - t[0], []
    for row in range(5):
        r = np.exp(ratio.log_ratio(np.tile(t, (400, 1)), np.full(len(t), row)))
        mass = np.trapezoid(r * base_pdf(t), dx=step, axis=1)
        mass += TAIL_MOMENTS[0] * (r[:, 0] + r[:, -1])
        mass += step**2 / 12.0 * HALF_WIDTH * base_pdf(HALF_WIDTH) * (r[:, 0] + r[:, -1])
        error = np.abs(mass - 1.0)
        curvature = sharpness(ratio, row)
        assert np.all(error < np.maximum(1e-6, 2.0 * rule_error(curvature)))
        assert np.all(error[curvature < sharpest_peak(1e-6)] < 1e-6)
        coarse.append(np.max(rule_error(curvature * (0.125 / NODE_SPACING) ** 2)))
    assert amplitude < 5.0 or max(coarse) > 1e-6
