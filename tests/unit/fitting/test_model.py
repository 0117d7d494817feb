"""The full model's log density: gradients, Jacobian of the map, agreement with the stages."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import integrate, special, stats

from bne._base.priors import InverseGamma, Priors, length_scale_grid
from bne._calibration import features as _features
from bne._calibration.cgp import ConstrainedGP
from bne._calibration.construction import cosines
from bne._calibration.logistic import Logistic
from bne._fitting import full_data, full_stage
from bne._fitting import full_density as _model
from bne._mean.gaussian import Hyperparameters
from bne._process.features import make_feature_map
from bne._process.interpolation import interpolate
from bne._process.kernels import resolve_kernel
from conftest import base_pdf, joint_data, shifted

LOGISTIC = Logistic()


CONSTRUCTIONS = {"logistic": LOGISTIC, "cgp": ConstrainedGP()}


def make_problem(construction):
    rng = np.random.default_rng(shifted(0))
    x = rng.uniform(-2, 2, size=(30, 1))
    F = np.column_stack([np.sin(x[:, 0]), np.ones(30)])
    y = F @ [0.7, 0.1] + 0.5 * rng.gamma(2.0, size=30) - 1.0
    priors = Priors(InverseGamma(3.0, 2.0))
    grid = length_scale_grid(priors.ell, 32)
    table = make_feature_map(resolve_kernel("matern32"), x[:12], grid).tabulate(x)
    features = _features.make_calibration(
        construction, x, np.ones(1), shifted(0), has_residual=True
    )
    weights = full_data.row_weights(x, y - F @ [0.7, 0.1])
    data = joint_data(x, F, y, table, grid, features, priors, weights)
    mode = Hyperparameters(*np.log([0.7, 0.4, 0.4, 1.0]))
    return data, full_stage.starts(data, mode, 3, rng), (F, y, table, features, x)


@pytest.fixture(scope="module")
def problem():
    return make_problem(LOGISTIC)


@pytest.fixture(scope="module", params=list(CONSTRUCTIONS))
def any_problem(request):
    return make_problem(CONSTRUCTIONS[request.param])


def test_of_many_rows_few_are_idle():
    sizes = np.geomspace(1025, 1e7, 500).astype(int)
    padded = full_data.ROW_BUCKETS[np.searchsorted(full_data.ROW_BUCKETS, sizes)]
    assert np.all(padded >= sizes)
    assert np.all(padded <= 1.05 * sizes)


@pytest.mark.slow
def test_gradient_equals_finite_differences(any_problem):
    data, starts, _ = any_problem
    rng = np.random.default_rng(shifted(1))
    with jax.enable_x64(True):
        data = jax.tree.map(jnp.asarray, data)
        value = jax.jit(_model.log_density)
        for q in starts:
            gradient = np.asarray(jax.grad(_model.log_density)(jnp.asarray(q), data))
            for _ in range(4):
                e = rng.normal(size=len(q))
                slope = (value(q + 1e-5 * e, data) - value(q - 1e-5 * e, data)) / 2e-5
                np.testing.assert_allclose(gradient @ e, slope, rtol=1e-5)


@pytest.mark.slow
def test_log_determinant_is_that_of_the_map(any_problem):
    """d(omega, v, W, log sigma_eps) / d(z_omega, z_delta, z_G, eta), hyperparameters held."""
    data, starts, _ = any_problem
    with jax.enable_x64(True):
        data = jax.tree.map(jnp.asarray, data)
        q = jnp.asarray(starts[0])
        moved = np.r_[3, np.arange(7, len(q))]

        def image(part):
            state = _model.transform(q.at[moved].set(part), data)
            parts = [state.log_sigma_eps[None], state.omega, state.v, state.W.ravel()]
            return jnp.concatenate(parts)

        jacobian = jax.jacfwd(image)(q[moved])
        log_det = np.linalg.slogdet(np.asarray(jacobian))[1]
        ours = float(_model.transform(q, data).log_determinant)
    np.testing.assert_allclose(ours, log_det, rtol=1e-9)


@pytest.mark.slow
def test_density_equals_the_model_written_out(problem):
    """log p(y, omega, v, W, hyperparameters) in plain numpy and scipy, no padding."""
    data, starts, (F, y, table, features, x) = problem
    with jax.enable_x64(True):
        jdata = jax.tree.map(jnp.asarray, data)
        state = jax.tree.map(np.asarray, _model.transform(jnp.asarray(starts[1]), jdata))
        ours = float(_model.log_density(jnp.asarray(starts[1]), jdata))
    h = state.h
    sigma_eps, sigma_G = np.exp(state.log_sigma_eps), np.exp(h.log_sigma_G)
    A = interpolate(table, float(h.log_ell), data.grid)
    mu = F @ state.omega + np.exp(h.log_sigma_delta) * A @ state.v[: A.shape[1]]
    t = (y - mu) / sigma_eps
    A_G = interpolate(features.tabulate(x), float(h.log_ell_x), features.grid_x)
    T = interpolate(features.basis.roots, float(h.log_ell_t), features.basis.log_ell)
    coefficients = sigma_G * A_G @ state.W[: A_G.shape[1]]
    grid = np.linspace(-9, 9, 20_001)
    b = cosines(LOGISTIC, grid) @ T
    centring = -0.5 * sigma_G**2 * np.sum(b**2, axis=1)
    density = np.exp(coefficients @ b.T + centring) * base_pdf(grid)
    Z, first, second = (np.trapezoid(density * grid**k, grid, axis=1) for k in range(3))
    log_scale = 0.5 * np.log(np.mean(second / Z - (first / Z) ** 2))
    b_t = cosines(LOGISTIC, t) @ T
    h_t = np.sum(b_t * coefficients, axis=1) - 0.5 * sigma_G**2 * np.sum(b_t**2, axis=1)
    log_joint = np.sum(h_t - np.log(Z * sigma_eps) + np.log(base_pdf(t)))
    log_joint += np.sum(stats.norm.logpdf(state.v)) + np.sum(stats.norm.logpdf(state.W))
    log_joint += np.sum(stats.norm.logpdf(state.omega, scale=np.exp(h.log_sigma_omega)))
    log_joint += stats.norm.logpdf(log_scale, scale=0.25) - stats.norm.logpdf(0.0, scale=0.25)
    for log_sigma, scale in [
        (h.log_sigma_omega, 1.0),
        (h.log_sigma_delta, 1.0),
        (state.log_sigma_eps, 1.0),
        (h.log_sigma_G, data.priors.amplitude),
    ]:
        log_joint += stats.halfnorm.logpdf(np.exp(log_sigma), scale=scale) + log_sigma
    for log_ell, prior in [
        (h.log_ell, data.priors.gaussian.ell),
        (h.log_ell_x, data.priors.ell_x),
        (h.log_ell_t, data.priors.ell_t),
    ]:
        log_joint += stats.invgamma.logpdf(np.exp(log_ell), prior.shape, scale=prior.rate) + log_ell
    # the density leaves out these constants
    constants = -0.5 * np.log(2 * np.pi) * (state.v.size + state.W.size + state.omega.size)
    for scale in (1.0, 1.0, 1.0, data.priors.amplitude):
        constants += 0.5 * np.log(2 / np.pi) - np.log(scale)
    for prior in (data.priors.gaussian.ell, data.priors.ell_x, data.priors.ell_t):
        constants += prior.shape * np.log(prior.rate) - special.gammaln(prior.shape)
    expected = log_joint + float(state.log_determinant) - constants
    np.testing.assert_allclose(ours, expected, atol=1e-4)


def test_padding_rows_and_features_changes_nothing(problem):
    data, starts, (_, y, *_) = problem
    assert len(data.y) > len(y)
    with jax.enable_x64(True):
        moved = data._replace(y=np.where(data.mask > 0, data.y, 7.0), F=np.array(data.F))
        same = [
            float(_model.log_density(jnp.asarray(starts[0]), jax.tree.map(jnp.asarray, d)))
            for d in (data, moved)
        ]
    np.testing.assert_allclose(same[0], same[1], rtol=1e-12)


def test_with_no_amplitude_it_is_stage_two(problem):
    """sigma_G -> 0: the likelihood is Gaussian, but for the mass that its tails have gained."""
    data, starts, _ = problem
    q = starts[0].copy()
    q[2] = -20.0
    with jax.enable_x64(True):
        data = jax.tree.map(jnp.asarray, data)
        state = _model.transform(jnp.asarray(q), data)
        log_likelihood = np.asarray(_model.log_likelihood(state, data))
        t = np.asarray((data.y - state.mu) / np.exp(state.log_sigma_eps))
        # the normal density up to 5, where an outlier may be beyond
        gaussian = np.log(base_pdf(t)) - float(state.log_sigma_eps)
    gained = 2.0 * integrate.quad(base_pdf, 5.0, np.inf)[0] - 2.0 * stats.norm.sf(5.0)
    assert 0.0 < gained < 2e-7
    mask = np.asarray(data.mask) > 0
    assert np.any(np.abs(t[mask]) < 5.0)
    np.testing.assert_allclose(log_likelihood[mask], gaussian[mask] - gained, rtol=1e-6, atol=1e-6)
