"""Data and arguments that once gave wrong answers without an error."""

import warnings

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import Ridge

import bne
from bne import BNERegressor, metrics
from conftest import shifted

QUICK = {"calibration": None, "chains": 2, "warmup": 40, "draws": 60, "random_state": shifted(0)}


def rows(n=40):
    rng = np.random.default_rng(shifted(1))
    X = pd.DataFrame(rng.normal(size=(n, 2)), columns=["x", "f"])
    return X, X["f"].to_numpy() + 0.3 * rng.normal(size=n)


def make(**changes):
    return BNERegressor([("f", "f")], inputs=["x"], **(QUICK | changes))


@pytest.fixture(scope="module")
def fitted():
    X, y = rows()
    return make().fit(X, y), X, y


def test_a_mask_is_a_missing_value(fitted):
    model, X, y = fitted
    masked = np.ma.masked_array(y.copy(), mask=np.arange(40) == 3, fill_value=1e20)
    masked.data[3] = 1e20
    with pytest.raises(ValueError, match="y contains NaN"):
        make().fit(X, masked)
    array = np.ma.masked_array(X.to_numpy(), mask=False)
    array[5, 1] = np.ma.masked
    with pytest.raises(ValueError, match="X contains NaN"):
        BNERegressor([("f", 1)], inputs=[0], **QUICK).fit(array, y)
    law = model.predict_distribution(X)
    assert np.flatnonzero(np.isnan(law.crps(masked))).tolist() == [3]
    with pytest.raises(ValueError, match="finite"):
        metrics.crps(masked, law, reduce=True)
    whole = np.ma.masked_array(y, mask=False)
    np.testing.assert_array_equal(make().fit(X, whole).predict(X), model.predict(X))


@pytest.mark.parametrize("partitions", [1, 2])
def test_values_that_are_not_finite(fitted, partitions):
    _, X, y = fitted
    law = make(partitions=partitions).fit(X, y).predict_distribution(X[:4])
    at = np.array([np.nan, -np.inf, np.inf, 0.1])
    np.testing.assert_array_equal(law.cdf(at)[:3], [np.nan, 0.0, 1.0])
    np.testing.assert_array_equal(law.pdf(at)[:3], [np.nan, 0.0, 0.0])
    np.testing.assert_array_equal(law.crps(at)[:3], [np.nan, np.inf, np.inf])
    for answer in (law.cdf, law.pdf, law.crps):
        np.testing.assert_array_equal(answer(at)[3], answer(np.full(4, 0.1))[3])
    assert np.isnan(law.cdf(np.nan)).all()


def test_quantiles_far_out(fitted):
    """The CDF at the quantile is the level, to a part in a million of it."""
    model, X, _ = fitted
    law = model.predict_distribution(X[:4])
    for level in (1e-12, 1e-10, 1e-6):
        q = law.ppf(level)
        np.testing.assert_allclose(law.cdf(q), level, rtol=1e-6)


def test_outcomes_that_are_dates(fitted):
    _, X, y = fitted
    for dates in (
        np.datetime64("2020-01-01") + np.arange(40),
        np.arange(40) * np.timedelta64(1, "D"),
    ):
        for of in (dates, pd.Series(dates)):
            with pytest.raises(ValueError, match="dates or durations"):
                make().fit(X, of)
    with pytest.raises(ValueError, match="complex numbers"):
        make().fit(X.assign(f=X["f"] + 1j), y)


def test_names_of_parameters_are_refused(fitted):
    _, X, y = fitted
    with pytest.raises(ValueError, match=r"name of a parameter; got \['chains'\]"):
        BNERegressor([("chains", Ridge())], inputs=["x"], **QUICK).fit(X, y)


def test_shares_that_are_percents(fitted):
    model, X, _ = fitted
    parts = model.decompose(X[:3], measure="variance")
    calls = {
        "threshold": lambda: model.detect_bias(X[:3], threshold=95),
        "coverage": lambda: model.detect_bias(X[:3], coverage=90),
        "`coverage`": lambda: model.explain_weights(coverage=-1),
        " coverage": lambda: parts.bands(90),
        "coverage` must": lambda: model.predict_interval(X[:3], coverage=90),
    }
    for name, call in calls.items():
        with pytest.raises(ValueError, match=r"must lie in \(0, 1\)") as error:
            call()
        assert name.strip(" `") in str(error.value) or "coverage" in str(error.value)
    with pytest.raises(ValueError, match="`orthogonalize` must be True or False; got 'no'"):
        make(orthogonalize="no").fit(*rows())


