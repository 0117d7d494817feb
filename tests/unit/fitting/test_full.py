"""The full stage through the public interface, on one default fit of the 1-D experiment."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import integrate

from bne import BNERegressor
from bne._calibration.construction import cosines
from bne._calibration.logistic import spectral_density
from bne._data.rows import Rows
from bne._fitting import full_density as _model
from bne._fitting import full_stage as _joint
from bne._law.conditional import conditional_draws
from bne.datasets import make_wave_1d
from conftest import EXPERTS, shifted


@pytest.fixture(scope="module")
def distribution(wave_model, wave):
    return wave_model.predict_distribution(wave.features(np.linspace(-7, 7, 9)))


def test_one_fit_makes_all_three_stages(wave_model, wave):
    assert list(wave_model.posterior_.shards[0].stages) == ["ensemble", "additive", "full"]
    means = [
        wave_model.predict_distribution(wave.X[:5], stage=s).mean()
        for s in ("ensemble", "additive", "full")
    ]
    assert not np.allclose(means[0], means[1])
    assert not np.allclose(means[1], means[2])
    np.testing.assert_array_equal(wave_model.predict(wave.X[:5]), means[2])


@pytest.mark.parametrize("q", [1e-6, 0.01, 0.5, 0.99, 1 - 1e-6])
def test_quantiles_invert_the_cdf(distribution, q):
    np.testing.assert_allclose(distribution.cdf(distribution.ppf(q)), q, atol=1e-6)


def test_the_inverse_recovers_y(distribution):
    y = distribution.ppf(np.tile(np.linspace(0.02, 0.98, 7), (9, 1)))
    assert np.all(distribution.pdf(y) > 1e-6)
    np.testing.assert_allclose(distribution.ppf(distribution.cdf(y)), y, atol=1e-5)


def test_density_integrates_to_one_and_is_the_cdfs_slope(distribution):
    low, high = distribution.ppf(1e-7), distribution.ppf(1 - 1e-7)
    y = low[:, None] + (high - low)[:, None] * np.linspace(0, 1, 2001)
    pdf, cdf = distribution.pdf(y), distribution.cdf(y)
    np.testing.assert_allclose(integrate.trapezoid(pdf, y, axis=1), 1, atol=1e-5)
    assert np.all(np.diff(cdf, axis=1) >= -1e-12)
    slope = np.gradient(cdf[4], y[4])
    np.testing.assert_allclose(slope[5:-5], pdf[4][5:-5], atol=2e-3)
    mean = integrate.trapezoid(pdf * y, y, axis=1)
    np.testing.assert_allclose(distribution.mean(), mean, atol=1e-3)
    variance = integrate.trapezoid(pdf * y**2, y, axis=1) - mean**2
    np.testing.assert_allclose(distribution.var(), variance, rtol=1e-3)


def test_samples_follow_the_distribution(distribution):
    y = distribution.sample(500, random_state=shifted(0))
    u = distribution.cdf(y)
    assert np.max(np.abs(u.mean(axis=1) - 0.5)) < 5 * np.sqrt(1 / 12 / 500)
    # a sample's variance has variance (m4 - m2^2) / n, a uniform's 1 / 80 - 1 / 144
    assert np.max(np.abs(u.var(axis=1) - 1 / 12)) < 5 * np.sqrt((1 / 80 - 1 / 144) / 500)


def test_far_from_the_data_it_is_the_prior_again(wave_model):
    """delta and h have their priors: E[F] is the prior predictive, close to the Gaussian one."""
    stage = wave_model._stages("full")[0]
    rows = Rows(np.array([[80.0]]), np.zeros((1, 3)))
    full = conditional_draws(stage, rows)
    mean, variance = full.moments()
    sd = np.sqrt(np.mean(variance) + np.var(mean))
    gaussian = np.sqrt(np.mean(stage.draws.sigma_eps**2) + np.var(full.mu))
    assert abs(sd / gaussian - 1) < 0.05
    coefficients = stage.draws.calibration.coefficients(stage.features, rows.x)[:, 0]
    scaled = coefficients / stage.draws.calibration.sigma_G[:, None]
    S = len(scaled)
    assert np.max(np.abs(scaled.mean(axis=0))) < 5 / np.sqrt(S)
    assert np.max(np.abs(scaled.std(axis=0) - 1)) < 5 / np.sqrt(2 * S)


def test_far_off_the_averaged_cdf_equals_an_independent_simulation(wave_model):
    """E[F] there: delta and h drawn afresh from their priors given the hyperparameters alone."""
    stage = wave_model._stages("full")[0].thinned()
    draws, features = stage.draws, stage.features
    rows = Rows(np.array([[-90.0]]), np.zeros((1, 3)))
    y, row = np.linspace(-4, 4, 17), np.zeros(17, dtype=int)
    conditional = conditional_draws(stage, rows)
    ours = conditional.ratio.cdf(conditional.standardise(y, row), row)
    rng = np.random.default_rng(shifted(0))
    t = np.linspace(-9, 9, 3601)
    phi = np.exp(-0.5 * t**2) / np.sqrt(2 * np.pi)
    psi = cosines(features.construction, t)
    R = np.stack([phi, t * phi], axis=1).T @ psi * (t[1] - t[0])
    F = np.zeros((len(draws.omega), 17))
    for s in range(len(F)):
        D = np.diag(spectral_density(np.exp(draws.calibration.log_ell_t[s])))
        covariance = D - D @ R.T @ np.linalg.solve(R @ D @ R.T, R @ D)  # the condition, densely
        c = rng.multivariate_normal(np.zeros(len(D)), covariance)
        sigma_G = draws.calibration.sigma_G[s]
        h = sigma_G * psi @ c - 0.5 * sigma_G**2 * np.sum((psi @ covariance) * psi, axis=1)
        cdf = np.cumsum(np.exp(h) * phi)
        delta = draws.terms["residual"].scale[s] * rng.standard_normal()
        F[s] = np.interp((y - delta) / draws.sigma_eps[s], t, cdf / cdf[-1])
    gap = np.mean(ours - F, axis=0)
    error = np.hypot(np.std(ours, axis=0), np.std(F, axis=0)) / np.sqrt(len(F))
    assert np.max(np.abs(gap) / error) < 5


@pytest.mark.slow
def test_no_inputs_at_all():
    """0-D: G depends on u alone, and h keeps its slope because there is no delta."""
    rng = np.random.default_rng(shifted(0))
    n = 200  # the gain is 0.26 nats, and n outcomes make an error of 0.5 / sqrt(n)
    y = rng.gamma(1.5, 2.0, size=n)
    X = np.full((n, 1), 2.5)
    model = BNERegressor([("constant", 0)], inputs=[], chains=2, draws=200, random_state=shifted(0))
    with pytest.warns(UserWarning, match="predict the same value"):
        model.fit(X, y)
    assert list(model.posterior_.shards[0].stages) == ["ensemble", "full"]
    skewed, gaussian = (model.predict_distribution(X[:1], stage=s) for s in ("full", "ensemble"))
    assert skewed.logpdf(y[:1]).shape == (1,)
    everywhere = np.repeat(X[:1], n, axis=0)
    gain = model.predict_distribution(everywhere).logpdf(y).mean()
    gain -= model.predict_distribution(everywhere, stage="ensemble").logpdf(y).mean()
    assert gain > 0.1
    assert abs(skewed.mode()[0] - 1.0) < abs(gaussian.mode()[0] - 1.0)


@pytest.mark.slow
def test_datatree_has_the_likelihood_that_was_sampled(monkeypatch):
    """Also where features leave something out, which answers complete and the sampler does not."""
    kept, sample_joint = {}, _joint.sample_joint

    def watched(data, *args):
        kept.update(data=data, draws=sample_joint(data, *args))
        return kept["draws"]

    monkeypatch.setattr(_joint, "sample_joint", watched)
    data = make_wave_1d(60, random_state=shifted(4))
    settings = {
        "feature_points": 12,
        "chains": 1,
        "warmup": 20,
        "draws": 5,
        "random_state": shifted(0),
    }
    model = BNERegressor(EXPERTS, inputs=["x"], **settings).fit(data.X, data.y)
    with jax.enable_x64(True):
        full = jax.tree.map(jnp.asarray, kept["data"])
        state = _model.transform(jnp.asarray(kept["draws"].position[0, -1]), full)
        expected = np.asarray(_model.log_likelihood(state, full))[:60]
    found = model.to_datatree()["log_likelihood"]["y"].values[0, -1]
    scale = np.log(model.scaling_.y_scale)
    np.testing.assert_allclose(found + scale, expected, rtol=1e-6, atol=1e-6)


def test_datatree_holds_the_calibration(wave_model, wave):
    tree = wave_model.to_datatree()
    assert {"calibration_scale", "calibration_length_scale_x"} <= set(tree["posterior"].dataset)
    log_likelihood = tree["log_likelihood"]["y"].values.reshape(-1, 100)
    predictive = wave_model.predict_distribution(wave.X).logpdf(wave.y)
    averaged = np.log(np.mean(np.exp(log_likelihood), axis=0))
    # answers keep a thousand draws: the error of their mean
    likelihood = np.exp(log_likelihood)
    error = np.std(likelihood, axis=0) / np.mean(likelihood, axis=0) / np.sqrt(1000)
    assert np.all(np.abs(averaged - predictive) < 5 * error)
