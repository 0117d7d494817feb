"""BNERegressor: the interface, bad input, scales, determinism, good manners."""

import json
import pickle
import subprocess
import sys
import threading
import warnings

import numpy as np
import pandas as pd
import pytest
from arviz_stats.base.array import array_stats
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LinearRegression, Ridge
from sklearn.neighbors import KNeighborsRegressor

from bne import BNERegressor, SamplingWarning
from bne._data.rows import Rows
from bne._process.interpolation import interpolate
from bne._sampler import hmc as _sampling
from bne._sampler.diagnostics import summarise_chains, warn_if_unhealthy
from conftest import EXPERTS, shifted

TINY = {"calibration": None, "chains": 2, "warmup": 60, "draws": 60, "random_state": shifted(0)}


@pytest.fixture(scope="module")
def small(wave):
    return BNERegressor(EXPERTS, inputs=["x"], **TINY).fit(wave.X[:40], wave.y[:40])


def test_answers_are_labelled_like_x(small, wave):
    X = wave.X[:5].set_axis(list("abcde"))
    interval = small.predict_interval(X, coverage=0.8)
    assert list(interval.columns) == ["lower", "upper"]
    assert list(interval.index) == list("abcde")
    quantiles = small.predict_quantiles(X, [0.1, 0.5, 0.9])
    assert list(quantiles.columns) == [0.1, 0.5, 0.9]
    np.testing.assert_allclose(quantiles[0.1], interval["lower"])
    mean, std = small.predict(X, return_std=True)
    assert isinstance(mean, np.ndarray)
    np.testing.assert_allclose(std, small.predict_distribution(X).std())
    assert not hasattr(small, "predict_proba")


def test_arrays_give_arrays(wave):
    X = wave.X.to_numpy()
    model = BNERegressor([("a", 1), ("b", 2), ("c", 3)], inputs=[0], **TINY).fit(
        X[:40], wave.y[:40]
    )
    assert isinstance(model.predict_interval(X[:3]), np.ndarray)
    frame = BNERegressor(EXPERTS, inputs=["x"], **TINY).fit(wave.X[:40], wave.y[:40])
    np.testing.assert_array_equal(model.predict(X[:3]), frame.predict(wave.X[:3]))


def test_each_stage_is_its_own_posterior(small, wave):
    plain = BNERegressor(EXPERTS, inputs=["x"], residual=None, **TINY).fit(wave.X[:40], wave.y[:40])
    X = wave.X[40:50]
    ensemble = small.predict_distribution(X, stage="ensemble").mean()
    np.testing.assert_array_equal(plain.predict(X), ensemble)
    assert "additive" not in plain.posterior_.shards[0].stages
    additive = small.predict_distribution(X, stage="additive").mean()
    np.testing.assert_array_equal(small.predict(X), additive)
    with pytest.raises(ValueError, match="`stage` must be one of"):
        small.predict_distribution(X, stage="final")


def test_rows_do_not_depend_on_each_other(small, wave):
    X = wave.X[40:70]
    together = small.predict_quantiles(X, [0.05, 0.5]).to_numpy()
    order = np.random.default_rng(shifted(0)).permutation(30)
    np.testing.assert_allclose(small.predict_quantiles(X.iloc[order], [0.05, 0.5]), together[order])
    alone = np.vstack([small.predict_quantiles(X[i : i + 1], [0.05, 0.5]) for i in range(30)])
    np.testing.assert_allclose(alone, together, rtol=1e-9)


def test_datatree(small):
    tree = small.to_datatree()
    posterior = tree["posterior"].dataset
    assert posterior["weights"].dims == ("chain", "draw", "expert")
    assert list(posterior["expert"].values) == [name for name, _ in EXPERTS]
    assert {"noise_scale", "residual_scale", "length_scale", "residual", "mean"} <= set(posterior)
    assert tree["log_likelihood"]["y"].shape == (2, 60, 40)
    assert {"diverging", "energy", "lp"} <= set(tree["sample_stats"].dataset)
    y = tree["observed_data"]["y"].values
    noise, mean = posterior["noise_scale"].values, posterior["mean"].values
    expected = -0.5 * ((y - mean) / noise[..., None]) ** 2 - np.log(
        noise[..., None] * np.sqrt(2 * np.pi)
    )
    np.testing.assert_allclose(tree["log_likelihood"]["y"].values, expected)
    assert "residual" not in small.to_datatree(stage="ensemble")["posterior"].dataset


