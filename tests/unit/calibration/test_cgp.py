"""The constrained Gaussian process: prior, constraint, and a fit through the public interface."""

import numpy as np
import pytest
from scipy import integrate, special, stats
from sklearn.gaussian_process.kernels import Matern

from bne._calibration import cgp as _cgp
from bne._calibration.cgp import ConstrainedGP, coefficient_covariance
from bne._calibration.ratio import make_ratio
from conftest import shifted

CGP = ConstrainedGP()
BASIS = CGP.make_basis(has_residual=True)


def slope(u, coefficients, T):
    """The module's formula: 1 + sqrt(2) sum_k c_k k pi cos(k pi u)."""
    k = np.arange(len(T))
    return 1 + np.sqrt(2) * np.cos(np.multiply.outer(u, k) * np.pi) @ (
        k * np.pi * (T @ coefficients)
    )


def test_coefficients_have_the_pinned_kernel():
    ell, u = 0.5, np.linspace(0.05, 0.95, 10)
    k = Matern(length_scale=ell, nu=1.5)
    at, ends = u[:, None], np.array([[0.0], [1.0]])
    pinned = k(at) - k(at, ends) @ np.linalg.solve(k(ends), k(ends, at))
    sines = np.sqrt(2) * np.sin(np.pi * np.outer(u, np.arange(1, 16)))
    np.testing.assert_allclose(sines @ coefficient_covariance(ell) @ sines.T, pinned, atol=2e-3)


def test_g_leaves_the_ends_and_the_mean():
    rng = np.random.default_rng(shifted(0))
    for T in BASIS.roots[[3, 15, 28]]:
        c = 0.1 * rng.normal(size=T.shape[1])
        total = integrate.quad(lambda u, c=c, T=T: slope(u, c, T), 0, 1, limit=200)[0]
        np.testing.assert_allclose(total, 1, atol=1e-8)
        t = np.linspace(-12, 12, 20_001)
        moved = np.trapezoid(t * slope(special.ndtr(t), c, T) * stats.norm.pdf(t), t)
        np.testing.assert_allclose(moved, 0, atol=1e-4)


def test_constraint_is_the_sum_of_probit_terms():
    rng = np.random.default_rng(shifted(1))
    T, virtual = BASIS.roots[20], 2.0 * rng.normal(size=(3, BASIS.roots.shape[2]))
    expected = sum(
        np.sum(stats.norm.logcdf(slope(_cgp.VIRTUAL_LEVELS, c, T) / _cgp.NU)) for c in virtual
    )
    ours = CGP.log_constraint(virtual.astype(np.float32), T.astype(np.float32))
    np.testing.assert_allclose(float(ours), expected, rtol=1e-3)


@pytest.mark.slow
def test_completion_follows_the_constrained_prior():
    """Beside importance sampling from the unconstrained prior; without the constraint it fails."""
    S, T, sigma = 2000, BASIS.roots[16], 0.3
    rng = np.random.default_rng(shifted(0))
    ours = CGP.completion(np.tile(T, (S, 1, 1)), np.full(S, sigma), rng)
    z = rng.normal(size=(400_000, T.shape[1]))
    k = np.arange(len(T))
    B = np.sqrt(2) * np.cos(np.outer(_cgp.VIRTUAL_LEVELS, k) * np.pi) * k * np.pi @ T
    weight = special.softmax(np.sum(special.log_ndtr((1 + sigma * z @ B.T) / _cgp.NU), axis=1))
    effective = 1 / np.sum(weight**2)
    assert effective > 500
    spread, free = weight @ (z @ B.T) ** 2, np.mean((z @ B.T) ** 2, axis=0)
    error = 5 * np.sqrt(2) * spread * np.sqrt(1 / S + 1 / effective)
    assert np.all(np.abs(np.mean((ours @ B.T) ** 2, axis=0) - spread) < error)
    assert np.all(free - spread > error)


def test_constrained_prior_predictive_is_close_to_the_normal():
    rng = np.random.default_rng(shifted(0))
    roots = BASIS.roots[rng.integers(4, 28, size=1000)]
    sigma_G = np.full(1000, _cgp.AMPLITUDE)
    c = sigma_G[:, None] * CGP.completion(roots, sigma_G, rng)
    ratio = make_ratio(CGP, c[:, None], roots, sigma_G)
    sd = np.sqrt(np.mean(ratio.moments.variance + ratio.moments.mean**2))
    assert abs(sd - 1) < 0.05


@pytest.fixture(scope="module")
def distribution(wave, cgp_model):
    assert "calibration_scale" not in cgp_model.diagnostics().index
    return cgp_model.predict_distribution(wave.features(np.array([-40.0, -3.0, 0.0, 4.0])))


@pytest.mark.parametrize("q", [1e-6, 0.01, 0.5, 0.99, 1 - 1e-6])
def test_quantiles_invert_the_cdf(distribution, q):
    np.testing.assert_allclose(distribution.cdf(distribution.ppf(q)), q, atol=1e-6)


def test_density_is_the_cdfs_slope(distribution):
    low, high = distribution.ppf(1e-7), distribution.ppf(1 - 1e-7)
    y = low[:, None] + (high - low)[:, None] * np.linspace(0, 1, 4001)
    pdf, cdf = distribution.pdf(y), distribution.cdf(y)
    assert np.all(np.diff(cdf, axis=1) >= -1e-12)
    np.testing.assert_allclose(integrate.trapezoid(pdf, y, axis=1), 1, atol=1e-4)
