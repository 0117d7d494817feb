"""Every posterior draw of F(. | x) is a CDF, on and far off the data: 10,000 (draw, x) pairs."""

import numpy as np
import pytest
from scipy import integrate, special

from bne._calibration.base_law import tail_mass
from bne._law.conditional import conditional_draws
from conftest import base_pdf, cubic_error, rule_error, sharpness

SETS = {
    "logistic": np.array([-6.0, -4.0, -1.0, 0.0, 2.0, 4.5, 9.0, 20.0, -60.0, 300.0]),
    "cgp": np.concatenate(
        [np.linspace(-5, 5, 100), np.linspace(10, 60, 50), np.geomspace(-900, -8, 50)]
    ),
}


@pytest.fixture(scope="module", params=list(SETS))
def draws(request, wave, wave_model, cgp_model):
    model = {"logistic": wave_model, "cgp": cgp_model}[request.param]
    rows = model._rows(wave.features(SETS[request.param]))
    conditional = conditional_draws(model._stages("full")[0].thinned(), rows)
    assert conditional.mu.size == 10_000
    return conditional


def each_row(draws):
    S, n = draws.mu.shape
    return [(row, np.arange(S), np.full(S, row)) for row in range(n)]


def test_monotone_from_zero_to_one(draws):
    t = np.concatenate([[-4000.0], np.linspace(-8, 8, 401), [4000.0]])
    for row, every, _ in each_row(draws):
        F = draws.ratio.cdf(np.tile(t, (len(every), 1)), np.full(len(t), row))
        assert np.all(np.diff(F, axis=1) >= -1e-12)
        np.testing.assert_allclose(F[:, [0, -1]], np.tile([0.0, 1.0], (len(every), 1)), atol=1e-12)


def test_the_density_integrates_to_one(draws):
    """As exactly as `NODE_SPACING` promises: to 1e-6 for all but draws with very sharp peaks."""
    t = np.linspace(-10, 10, 1921)  # nodes are among them
    for row, every, _ in each_row(draws):
        log_r = draws.ratio.log_ratio(np.tile(t, (len(every), 1)), np.full(len(t), row))
        mass = integrate.simpson(np.exp(log_r) * base_pdf(t), x=t, axis=1)
        mass += draws.ratio.tables.ends[:, row] @ np.full(2, tail_mass(10.0))
        promised = np.maximum(1e-6, 2.0 * rule_error(sharpness(draws.ratio, row)))
        assert np.all(np.abs(mass - 1.0) < promised)


def test_quantiles_and_the_cdf_are_inverse(draws):
    ratio = draws.ratio
    for row, every, here in each_row(draws):
        at = np.array([row])
        for q in (1e-6, 1e-3, 0.5, 0.99, 1 - 1e-6):
            t = ratio.ppf(np.full(len(every), q), every, here)
            np.testing.assert_allclose(ratio.cdf(t[:, None], at)[:, 0], q, atol=1e-6)
        for t in (-3.0, -0.7, 2.0):
            column = np.full((len(every), 1), t)
            level, seen = ratio.cdf(column, at)[:, 0], ratio.pdf(column, at)[:, 0] > 1e-6
            back = ratio.ppf(level[seen], every[seen], here[seen])
            np.testing.assert_allclose(back, t, atol=1e-6)


def test_equation_6(draws):
    """``E[y|x] = mu + sigma_eps int Phi - G(Phi) dt`` in every draw."""
    t = np.linspace(-12, 12, 2401)
    means = draws.moments()[0]
    for row, every, _ in each_row(draws):
        G = draws.ratio.cdf(np.tile(t, (len(every), 1)), np.full(len(t), row))
        integral = integrate.trapezoid(special.ndtr(t) - G, t, axis=1)
        D_G = (means[:, row] - draws.mu[:, row]) / draws.sigma_eps
        # a cubic's CDF is off within a peak's width; tails beyond 12 hold less than 1e-5
        tolerance = 2e-5 + cubic_error(sharpness(draws.ratio, row))
        assert np.all(np.abs(integral - D_G) < tolerance)