def test_diagnostics_and_the_warning_that_names_the_remedy(wave):
    with pytest.warns(SamplingWarning, match="effective sample size.*raise `draws`"):
        model = BNERegressor(EXPERTS, inputs=["x"], **TINY).fit(wave.X, wave.y)
    table = model.diagnostics()
    assert {"ess_bulk", "ess_tail", "r_hat"} <= set(table.columns)
    assert {"weights[rbf_short]", "noise_scale", "length_scale"} <= set(table.index)
    assert set(table.attrs) == {"divergences", "steps_per_draw"}


def test_the_warning_names_what_is_slowest():
    rng = np.random.default_rng(shifted(0))
    good, walk = rng.normal(size=(2, 4, 500))
    table = summarise_chains({"good": good, "walk": np.cumsum(walk, axis=1), "good too": walk})
    statistics = {"diverging": np.zeros((4, 500), bool), "energy": good}
    with pytest.warns(SamplingWarning, match=r"R-hat.*: walk\): .*size.*: walk\): raise `draws`"):
        warn_if_unhealthy("full", table, statistics)
    names = {"good": good} | {f"walk{i}": np.cumsum(walk, axis=1) + i * good for i in range(5)}
    table = summarise_chains(names)
    slow = table["ess_bulk"].sort_values().index[:3]
    table["ess_tail"] = table["ess_bulk"]
    with pytest.warns(SamplingWarning, match=rf"400: {', '.join(slow)} and 2 more\)"):
        warn_if_unhealthy("full", table, statistics)


def test_same_seed_same_numbers_whatever_n_jobs_and_threads(wave):
    def draws(n_jobs, seed=shifted(0)):
        settings = TINY | {"random_state": seed}
        model = BNERegressor(EXPERTS, inputs=["x"], n_jobs=n_jobs, **settings)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return model.fit(wave.X[:40], wave.y[:40]).predict(wave.X)

    one = draws(1)
    np.testing.assert_array_equal(one, draws(2))
    assert not np.array_equal(one, draws(1, seed=shifted(1)))
    results = {}
    threads = [
        threading.Thread(target=lambda s=s: results.update({s: draws(1, s)}))
        for s in (shifted(0), shifted(1))
    ]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    np.testing.assert_array_equal(results[shifted(0)], one)
    np.testing.assert_array_equal(results[shifted(1)], draws(1, seed=shifted(1)))


def test_a_few_rows_more_or_fewer_do_not_compile_again(wave):
    model = BNERegressor(EXPERTS, inputs=["x"], **TINY)
    model.fit(wave.X[:40], wave.y[:40])
    programs = _sampling._block._cache_size()
    for n in (37, 44, 90):
        model.fit(wave.X[:n], wave.y[:n])
    assert _sampling._block._cache_size() == programs


IMPORT = f"""
import json, sys, time
start = time.perf_counter()
import bne
seconds = time.perf_counter() - start
early = "jax" in sys.modules
import jax
names = "jax_enable_x64", "jax_platforms", "jax_compilation_cache_dir"
before = {{k: getattr(jax.config, k) for k in names}}
import numpy as np
rng = np.random.default_rng({shifted(0)})
X = rng.normal(size=(30, 2))
bne.BNERegressor([("m", 0)], inputs=[1], chains=1, warmup=20, draws=20, calibration=None).fit(
    X, X[:, 0]
)
after = {{k: getattr(jax.config, k) for k in before}}
dtype = str(jax.numpy.ones(1).dtype)
print(json.dumps([seconds, early, before == after, dtype]))
"""


@pytest.mark.slow
def test_import_is_quick_and_jax_is_left_as_it_was():
    out = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", IMPORT], capture_output=True, text=True, check=True
    )
    seconds, early, unchanged, dtype = json.loads(out.stdout.strip().splitlines()[-1])
    assert seconds < 0.5
    assert not early
    assert unchanged
    assert dtype == "float32"


@pytest.mark.parametrize("scale", [2.0**-30, 2.0**30])
def test_scale_of_y_and_experts(wave, scale):
    """A power of two rounds nothing: every draw is the same."""
    columns = [name for name, _ in EXPERTS]
    X, y = wave.X[:60], wave.y[:60]
    base = BNERegressor(EXPERTS, inputs=["x"], **TINY).fit(X, y).predict_interval(X)
    moved = X.copy()
    moved[columns] = scale * X[columns]
    answer = BNERegressor(EXPERTS, inputs=["x"], **TINY).fit(moved, scale * y)
    np.testing.assert_allclose(answer.predict_interval(moved) / scale, base, rtol=1e-10)


