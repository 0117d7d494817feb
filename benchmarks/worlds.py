"""Coverage under six kinds of noise, of three stages, over many data sets.

``python benchmarks/worlds.py [seeds]`` prints the table, draws ``docs/images/coverage.png`` and
writes ``docs/coverage.md``. A data set takes half a minute to a minute and a half of one core. A
killed run can be continued.
"""

import sys
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
from scipy import stats
from store import FOLDER

from bne import BNERegressor
from paper import store

SIZES = (100, 400)
SEEDS = 20
FRESH = 1000
LEVELS = (0.5, 0.8, 0.9, 0.95)
SETTINGS = {"chains": 2, "warmup": 250, "draws": 300, "n_jobs": 1}


def _bimodal(x, rng):
    return 0.8 * np.where(rng.uniform(size=len(x)) < 0.5, -1.0, 1.0) + 0.25 * rng.normal(
        size=len(x)
    )


WORLDS = {
    "gaussian": lambda x, rng: 0.5 * rng.normal(size=len(x)),
    "heteroscedastic": lambda x, rng: (0.2 + 0.25 * (x + 2.0)) * rng.normal(size=len(x)),
    "skewed": lambda x, rng: 0.4 * (rng.gamma(1.5, size=len(x)) - 1.5),
    "heavy tails": lambda x, rng: 0.35 * rng.standard_t(3, size=len(x)),
    "bimodal": _bimodal,
    "rounded": lambda x, rng: np.round(2.0 * 0.5 * rng.normal(size=len(x))) / 2.0,
}
"""Noise at x in [-2, 2]."""


def sample(world, n, rng):
    """Simulate a curve with the world's noise, and two models that each miss some of the curve."""
    x = rng.uniform(-2.0, 2.0, n)
    mean = np.sin(2.0 * x) + 0.5 * x
    X = pd.DataFrame({"x": x, "wave": np.sin(2.0 * x) + 0.2, "line": 0.8 * x - 0.1})
    y = mean + WORLDS[world](x, rng)
    return X, np.round(2.0 * y) / 2.0 if world == "rounded" else y


def one(world, n, seed):
    """Fit one data set; return coverage and PIT of every stage on fresh observations."""
    rng = np.random.default_rng((sorted(WORLDS).index(world), n, seed))
    X, y = sample(world, n, rng)
    X_new, y_new = sample(world, FRESH, rng)
    experts = [("wave", "wave"), ("line", "line")]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = BNERegressor(experts, inputs=["x"], random_state=seed, **SETTINGS).fit(X, y)
    rows = []
    for stage in ("ensemble", "additive", "full"):
        u = model.predict_distribution(X_new, stage=stage).cdf(y_new)
        row = {"stage": stage, "pit_distance": stats.kstest(u, "uniform").statistic}
        row |= {f"coverage_{100 * c:g}": np.mean(np.abs(u - 0.5) <= 0.5 * c) for c in LEVELS}
        rows.append(row)
    return rows


def compute(seeds=SEEDS, n_jobs=1):
    """Run the data sets that are not stored yet, and return all rows."""
    keys = [
        {"world": world, "n": n, "seed": seed}
        for seed in range(1, seeds + 1)
        for n in SIZES[::-1]
        for world in WORLDS
    ]
    return store.resume(FOLDER / "worlds_rows.csv", keys, one, n_jobs=n_jobs)


def table(rows):
    """Return means over data sets, and the distance to nominal coverage in percentage points."""
    columns = [c for c in rows if c.startswith("coverage_")]
    means = rows.groupby(["world", "n", "stage"], sort=False)[[*columns, "pit_distance"]].mean()
    counts = rows.groupby(["world", "n", "stage"], sort=False)["seed"].nunique()
    off = means[columns] - [float(c.split("_")[1]) / 100 for c in columns]
    worst = 100 * off.abs().max(axis=1)
    return means.assign(worst_points=worst, data_sets=counts).reset_index()