def test_numbers_too_large_to_square(fitted):
    model, X, y = fitted
    with pytest.raises(ValueError, match="outcomes must not exceed"):
        make().fit(X, y * 1e160)
    with pytest.raises(ValueError, match="inputs must not exceed"):
        model.predict(X * 1e160)


@pytest.mark.parametrize("settings", [{"draws": 3}, {"chains": 1, "draws": 3}])
def test_diagnostics_that_are_missing_are_no_good_news(settings):
    with pytest.warns(bne.SamplingWarning, match="not known from"):
        make(**settings).fit(*rows())


def test_a_quantity_that_is_held_is_healthy():
    """With the paper's construction the amplitude is fixed, and has no R-hat."""
    from bne._sampler.diagnostics import health, warn_if_unhealthy

    rng = np.random.default_rng(shifted(4))
    quantities = {"free": rng.normal(size=(4, 1000)), "held": np.full((4, 1000), 0.5)}
    statistics = {"diverging": np.zeros((4, 1000)), "energy": rng.normal(size=(4, 1000))}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warn_if_unhealthy("full", *health([quantities], [statistics]))


def test_an_infinite_energy_does_not_hide_slow_chains():
    """A trajectory that broke off has an infinite energy; the others still say how chains move."""
    from bne._sampler.diagnostics import health, warn_if_unhealthy

    rng = np.random.default_rng(shifted(5))
    slow = np.cumsum(rng.normal(size=(4, 1000)), axis=1)
    slow[2, 7] = np.inf
    quantities = {"free": rng.normal(size=(4, 1000))}
    statistics = {"diverging": np.zeros((4, 1000)), "energy": slow}
    with pytest.warns(bne.SamplingWarning, match="E-BFMI 0.0"):
        warn_if_unhealthy("full", *health([quantities], [statistics]))


def test_levels_with_one_name(fitted):
    from bne._regressor.wide_table import wide_table

    model, X, _ = fitted
    with pytest.raises(ValueError, match="several levels whose column is q50"):
        wide_table(model, X, quantiles=[0.5, 0.500000001])


@pytest.mark.slow
@pytest.mark.parametrize("calibration", ["logistic", "cgp"])
def test_constant_outcomes_with_a_calibration(calibration):
    X, _ = rows()
    model = make(calibration=calibration).fit(X, np.full(len(X), 3.0))
    mean, sd = model.predict(X, return_std=True)
    np.testing.assert_allclose(mean, 3.0, atol=1e-4)
    assert np.all((sd > 0) & (sd < 1e-3))


def test_an_expert_in_another_unit_is_named(fitted):
    _, X, y = fitted
    with pytest.warns(UserWarning, match=r"\['kelvin'\] are far from y"):
        BNERegressor([("f", "f"), ("kelvin", "k")], inputs=["x"], **QUICK).fit(
            X.assign(k=X["f"] + 273.15), y
        )


def test_longitudes_may_be_counted_either_way_round():
    rng = np.random.default_rng(shifted(6))
    X = pd.DataFrame({"lon": rng.uniform(-75, -70, 40), "lat": rng.uniform(40, 43, 40)})
    X["f"] = rng.normal(size=40)
    y = X["f"].to_numpy() + 0.1 * rng.normal(size=40)
    settings = QUICK | {"inputs": ["lon", "lat"], "geographic": ("lon", "lat")}
    model = BNERegressor([("f", "f")], **settings).fit(X, y)
    turned = X.assign(lon=X["lon"] + 360.0)
    np.testing.assert_allclose(model.predict(turned), model.predict(X), rtol=1e-9)
    east = BNERegressor([("f", "f")], **settings).fit(turned, y)
    np.testing.assert_allclose(east.predict(X), east.predict(turned), rtol=1e-9)
