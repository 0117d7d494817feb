"""The decomposition: identities, closed formulas, and brute force beside quadrature."""

import warnings
from itertools import pairwise

import numpy as np
import pandas as pd
import pytest
from scipy import integrate, stats

from bne import BNERegressor
from bne._answers import closed_form, uncertainty
from bne._answers.uncertainty import PARTS
from bne._base.divergence import divergences, equispaced
from bne._law.conditional import conditional_draws
from bne._regressor.wide_table import wide_table
from conftest import EXPERTS, shifted

PLACES = np.array([-60.0, -6.0, -4.0, -1.5, 0.0, 2.5, 4.0, 7.0])


@pytest.fixture(scope="module")
def additive_model(wave):
    model = BNERegressor(
        EXPERTS, inputs=["x"], calibration=None, chains=2, draws=400, random_state=shifted(0)
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return model.fit(wave.X, wave.y)


@pytest.mark.parametrize("measure", ["entropy", "variance"])
def test_parts_add_up(wave_model, wave, measure):
    parts = wave_model.decompose(wave.features(PLACES), measure=measure)
    np.testing.assert_allclose(parts.total, parts.aleatoric + parts.epistemic, atol=1e-10)
    together = sum(getattr(parts, name) for name in PARTS)
    np.testing.assert_allclose(parts.epistemic, together, atol=1e-10)
    for name in ("parametric", "structural_delta", "hyperparameters"):
        assert np.all(getattr(parts, name) >= -1e-12)
    assert np.all(parts.epistemic >= -3 * parts.errors["epistemic"])
    assert np.all(parts.errors["total"] > 0)


def test_frames_are_labelled(wave_model, wave):
    X = wave.features(PLACES[:3]).set_axis(["a", "b", "c"])
    parts = wave_model.decompose(X, measure="variance")
    assert parts.to_frame().index.tolist() == ["a", "b", "c"]
    assert parts.to_frame(errors=True).shape == (3, 14)
    bands = parts.bands(0.9)
    width = bands["total", "upper"] - bands["total", "lower"]
    np.testing.assert_allclose(width, 2 * 1.6448536 * np.sqrt(parts.total))
    with pytest.raises(ValueError, match="need variances"):
        wave_model.decompose(X).bands()
    with pytest.raises(ValueError, match="`measure` must be one of"):
        wave_model.decompose(X, measure="sd")


def test_without_calibration_its_part_is_zero(additive_model, wave):
    for measure in ("entropy", "variance"):
        parts = additive_model.decompose(wave.features(PLACES), measure=measure)
        np.testing.assert_array_equal(parts.structural_G, 0)
        assert np.ptp(parts.aleatoric) < 1e-12


def test_variance_follows_the_law_of_total_variance(wave_model, additive_model, wave):
    X = wave.features(PLACES)
    for model in (wave_model, additive_model):
        parts = model.decompose(X, measure="variance")
        law = model.predict_distribution(X)
        error = 6 * parts.errors["total"] + 1e-9
        assert np.all(np.abs(parts.total - law.var()) < error)


def test_closed_moments_equal_those_of_the_draws(additive_model, wave):
    """Means and variances of mu given the hyperparameters, beside sampled omega and delta."""
    stage, posterior = additive_model._stages("additive")[0], additive_model.posterior_
    rows = additive_model._rows(wave.features(PLACES))
    moments = closed_form.closed_form(stage, posterior.shards[0]).moments(rows)
    mu = stage.mu(rows)
    alone, whole = moments.variances
    total = np.mean(whole, axis=0) + np.var(moments.mean, axis=0)
    sampled, closed = np.mean(mu, axis=0), np.mean(moments.mean, axis=0)

    def error(*draws):
        """Return the standard error of a difference of means, by batches of draws."""
        return np.sqrt(sum(uncertainty.batch_variance(d) for d in draws))

    assert np.all(np.abs(closed - sampled) < 6 * error(moments.mean, mu))
    squares = whole + (moments.mean - closed) ** 2, (mu - sampled) ** 2
    assert np.all(np.abs(total - np.var(mu, axis=0)) < 6 * error(*squares))
    assert np.all(whole >= alone * (1 - 1e-10))


@pytest.mark.parametrize(
    ("stage", "orthogonalize"), [("ensemble", False), ("additive", False), ("additive", True)]
)
def test_forms_averaged_before_rows_are_seen_equal_the_average(stage, orthogonalize, wave):
    """Length-scales are spread over all of the grid and beyond its ends."""
    settings = {
        "calibration": None,
        "chains": 1,
        "warmup": 60,
        "draws": 30,
        "random_state": shifted(0),
    }
    model = BNERegressor(EXPERTS, inputs=["x"], orthogonalize=orthogonalize, **settings)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        posterior = model.fit(wave.X, wave.y).posterior_
    gaussian, rows = model._stages(stage)[0], model._rows(wave.features(PLACES))
    if gaussian.residual is not None:
        grid = gaussian.residual.grid
        spread = np.random.default_rng(shifted(0)).uniform(grid[0] - 0.3, grid[-1] + 0.3, size=30)
        draws = gaussian.draws
        terms = draws.terms | {"residual": draws.terms["residual"]._replace(log_ell=spread)}
        gaussian = gaussian._replace(draws=draws._replace(terms=terms))
    closed = closed_form.closed_form(gaussian, posterior.shards[0])
    each, average = closed.moments(rows), closed.averaged().moments(rows)
    np.testing.assert_allclose(average.mean, each.mean, rtol=1e-9, atol=1e-12)
    expected = np.mean(each.variances, axis=1, keepdims=True)
    np.testing.assert_allclose(average.variances, expected, rtol=1e-9)
    np.testing.assert_allclose(average.sigma_eps**2, np.mean(each.sigma_eps**2, keepdims=True))
    ours = uncertainty.mean_variances(None, average, 1.7)
    theirs = uncertainty.split(None, each, "variance", 1.7).values
    for name in uncertainty.NAMES:
        np.testing.assert_allclose(ours[name], theirs[name], rtol=1e-9, atol=1e-12)


def test_gaussian_entropy_parts_equal_the_formulas(additive_model, wave):
    stage, posterior = additive_model._stages("additive")[0], additive_model.posterior_
    rows = additive_model._rows(wave.features(PLACES))
    m = closed_form.closed_form(stage, posterior.shards[0]).moments(rows)
    parts = additive_model.decompose(wave.features(PLACES))
    noise, (v1, v2) = m.sigma_eps[:, None] ** 2, m.variances
    np.testing.assert_allclose(parts.parametric, np.mean(0.5 * np.log(1 + v1 / noise), axis=0))
    sd = np.sqrt(noise + v2)
    for i in range(len(PLACES)):
        ends = np.min(m.mean[:, i] - 9 * sd[:, i]), np.max(m.mean[:, i] + 9 * sd[:, i])

        def minus_f_log_f(y, i=i):
            f = np.mean(stats.norm.pdf(y, m.mean[:, i], sd[:, i]))
            return -f * np.log(f) if f > 0 else 0.0

        pieces = np.linspace(*ends, 9)
        H = sum(integrate.quad(minus_f_log_f, a, b, limit=200)[0] for a, b in pairwise(pieces))
        scale = np.log(additive_model.scaling_.y_scale)
        np.testing.assert_allclose(parts.total[i], H + scale, atol=1e-4)


@pytest.mark.parametrize(
    ("law", "low", "high"),
    [
        (stats.norm(0.3, 1.2), -7.0, 8.0),
        (stats.weibull_min(1.8, loc=-1.0, scale=2.0), -1.0, 10.0),
        (stats.Mixture([stats.Normal(mu=-2, sigma=0.5), stats.Normal(mu=1, sigma=0.9)]), -5.0, 7.5),
    ],
    ids=["gaussian", "weibull", "bimodal"],
)
def test_quadrature_of_known_densities(law, low, high):
    """KL of two shifted copies from their average, by the module's rule and adaptively."""
    shifts = np.array([0.0, 0.7])
    y, step = equispaced(np.array([low]), np.array([high]))
    f = np.stack([law.pdf(y - s) for s in shifts])
    ours = np.mean(divergences(f, step), axis=0)

    def integrand(y):
        f = np.array([float(law.pdf(y - s)) for s in shifts])
        terms = [a * np.log(a / f.mean()) if a > 0 else 0.0 for a in f]
        return np.mean(terms)

    points = [-0.3, 0.0, 1.0]
    exact = integrate.quad(integrand, low, high, points=points, limit=500)[0]
    np.testing.assert_allclose(ours[0], exact, atol=1e-4)


def test_full_entropies_equal_brute_force(wave_model, wave):
    """Aleatoric by adaptive quadrature of each draw, mutual information by nested Monte Carlo."""
    x = np.array([-4.0, 1.0])
    stage = wave_model._stages("full")[0].thinned()
    rows = wave_model._rows(wave.features(x))
    draws = conditional_draws(stage, rows)
    H = draws.entropy()
    for s in (3, 400):
        for row in (0, 1):
            one = draws.mu[s, row], draws.sigma_eps[s]
            y = np.linspace(one[0] - 9 * one[1], one[0] + 9 * one[1], 20_001)
            log_f = draws.log_pdf_draws(y, np.full(len(y), row))[s]
            exact = np.trapezoid(-np.exp(log_f) * log_f, y)
            np.testing.assert_allclose(H[s, row], exact, atol=1e-4)
    parts = wave_model.decompose(wave.features(x))
    rng = np.random.RandomState(shifted(0))
    S = len(draws.sigma_eps)
    draw = np.tile(np.repeat(np.arange(S), 4), (2, 1))
    y = draws.sample(draw, rng)
    for row in (0, 1):
        log_f = draws.log_pdf_draws(y[row], np.full(4 * S, row))
        own = log_f[draw[row], np.arange(4 * S)]
        gain = own - np.log(np.mean(np.exp(log_f), axis=0))
        error = np.std(gain) / np.sqrt(len(gain))
        assert abs(np.mean(gain) - parts.epistemic[row]) < 5 * error + 1e-3


def test_rows_do_not_depend_on_each_other(wave_model, wave, monkeypatch):
    X = wave.features(PLACES)
    whole = wave_model.decompose(X).to_frame()
    monkeypatch.setattr("bne._law.conditional.CHUNK_ELEMENTS", 600_000)
    pd.testing.assert_frame_equal(wave_model.decompose(X[::-1]).to_frame()[::-1], whole, rtol=1e-6)


def test_structural_delta_rises_to_its_prior_level(additive_model, wave):
    """Where all experts predict mean(y), the model's zero, only delta is unknown."""
    X = wave.features(wave.X["x"].max() + np.array([0.0, 1.0, 3.0, 10.0, 200.0]))
    X[["rbf_short", "rbf_long", "periodic"]] = additive_model.scaling_.y_center
    parts = additive_model.decompose(X, measure="variance")
    assert np.all(np.diff(parts.structural_delta) >= 0)
    sigma_delta = additive_model._stages("additive")[0].draws.terms["residual"].scale
    prior = np.mean(sigma_delta**2) * additive_model.scaling_.y_scale**2
    error = 6 * parts.errors["structural_delta"][-1]
    assert abs(parts.structural_delta[-1] - prior) < error


def test_stages_differ_in_what_they_do_not_know(wave_model, wave):
    X = wave.features(PLACES)
    ensemble = wave_model.decompose(X, stage="ensemble")
    additive = wave_model.decompose(X, stage="additive")
    assert np.all(ensemble.structural_delta == 0)
    assert np.all(ensemble.structural_G == 0)
    assert np.all(additive.structural_delta > 0)
    assert np.ptp(additive.aleatoric) < 1e-12
    full = wave_model.decompose(X)
    np.testing.assert_array_equal(additive.structural_delta, full.structural_delta)
    np.testing.assert_allclose(
        ensemble.mean, wave_model.predict_distribution(X, stage="ensemble").mean()
    )


@pytest.mark.parametrize("name", ["wave_model", "cgp_model", "additive_model"])
@pytest.mark.slow
def test_the_table_of_answers_has_what_each_method_says(name, request, wave):
    """Two ways: the table averages variances over the draws before it sees a row."""
    model, X = request.getfixturevalue(name), wave.features(PLACES)
    table = wide_table(model, X)
    parts = model.decompose(X, measure="variance").to_frame()
    for part in parts:
        np.testing.assert_allclose(table[f"variance_{part}"], parts[part], rtol=1e-7, atol=1e-11)
    np.testing.assert_allclose(table["mean"], model.predict(X), rtol=1e-9, atol=1e-11)
    np.testing.assert_allclose(table["sd"], model.predict(X, return_std=True)[1], rtol=1e-7)
    bias = model.detect_bias(X).total
    np.testing.assert_allclose(table["bias"], bias.mean, rtol=1e-9, atol=1e-11)
    np.testing.assert_allclose(table["prob_models_too_low"], bias.prob_positive, rtol=1e-12)


@pytest.mark.parametrize("orthogonalize", [False, True])
def test_a_thinned_stage_says_what_the_whole_says(orthogonalize, wave):
    """It keeps only the nodes of its length-scales."""
    settings = {
        "calibration": None,
        "chains": 1,
        "warmup": 60,
        "draws": 40,
        "random_state": shifted(0),
    }
    model = BNERegressor(EXPERTS, inputs=["x"], orthogonalize=orthogonalize, **settings)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        stage = model.fit(wave.X, wave.y)._stages("additive")[0]
    rows, thinned = model._rows(wave.features(PLACES)), stage.thinned(7)
    kept = np.linspace(0, 39, 7).round().astype(int)
    assert len(thinned.residual.grid) < len(stage.residual.grid)
    np.testing.assert_allclose(thinned.mu(rows), stage.mu(rows)[kept], rtol=1e-10, atol=1e-12)