def draw(summary, path):
    """Draw the coverage against the nominal coverage, one panel for each world and n."""
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    columns = [c for c in summary if c.startswith("coverage_")]
    nominal = np.array([float(c.split("_")[1]) for c in columns])
    fig, axes = plt.subplots(2, 6, figsize=(15, 5), sharex=True, sharey=True, layout="constrained")
    for (row, n), (column, world) in ((a, b) for a in enumerate(SIZES) for b in enumerate(WORLDS)):
        ax = axes[row, column]
        ax.axhspan(-3, 3, color="0.9")
        for stage, marker in zip(("ensemble", "additive", "full"), "s^o", strict=True):
            here = summary.query("world == @world and n == @n and stage == @stage")
            if len(here):
                off = 100 * here[columns].to_numpy()[0] - nominal
                ax.plot(nominal, off, marker=marker, label=stage, lw=1, ms=4)
        ax.set_title(f"{world}, n = {n}", fontsize=9)
    axes[0, 0].legend(fontsize=8)
    fig.supxlabel("nominal coverage (%)")
    fig.supylabel("measured - nominal (points)")
    fig.savefig(path, dpi=110)
    plt.close(fig)


GOAL = 3.0
"""Greatest distance to nominal coverage at n = 400 that meets the goal, in percentage points."""

REASONS = {
    "rounded": "y takes few values, and coverage jumps by whole values.",
    "heavy tails": "t3 has more mass far out than G's basis, five noise scales wide, can place.",
    "bimodal": "the valley between the modes is as narrow as the finest wave of G.",
    "heteroscedastic": "noise that varies tenfold over x is smoothed by 32 points.",
}
"""Likely causes of a missed goal. They have not been tested separately."""

PAGE = """# Coverage in six worlds

A 90% interval should hold 90% of new observations. This page measures that. Each world has one
curve, two models that each miss something, and its own kind of noise. We count how many of
{fresh:,} fresh observations a data set lie in central intervals, for every stage of the model:
`ensemble` (weights only), `additive` (with the residual process) and `full` (with the calibration
function G, too). `python benchmarks/worlds.py` writes this page from {sets} data sets of each kind.

![Measured less nominal coverage in every world](images/coverage.png)

At n = 400 the full stage is within {goal:g} points of nominal at every level in {good} of
{worlds} worlds.
{misses}
{table}

`coverage_50` to `coverage_95` are the shares of fresh observations in the intervals.
`worst_points` is the largest distance of these four from nominal, in percentage points, after the
mean over data sets. `pit_distance` is how far F at the observed y (the PIT, uniform if the model is
calibrated) is from uniform, by Kolmogorov and Smirnov.
"""


def page(summary):
    """Return the page as Markdown; it is made from the table only."""
    full = summary.query("stage == 'full' and n == 400")
    off = full[full["worst_points"] > GOAL]
    misses = [
        f"- {row.world}: off by {row.worst_points:.1f} points.\n"
        f"  A likely reason: {REASONS.get(row.world, 'chance.')}"
        for row in off.itertuples()
    ]
    shown = summary.round(3)
    head = "| " + " | ".join(shown.columns) + " |\n|" + "---|" * len(shown.columns)
    lines = ["| " + " | ".join(str(v) for v in row) + " |" for row in shown.to_numpy()]
    return PAGE.format(
        fresh=FRESH,
        sets=int(summary["data_sets"].min()),
        goal=GOAL,
        good=len(full) - len(off),
        worlds=len(full),
        misses="\n".join(["", "The others:", "", *misses, ""]) if misses else "",
        table="\n".join([head, *lines]),
    )


def run(seeds=SEEDS, n_jobs=1):
    """Run what is missing, then write the picture and the page."""
    summary = table(compute(seeds, n_jobs))
    docs = Path(__file__).parents[1] / "docs"
    draw(summary, docs / "images" / "coverage.png")
    (docs / "coverage.md").write_text(page(summary), encoding="utf-8")
    return summary.to_dict("records")


if __name__ == "__main__":
    rows = run(int(sys.argv[1]) if len(sys.argv) > 1 else SEEDS, n_jobs=2)
    print(pd.DataFrame(rows).round(3).to_string())
