"""The partitioned posterior: rows that count several times, averages of laws, lost workers."""

import os
import signal
import threading
import time
import warnings
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from joblib import parallel_config
from scipy import stats

import bne
from bne import BNERegressor
from bne._answers import bias as _bias
from bne._base.priors import InverseGamma, Priors, length_scale_grid
from bne._calibration import features as _features
from bne._calibration.logistic import Logistic
from bne._data.rows import Rows
from bne._fitting import collapsed, full_data, full_density, full_stage
from bne._fitting import posterior as _posterior
from bne._fitting.shards import ShardError, deal_rows, pilot_rows, run_tasks
from bne._law import averaged, conditional
from bne._mean import gaussian
from bne._mean.gaussian import Hyperparameters
from bne._process import interpolation as _interpolation
from bne._process.features import make_feature_map
from bne._process.kernels import resolve_kernel
from bne._regressor.wide_table import wide_table
from bne._sampler.diagnostics import warn_if_unsettled
from bne.datasets import make_wave_1d
from conftest import EXPERTS, joint_data, shifted

QUICK = {"inputs": ["x"], "chains": 2, "warmup": 100, "draws": 100, "random_state": shifted(0)}


@pytest.fixture(scope="module")
def problem():
    rng = np.random.default_rng(shifted(0))
    x = rng.uniform(-2, 2, size=(20, 1))
    F = np.column_stack([np.sin(x[:, 0]), np.ones(20)])
    y = F @ [0.7, 0.1] + 0.5 * rng.gamma(2.0, size=20) - 1.0
    priors = Priors(InverseGamma(3.0, 2.0))
    grid = length_scale_grid(priors.ell, 32)
    table = make_feature_map(resolve_kernel("matern32"), x[:9], grid).tabulate(x)
    return x, F, y, priors, grid, table


def test_tables_of_rows_that_count_three_times(problem):
    """The collapsed likelihood and theta's posterior equal those of repeated rows."""
    _, F, y, _, grid, table = problem
    thrice = np.repeat(F, 3, axis=0), np.repeat(y, 3), np.repeat(table, 3, axis=1)
    h = Hyperparameters(-0.3, -0.5, -0.7, 0.2)
    with jax.enable_x64(True):
        ours = collapsed.spectral_table(F, y, table, grid, 128).repeated(3.0)
        theirs = collapsed.spectral_table(*thrice, grid, 128)
        values = [float(collapsed.log_marginal(h, t)) for t in (ours, theirs)]
    np.testing.assert_allclose(*values, rtol=1e-10)
    ours = gaussian.gram_table(F, y, table, grid).repeated(3.0).at(0.2)
    theirs = gaussian.gram_table(*thrice, grid).at(0.2)
    for a, b in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-10)


def test_joint_density_of_rows_that_count_three_times(problem):
    x, F, y, priors, grid, table = problem
    features = _features.make_calibration(Logistic(), x, np.ones(1), shifted(0), has_residual=True)
    weights = full_data.row_weights(x, y - F @ [0.7, 0.1])

    def density(times, power):
        data = joint_data(x, F, y, table, grid, features, priors, weights, times=times, power=power)
        start = full_stage.starts(
            data,
            Hyperparameters(*np.log([0.7, 0.4, 0.4, 1.0])),
            1,
            np.random.default_rng(shifted(1)),
        )[0]
        with jax.enable_x64(True):
            return float(
                full_density.log_density(jnp.asarray(start), jax.tree.map(jnp.asarray, data))
            )

    np.testing.assert_allclose(density(1, 3.0), density(3, 1.0), rtol=1e-10)
    assert abs(density(1, 3.0) - density(1, 1.0)) > 1.0


PINNED = np.array([-0.3, -0.5, 0.1, -0.9, 0.2, 0.3, 0.4])
"""The fourth is log sigma_eps."""


@pytest.fixture(params=["noise held", "noise free"])
def pinned_problem(request, problem):
    x, F, y, priors, grid, table = problem
    features = _features.make_calibration(Logistic(), x, np.ones(1), shifted(0), has_residual=True)
    pinned = PINNED.copy()
    pinned[3] = -0.9 if request.param == "noise held" else np.nan
    data = joint_data(x, F, y, table, grid, features, priors, np.ones(20), pinned=pinned)
    starts = full_stage.starts(
        data, Hyperparameters(*np.log([0.7, 0.4, 0.4, 1.0])), 3, np.random.default_rng(shifted(1))
    )
    return data, starts, np.isnan(pinned[3])


