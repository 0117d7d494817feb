"""Experts in their three forms, and what goes wrong with them."""

import numpy as np
import pandas as pd
import pytest
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.exceptions import NotFittedError
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.model_selection import (
    GroupKFold,
    KFold,
    RepeatedKFold,
    TimeSeriesSplit,
    cross_val_predict,
)

from bne import BNERegressor
from bne._data import experts as _experts
from bne._data import roles
from conftest import shifted

TINY = {"calibration": None, "chains": 1, "warmup": 20, "draws": 10, "random_state": shifted(0)}


class Odd(RegressorMixin, BaseEstimator):
    """Predicts what it is told, whatever the rows."""

    def __init__(self, answer="nan"):
        self.answer = answer

    def fit(self, X, y):
        if self.answer == "raise":
            raise RuntimeError("cannot be fitted")
        self.fitted_ = True
        return self

    def predict(self, X):
        return {"nan": np.full(len(X), np.nan), "shape": np.zeros((len(X), 2))}[self.answer]


@pytest.fixture
def rows():
    rng = np.random.default_rng(shifted(0))
    X = pd.DataFrame(
        {"a": rng.normal(size=40), "b": rng.normal(size=40), "model": rng.normal(size=40)}
    )
    return X, X["a"].to_numpy() + 0.1 * rng.normal(size=40)


def fit(estimators, rows, **settings):
    X, y = rows
    return BNERegressor(estimators, **(TINY | settings)).fit(X, y)


def experts(estimators, rows, cv=None, groups=None):
    X, y = rows
    columns = roles.resolve_columns(estimators, None, list(X.columns), X.shape[1])
    return _experts.out_of_fold(estimators, columns, X, y, cv=cv, groups=groups, n_jobs=None)


def test_out_of_fold_predictions_are_scikit_learns(rows):
    X, y = rows
    cv = KFold(4, shuffle=True, random_state=shifted(1))
    fitted, f = experts([("ols", LinearRegression()), ("model", "model")], rows, cv)
    seen = X[["a", "b"]]  # regressors never see prediction columns
    np.testing.assert_allclose(f[:, 0], cross_val_predict(LinearRegression(), seen, y, cv=cv))
    np.testing.assert_array_equal(f[:, 1], X["model"])
    np.testing.assert_allclose(
        fitted["ols"].predict(seen), LinearRegression().fit(seen, y).predict(seen)
    )
    assert list(fitted) == ["ols"]


def test_prefit_and_frozen_experts_are_used_as_they_are(rows):
    X, y = rows
    ols = LinearRegression().fit(X[["a", "b"]].iloc[:10], y[:10])
    expected = ols.predict(X[["a", "b"]])
    _, f = experts([("ols", ols), ("model", "model")], rows, cv="prefit")
    np.testing.assert_allclose(f[:, 0], expected)
    _, f = experts(
        [("ols", FrozenEstimator(ols)), ("free", LinearRegression()), ("model", "model")], rows
    )
    np.testing.assert_allclose(f[:, 0], expected)
    with pytest.raises(NotFittedError, match="Expert 'ols' is used as fitted"):
        experts([("ols", LinearRegression())], rows, cv="prefit")


def test_groups_reach_the_splitter(rows):
    groups = np.repeat(np.arange(8), 5)
    _, f = experts([("ols", LinearRegression())], rows, GroupKFold(4), groups)
    X, y = rows
    expected = cross_val_predict(LinearRegression(), X, y, cv=GroupKFold(4), groups=groups)
    np.testing.assert_allclose(f[:, 0], expected)


def test_repeated_splits_are_averaged(rows):
    X, y = rows
    cv = RepeatedKFold(n_splits=4, n_repeats=2, random_state=shifted(0))
    _, f = experts([("ols", LinearRegression())], rows, cv)
    total = np.zeros(40)
    for train, test in cv.split(X):
        total[test] += LinearRegression().fit(X.iloc[train], y[train]).predict(X.iloc[test])
    np.testing.assert_allclose(f[:, 0], total / 2)


def test_rows_never_predicted_are_left_out_with_a_warning(rows):
    with pytest.warns(UserWarning, match="leaves 10 of 40 rows"):
        model = fit([("ols", LinearRegression())], rows, cv=TimeSeriesSplit(3))
    assert model.n_rows_ == 30
    with pytest.raises(ValueError, match="predicts only 2 of 40"):
        fit([("ols", LinearRegression())], rows, cv=[(np.arange(30), np.array([38, 39]))])


@pytest.mark.parametrize(
    ("estimators", "message"),
    [
        ([("bad", Odd("nan"))], "Expert 'bad' returned NaN or infinity"),
        ([("bad", Odd("shape"))], r"Expert 'bad' returned predictions of shape \(10, 2\)"),
        ([("a1", "a"), ("a1", "b")], r"must be unique; got \['a1'\]"),
        ([("gone", "missing")], "names the column 'missing', which is not in X"),
        ([("far", 7)], "is column 7, but X has only 3 columns"),
        ([("a__b", "a")], "must not contain '__'"),
        ([("class", LinearRegression)], "must be a regressor instance"),
        ([("classifier", LogisticRegression())], "must be a regressor; got the classifier"),
        ([], "`estimators` is empty"),
        ("ridge", "must be a list of"),
        (["ridge"], "must hold"),
        ([("flag", True)], "must be a regressor instance, a column name"),
    ],
)
def test_bad_experts_are_named(rows, estimators, message):
    with pytest.raises(ValueError, match=message):
        fit(estimators, rows, cv=4)


def test_an_expert_that_cannot_be_fitted_is_named(rows):
    with pytest.raises(RuntimeError, match="cannot be fitted") as info:
        fit([("bad", Odd("raise"))], rows)
    assert "expert 'bad'" in info.value.__notes__[0]


def test_regressors_need_a_column_of_their_own(rows):
    X, y = rows
    with pytest.raises(ValueError, match="every column of X is a prediction"):
        BNERegressor([("ols", LinearRegression()), ("m", 0)], **TINY).fit(X[["a"]].to_numpy(), y)


def test_inputs(rows):
    X, y = rows
    pairs = [("model", "model")]
    for inputs, message in [
        (["zz"], "`inputs` names the column 'zz', which is not in X"),
        (["a", "a"], "names a column twice"),
        ([1.5], "must be a column name or index"),
    ]:
        with pytest.raises(ValueError, match=message):
            fit(pairs, rows, inputs=inputs)
    assert fit(pairs, rows).columns_.inputs == [0, 1]
    assert fit(pairs, rows, inputs="b").columns_.inputs == [1]
    assert fit([("m", -1)], rows, inputs=[-2]).columns_ == ({"m": 2}, [1], [0, 1])
    with pytest.raises(ValueError, match="X has no column names"):
        BNERegressor(pairs, **TINY).fit(X.to_numpy(), y)


def test_text_columns_are_for_pipelines_not_for_inputs(rows):
    X, y = rows
    X = X.assign(kind="urban")
    assert np.all(np.isfinite(fit([("m", "model")], (X, y), inputs=["a"]).predict(X)))
    with pytest.raises(ValueError, match="Column 'kind' is used as a prediction or an input"):
        fit([("m", "model")], (X, y))