@pytest.mark.parametrize("scale", [1e-9, 1e9])
@pytest.mark.parametrize("shift", [0.0, 3.0])
def test_scale_and_shift_are_taken_off(wave, scale, shift):
    """What the sampler sees is the same to rounding; its chains amplify rounding."""
    columns = [name for name, _ in EXPERTS]
    X, y = wave.X[:60], wave.y[:60]
    moved = X.copy()
    moved[columns] = scale * (X[columns] + shift)
    base, answer = (
        BNERegressor(EXPERTS, inputs=["x"], **TINY).fit(features, outcome)
        for features, outcome in ((X, y), (moved, scale * (y + shift)))
    )
    np.testing.assert_allclose(answer.posterior_.y, base.posterior_.y, rtol=0, atol=1e-12)
    np.testing.assert_allclose(answer.posterior_.rows.f, base.posterior_.rows.f, rtol=0, atol=1e-12)
    np.testing.assert_allclose(answer.posterior_.rows.x, base.posterior_.rows.x, rtol=0, atol=0)
    mu = base._stages("additive")[0].mu(base._rows(X)) * base.scaling_.y_scale
    ess = array_stats.ess(mu.reshape(2, 60, -1)[:, :, ::6], chain_axis=0, draw_axis=1)
    error = np.sqrt(2.0 / np.min(ess)) * np.std(mu, axis=0)  # of other chains
    assert np.all(np.abs(answer.predict(moved) / scale - shift - base.predict(X)) < 6.0 * error)


@pytest.mark.parametrize("scale", [2.0**-30, 2.0**30])
def test_scale_of_the_inputs(wave, scale):
    X, y = wave.X[:60], wave.y[:60]
    base = BNERegressor(EXPERTS, inputs=["x"], **TINY).fit(X, y).predict(X)
    moved = X.assign(x=scale * X["x"])
    answer = BNERegressor(EXPERTS, inputs=["x"], **TINY).fit(moved, y).predict(moved)
    np.testing.assert_allclose(answer, base, rtol=1e-10)


def test_degenerate_but_legal_data():
    rng = np.random.default_rng(shifted(0))
    x = rng.normal(size=50)
    y = np.sin(x) + 0.1 * rng.normal(size=50)
    X = pd.DataFrame(
        {"x": x, "constant_input": 1.0, "good": np.sin(x), "copy": np.sin(x), "flat": 2.0}
    )

    def predict(estimators, X=X, y=y, **settings):
        model = BNERegressor(estimators, inputs=["x", "constant_input"], **(TINY | settings))
        return model.fit(X, y).predict(X)

    assert np.sqrt(np.mean((predict([("good", "good")]) - y) ** 2)) < 0.2
    collinear = predict([("good", "good"), ("copy", "copy")])
    assert np.sqrt(np.mean((collinear - y) ** 2)) < 0.2
    with pytest.warns(UserWarning, match=r"Experts \['flat'\] predict the same value"):
        assert np.all(np.isfinite(predict([("good", "good"), ("flat", "flat")])))
    np.testing.assert_allclose(predict([("good", "good")], y=np.full(50, 3.0)), 3.0, atol=0.2)
    per_input = predict([("good", "good")], length_scales="per_input")
    assert np.sqrt(np.mean((per_input - y) ** 2)) < 0.2
    no_inputs = BNERegressor([("good", "good")], inputs=[], **TINY).fit(X, y)
    assert list(no_inputs.posterior_.shards[0].stages) == ["ensemble"]


@pytest.mark.parametrize("where", ["X", "y", "pred"])
@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize("frame", [True, False])
def test_missing_values_are_refused(wave, where, value, frame):
    X, y = wave.X[:30].copy(), wave.y[:30].copy()
    if where == "y":
        y[3] = value
    else:
        X.iloc[3, 0 if where == "X" else 1] = value
    model = BNERegressor([("a", 1)], inputs=[0], **TINY)
    with pytest.raises(ValueError, match=r"Input [Xy] contains (NaN|infinity)"):
        model.fit(X if frame else X.to_numpy(), y)


