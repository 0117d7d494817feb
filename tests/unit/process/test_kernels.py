"""Kernels and features against scikit-learn and dense algebra."""

import numpy as np
import pytest
from scipy.spatial.distance import cdist
from sklearn.gaussian_process.kernels import RBF, Matern

from bne._base.priors import fit_inverse_gamma, length_scale_grid
from bne._base.threads import single_blas_thread
from bne._process.features import make_feature_map, missing_variance, process_draws
from bne._process.interpolation import N_NODES, interpolate, interpolation
from bne._process.kernels import resolve_kernel
from bne._process.points import choose_points, spacing_and_range
from bne._process.rotations import MAX_TURN, principal_rotations
from conftest import shifted

ORACLES = {
    "matern12": lambda ell: Matern(ell, nu=0.5),
    "matern32": lambda ell: Matern(ell, nu=1.5),
    "matern52": lambda ell: Matern(ell, nu=2.5),
    "rbf": lambda ell: RBF(ell),
}


@pytest.fixture
def x():
    return np.random.default_rng(shifted(0)).normal(size=(60, 2))


@pytest.mark.parametrize("name", ORACLES)
@pytest.mark.parametrize("ell", [0.1, 1.0, 7.0])
def test_kernels_equal_scikit_learns(name, ell, x):
    ours = resolve_kernel(name)(cdist(x, x) / ell)
    np.testing.assert_allclose(ours, ORACLES[name](ell)(x), atol=1e-12)


@pytest.mark.parametrize("name", ["matern12", "matern32", "matern52"])
def test_all_rows_as_features_reproduce_the_kernel(name, x):
    grid = np.log([0.2, 0.5, 1.0, 2.0])
    kernel = resolve_kernel(name)
    points = choose_points(kernel, x, 128, seed=shifted(0))
    A = make_feature_map(kernel, points, grid).tabulate(x)
    for j, ell in enumerate(np.exp(grid)):
        np.testing.assert_allclose(A[j] @ A[j].T, kernel(cdist(x, x) / ell), atol=1e-9)


def test_duplicated_rows_share_one_feature_point(x):
    kernel = resolve_kernel("matern32")
    assert len(choose_points(kernel, np.vstack([x, x]), 128, seed=shifted(0))) == len(x)


def test_chosen_points_are_distinct_rows_and_explain_the_kernel():
    x = np.random.default_rng(shifted(1)).normal(size=(2000, 2))
    kernel = resolve_kernel("matern32")
    points = choose_points(kernel, x, 100, seed=shifted(0))
    assert points.shape == (100, 2)
    assert len(np.unique(points, axis=0)) == 100
    A = make_feature_map(kernel, points, np.log([1.0, 1.1, 1.2, 1.3])).tabulate(x)[0]
    random = make_feature_map(kernel, x[:100], np.log([1.0, 1.1, 1.2, 1.3])).tabulate(x)[0]
    missing = 1 - np.sum(A**2, axis=1)
    assert np.mean(missing) < 0.8 * np.mean(1 - np.sum(random**2, axis=1))


def test_interpolated_features_reproduce_the_kernel_between_nodes(x):
    kernel = resolve_kernel("matern32")
    grid = np.log(0.3) + 0.2 * np.arange(12)
    table = make_feature_map(kernel, x, grid).tabulate(x)
    for log_ell in grid[2] + 0.2 * np.array([0.25, 0.5, 0.9, 1.0, 3.3]):
        A = interpolate(table, log_ell, grid)
        exact = kernel(cdist(x, x) / np.exp(log_ell))
        assert np.max(np.abs(A @ A.T - exact)) < 1e-3