def test_pinned_hyperparameters_do_not_move(pinned_problem):
    data, starts, noise_is_free = pinned_problem
    state = full_stage.unpack_draws(starts[None], data)
    h, others = np.array(state.h), np.arange(len(PINNED)) != 3
    np.testing.assert_array_equal(h[others], np.repeat(PINNED[others, None], 3, axis=1))
    if noise_is_free:
        np.testing.assert_allclose(state.h.eta, starts[:, 3], rtol=1e-14)
        assert np.ptp(state.log_sigma_eps) > 1e-3
    else:
        np.testing.assert_array_equal(state.log_sigma_eps, np.full(3, -0.9))
        assert np.ptp(state.h.eta) > 1e-3


@pytest.mark.slow
def test_pinned_log_determinant_is_that_of_the_map(pinned_problem):
    """d(omega, v, W) / d(z_omega, z_delta, z_G)."""
    data, starts, _ = pinned_problem
    with jax.enable_x64(True):
        data, q = jax.tree.map(jnp.asarray, data), jnp.asarray(starts[0])

        def image(z):
            state = full_density.transform(jnp.concatenate([q[:7], z]), data)
            return jnp.concatenate([state.omega, state.v, state.W.ravel()])

        expected = np.linalg.slogdet(np.asarray(jax.jacfwd(image)(q[7:])))[1]
        ours = float(full_density.transform(q, data).log_determinant)
    np.testing.assert_allclose(ours, expected, rtol=1e-9)


