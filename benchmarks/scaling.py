"""Large data: time and memory as n grows, the partitioned against the full posterior, many rows.

``python benchmarks/run.py scaling`` continues where it was killed. All parts take about two hours
on two cores. ``python benchmarks/scaling.py growth`` runs one part; the others are ``places``,
``mixing``, ``partition`` and ``predict``.
"""

import json
import resource
import subprocess
import sys
import warnings
from unittest import mock

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from full import capture, gradient_times
from scaling_partition import partition
from scaling_predict import ROWS, predict
from scaling_world import SHORT, World, regressor
from stages import min_ess, min_ess_of_answers
from store import FOLDER, resume

from bne._data import places as _places
from bne._fitting import full_stage

mpl.use("Agg")

SIZES = (1000, 3000, 10_000, 30_000)
"""Numbers of rows."""


def one_size(n):
    """Fit n rows and measure memory and time; this runs in a process of its own."""
    model = regressor(**SHORT)
    kept = capture(model, World(n))
    draws = model._stages("full")[0].draws
    ess = min_ess(model._stages("full")[0].quantities(model.expert_names_))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    return {
        "peak_gb": peak,
        "seconds": kept["seconds"],
        "min_ess": ess,
        "seconds_to_ess_400": 400 * kept["seconds"] / ess,
        "steps_per_draw": float(np.mean(draws.statistics["n_steps"])),
    }


def alone(*arguments):
    """Run a part of this file in a new process, so that its peak memory can be measured.

    A new process starts with the peak of the process that starts it. So all large work must run
    in new processes.
    """
    command = [sys.executable, __file__, *arguments]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return json.loads(done.stdout.splitlines()[-1])


def grown(n, warmup):
    """Run `one_size` in a new process."""
    assert warmup == SHORT["warmup"]
    return alone("one", str(n))


class NothingSampledError(Exception):
    """Raised in place of sampling; holds the data of the full stage and the start of a chain."""


def prepared(n, places=None, **settings):
    """Return the data and a first position of the full stage at n rows, without sampling."""

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
    """Measure the time per gradient at every size."""
    times = gradient_times([prepared(n) for n in sizes])
    return [{"n": n, "ms_per_gradient": ms} for n, ms in zip(sizes, times, strict=True)]


def at_places(n, places):
    """Measure the time per gradient of rows that share places: row by row, and by place."""
    with mock.patch.object(_places, "FEW", 0.0):
        cases = {"row_by_row_128": prepared(n, places, feature_points=128)}
    for points in (128, 512):
        cases[f"by_place_{points}"] = prepared(n, places, feature_points=points)
    times = gradient_times(list(cases.values()))
    return {f"ms_{name}": ms for name, ms in zip(cases, times, strict=True)}


def sharing():
    """Compare rows that share places, like about a month of a network of stations."""
    keys = [{"n": 20_000, "places": 1000}]
    return resume("scaling_places", keys, at_places).assign(case="places")


def growth():
    """Measure all sizes, and the exponents between them."""
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
    """Draw three curves, with a line of slope 1 through the first point of each."""
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
    """Return the exponent between each size and the one before; first that of all sizes."""
    n, values = np.log(rows[["n", column]].to_numpy(float)).T
    return np.append(np.polyfit(n, values, 1)[0], np.diff(values) / np.diff(n))


def mixed(n):
    """Fit n rows; return the smallest ESS of the quantities that mix slowly, and of answers."""
    world, model = World(n), regressor(**SHORT)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(world.X, world.y)
    return min_ess_of_answers(model, 20)


def mixing():
    """Measure the mixing at two sizes. At one of them the hyperparameters mix badly."""
    return resume("scaling_mixing", [{"n": n} for n in SIZES[:2]], mixed).assign(case="mixing")


def run():
    """Return the tables of all parts, one below the other."""
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