@pytest.mark.parametrize(("dim", "n_points"), [(1, 128), (2, 64)])
def test_rotated_features_are_orthogonal_and_reproduce_the_kernel(dim, n_points):
    x = np.random.default_rng(shifted(0)).uniform(-2, 2, size=(400, dim))
    kernel = resolve_kernel("matern32")
    points = choose_points(kernel, x, n_points, shifted(0))
    grid = length_scale_grid(fit_inverse_gamma(*spacing_and_range(points)), N_NODES)
    plain = make_feature_map(kernel, points, grid).tabulate(x)
    with single_blas_thread():
        rotations = principal_rotations(plain, N_NODES // 2)
    table = plain @ rotations
    leading = table[:, :, :6] / np.linalg.norm(table[:, :, :6], axis=1, keepdims=True)
    cosine = leading.transpose(0, 2, 1) @ leading - np.eye(6)
    assert np.max(np.abs(cosine)) < 0.2  # 0.98 and 0.58 without the turn
    assert np.max(np.abs(rotations @ rotations.transpose(0, 2, 1) - np.eye(n_points))) < 1e-12
    # 1e-3 as without rotations; and features that turn by phi between two nodes, and not before or
    # after, lose phi^2 / 4 of their variance halfway. Three small steps make phi.
    tolerance = 1e-3 + (3.0 * MAX_TURN) ** 2 / 4.0
    for log_ell in 0.5 * (grid[1:-3] + grid[2:-2]):
        A = interpolate(table, log_ell, grid)[::8]
        exact = make_feature_map(kernel, points, np.array([log_ell])).tabulate(x[::8])[0]
        assert np.max(np.abs(A @ A.T - exact @ exact.T)) < tolerance


def test_interpolation_is_continuous_with_its_slope():
    grid = np.linspace(-1, 2, 16)

    def value(le):
        first, w = interpolation(np.asarray(le), grid)
        return w @ np.sin(3 * grid[first : first + 4])

    for node in grid[2:-2]:
        left = (value(node) - value(node - 1e-6)) / 1e-6
        right = (value(node + 1e-6) - value(node)) / 1e-6
        assert abs(left - right) < 1e-4
    with pytest.raises(ValueError, match="at least 4 nodes"):
        interpolation(np.asarray(0.0), grid[:3])


def test_process_draws_and_missing_variance_equal_the_direct_sums(x):
    kernel = resolve_kernel("matern32")
    rng = np.random.default_rng(shifted(2))
    grid = np.log(0.3) + 0.3 * np.arange(8)
    new = rng.normal(size=(7, 2)) * 3
    table = make_feature_map(kernel, x[:20], grid).tabulate(new)
    log_ell = rng.uniform(grid[0] - 1, grid[-1] + 1, size=11)
    v, W = rng.normal(size=(11, 20)), rng.normal(size=(11, 20, 3))
    for s in range(11):
        a = interpolate(table, log_ell[s], grid)
        np.testing.assert_allclose(process_draws(table, grid, log_ell, v)[s], a @ v[s])
        np.testing.assert_allclose(process_draws(table, grid, log_ell, W)[s], a @ W[s])
        np.testing.assert_allclose(
            missing_variance(table, grid, log_ell)[s],
            np.maximum(1 - np.sum(a**2, axis=1), 0),
            atol=1e-12,
        )


def test_a_kernel_of_ones_own():
    kernel = resolve_kernel(lambda r: 1 / (1 + r**2))
    assert kernel(np.array([1.0]))[0] == 0.5
    with pytest.raises(ValueError, match=r"k\(0\) = 1"):
        resolve_kernel(lambda r: 2 * np.exp(-r))
    with pytest.raises(ValueError, match="matern32"):
        resolve_kernel("matern")
    with pytest.raises(ValueError, match="function of distance"):
        resolve_kernel(3)  # type: ignore[arg-type]


def test_spacing_of_degenerate_points_is_finite():
    assert spacing_and_range(np.zeros((1, 2))) == (0.1, 1.0)
    low, high = spacing_and_range(np.array([[0.0], [1.0], [3.0]]))
    assert 0 < low <= high == 3.0
