"""Large data: time and memory as n grows, the partitioned against the full posterior, many rows.

``python benchmarks/run.py scaling`` goes on where it was killed; the whole takes about two hours on
two cores. Parts: ``python benchmarks/scaling.py growth``, ``places``, ``mixing``, ``partition`` or
``predict``.
"""

import json
import resource
import subprocess
import sys
import tempfile
import time
import warnings
from contextlib import contextmanager
from unittest import mock

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import psutil
from full import capture, gradient_times
from stages import min_ess, min_ess_of_answers
from store import FOLDER, resume

from bne import BNERegressor
from bne._answers import table
from bne._data import places as _places
from bne._fitting import full_stage, posterior
from bne._regressor.wide_table import wide_table

mpl.use("Agg")

SIZES = (1000, 3000, 10_000, 30_000)
EXPERTS = [f"model{k}" for k in range(8)]
SHORT = {"chains": 2, "warmup": 400, "draws": 200, "n_jobs": 2, "random_state": 0}
"""Few draws, but the warm-up of the defaults: a shorter one has not found the posterior's shape."""

FAIR = {"chains": 2, "warmup": 250, "draws": 350, "n_jobs": 2, "random_state": 0}
LEVELS = (0.05, 0.25, 0.5, 0.75, 0.95)


class World:
    """Two inputs, eight models with smooth errors of their own and one in common, skewed noise."""

    def __init__(self, n, seed=0, places=None):
        rng = np.random.default_rng(seed)
        x = rng.uniform(-3.0, 3.0, size=(places or n, 2))
        self.X = features(x if places is None else x[rng.integers(places, size=n)])
        x = self.X[["a", "b"]].to_numpy()
        scale = 0.3 + 0.1 * np.cos(x[:, 1])
        self.y = truth(x) + scale * (rng.gamma(2.0, size=n) - 2.0)


def truth(x):
    """The mean of y."""
    return np.sin(x[:, 0]) + 0.5 * np.cos(2.0 * x[:, 1]) + 0.3 * x[:, 0] * x[:, 1] / 3.0


def features(x):
    """Inputs and what the models predict there."""
    shared = 0.5 * np.exp(-0.5 * np.sum((x - 1.0) ** 2, axis=1) / 0.6**2)
    columns = {"a": x[:, 0], "b": x[:, 1]}
    for k, name in enumerate(EXPERTS):
        own = 0.3 * np.sin((1.0 + 0.2 * k) * x[:, 0] + k) * np.cos(0.5 * k + x[:, 1])
        columns[name] = truth(x) - shared + own
    return pd.DataFrame(columns)


def regressor(**settings):
    """The model of this world."""
    return BNERegressor([(c, c) for c in EXPERTS], inputs=["a", "b"], **settings)


def one_size(n):
    """Memory and time to ESS 400; in a process of its own."""
    model = regressor(**SHORT)
    kept = capture(model, World(n))
    draws = model._stage("full").draws
    ess = min_ess(model._stage("full").quantities(model.expert_names_))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    return {
        "peak_gb": peak,
        "seconds": kept["seconds"],
        "min_ess": ess,
        "seconds_to_ess_400": 400 * kept["seconds"] / ess,
        "steps_per_draw": float(np.mean(draws.statistics["n_steps"])),
    }


def alone(*arguments):
    """A part of this file in a new process, so that memory is its own.

    The peak of a process that starts another counts as the other's, too: all large work is alone.
    """
    command = [sys.executable, __file__, *arguments]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return json.loads(done.stdout.splitlines()[-1])


def grown(n, warmup):
    """`one_size` alone."""
    assert warmup == SHORT["warmup"]
    return alone("one", str(n))


class NothingSampledError(Exception):
    """What the joint sampler was given, and where a chain would start."""


def prepared(n, places=None, **settings):
    """The data and a first position of the full stage at n rows; nothing is sampled."""

    def stop(data, mode, *_):
        raise NothingSampledError(
            data, full_stage.starts(data, mode, 1, np.random.default_rng(0))[0]
        )

    world = World(n, places=places)
    with mock.patch.object(full_stage, "sample_joint", stop), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            regressor(**SHORT, **settings).fit(world.X, world.y)
        except NothingSampledError as found:
            return found.args
    raise RuntimeError("the joint sampler was not called")


def gradients(sizes):
    """Time per gradient at every size, in turns."""
    times = gradient_times([prepared(n) for n in sizes])
    return [{"n": n, "ms_per_gradient": ms} for n, ms in zip(sizes, times, strict=True)]


def at_places(n, places):
    """Time per gradient of rows that share their inputs: row by row, and place by place."""
    with mock.patch.object(_places, "FEW", 0.0):
        cases = {"row_by_row_128": prepared(n, places, feature_points=128)}
    for points in (128, 512):
        cases[f"by_place_{points}"] = prepared(n, places, feature_points=points)
    times = gradient_times(list(cases.values()))
    return {f"ms_{name}": ms for name, ms in zip(cases, times, strict=True)}


