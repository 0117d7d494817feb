"""Inputs that go wrong: each works with the property that must hold, or raises one clear error."""

import warnings
from unittest import mock

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from sklearn.linear_model import Ridge

from bne import BNERegressor
from conftest import shifted

N = 60
QUICK = {
    "inputs": ["x"],
    "calibration": None,
    "chains": 2,
    "warmup": 150,
    "draws": 250,
    "random_state": shifted(0),
}


def world(n=N, seed=shifted(0), scale=1.0):
    rng = np.random.default_rng(seed)
    x = rng.uniform(-2.0, 2.0, n)
    X = pd.DataFrame({"x": x, "a": np.sin(x), "b": 0.5 * x})
    return X, scale * (X["a"].to_numpy() + 0.2 * x**2 + 0.1 * rng.normal(size=n))


def fit(X, y, experts=("a", "b"), **changes):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return BNERegressor([(e, e) for e in experts], **(QUICK | changes)).fit(X, y)


def assert_sound(model, X):
    """Finite, positive, ordered, and a CDF."""
    law = model.predict_distribution(X)
    levels = np.tile([0.01, 0.3, 0.7, 0.99], (len(X), 1))
    quantiles = law.ppf(levels)
    for values in (law.mean(), law.std(), quantiles):
        assert np.all(np.isfinite(values))
    assert np.all(law.std() > 0)
    assert np.all(np.diff(quantiles, axis=1) > 0)
    np.testing.assert_allclose(law.cdf(quantiles), levels, atol=1e-6)
    assert np.all(np.isfinite(model.decompose(X).total))


def changed(column, value, row=3):
    X, y = world()
    X[column] = X[column].astype(object) if isinstance(value, str | None) else X[column]
    X.loc[row, column] = value
    return X, y


