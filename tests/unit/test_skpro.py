"""The adapter for skpro gives the same answers."""

import numpy as np
import pandas as pd
import pytest

pytest.importorskip("skpro")

from bne import BNERegressor
from bne.skpro import BNEProbaRegressor
from conftest import EXPERTS, shifted


@pytest.fixture(scope="module")
def fitted(wave):
    settings = {"calibration": None, "draws": 300, "random_state": shifted(0)}
    y = pd.DataFrame({"pm": wave.y}, index=wave.X.index)
    return BNEProbaRegressor(BNERegressor(EXPERTS, inputs=["x"], **settings)).fit(wave.X, y)


def test_distribution_is_the_models_own(fitted, wave):
    X = wave.X[10:15]
    law, own = fitted.predict_proba(X), fitted.regressor_.predict_distribution(X)
    np.testing.assert_array_equal(law.mean()["pm"], own.mean())
    np.testing.assert_array_equal(law.var()["pm"], own.var())
    np.testing.assert_allclose(law.ppf(0.9)["pm"], own.ppf(0.9), rtol=1e-12)
    y = pd.DataFrame({"pm": wave.y[10:15]}, index=X.index)
    np.testing.assert_allclose(law.cdf(y)["pm"], own.cdf(wave.y[10:15]), rtol=1e-12)
    np.testing.assert_allclose(law.log_pdf(y)["pm"], own.logpdf(wave.y[10:15]), rtol=1e-12)
    assert list(law.mean().index) == list(X.index)
    some = law.iloc[[1, 3]]
    np.testing.assert_allclose(some.mean()["pm"], own.mean()[[1, 3]], rtol=1e-12)
    assert law.sample(7).shape == (35, 1)
    assert law.iat[1, 0].mean().to_numpy().item() == pytest.approx(own.mean()[1])


def test_intervals_and_quantiles_of_the_base_class(fitted, wave):
    X = wave.X[:4]
    quantiles = fitted.predict_quantiles(X, alpha=[0.05, 0.95]).to_numpy()
    np.testing.assert_allclose(quantiles, fitted.regressor_.predict_interval(X), rtol=1e-10)
    np.testing.assert_array_equal(fitted.predict(X)["pm"], fitted.regressor_.predict(X))
