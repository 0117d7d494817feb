"""One function for each figure: run what is missing, then write the table and the picture."""

import json
import platform
import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

from bne import plots
from bne._stage_names import BAE, BNE
from bne.baselines import COMPARATORS
from bne.datasets import make_gamma_0d, make_wave_1d
from paper import maps, page, simulated
from paper import real as real_data
from paper.scores import fitted_stages, read_paired
from paper.store import replace

PACKAGES = ("bne", "blackjax", "jax", "numpy", "scipy", "scikit-learn")
COLORS = {
    BNE: "#0072b2",
    BAE: "#56b4e9",
    "stack": "#d55e00",
    "BME": "#e69f00",
    "CondKDE": "#009e73",
    "DeepEns": "#cc79a7",
    "NGBoost": "#999999",
    "QRF": "#000000",
}
"""Colours of Figure 4. A comparator without one here takes the next of matplotlib's colours."""


def save(figure: Any, path: Path) -> None:
    """Write a picture completely, or leave the old one as it is."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name("partial_" + path.name)
    figure.savefig(partial, dpi=110)
    partial.replace(path)
    plt.close(figure)


def note(folder: Path, name: str, seconds: float, **settings: Any) -> None:
    """Write the settings, the versions and the time of a run to a file beside its table."""
    about = {"command": f"make paper FIGURE={name}", "seconds_of_last_run": round(seconds, 1)}
    about |= {"settings": settings, "python": platform.python_version()}
    about["versions"] = {p: version(p) for p in PACKAGES}
    replace(folder / f"{name}.json", json.dumps(about, indent=1) + "\n")


def fig2(folder: Path, repeats: int, n_jobs: int | None, quiet: bool) -> None:
    """Make Figure 2, 0-D: densities for one data set, and L1 and mode over seeds."""
    rows = simulated.run_gamma(folder, repeats, n_jobs, quiet)
    means = rows.groupby("method", sort=False)[["l1", "mode"]].agg(["mean", "sem"])
    replace(folder / "fig2.csv", means.round(4).to_csv())
    data = make_gamma_0d(100, random_state=1)
    settings = simulated.SHORT | {"random_state": 1}
    model, _ = fitted_stages(data.X, data.y, ["constant"], [], **settings)
    laws = {
        "Gaussian ensemble (G = I)": model.predict_distribution(data.X[:1], stage="ensemble"),
        "full model": model.predict_distribution(data.X[:1]),
    }
    truth = data.truth.distribution(np.zeros(1))
    ax = plots.density(laws, observed=data.y, truth=truth)
    ax.set(title="Gamma(1.5, 2), 100 observations")
    save(ax.figure, folder / "fig2.png")


def fig3(folder: Path, repeats: int, n_jobs: int | None, quiet: bool) -> None:
    """Make Figure 3, 1-D with n = 100: six panels of one fit with default settings."""
    del repeats, quiet
    data = make_wave_1d(100, random_state=1)
    model, _ = fitted_stages(
        data.X, data.y, simulated.EXPERTS, ["x"], random_state=1, n_jobs=n_jobs
    )
    x = np.linspace(-8, 8, 161)
    X = data.features(x)
    axes = plots.stages(model, X, x, (data.X["x"], data.y), truth=data.truth.distribution(x))
    save(axes[0, 0].figure, folder / "fig3.png")
    parts = {s: model.decompose(X, stage=s).to_frame() for s in ("ensemble", "additive", "full")}
    table = pd.concat(parts, names=["stage"]).reset_index(level=0).assign(x=np.tile(x, 3))
    replace(folder / "fig3.csv", table.round(5).to_csv(index=False))


def fig4(folder: Path, repeats: int, n_jobs: int | None, quiet: bool) -> None:
    """Make Figure 4, 1-D: RMSE and L1 of all methods against n; and Theorem 1."""
    simulated.run_wave(folder, repeats, n_jobs, quiet)
    redraw(folder)


def redraw(folder: Path) -> None:
    """Make the tables and pictures of Figure 4 and of the real data from the stored rows."""
    if (folder / "fig4_rows.csv").exists():
        draw_fig4(simulated.read_wave(folder), folder)
    if (folder / "real_rows.csv").exists():
        table = real_data.summary(read_paired(folder / "real_rows.csv", ["data", "split"]))
        replace(folder / "real.csv", table.to_csv(index=False, float_format="%.4g"))


def draw_fig4(rows: pd.DataFrame, folder: Path) -> None:
    """Make the table and the pictures of Figure 4 from its rows."""
    keys = ["variant", "n", "method"]
    scores = ["rmse_mean", "l1", "nll", "coverage_90"]
    means = rows.groupby(keys, sort=False)[scores].agg(["mean", "sem"])
    means.columns = [name if kind == "mean" else f"{name}_se" for name, kind in means.columns]
    means.insert(0, "repeats", rows.groupby(keys, sort=False).size())
    means = means.reset_index()
    replace(folder / "fig4.csv", means.to_csv(index=False, float_format="%.4g"))
    variants = sorted(means["variant"].unique())
    size = (9.6, 3.8 * len(variants))
    figure, axes = plt.subplots(len(variants), 2, figsize=size, squeeze=False, layout="constrained")
    for line, variant in zip(axes, variants, strict=True):
        for ax, score in zip(line, ("rmse_mean", "l1"), strict=True):
            _convergence(ax, means[means["variant"] == variant], score)
        line[0].set(ylabel="RMSE of the mean", title=f"variant {variant}")
        line[1].set(ylabel="L1 distance to the true CDF", title=f"variant {variant}")
    handles, labels = axes[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside right center", frameon=False)
    save(figure, folder / "fig4.png")
    _theorem(rows[rows["method"] == BNE], folder)


def _convergence(ax: Any, means: pd.DataFrame, score: str) -> None:
    """Draw one score of every method against n."""
    for method in dict.fromkeys([*COLORS, *(one.name for one in COMPARATORS)]):
        line = means[means["method"] == method].sort_values("n")
        style = {"lw": 2.5} if method == BNE else {"lw": 1.2}
        ax.errorbar(
            line["n"],
            line[score],
            line[f"{score}_se"],
            color=COLORS.get(method),
            label=method,
            capsize=2,
            **style,
        )
    ax.set(xscale="log", yscale="log", xlabel="n")
    ticks = sorted(means["n"].unique())
    ax.set_xticks(ticks, [f"{n:,}" for n in ticks])
    levels = [v for v in (0.1, 0.2, 0.5, 1.0, 2.0) if ax.get_ylim()[0] < v < ax.get_ylim()[1]]
    ax.set_yticks(levels, [f"{v:g}" for v in levels])
    ax.minorticks_off()


def _theorem(rows: pd.DataFrame, folder: Path) -> None:
    """Draw the posterior mass of ||F - F*|| > epsilon against n."""
    figure, ax = plt.subplots(figsize=(6.8, 3.8), layout="constrained")
    masses = [c for c in rows if c.startswith("mass_")]
    for shade, column in zip(np.linspace(0.9, 0.3, len(masses)), masses, strict=True):
        for variant, style in ((1, "o-"), (2, "s--")):
            line = rows[rows["variant"] == variant].groupby("n")[column].mean()
            if len(line):
                label = f"ε = {column.removeprefix('mass_')}, variant {variant}"
                ax.plot(line.index, line, style, color=plt.colormaps["viridis"](shade), label=label)
    ax.set(xscale="log", xlabel="n", ylabel="posterior P(‖F − F*‖₂ > ε)", ylim=(-0.02, 1.02))
    ticks = sorted(rows["n"].unique())
    ax.set_xticks(ticks, [f"{n:,}" for n in ticks])
    ax.minorticks_off()
    figure.legend(loc="outside right center", frameon=False)
    save(figure, folder / "theorem1.png")


def fig5(folder: Path, repeats: int, n_jobs: int | None, quiet: bool) -> None:
    """Make Figure 5: maps over the real monitors, and the scores on their simulated twin."""
    table = maps.monitors()
    if table is None:
        print(
            f"Skipped: the monitors are not in {real_data.folder()}. Set BNE_DATA to their folder."
        )
        return
    rows = maps.run_twin(folder, repeats, n_jobs, quiet)
    means = rows.groupby("method", sort=False).mean().drop(columns="repeat")
    replace(folder / "fig5_twin.csv", means.round(4).to_csv())
    model, parts, grid = maps.fit_monitors(table, n_jobs)
    parts = parts.assign(monitor=table["mon_id"])
    replace(folder / "fig5.csv", parts.to_csv(index=False, float_format="%.5g"))
    centre = table[maps.PLACE].mean()
    observed = (table[maps.PLACE] - centre, table["aqs"])
    axes = plots.maps(
        model, grid, (grid[maps.PLACE] - centre).to_numpy(), observed=observed, of="delta"
    )
    for ax in axes[-1]:
        ax.set_xlabel("km east of the monitors' centre")
    for ax in axes[:, 0]:
        ax.set_ylabel("km north")
    save(axes[0, 0].figure, folder / "fig5.png")


def real(folder: Path, repeats: int, n_jobs: int | None, quiet: bool) -> None:
    """Score all methods on real data beyond the paper."""
    del repeats
    real_data.run(folder, n_jobs, quiet)
    redraw(folder)


FIGURES: dict[str, Callable[..., None]] = {
    "fig2": fig2,
    "fig3": fig3,
    "fig4": fig4,
    "fig5": fig5,
    "real": real,
}


SETTINGS: dict[str, dict[str, Any]] = {
    "fig2": {"all": simulated.SHORT},
    "fig3": {},
    "fig4": {"all": simulated.SHORT},
    "fig5": {"twin": maps.TWIN},
    "real": {
        "all": real_data.SETTINGS,
        "uw_srft_2004": real_data.LARGE,
        "uw_srft_2004/days, uci": real_data.TABULAR,
    },
}
"""Settings of each figure's fits that differ from the defaults."""


def names_of(figure: str) -> list[str]:
    """Return the figures to run: every one for `all`, none for `page`, else the one named."""
    if figure not in (*FIGURES, "all", "page"):
        raise ValueError(
            f"There is no figure {figure!r}. Choose one of {', '.join(FIGURES)}, page or all."
        )
    return {"all": list(FIGURES), "page": []}.get(figure, [figure])


def reproduce(
    names: list[str], folder: Path, repeats: int, n_jobs: int | None, quiet: bool
) -> None:
    """Run the named figures, then write the page of claims from all stored tables."""
    plt.switch_backend("Agg")
    for name in names:
        start = time.perf_counter()
        FIGURES[name](folder, repeats, n_jobs, quiet)
        note(folder, name, time.perf_counter() - start, repeats=repeats, **SETTINGS[name])
    redraw(folder)
    replace(folder / "README.md", page.page(folder))
