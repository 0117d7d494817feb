"""The main job on the paper's 1-D experiment: simulate, fit, print a table, draw a picture.

Run it with ``make demo``; it writes ``out/demo.png``, on why each stage is unsure and where the
models are wrong ``out/demo_why.png``, and ``out/demo.html``, a report to click through.
"""

import argparse
import time
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from sklearn.metrics import root_mean_squared_error

from bne import BNERegressor, plots
from bne.datasets import SimulatedData, make_wave_1d
from bne.metrics import coverage, l1_distance
from bne.report import write_report

EXPERTS = ["rbf_short", "rbf_long", "periodic"]
STAGES = {
    "ensemble": "original ensemble (Eq. 1)",
    "additive": "+ residual process δ (Eq. 2)",
    "full": "+ calibration G: the full model (Eq. 4)",
}
GRID = np.linspace(-5, 5, 101)
BLUE, GREY, RED = "#0072b2", "#555555", "#d55e00"


def score(model: BNERegressor, data: SimulatedData, fresh: SimulatedData) -> pd.DataFrame:
    """RMSE to the true mean and L1 to the true CDF on the grid; coverage of fresh observations."""
    rows = {}
    for stage in STAGES:
        on_grid = model.predict_distribution(data.features(GRID), stage=stage)
        low, high = model.predict_distribution(fresh.X, stage=stage).interval(0.9)
        rows[stage] = {
            "RMSE to true mean": root_mean_squared_error(data.truth.mean(GRID), on_grid.mean()),
            "L1 to true CDF": l1_distance(on_grid, data.truth.distribution(GRID)),
            "90% coverage": coverage(fresh.y, low, high),
        }
    return pd.DataFrame.from_dict(rows, orient="index")


def draw(model: BNERegressor, data: SimulatedData, path: Path) -> None:
    """One panel a stage: data, predictive mean and 90% band, beside the truth's."""
    x = np.linspace(-6.5, 6.5, 261)
    X, truth = data.features(x), data.truth
    figure, axes = plt.subplots(
        1,
        len(STAGES),
        figsize=(4.4 * len(STAGES), 4),
        sharex=True,
        sharey=True,
        layout="constrained",
    )
    for axis, (stage, title) in zip(axes, STAGES.items(), strict=True):
        distribution = model.predict_distribution(X, stage=stage)
        low, high = distribution.interval(0.9)
        axis.fill_between(x, low, high, color=BLUE, alpha=0.2, lw=0, label="90% predictive band")
        axis.plot(x, distribution.mean(), color=BLUE, lw=2, label="predictive mean")
        axis.plot(x, truth.mean(x), color=GREY, lw=1, label="true mean")
        for level in (0.05, 0.95):
            label = "true 90% band" if level < 0.5 else None
            axis.plot(x, truth.ppf(level, x), color=GREY, lw=1, ls=":", label=label)
        axis.plot(data.X["x"], data.y, ".", color=RED, ms=5, label="observations")
        axis.set(title=title, xlabel="x", xlim=(x[0], x[-1]))
    axes[0].set_ylabel("y")
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=5, frameon=False)
    path.parent.mkdir(exist_ok=True)
    figure.savefig(path, dpi=130)


def explain(model: BNERegressor, data: SimulatedData, path: Path) -> None:
    """Figure 3 of the paper: uncertainty in parts, and where the models are wrong."""
    x = np.linspace(-6.5, 6.5, 131)
    observed = data.X["x"], data.y
    truth = data.truth.distribution(x)
    axes = plots.stages(model, data.features(x), x, observed, truth=truth)
    axes[0, 0].figure.savefig(path, dpi=110)


def main() -> None:
    """Fit, score and draw."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-n", type=int, default=100, help="training rows")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("-o", "--output", type=Path, default=Path("out/demo.png"))
    options = parser.parse_args()
    start = time.perf_counter()
    data = make_wave_1d(options.n, random_state=options.seed)
    print(f"The paper's 1-D experiment: {options.n} rows, experts {', '.join(EXPERTS)}.")
    model = BNERegressor(
        [(name, name) for name in EXPERTS],
        inputs=["x"],
        random_state=0,
        n_jobs=2,
        verbose=1,
    ).fit(data.X, data.y)
    print(score(model, data, data.sample(500, random_state=0)).round(3).to_string())
    draw(model, data, options.output)
    why = options.output.with_stem(options.output.stem + "_why")
    explain(model, data, why)
    page = options.output.with_suffix(".html")
    write_report(model, page, title="The paper's 1-D experiment")
    print(f"Pictures: {options.output}, {why}   ({time.perf_counter() - start:.0f} s)")
    print(f"Report: {page.resolve().as_uri()}")


if __name__ == "__main__":
    main()
