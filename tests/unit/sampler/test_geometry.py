"""Linear maps of the sampler: inverse, gradients, and what they find."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bne._sampler.coordinates import LowRank, fisher_map, geometric_mean, scales_only
from conftest import shifted

DIM = 30


@pytest.fixture
def gaussian():
    """A Gaussian whose scales differ, with two stiff and two wide directions across them."""
    rng = np.random.default_rng(shifted(0))
    axes = np.linalg.qr(rng.normal(size=(DIM, 4)))[0]
    correlation = np.eye(DIM) + axes @ np.diag(np.array([0.02, 0.05, 20.0, 50.0]) - 1.0) @ axes.T
    scale = np.exp(rng.normal(size=DIM))
    return scale[:, None] * correlation * scale


def whitened(coordinates, covariance):
    """Eigenvalues of a covariance in the map's coordinates."""
    root = coordinates.inverse(np.linalg.cholesky(covariance).T)
    return np.linalg.eigvalsh(root.T @ root)


def test_geometric_mean():
    rng = np.random.default_rng(shifted(1))
    A, B = (a @ a.T + np.eye(4) for a in rng.normal(size=(2, 4, 4)))
    M = geometric_mean(A, B)
    np.testing.assert_allclose(M, M.T, atol=1e-12)
    np.testing.assert_allclose(M @ B @ M, A, rtol=1e-10)


def test_inverse_and_gradient():
    rng = np.random.default_rng(shifted(2))
    U = np.linalg.qr(rng.normal(size=(DIM, 3)))[0]
    coordinates = LowRank(np.exp(rng.normal(size=DIM)), np.array([-0.9, 0.5, 4.0]), U)
    z = rng.normal(size=(2, 5, DIM))
    np.testing.assert_allclose(coordinates.inverse(coordinates(z)), z, rtol=1e-10)
    with jax.enable_x64(True):

        def density(q):
            return jnp.sum(jnp.sin(q) * jnp.arange(1, DIM + 1))

        arrays = jax.tree.map(jnp.asarray, coordinates)
        in_z = jax.grad(lambda z: density(arrays(z)))(jnp.asarray(z[0, 0]))
        own = jax.grad(density)(jnp.asarray(coordinates(z[0, 0])))
    np.testing.assert_allclose(coordinates.pull_back(np.asarray(in_z)), own, rtol=1e-10)


def test_map_finds_stiff_and_wide_directions(gaussian):
    """A few hundred draws and their scores; scales alone would leave a condition number of 900."""
    rng = np.random.default_rng(shifted(3))
    q = rng.multivariate_normal(np.zeros(DIM), gaussian, size=400)
    before = scales_only(np.ones(DIM), 6)
    found = fisher_map(q, -np.linalg.solve(gaussian, q.T).T, before)
    values = whitened(found, gaussian)
    assert values[-1] / values[0] < 15  # covariances shrunk by a fifth leave 11
    scales = whitened(scales_only(np.sqrt(np.diag(gaussian)), 6), gaussian)
    assert scales[-1] / scales[0] > 500


def test_unmoved_coordinates_keep_their_scale():
    rng = np.random.default_rng(shifted(4))
    q = rng.normal(size=(50, 3)) * np.array([1.0, 0.0, 2.0])
    found = fisher_map(q, -q, scales_only(np.array([1.0, 7.0, 1.0]), 2))
    assert found.scale[1] == 7.0
    assert np.all(np.isfinite(found(np.ones(3))))