def sharing():
    """A month or so of a network of stations."""
    keys = [{"n": 20_000, "places": 1000}]
    return resume("scaling_places", keys, at_places).assign(case="places")


def growth():
    """All sizes, and the exponents between them."""
    keys = [{"sizes": json.dumps(SIZES)}]
    times = resume("scaling_gradients", keys, lambda sizes: alone("gradients", sizes))
    keys = [{"n": n, "warmup": SHORT["warmup"]} for n in SIZES]
    rows = resume("scaling_growth", keys, grown).merge(times.drop(columns="sizes"), on="n")
    draw(rows)
    slopes = {f"exponent_{c}": exponents(rows, c) for c in ("ms_per_gradient", "peak_gb")}
    return rows.assign(case="growth", **slopes)


PANELS = {
    "ms_per_gradient": "time per gradient, ms",
    "peak_gb": "peak memory of a fit, GB",
    "seconds_to_ess_400": "seconds to ESS 400",
}


def draw(rows):
    """Three curves, with a line of slope 1 through the first point of each."""
    figure, axes = plt.subplots(1, 3, figsize=(9.6, 3.0), constrained_layout=True)
    for axis, (column, label) in zip(axes, PANELS.items(), strict=True):
        first = rows.iloc[0]
        linear = first[column] * rows["n"] / first["n"]
        axis.loglog(rows["n"], linear, ":", color="grey", label="proportional to n")
        axis.loglog(rows["n"], rows[column], "o-", label="measured")
        axis.set(title=label, xlabel="rows")
        axis.set_xticks(rows["n"], [f"{n:,}" for n in rows["n"]])
        axis.yaxis.set_major_locator(mpl.ticker.LogLocator(subs=(1.0, 2.0, 5.0)))
        axis.yaxis.set_major_formatter(lambda value, _: f"{value:,g}")
        axis.minorticks_off()
        axis.title.set_fontsize("medium")
        axis.spines[["top", "right"]].set_visible(False)
    axes[0].legend(frameon=False)
    figure.savefig(FOLDER.parents[1] / "docs" / "images" / "scaling.png", dpi=100)
    plt.close(figure)


def exponents(rows, column):
    """Between a size and the next; in the first row that of all, by least squares."""
    n, values = np.log(rows[["n", column]].to_numpy(float)).T
    return np.append(np.polyfit(n, values, 1)[0], np.diff(values) / np.diff(n))


def mixed(n):
    """What is slow: the smallest ESS of what G and (mu, sigma_eps) share, and of what data know."""
    world, model = World(n), regressor(**SHORT)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(world.X, world.y)
    return min_ess_of_answers(model, 20)


def mixing():
    """At two sizes, one of which mixes badly by its hyperparameters."""
    return resume("scaling_mixing", [{"n": n} for n in SIZES[:2]], mixed).assign(case="mixing")


N_PARTITION = 4000


def answers(model, grid, fresh):
    """What partitions are compared on."""
    quantiles = model.predict_quantiles(grid, LEVELS).to_numpy()
    inside = model.predict_interval(fresh.X, 0.9).to_numpy()
    covered = np.mean((fresh.y >= inside[:, 0]) & (fresh.y <= inside[:, 1]))
    parts = model.decompose(grid, measure="entropy")
    return quantiles, covered, np.mean(parts.epistemic)


def partitioned(seed):
    """One data set: the full posterior, and those of 4 and 8 parts, with equal draws."""
    world, fresh = World(N_PARTITION, seed), World(1000, 10_000 + seed)
    grid = features(np.random.default_rng(seed).uniform(-3.0, 3.0, size=(60, 2)))
    rows, reference = [], None
    for K in (1, 4, 8):
        start = time.perf_counter()
        with warnings.catch_warnings(), first_shard_timed() as shard:
            warnings.simplefilter("ignore")
            model = regressor(**FAIR, partitions=K).fit(world.X, world.y)
        seconds = time.perf_counter() - start - sum(shard)
        found = answers(model, grid, fresh)
        reference = found if reference is None else reference
        width = np.mean(reference[0][:, -1] - reference[0][:, 0])
        rows.append(
            {
                "partitions": K,
                "seconds": seconds,
                "shard_seconds": shard[0] if shard else seconds,
                "quantile_difference": np.mean(np.abs(found[0] - reference[0])) / width,
                "coverage_90": found[1],
                "epistemic": found[2],
            }
        )
        print(rows[-1], flush=True)
    return rows