BAD = {
    "missing value in an input": (*changed("x", np.nan), "NaN"),
    "infinite value in a prediction": (*changed("a", np.inf), "infin"),
    "None in a prediction": (*changed("a", None), "column 'a'"),
    "text in an input": (*changed("x", "north"), "Column 'x'"),
    "categories": (world()[0].assign(x=pd.Categorical(["p", "q"] * 30)), world()[1], "Column 'x'"),
    "dates": (
        world()[0].assign(x=pd.date_range("2020", periods=N)),
        world()[1],
        "days since the first",
    ),
    "durations": (
        world()[0].assign(x=pd.to_timedelta(np.arange(N), unit="h")),
        world()[1],
        "Column 'x' holds dates or durations",
    ),
    "missing outcome": (world()[0], np.where(np.arange(N) == 5, np.nan, world()[1]), "NaN"),
    "text as outcome": (world()[0], np.array(["high"] * N), r"(?i)(string|convert|number)"),
    "outcomes too few": (world()[0], world()[1][:-1], "59"),
    "no rows": (world()[0][:0], world()[1][:0], "0 sample"),
    "one row": (world()[0][:1], world()[1][:1], "1 sample"),
    "a column that is not there": (world()[0].drop(columns="b"), world()[1], "'b'"),
    "a sparse matrix": (sparse.csr_matrix(world()[0]), world()[1], "(?i)sparse"),
    "one dimension": (world()[0]["x"].to_numpy(), world()[1], "(?i)2D"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_gives_one_clear_error_and_changes_nothing(case):
    X, y, message = BAD[case]
    model = BNERegressor([("a", "a"), ("b", "b")], **QUICK)
    before = model.get_params()
    copy = X.copy() if hasattr(X, "copy") else X
    with pytest.raises((ValueError, TypeError), match=message):
        model.fit(X, y)
    assert model.get_params() == before
    assert not [name for name in vars(model) if name == "posterior_"]
    if isinstance(X, pd.DataFrame):
        pd.testing.assert_frame_equal(X, copy)


def test_refitting_with_bad_input_keeps_nothing_half_done():
    X, y = world()
    model = fit(X, y)
    before = model.predict(X[:5])
    for bad_X, bad_y, message in BAD.values():
        with pytest.raises((ValueError, TypeError), match=message):
            model.fit(bad_X, bad_y)
        np.testing.assert_array_equal(model.predict(X[:5]), before)


def test_an_interrupted_fit_leaves_the_one_before():
    """The new scale of y must not meet the old posterior."""
    X, y = world()
    model = fit(X, y)
    before = model.predict(X[:5])
    with (
        mock.patch("bne._regressor.sampling.sample_posterior", side_effect=KeyboardInterrupt),
        pytest.raises(KeyboardInterrupt),
    ):
        model.fit(X.assign(z=0.0), 100.0 * y)
    np.testing.assert_array_equal(model.predict(X[:5]), before)


def test_a_constant_expert_is_warned_about():
    """By the line that calls fit."""
    X, y = world()
    with pytest.warns(UserWarning, match=r"Experts \['b'\] predict the same value") as caught:
        BNERegressor([("a", "a"), ("b", "b")], **QUICK).fit(X.assign(b=1.0), y)
    assert caught[0].filename == __file__


STRANGE = {
    "constant outcome": lambda X, y: (X, np.full(N, 3.0), {}),
    "constant expert": lambda X, y: (X.assign(b=1.0), y, {}),
    "expert twice": lambda X, y: (X.assign(b=X["a"]), y, {}),
    "perfect expert": lambda X, y: (X.assign(b=y), y, {}),
    "one expert": lambda X, y: (X, y, {"experts": ["a"]}),
    "no inputs": lambda X, y: (X, y, {"inputs": []}),
    "constant input": lambda X, y: (X.assign(x=1.0), y, {}),
    "three rows": lambda X, y: (X[:3], y[:3], {}),
    "repeated rows, other y": lambda X, y: (X.iloc[np.arange(N) // 6], y, {}),
    "gross outliers": lambda X, y: (X, np.where(np.arange(N) == 7, 1e3, y), {}),
    "tiny scale": lambda X, y: (X.assign(a=1e-12 * X["a"], b=1e-12 * X["b"]), 1e-12 * y, {}),
    "huge scale": lambda X, y: (X.assign(a=1e12 * X["a"], b=1e12 * X["b"]), 1e12 * y, {}),
    "far from zero": lambda X, y: (X.assign(a=X["a"] + 1e6, b=X["b"] + 1e6), y + 1e6, {}),
    "integers": lambda X, y: ((10 * X).round().astype(int), (10 * y).round().astype(int), {}),
    "float32": lambda X, y: (X.astype(np.float32), y.astype(np.float32), {}),
    "fifty inputs": lambda X, y: (
        X.assign(**{f"z{i}": np.random.default_rng(shifted(i)).normal(size=N) for i in range(50)}),
        y,
        {"inputs": ["x", *(f"z{i}" for i in range(50))]},
    ),
    "thirty experts": lambda X, y: (
        X.assign(**{f"e{i}": X["a"] + 0.1 * i * X["x"] for i in range(30)}),
        y,
        {"experts": [f"e{i}" for i in range(30)]},
    ),
    "fewer rows than experts": lambda X, y: (
        X[:8].assign(**{f"e{i}": np.cos(i * X["x"][:8]) for i in range(30)}),
        y[:8],
        {"experts": [f"e{i}" for i in range(30)]},
    ),
}


@pytest.mark.parametrize("case", STRANGE)
@pytest.mark.slow
def test_strange_input_gives_sound_answers(case):
    X, y, changes = STRANGE[case](*world())
    assert_sound(fit(X, y, **changes), X[:7])


@pytest.mark.slow
def test_outliers_do_not_make_the_rest_useless():
    """One gross outlier: with G the 90% band elsewhere still covers, and is not absurdly wide."""
    X, y = world(120)
    y = np.where(np.arange(120) == 7, y + 30.0, y)
    model = fit(X, y, calibration="logistic")
    lower, upper = model.predict_interval(X, 0.9).to_numpy().T
    rest = np.arange(120) != 7
    assert np.mean((y >= lower)[rest] & (y <= upper)[rest]) > 0.85
    assert np.median(upper - lower) < 12.0  # the outlier alone is 30 away


@pytest.mark.parametrize(
    "layout", ["fortran", "view", "read-only", "memory map", "float32", "integers"]
)
def test_layout_of_arrays_does_not_matter(layout, tmp_path):
    X, y = world()
    plain = X.to_numpy()
    settings = QUICK | {"inputs": [0]}

    def predictions(array):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return BNERegressor([("a", 1), ("b", 2)], **settings).fit(array, y).predict(plain[:5])

    if layout == "fortran":
        array = np.asfortranarray(plain)
    elif layout == "view":
        array = np.repeat(plain, 2, axis=0)[::2]
    elif layout == "read-only":
        array = plain.copy()
        array.setflags(write=False)
    elif layout == "memory map":
        array = np.memmap(tmp_path / "x", dtype=float, mode="w+", shape=plain.shape)
        array[:] = plain
    else:
        array = plain.astype(np.float32) if layout == "float32" else (10 * plain).astype(int)
        plain = array.astype(float)
    np.testing.assert_allclose(predictions(array), predictions(plain.copy()), rtol=1e-9)


def test_columns_at_prediction():
    """Reordered columns are refused by name, as scikit-learn does; missing ones too."""
    X, y = world()
    model = fit(X, y)
    with pytest.raises(ValueError, match="feature names"):
        model.predict(X[["b", "a", "x"]])
    with pytest.raises(ValueError, match="feature names"):
        model.predict(X[["x", "a"]])


def test_a_regressor_that_fails_is_named():
    class Broken(Ridge):
        def fit(self, X, y):
            raise RuntimeError("singular")

    X, y = world()
    with pytest.raises(
        RuntimeError, match=r"singular\nThis happened while fitting expert 'broken'"
    ):
        BNERegressor([("broken", Broken())], **QUICK).fit(X, y)
