"""scikit-learn's contract in full."""

import pickle

import numpy as np
import pytest
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LinearRegression, Ridge
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.neighbors import KNeighborsRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from bne import BNERegressor
from conftest import shifted

SMALL = {"calibration": None, "chains": 2, "warmup": 50, "draws": 50, "random_state": shifted(0)}


@parametrize_with_checks(
    [BNERegressor([("ridge", Ridge()), ("knn", KNeighborsRegressor(3))], cv=3, **SMALL)]
)
@pytest.mark.slow
def test_check_estimator(estimator, check):
    check(estimator)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:Experts .* predict the same value")
@parametrize_with_checks([BNERegressor(chains=1, warmup=30, draws=30, random_state=shifted(0))])
def test_check_estimator_with_default_experts_and_calibration(estimator, check):
    check(estimator)


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(shifted(0))
    X = rng.normal(size=(60, 3))
    return X, X[:, 0] + np.sin(2 * X[:, 1]) + 0.2 * rng.normal(size=60)


def make():
    return BNERegressor([("ridge", Ridge()), ("knn", KNeighborsRegressor(3))], cv=3, **SMALL)


def test_pipeline_and_cross_validation(data):
    scores = cross_val_score(make_pipeline(StandardScaler(), make()), *data, cv=3)
    assert np.all(scores > 0.3)


def test_grid_search_over_an_experts_parameter(data):
    search = GridSearchCV(make(), {"ridge__alpha": [0.1, 10.0], "residual": [None, "rbf"]}, cv=2)
    search.fit(*data)
    assert set(search.best_params_) == {"ridge__alpha", "residual"}
    best = dict(search.best_estimator_.estimators)["ridge"]
    assert best.alpha == search.best_params_["ridge__alpha"]


def test_set_params_replaces_an_expert():
    model = make().set_params(knn=LinearRegression(), ridge__alpha=7.0, draws=20)
    assert isinstance(dict(model.estimators)["knn"], LinearRegression)
    assert model.get_params()["ridge__alpha"] == 7.0
    assert model.draws == 20


def test_frozen_experts_and_pickle(data):
    X, y = data
    frozen = FrozenEstimator(LinearRegression().fit(X, y))
    model = BNERegressor([("frozen", frozen), ("ridge", Ridge())], cv=3, **SMALL).fit(X, y)
    assert model.estimators_["frozen"] is frozen
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(model)).predict(X), model.predict(X))


@pytest.mark.slow
def test_the_default_trio(data):
    X, y = data
    assert BNERegressor(**SMALL).fit(X, y).score(X, y) > 0.5
