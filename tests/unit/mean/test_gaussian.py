"""Stages 1 and 2 against dense algebra, scikit-learn and brute force."""

import jax
import numpy as np
import pytest
from scipy import stats
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import ConstantKernel, Matern

from bne._base.priors import InverseGamma, Priors, fit_inverse_gamma, length_scale_grid
from bne._data.rows import Rows
from bne._fitting import collapsed
from bne._mean import gaussian
from bne._mean.gaussian import Hyperparameters
from bne._mean.residual import Residual
from bne._mean.term import TermDraws
from bne._process.features import make_feature_map
from bne._process.interpolation import interpolate
from bne._process.kernels import resolve_kernel
from bne._sampler import coordinates
from conftest import shifted

MATERN = resolve_kernel("matern32")
GRID = np.log(0.7) + 0.15 * np.arange(-4, 5)


def scales(so, sd):
    """Return the scales of two weights and forty features."""
    return np.repeat([so, sd], [2, 40])


@pytest.fixture
def data():
    rng = np.random.default_rng(shifted(3))
    x = rng.uniform(-2, 2, size=(40, 1))
    F = np.column_stack([np.sin(x[:, 0]), x[:, 0] ** 2])
    y = F @ [0.7, 0.2] + 0.5 * np.cos(3 * x[:, 0]) + 0.3 * rng.normal(size=40)
    return x, F, y


def dense_covariance(x, F, h):
    d = np.abs(x - x.T)
    so, sd, se = np.exp(h.log_sigma_omega), np.exp(h.log_sigma_delta), np.exp(h.log_sigma_eps)
    return so**2 * F @ F.T + sd**2 * MATERN(d / np.exp(h.log_ell)) + se**2 * np.eye(len(x))


def test_posterior_equals_the_dense_solution(data):
    x, F, y = data
    A = make_feature_map(MATERN, x, GRID).tabulate(x)[4]
    so, sd, se = 0.8, 0.6, 0.3
    T = np.column_stack([F, A])
    ours = gaussian.posterior(T.T @ T, T.T @ y, scales(so, sd), se)
    # dense route: Gaussian conditioning of (omega, delta) on y in the space of rows
    prior = np.block(
        [
            [so**2 * np.eye(2), np.zeros((2, 40))],
            [np.zeros((40, 2)), sd**2 * MATERN(np.abs(x - x.T) / 0.7)],
        ]
    )
    H = np.column_stack([F, np.eye(40)])
    gain = np.linalg.solve(H @ prior @ H.T + se**2 * np.eye(40), H @ prior).T
    mean, covariance = gain @ y, prior - gain @ H @ prior
    to_functions = np.block([[so * np.eye(2), np.zeros((2, 40))], [np.zeros((40, 2)), sd * A]])
    np.testing.assert_allclose(to_functions @ ours.mean, mean, atol=1e-8)
    np.testing.assert_allclose(
        to_functions @ ours.covariance() @ to_functions.T, covariance, atol=1e-8
    )


def test_draws_have_the_posteriors_moments(data):
    x, F, y = data
    A = make_feature_map(MATERN, x, GRID).tabulate(x)[4]
    T = np.column_stack([F, A])
    ours = gaussian.posterior(T.T @ T, T.T @ y, scales(0.8, 0.6), 0.3)
    z = np.random.default_rng(shifted(0)).normal(size=(20_000, 42))
    draws = np.stack([ours.draw(row) for row in z])
    scale = np.sqrt(np.diag(ours.covariance()))
    assert np.max(np.abs(draws.mean(0) - ours.mean) / scale) < 5 / np.sqrt(20_000)
    np.testing.assert_allclose(np.cov(draws.T), ours.covariance(), atol=0.05)


def test_without_experts_it_is_scikit_learns_gaussian_process(data):
    x, _, y = data
    new = np.linspace(-4, 4, 31)[:, None]
    oracle = GaussianProcessRegressor(
        ConstantKernel(0.6**2) * Matern(0.7, nu=1.5), alpha=0.3**2, optimizer=None
    )
    mean, std = oracle.fit(x, y).predict(new, return_std=True)
    features = make_feature_map(MATERN, x, GRID)
    A, a = features.tabulate(x)[4], features.tabulate(new)[4]
    ours = gaussian.posterior(A.T @ A, A.T @ y, np.full(40, 0.6), 0.3)
    variance = 0.36 * (np.sum((a @ ours.covariance()) * a, axis=1) + 1 - np.sum(a**2, axis=1))
    np.testing.assert_allclose(0.6 * a @ ours.mean, mean, atol=1e-6)
    np.testing.assert_allclose(np.sqrt(variance), std, atol=1e-6)


@pytest.mark.parametrize("j", [1, 4, 6])
def test_collapsed_likelihood_equals_the_dense_one_at_a_node(data, j):
    x, F, y = data
    table = make_feature_map(MATERN, x, GRID).tabulate(x)
    spectrum = collapsed.spectral_table(F, y, table, GRID, rank=64)
    values, dense = [], []
    for scales in ([0.8, 0.6, 0.3], [2.0, 0.1, 1.0], [0.05, 3.0, 0.02]):
        h = Hyperparameters(*np.log(scales), GRID[j])
        with jax.enable_x64(True):
            values.append(float(collapsed.log_marginal(h, spectrum)))
        V = dense_covariance(x, F, h)
        dense.append(stats.multivariate_normal(np.zeros(40), V).logpdf(y) + 20 * np.log(2 * np.pi))
    np.testing.assert_allclose(values, dense, rtol=1e-8)