@contextmanager
def first_shard_timed():
    """Run the first shard once more, before all of them, with chains on both cores as a full fit.

    Its seconds are put into the list that is yielded.
    """
    seconds, run_tasks = [], posterior.run_tasks

    def timed(tasks, n_jobs, progress):
        rows, y, design, settings = tasks[0].args
        start = time.perf_counter()
        tasks[0].func(rows, y, design, settings._replace(n_jobs=2), **tasks[0].keywords)
        seconds.append(time.perf_counter() - start)
        return run_tasks(tasks, n_jobs, progress)

    posterior.run_tasks = timed
    try:
        yield seconds
    finally:
        posterior.run_tasks = run_tasks


def partition():
    """The stored comparison. Pilots were looked at on seeds 1, 3 and 4, dealing on 2."""
    keys = [{"seed": seed} for seed in (5, 3, 6)]
    return resume("scaling_partition", keys, partitioned).assign(case="partition")


ROWS = 1_000_000


def predicted(rows):
    """Memory and throughput of `bne predict` on a large grid: every answer at every row."""
    world = World(500)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = regressor(**SHORT).fit(world.X, world.y)
    grid = features(np.random.default_rng(1).uniform(-3.0, 3.0, size=(rows, 2)))
    with tempfile.TemporaryDirectory() as folder:
        files = [f"{folder}/{name}" for name in ("model.bne", "grid.parquet", "out.parquet")]
        model.save(files[0])
        grid.to_parquet(files[1])
        command = [sys.executable, "-m", "bne", "predict", *files[:2], "-o", files[2]]
        seconds, whole, largest = watched([*command, "--jobs", "2"])
        table = pd.read_parquet(files[2]).iloc[:: rows // 20]
    same = wide_table(model, grid.iloc[:: rows // 20])
    return {
        "draws": len(model._thinned("full")[0].draws.omega),
        "seconds": seconds,
        "rows_per_second_per_core": rows / seconds / 2,
        "limit_rows_per_second": matmul_rate() / flops_per_row(model),
        "all_processes_gb": whole,
        "largest_process_gb": largest,
        "largest_difference": np.max(np.abs(table[same.columns].to_numpy() - same.to_numpy())),
    }


def watched(command):
    """Run a command: seconds, and the peaks of memory of all its processes and of the largest.

    Memory that processes share is counted once (PSS).
    """
    start = time.perf_counter()
    run = psutil.Popen(command)
    whole = largest = 0.0
    while run.poll() is None:
        sizes = [size for p in [run, *children(run)] if (size := proportional(p))]
        whole, largest = max(whole, sum(sizes)), max(largest, *sizes, 0.0)
        time.sleep(1.0)
    if run.returncode:
        raise RuntimeError(f"{command} ended with {run.returncode}")
    return time.perf_counter() - start, whole / 2**30, largest / 2**30


def children(process):
    """Processes that a process has started."""
    try:
        return process.children(recursive=True)
    except psutil.NoSuchProcess:
        return []


def proportional(process):
    """Bytes of a process, 0 where it has just ended."""
    try:
        return process.memory_full_info().pss
    except psutil.Error:
        return 0


def flops_per_row(model):
    """Multiplications and additions in the matrix products that a row needs."""
    answerer = table.prepare(model._fitted())
    whole, forms = answerer.wholes[0], answerer.gaussians[0].forms
    S, m = whole.draws.terms["residual"].coefficients.shape
    _, m_G, P = whole.draws.calibration.W.shape
    K = len(EXPERTS)
    features = 2 * 4 * (m + m_G * P)  # four nodes of the length-scale's grid
    tables = 2 * 31 * (16 + 2 * 81)
    variances = 2 * np.count_nonzero(np.any(forms, axis=(2, 3))) * (K + m) ** 2
    return S * (features + tables) + variances


def matmul_rate():
    """Floating-point operations a second of one core."""
    from bne._base.threads import single_blas_thread

    a = np.random.default_rng(0).normal(size=(1500, 1500))
    with single_blas_thread():
        a @ a
        times = []
        for _ in range(3):
            start = time.perf_counter()
            a @ a
            times.append(time.perf_counter() - start)
    return 2.0 * 1500**3 / min(times)


def predict(rows=ROWS):
    """One large grid."""
    return resume("scaling_predict", [{"rows": rows}], predicted).assign(case="predict")


def run():
    """All parts, one below the other."""
    return pd.concat([growth(), sharing(), mixing(), partition(), predict()]).to_dict("records")


if __name__ == "__main__":
    if sys.argv[1] == "one":
        print(json.dumps(one_size(int(sys.argv[2]))))
    elif sys.argv[1] == "gradients":
        print(json.dumps(gradients(json.loads(sys.argv[2]))))
    elif sys.argv[1] == "predict":
        print(predict(int(sys.argv[2]) if len(sys.argv) > 2 else ROWS).to_string())
    else:
        parts = {"growth": growth, "places": sharing, "mixing": mixing, "partition": partition}
        print(parts[sys.argv[1]]().to_string())
