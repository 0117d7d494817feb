"""A partitioned model: its answers, and the engines that run its shards."""

import os
import signal
import threading
import time

import numpy as np
import pytest
from joblib import parallel_config

import bne
from bne import BNERegressor
from bne._answers import bias as _bias
from bne._answers.closed_form import closed_form
from bne._fitting import posterior as _posterior
from bne._regressor.wide_table import wide_table
from bne.datasets import make_wave_1d
from conftest import EXPERTS, shifted

QUICK = {"inputs": ["x"], "chains": 2, "warmup": 100, "draws": 100, "random_state": shifted(0)}


@pytest.fixture(scope="module")
def partitioned():
    data = make_wave_1d(120, random_state=shifted(3))
    model = BNERegressor(EXPERTS, partitions=2, n_jobs=2, **QUICK)
    with pytest.warns(bne.SamplingWarning):
        return model.fit(data.X, data.y), data


@pytest.mark.slow
def test_modes_of_one_shard_do_not_speak_for_all(partitioned, monkeypatch):
    model, data = partitioned
    shards = iter([np.ones((200, 3)), np.zeros((200, 3))])

    def of_the_next_shard(*_):
        G = next(shards)
        return _bias.BiasDraws(np.zeros_like(G), G, G)

    monkeypatch.setattr(_bias, "bias_draws", of_the_next_shard)
    report = model.detect_bias(data.X[:3], statistic="modes")
    np.testing.assert_allclose(report.G.prob_positive, 0.75)  # one half, and half of the zeros


@pytest.mark.slow
def test_all_answers_of_a_partitioned_model(partitioned, tmp_path):
    model, data = partitioned
    X = data.X[:6]
    law = model.predict_distribution(X)
    levels = np.tile([1e-4, 0.05, 0.5, 0.95, 1 - 1e-4], (6, 1))
    np.testing.assert_allclose(law.cdf(law.ppf(levels)), levels, atol=1e-6)
    for measure in ("entropy", "variance"):
        parts = model.decompose(X, measure=measure)
        total = parts.aleatoric + parts.parametric + parts.structural_delta
        total = total + parts.structural_G + parts.hyperparameters
        np.testing.assert_allclose(total, parts.total, atol=1e-10)
    bias = model.detect_bias(X).total
    assert np.all((bias.lower <= bias.mean) & (bias.mean <= bias.upper))
    assert list(model.explain_weights().index) == [name for name, _ in EXPERTS]
    assert any(name.startswith("shard 1: ") for name in model.diagnostics().index)
    assert model.to_datatree(shard=1).posterior.sizes["row"] == 60
    with pytest.raises(ValueError, match="`shard` must lie in 0"):
        model.to_datatree(shard=2)
    model.save(tmp_path / "model.bne")
    loaded = bne.load(tmp_path / "model.bne")
    np.testing.assert_array_equal(loaded.predict(X), model.predict(X))
    table = wide_table(model, X)
    np.testing.assert_allclose(table["mean"], model.predict(X), rtol=1e-10)
    variance = model.decompose(X, measure="variance").to_frame()
    for name in variance:
        np.testing.assert_allclose(table[f"variance_{name}"], variance[name], rtol=1e-8, atol=1e-12)
    np.testing.assert_allclose(table["prob_models_too_low"], bias.prob_positive, rtol=1e-12)
    quantiles = model.predict_quantiles(X, [0.05])[0.05]
    np.testing.assert_allclose(table["q05"], quantiles, rtol=1e-9)


def fitted_to_400(partitions):
    """Fit the additive stage; return the model, and rows in the middle of the data."""
    data = make_wave_1d(400, random_state=shifted(3))
    settings = QUICK | {"calibration": None, "draws": 400}
    model = BNERegressor(EXPERTS, partitions=partitions, **settings).fit(data.X, data.y)
    return model, model._rows(data.X[np.abs(data.X["x"]) < 4][::10])


def mean_variance(stage, shard, rows):
    """Find the posterior variance of mu, averaged over rows and over draws of the stage."""
    return np.mean(closed_form(stage, shard).moments(rows).variances[-1])