def test_fewer_features_than_rows(data):
    x, F, y = data
    table = make_feature_map(MATERN, x[:12], GRID).tabulate(x)
    spectrum = collapsed.spectral_table(F, y, table, GRID, rank=16)
    h = Hyperparameters(*np.log([0.8, 0.6, 0.3]), GRID[4])
    A = table[4]
    V = 0.64 * F @ F.T + 0.36 * A @ A.T + 0.09 * np.eye(40)
    dense = stats.multivariate_normal(np.zeros(40), V).logpdf(y) + 20 * np.log(2 * np.pi)
    with jax.enable_x64(True):
        np.testing.assert_allclose(float(collapsed.log_marginal(h, spectrum)), dense, rtol=1e-9)


@pytest.mark.slow
def test_likelihood_between_nodes_and_its_gradient(data):
    x, F, y = data
    table = make_feature_map(MATERN, x, GRID).tabulate(x)
    spectrum = collapsed.spectral_table(F, y, table, GRID, rank=64)
    unit = coordinates.Laplace(np.zeros(4), np.eye(4))
    data_ = spectrum, 1.0, Priors(InverseGamma(3.0, 2.0)), unit
    q = np.append(np.log([0.8, 0.6, 0.3]), GRID[4] + 0.07)
    V = dense_covariance(x, F, Hyperparameters(*q))
    dense = stats.multivariate_normal(np.zeros(40), V).logpdf(y) + 20 * np.log(2 * np.pi)
    with jax.enable_x64(True):
        assert abs(float(collapsed.log_marginal(Hyperparameters(*q), spectrum)) - dense) < 1e-3
        density = lambda p: float(collapsed.log_collapsed_density(p, data_))  # noqa: E731
        gradient = jax.grad(collapsed.log_collapsed_density)(q, data_)
        numeric = [(density(q + e) - density(q - e)) / 2e-6 for e in 1e-6 * np.eye(4)]
    np.testing.assert_allclose(gradient, numeric, rtol=1e-5, atol=1e-5)


def test_gram_table_equals_the_gram_of_interpolated_features(data):
    x, F, y = data
    table = make_feature_map(MATERN, x, GRID).tabulate(x)
    for log_ell in (GRID[3] + 0.04, GRID[0] - 1, GRID[-1] + 1):
        gram, cross = gaussian.gram_table(F, y, table, GRID).at(log_ell)
        T = np.column_stack([F, interpolate(table, log_ell, GRID)])
        np.testing.assert_allclose(gram, T.T @ T, atol=1e-10)
        np.testing.assert_allclose(cross, T.T @ y, atol=1e-10)


def closed_form_delta(x, y, new, points, ell=0.7, sd=0.6, se=0.3):
    features = make_feature_map(MATERN, points, np.log(ell) + 0.1 * np.arange(4))
    A, a = features.tabulate(x)[0], features.tabulate(new)[0]
    post = gaussian.posterior(A.T @ A, A.T @ y, np.full(A.shape[1], sd), se)
    missing = np.maximum(1 - np.sum(a**2, axis=1), 0)
    variance = sd**2 * (np.sum((a @ post.covariance()) * a, axis=1) + missing)
    return sd * a @ post.mean, variance


@pytest.mark.parametrize("n_points", [40, 10])
def test_delta_reverts_to_its_prior_along_rays(data, n_points):
    x, _, y = data
    rays = np.concatenate([np.linspace(2, 42, 60), -np.linspace(2, 42, 60)])[:, None]
    mean, variance = closed_form_delta(x, y, rays, x[:n_points])
    far = np.abs(rays[:, 0]) > 40  # ten ranges away
    np.testing.assert_allclose(mean[far], 0, atol=1e-5)
    np.testing.assert_allclose(variance[far], 0.36, atol=1e-5)
    if n_points == len(x):
        K = 0.36 * MATERN(np.abs(x - x.T) / 0.7) + 0.09 * np.eye(40)
        k = 0.36 * MATERN(np.abs(rays - x.T) / 0.7)
        np.testing.assert_allclose(mean, k @ np.linalg.solve(K, y), atol=1e-8)
        dense = 0.36 - np.sum(k * np.linalg.solve(K, k.T).T, axis=1)
        np.testing.assert_allclose(variance, dense, atol=1e-8)


def test_completed_draws_have_the_prior_variance_far_away(data):
    x = data[0]
    ell = fit_inverse_gamma(0.2, 4.0)
    residual = Residual(make_feature_map(MATERN, x, length_scale_grid(ell, 32)), None)
    rng = np.random.default_rng(shifted(0))
    S = 4000
    log_ell, v = rng.uniform(-1, 0, S), rng.normal(size=(S, 40))
    draws = TermDraws(v, np.full(S, 0.6), log_ell, rng.normal(size=S))
    rows = Rows(np.array([[0.0], [5.0], [60.0]]), np.zeros((3, 2)))
    delta = residual.values(draws, rows)
    # prior draws of v: the variance is sigma_delta^2 on, near and off the data
    np.testing.assert_allclose(delta.var(axis=0), 0.36, rtol=5 * np.sqrt(2 / S))


def test_inverse_gamma_has_the_stated_tails():
    for low, high in [(0.1, 3.0), (0.02, 10.0), (0.5, 0.6)]:
        prior = fit_inverse_gamma(low, high)
        law = stats.invgamma(prior.shape, scale=prior.rate)
        np.testing.assert_allclose(law.cdf(low), 0.01, rtol=1e-6)
        np.testing.assert_allclose(law.sf(max(high, 2 * low)), 0.01, rtol=1e-6)
        slope = (prior.log_density(0.3 + 1e-6) - prior.log_density(0.3 - 1e-6)) / 2e-6
        law_slope = (law.logpdf(np.exp(0.3 + 1e-6)) - law.logpdf(np.exp(0.3 - 1e-6))) / 2e-6 + 1
        np.testing.assert_allclose(slope, law_slope, rtol=1e-4)
