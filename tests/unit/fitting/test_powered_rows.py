"""Rows that count several times, and hyperparameters that are held."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bne._base.priors import InverseGamma, Priors, length_scale_grid
from bne._calibration import features as _features
from bne._calibration.logistic import Logistic
from bne._fitting import collapsed, full_data, full_density, full_stage
from bne._mean import gaussian
from bne._mean.gaussian import Hyperparameters
from bne._process import interpolation as _interpolation
from bne._process.features import make_feature_map
from bne._process.kernels import resolve_kernel
from conftest import joint_data, shifted


@pytest.fixture(scope="module")
def problem():
    rng = np.random.default_rng(shifted(0))
    x = rng.uniform(-2, 2, size=(20, 1))
    F = np.column_stack([np.sin(x[:, 0]), np.ones(20)])
    y = F @ [0.7, 0.1] + 0.5 * rng.gamma(2.0, size=20) - 1.0
    priors = Priors(InverseGamma(3.0, 2.0))
    grid = length_scale_grid(priors.ell, 32)
    table = make_feature_map(resolve_kernel("matern32"), x[:9], grid).tabulate(x)
    return x, F, y, priors, grid, table


def test_tables_of_rows_that_count_three_times(problem):
    """The collapsed likelihood and theta's posterior equal those of repeated rows."""
    _, F, y, _, grid, table = problem
    thrice = np.repeat(F, 3, axis=0), np.repeat(y, 3), np.repeat(table, 3, axis=1)
    h = Hyperparameters(-0.3, -0.5, -0.7, 0.2)
    with jax.enable_x64(True):
        ours = collapsed.spectral_table(F, y, table, grid, 128).repeated(3.0)
        theirs = collapsed.spectral_table(*thrice, grid, 128)
        values = [float(collapsed.log_marginal(h, t)) for t in (ours, theirs)]
    np.testing.assert_allclose(*values, rtol=1e-10)
    ours = gaussian.gram_table(F, y, table, grid).repeated(3.0).at(0.2)
    theirs = gaussian.gram_table(*thrice, grid).at(0.2)
    for a, b in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-10)


def test_joint_density_of_rows_that_count_three_times(problem):
    x, F, y, priors, grid, table = problem
    features = _features.make_calibration(Logistic(), x, np.ones(1), shifted(0), has_residual=True)
    weights = full_data.row_weights(x, y - F @ [0.7, 0.1])

    def density(times, power):
        data = joint_data(x, F, y, table, grid, features, priors, weights, times=times, power=power)
        start = full_stage.starts(
            data,
            Hyperparameters(*np.log([0.7, 0.4, 0.4, 1.0])),
            1,
            np.random.default_rng(shifted(1)),
        )[0]
        with jax.enable_x64(True):
            return float(
                full_density.log_density(jnp.asarray(start), jax.tree.map(jnp.asarray, data))
            )

    np.testing.assert_allclose(density(1, 3.0), density(3, 1.0), rtol=1e-10)
    assert abs(density(1, 3.0) - density(1, 1.0)) > 1.0


PINNED = np.array([-0.3, -0.5, 0.1, -0.9, 0.2, 0.3, 0.4])
"""The fourth is log sigma_eps."""


@pytest.fixture(params=["noise held", "noise free"])
def pinned_problem(request, problem):
    x, F, y, priors, grid, table = problem
    features = _features.make_calibration(Logistic(), x, np.ones(1), shifted(0), has_residual=True)
    pinned = PINNED.copy()
    pinned[3] = -0.9 if request.param == "noise held" else np.nan
    data = joint_data(x, F, y, table, grid, features, priors, np.ones(20), pinned=pinned)
    starts = full_stage.starts(
        data, Hyperparameters(*np.log([0.7, 0.4, 0.4, 1.0])), 3, np.random.default_rng(shifted(1))
    )
    return data, starts, np.isnan(pinned[3])


def test_pinned_hyperparameters_do_not_move(pinned_problem):
    data, starts, noise_is_free = pinned_problem
    state = full_stage.unpack_draws(starts[None], data)
    h, others = np.array(state.h), np.arange(len(PINNED)) != 3
    np.testing.assert_array_equal(h[others], np.repeat(PINNED[others, None], 3, axis=1))
    if noise_is_free:
        np.testing.assert_allclose(state.h.eta, starts[:, 3], rtol=1e-14)
        assert np.ptp(state.log_sigma_eps) > 1e-3
    else:
        np.testing.assert_array_equal(state.log_sigma_eps, np.full(3, -0.9))
        assert np.ptp(state.h.eta) > 1e-3


@pytest.mark.slow
def test_pinned_log_determinant_is_that_of_the_map(pinned_problem):
    """d(omega, v, W) / d(z_omega, z_delta, z_G)."""
    data, starts, _ = pinned_problem
    with jax.enable_x64(True):
        data, q = jax.tree.map(jnp.asarray, data), jnp.asarray(starts[0])

        def image(z):
            state = full_density.transform(jnp.concatenate([q[:7], z]), data)
            return jnp.concatenate([state.omega, state.v, state.W.ravel()])

        expected = np.linalg.slogdet(np.asarray(jax.jacfwd(image)(q[7:])))[1]
        ours = float(full_density.transform(q, data).log_determinant)
    np.testing.assert_allclose(ours, expected, rtol=1e-9)


def test_held_length_scales_give_what_tables_give(problem):
    """One node in place of a table: the same mu and the same coefficients of h."""
    x, F, y, priors, grid, table = problem
    features = _features.make_calibration(Logistic(), x, np.ones(1), shifted(0), has_residual=True)
    given = x, F, y, table, grid, features, priors, np.ones(20)
    free, held = joint_data(*given), joint_data(*given, pinned=PINNED)
    assert free.A.shape[0] == len(grid)
    assert held.A.shape[0] == held.A_G.shape[0] == held.roots.shape[0] == 1
    mode = Hyperparameters(*PINNED[[0, 1, 3, 4]])
    start = full_stage.starts(held, mode, 1, np.random.default_rng(shifted(1)))[0]
    with jax.enable_x64(True):
        ours = full_density.transform(jnp.asarray(start), jax.tree.map(jnp.asarray, held))
        nodes = (free.A, 0.2, grid), (free.A_G, 0.3, free.grid_x), (free.roots, 0.4, free.grid_t)
        A, A_G, T = (np.asarray(_interpolation.interpolate(*at)) for at in nodes)
        ours = jax.tree.map(np.asarray, ours)
    mu = free.F @ ours.omega + np.exp(ours.h.log_sigma_delta) * (A @ ours.v)
    np.testing.assert_allclose(ours.mu, mu, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(ours.coefficients, ours.sigma_G * A_G @ ours.W, atol=1e-12)
    np.testing.assert_allclose(ours.T, T, atol=1e-12)