@pytest.mark.slow
def test_shards_know_as_much_as_all_rows_and_no_more(monkeypatch):
    """Four shards of 100 rows know as much as 400 rows; without the power they know a third.

    All get the hyperparameters of the whole fit: those of a hundred rows would add their own error,
    up to a factor of two. Over eight data sets the ratio was 1.065 on average, with a standard
    deviation of .02 (an average of inverses is above the inverse of the average), and 2.7 to 2.9
    without the power.
    """
    model, rows = fitted_to_400(1)
    stage, (only,) = model.posterior_.stages("additive")[0], model.posterior_.shards
    whole = mean_variance(stage, only, rows)

    def ratio(shards):
        return np.mean([mean_variance(stage, shard, rows) for shard in shards]) / whole

    parted, _ = fitted_to_400(4)
    assert 0.945 < ratio(parted.posterior_.shards) < 1.185  # six standard deviations
    for shard in parted.posterior_.shards:
        stage_of_shard = shard.stages["additive"]
        moments = closed_form(stage_of_shard, shard, 800).moments(rows)
        closed = np.mean(moments.variances[-1], axis=0) + np.var(moments.mean, axis=0)
        drawn = np.var(stage_of_shard.mu(rows), axis=0)
        # 32 ratios of eight data sets had a standard deviation of .02
        np.testing.assert_allclose(np.mean(drawn), np.mean(closed), rtol=0.12)
    plain = _posterior.sample_stages

    def powerless(*given, **more):
        return plain(*given, **(more | {"power": 1.0}))

    monkeypatch.setattr(_posterior, "sample_stages", powerless)
    assert ratio(fitted_to_400(4)[0].posterior_.shards) > 2.0


def quantiles_of_shards(n_jobs, **changes):
    """Return the quantiles of a short fit in three shards, by joblib's current engine."""
    data = make_wave_1d(120, random_state=shifted(3))
    settings = QUICK | {"calibration": None, "draws": 400} | changes
    model = BNERegressor(EXPERTS, partitions=3, n_jobs=n_jobs, **settings).fit(data.X, data.y)
    return model.predict_quantiles(data.X[:5])


@pytest.fixture(scope="module")
def expected():
    return quantiles_of_shards(1)


def kill_while_busy(client, address, pid, killed):
    """Kill a worker once it has been at a shard for a moment."""
    while not client.processing().get(address):
        time.sleep(0.05)
    time.sleep(1.0)
    killed["working on"] = client.processing().get(address)
    os.kill(pid, signal.SIGKILL)


@pytest.mark.slow
def test_engines_and_workers_change_nothing_and_a_killed_one_is_survived(expected):
    """Sequential, loky, and a Dask cluster of processes of which one is killed at a shard."""
    distributed = pytest.importorskip("distributed")
    np.testing.assert_array_equal(quantiles_of_shards(2), expected)
    with (
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, processes=True, dashboard_address=":0"
        ) as cluster,
        distributed.Client(cluster) as client,
        parallel_config(backend="dask"),
    ):
        address, pid = min(client.run(os.getpid).items())
        killed = {}
        killer = threading.Thread(target=kill_while_busy, args=(client, address, pid, killed))
        killer.start()
        quantiles = quantiles_of_shards(-1)
        killer.join(timeout=10.0)
        assert killed["working on"] and pid not in client.run(os.getpid).values()
    np.testing.assert_array_equal(quantiles, expected)


@pytest.mark.slow
def test_the_full_stage_does_not_depend_on_the_engine():
    """Its pilot, what it holds, and the joint sampler cross to other processes and back."""
    short = {"calibration": "logistic", "warmup": 30, "draws": 30}
    with pytest.warns(bne.SamplingWarning, match="The pilot that finds"):
        alone = quantiles_of_shards(1, **short)
    np.testing.assert_array_equal(quantiles_of_shards(2, **short), alone)


@pytest.mark.slow
def test_chains_in_other_processes_have_no_progress_bar():
    data = make_wave_1d(40, random_state=shifted(3))
    settings = QUICK | {"calibration": None, "n_jobs": 2}
    expected = BNERegressor(EXPERTS, **settings).fit(data.X, data.y).predict(data.X)
    with parallel_config(backend="loky"):
        model = BNERegressor(EXPERTS, verbose=1, **settings).fit(data.X, data.y)
    np.testing.assert_array_equal(model.predict(data.X), expected)


@pytest.mark.filterwarnings("ignore")  # Ray's start forks, of which JAX warns
@pytest.mark.slow
def test_ray_changes_nothing(expected):
    ray = pytest.importorskip("ray", reason="Ray is not among the extras: 80 MB")
    from ray.util.joblib import register_ray

    register_ray()
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
    try:
        with parallel_config(backend="ray"):
            quantiles = quantiles_of_shards(2)
    finally:
        ray.shutdown()
    np.testing.assert_array_equal(quantiles, expected)