def test_bad_rows_and_columns(small, wave):
    with pytest.raises(ValueError, match="n_samples=2"):
        BNERegressor(EXPERTS, **TINY).fit(wave.X[:2], wave.y[:2])
    with pytest.raises(ValueError, match="X has 30 rows but y has 29"):
        BNERegressor(EXPERTS, **TINY).fit(wave.X[:30], wave.y[:29])
    with pytest.raises(ValueError, match="feature names"):
        small.predict(wave.X.rename(columns={"x": "z"}))
    with pytest.raises(ValueError, match="feature names"):
        small.predict(wave.X[["rbf_short", "x", "rbf_long", "periodic"]])
    with pytest.raises(NotFittedError):
        BNERegressor(EXPERTS).predict(wave.X)


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ({"chains": 0}, "`chains` must be an integer >= 1; got 0"),
        ({"draws": 10.5}, "`draws` must be an integer"),
        ({"residual": "matern"}, "`residual` must be one of"),
        ({"calibration": "magic"}, "`calibration` must be"),
        ({"length_scales": "many"}, "`length_scales` must be"),
        ({"target_acceptance": 1.0}, "`target_acceptance` must lie"),
        ({"cv": "fit"}, "`cv` must be an int"),
    ],
)
def test_bad_settings(wave, setting, message):
    with pytest.raises(ValueError, match=message):
        BNERegressor([("ols", LinearRegression())], **(TINY | setting)).fit(
            wave.X[:30], wave.y[:30]
        )


def test_orthogonalised_residual(wave):
    """On the training rows delta is clear of the experts; far off it follows them."""
    model = BNERegressor(EXPERTS, inputs=["x"], orthogonalize=True, **TINY).fit(wave.X, wave.y)
    residual, rows = model.posterior_.shards[0].stages["additive"].residual, model.posterior_.rows
    table = residual.tabulate(rows)
    for log_ell in residual.feature_map.log_ell[[1, 10, 20]] + 0.05:
        A = interpolate(table, log_ell, residual.feature_map.log_ell)
        assert np.max(np.abs(rows.f.T @ A)) < 1e-10
    far = Rows(np.array([[500.0]]), np.array([[1.0, 0.0, 0.0]]))
    away, raw = residual.tabulate(far), residual.feature_map.tabulate(far.x)
    np.testing.assert_allclose(raw, 0, atol=1e-12)
    assert np.max(np.abs(away)) > 1e-3
    np.testing.assert_allclose(residual.tabulate(Rows(far.x, np.zeros((1, 3)))), 0, atol=1e-12)


def test_pickle(small, wave):
    clone = pickle.loads(pickle.dumps(small))
    np.testing.assert_array_equal(clone.predict(wave.X), small.predict(wave.X))


def test_progress_bar(wave, capsys):
    BNERegressor(EXPERTS, inputs=["x"], verbose=1, **TINY).fit(wave.X[:30], wave.y[:30])
    assert "Ensemble" in capsys.readouterr().err


@pytest.mark.parametrize("calibration", [None, "logistic"])
@pytest.mark.slow
def test_the_same_values_give_the_same_numbers(calibration, wave):
    """Sums in another order differ in the last digit, and then, by chaos, chains in the second."""
    settings = TINY | {"calibration": calibration, "chains": 1, "warmup": 20, "draws": 20}
    X = np.rint(64.0 * wave.X[:40].to_numpy())  # whole numbers: exact in every dtype
    y = np.rint(64.0 * wave.y[:40])
    names = ["x", "a", "b", "c"]
    frame = pd.DataFrame(X, columns=names)
    by_column = pd.DataFrame({n: X[:, i].copy() for i, n in enumerate(names)})
    experts = [("a", 1), ("b", 2), ("c", 3), ("ridge", Ridge()), ("knn", KNeighborsRegressor(3))]
    wide = np.repeat(np.repeat(X, 2, axis=0), 2, axis=1)[::2, ::2]
    with_gaps, y_with_gaps = np.repeat(y, 3)[::3], pd.Series(y)
    cases = {
        "array": (X, y),
        "by column": (np.asfortranarray(X), y),
        "float32": (X.astype(np.float32), y.astype(np.float32)),
        "integers": (X.astype(int), y.astype(int)),
        "with gaps": (wide, with_gaps),
        "frame": (frame, y_with_gaps),
        "frame by column": (by_column, y),
        "frame of integers": (frame.astype(int), y),
    }
    expected = None
    for name, (values, outcomes) in cases.items():
        model = BNERegressor(experts, inputs=[0], cv=2, **settings).fit(values, outcomes)
        found = model._stages("full")[0].draws.position, model.predict(values)
        expected = expected or found
        for ours, theirs in zip(found, expected, strict=True):
            np.testing.assert_array_equal(ours, theirs, err_msg=name)