def test_held_length_scales_give_what_tables_give(problem):
    """One node in place of a table: the same mu and the same coefficients of h."""
    x, F, y, priors, grid, table = problem
    features = _features.make_calibration(Logistic(), x, np.ones(1), shifted(0), has_residual=True)
    given = x, F, y, table, grid, features, priors, np.ones(20)
    free, held = joint_data(*given), joint_data(*given, pinned=PINNED)
    assert free.A.shape[0] == len(grid)
    assert held.A.shape[0] == held.A_G.shape[0] == held.roots.shape[0] == 1
    mode = Hyperparameters(*PINNED[[0, 1, 3, 4]])
    start = full_stage.starts(held, mode, 1, np.random.default_rng(shifted(1)))[0]
    with jax.enable_x64(True):
        ours = full_density.transform(jnp.asarray(start), jax.tree.map(jnp.asarray, held))
        nodes = (free.A, 0.2, grid), (free.A_G, 0.3, free.grid_x), (free.roots, 0.4, free.grid_t)
        A, A_G, T = (np.asarray(_interpolation.interpolate(*at)) for at in nodes)
        ours = jax.tree.map(np.asarray, ours)
    mu = free.F @ ours.omega + np.exp(ours.h.log_sigma_delta) * (A @ ours.v)
    np.testing.assert_allclose(ours.mu, mu, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(ours.coefficients, ours.sigma_G * A_G @ ours.W, atol=1e-12)
    np.testing.assert_allclose(ours.T, T, atol=1e-12)


class Gaussian:
    """A law at two rows, by scipy."""

    def __init__(self, mean, sd):
        self._law = stats.norm(np.asarray(mean)[:, None], np.asarray(sd)[:, None])

    def __len__(self):
        return 2

    def mean(self):
        return self._law.mean()[:, 0]

    def ppf(self, levels):
        return self._law.ppf(levels)

    def logpdf(self, y):
        return self._law.logpdf(y)


@pytest.mark.parametrize("elements", [conditional.CHUNK_ELEMENTS, 1])
def test_average_of_gaussians_is_the_gaussian_of_average_moments(monkeypatch, elements):
    """All rows at a time, or one by one."""
    monkeypatch.setattr(conditional, "CHUNK_ELEMENTS", elements)
    laws = [Gaussian([0.0, 5.0], [1.0, 0.2]), Gaussian([2.0, 6.0], [3.0, 0.4])]
    law, expected = averaged.AveragedDistribution(laws), stats.norm([1.0, 5.5], [2.0, 0.3])
    y = np.array([0.3, 5.9])
    np.testing.assert_allclose(law.mean(), expected.mean(), rtol=1e-12)
    np.testing.assert_allclose(law.var(), expected.var(), rtol=1e-6)
    np.testing.assert_allclose(law.entropy(), expected.entropy(), atol=1e-6)
    np.testing.assert_allclose(law.cdf(y), expected.cdf(y), atol=1e-9)
    np.testing.assert_allclose(law.logpdf(y), expected.logpdf(y), atol=1e-8)
    np.testing.assert_allclose(law.mode(), expected.mean(), atol=1e-2)
    far = expected.mean() + 20.0 * expected.std()
    np.testing.assert_allclose(law.logpdf(far), expected.logpdf(far), rtol=1e-6)
    sample = law.sample(20_000, random_state=shifted(0))
    np.testing.assert_allclose(sample.std(axis=1), expected.std(), rtol=5 / np.sqrt(40_000))
    t = (y - expected.mean()) / expected.std()
    crps = t * (2 * stats.norm.cdf(t) - 1) + 2 * stats.norm.pdf(t) - 1 / np.sqrt(np.pi)
    np.testing.assert_allclose(law.crps(y), expected.std() * crps, rtol=1e-4)
    lower, upper = law.interval(0.9)
    np.testing.assert_allclose([lower, upper], [expected.ppf(0.05), expected.ppf(0.95)])


def test_a_law_of_two_narrow_peaks_has_ordered_quantiles():
    """Between peaks the quantile function is steep; an unlimited cubic would turn back."""

    class Peaks(Gaussian):
        def __init__(self):
            self._law = stats.Mixture(
                [stats.Normal(mu=-3.0, sigma=0.05), stats.Normal(mu=3.0, sigma=0.05)]
            )

        def mean(self):
            return np.zeros(2)

        def ppf(self, levels):
            return self._law.icdf(levels)

        def logpdf(self, y):
            return self._law.logpdf(y)

    law = averaged.AveragedDistribution([Peaks(), Peaks()])
    assert np.all(np.diff(law._by_rows(lambda fine, _: fine), axis=1) >= 0)
    assert np.all(np.isfinite(law.entropy())) and np.all(np.isfinite(law.mode()))
    y = np.tile(np.linspace(-3.2, 3.2, 41), (2, 1))
    np.testing.assert_allclose(law.cdf(y), Peaks()._law.cdf(y), atol=1e-6)
    # a jump of the quantile function is spread over two cells of the grid, a fifth of the mass
    np.testing.assert_allclose(law.var(), 9.0 + 0.05**2, rtol=0.1)


def test_average_of_two_equal_mixtures_is_that_mixture():
    """Its quantile function is steep between the modes, where Newton's steps would leave it."""

    class Two(Gaussian):
        def __init__(self):
            self._law = stats.Mixture(
                [stats.Normal(mu=-2.0, sigma=0.5), stats.Normal(mu=2.0, sigma=0.5)]
            )

        def ppf(self, levels):
            return self._law.icdf(levels)

        def logpdf(self, y):
            return self._law.logpdf(y)

    law, expected = averaged.AveragedDistribution([Two(), Two()]), Two()._law
    y = np.tile(np.linspace(-4.0, 4.0, 81), (2, 1))
    np.testing.assert_allclose(law.cdf(y), expected.cdf(y), atol=1e-8)
    np.testing.assert_allclose(law.logpdf(y), expected.logpdf(y), atol=1e-5)
    np.testing.assert_allclose(law.entropy(), expected.entropy(), atol=0.05)
    assert np.all(np.abs(np.abs(law.mode()) - 2.0) < 0.05)


def test_average_of_sorted_draws_is_the_average_of_quantiles():
    rng = np.random.default_rng(shifted(0))
    shards = [rng.normal(m, s, size=(4000, 2)) for m, s in ((0.0, 1.0), (1.0, 3.0))]
    average = averaged.average_draws(shards)
    levels = [0.05, 0.5, 0.95]
    expected = np.mean([np.quantile(d, levels, axis=0) for d in shards], axis=0)
    np.testing.assert_allclose(np.quantile(average, levels, axis=0), expected, rtol=1e-10)


def some_rows(n, seed=shifted(0)):
    rng = np.random.default_rng(seed)
    rows = Rows(rng.uniform(size=(n, 2)), rng.normal(size=(n, 3)))
    return rows, rows.f @ [1.0, -1.0, 0.5] + 0.2 * rng.normal(size=n)


def test_rows_are_shared_out_once():
    rows, y = some_rows(43)
    shards = deal_rows(rows, y, 4, np.random.SeedSequence(shifted(0)))
    np.testing.assert_array_equal(np.sort(np.concatenate(shards)), np.arange(43))
    assert {len(s) for s in shards} == {10, 11}
    with pytest.raises(ValueError, match="Use fewer partitions"):
        deal_rows(rows, y, 5, np.random.SeedSequence(shifted(0)))


def test_shards_resemble_each_other():
    """Smooth functions of inputs and noise have nearly the same mean in all shards."""
    ratios = []
    for seed in range(40):
        rows, y = some_rows(800, shifted(seed))
        residual = y - rows.f @ [1.0, -1.0, 0.5]
        smooth = np.column_stack(
            [rows.x, np.sin(4.0 * rows.x), residual, residual * rows.x[:, 0], residual**2]
        )
        smooth = (smooth - smooth.mean(axis=0)) / smooth.std(axis=0)
        shards = deal_rows(rows, y, 8, np.random.SeedSequence(shifted(seed)))
        means = np.stack([smooth[s].mean(axis=0) for s in shards])
        ratios.append(100 * np.mean(means**2, axis=0))  # 7/8 were shards drawn at random
    # Over data sets means are 0.14 at most, of the square 0.49, with sds of 0.08 and 0.26: limits
    # are five standard errors of 40 data sets beyond.
    assert np.all(np.mean(ratios, axis=0) < np.array([*[0.2] * 6, 0.7]))


def test_every_row_goes_to_every_shard_as_often():
    rows, y = some_rows(64)
    times = np.zeros((64, 4))
    for seed in range(400):
        shards = deal_rows(rows, y, 4, np.random.SeedSequence(shifted(seed)))
        for i, shard in enumerate(shards):
            times[shard, i] += 1
    assert np.all(np.abs(times - 100.0) < 5.0 * np.sqrt(75.0))


def test_rows_without_inputs_are_dealt_by_their_residuals():
    rows, y = some_rows(80)
    rows = Rows(np.empty((80, 0)), rows.f)
    shards = deal_rows(rows, y, 4, np.random.SeedSequence(shifted(0)))
    residual = y - rows.f @ np.linalg.lstsq(rows.f, y)[0]
    ranks = np.argsort(np.argsort(residual)) // 4
    assert all(len(set(ranks[s])) == 20 for s in shards)


@pytest.mark.parametrize(
    ("n", "partitions", "expected"),
    [(40, 4, 20), (43, 4, 21), (4000, 8, 2000), (9000, 4, 2250), (900, 9, 450)],
)
def test_a_pilot_has_enough_rows(n, partitions, expected):
    rows = pilot_rows(n, partitions, np.random.SeedSequence(shifted(0)))
    assert len(np.unique(rows)) == expected
    assert rows.max() < n


def test_a_pilot_whose_chains_disagree_is_named():
    alike = np.random.default_rng(shifted(0)).normal(size=(2, 100))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warn_if_unsettled({"noise_scale": alike, "held": np.ones((2, 100))})
    apart = alike + np.array([[0.0], [2.0]])
    with pytest.warns(bne.SamplingWarning, match=r"R-hat up to 1\.\d\d.*raise `warmup`"):
        warn_if_unsettled({"weight_scale": alike, "noise_scale": apart})


def die_once(marker, value):
    if not marker.exists():
        marker.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return value


@pytest.mark.slow
def test_a_lost_worker_is_survived(tmp_path):
    tasks = [partial(die_once, tmp_path / "1", i) for i in range(4)]
    seen = []
    assert run_tasks(tasks, 2, seen.append) == [0, 1, 2, 3]
    assert sum(seen) == 4


def fail():
    raise ValueError("no luck")


def test_a_shard_that_fails_names_itself():
    with pytest.raises(ShardError, match=r"Shard 1 of 2 failed: no luck"):
        run_tasks([lambda: 0, fail], 2, lambda n: None)


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


def epistemic(partitions):
    """Mean epistemic variance of the additive ensemble, in the middle of the data."""
    data = make_wave_1d(400, random_state=shifted(3))
    settings = QUICK | {"calibration": None, "draws": 400}
    model = BNERegressor(EXPERTS, partitions=partitions, **settings).fit(data.X, data.y)
    near = data.X[np.abs(data.X["x"]) < 4][::10]
    return np.mean(model.decompose(near, measure="variance").epistemic)


@pytest.mark.slow
def test_shards_know_as_much_as_all_rows_and_no_more(monkeypatch):
    """Four shards of 100 rows, within a fifth of 400; without the power they know a quarter."""
    whole = epistemic(1)
    np.testing.assert_allclose(epistemic(4), whole, rtol=0.2)
    plain = _posterior.sample_stages

    def powerless(*given, **more):
        return plain(*given, **(more | {"power": 1.0}))

    monkeypatch.setattr(_posterior, "sample_stages", powerless)
    assert epistemic(4) > 2.0 * whole


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
