"""Runs for Figures 2 and 4 and Theorem 1: simulated data whose truth is known."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from bne import BNERegressor
from bne._base.typing import Array
from bne._law.conditional import conditional_draws
from bne._stage_names import SHORT_NAMES
from bne.datasets import SimulatedData, make_gamma_0d, make_wave_1d
from bne.metrics import l1_distance
from paper.scores import (
    GROUPS,
    Predict,
    calibration_scores,
    fitted_comparators,
    fitted_stages,
    read_paired,
    stages_of,
)
from paper.store import resume

EXPERTS = ["rbf_short", "rbf_long", "periodic"]
GRID = np.linspace(-5.0, 5.0, 101)
"""Inputs at which predictions are compared with the truth."""

Y_GRID = np.linspace(-12.0, 25.0, 371)
"""Values of y at which CDFs are compared: from below the 1e-6 quantile of every truth to above the
1 - 1e-6 quantile, in steps of 0.1."""

FRESH = 500
"""Fresh observations of each repeat, on which coverage is counted."""

SIZES = (100, 200, 500, 1000)
"""Numbers of training rows in Figure 4."""

SHORT = {"chains": 2, "warmup": 250, "draws": 300, "target_acceptance": 0.85, "n_jobs": 1}
"""Settings of the many fits: an average over repeats needs fewer draws of each fit."""

EPSILONS = (0.1, 0.15, 0.2, 0.3)
"""Distances at which the posterior mass of Theorem 1 is measured."""


def gamma(seed: int) -> list[dict[str, Any]]:
    """Score one 0-D data set: L1 distance to the truth, and the mode of the density.

    The methods are two stages of BNE and the empirical CDF.
    """
    data = make_gamma_0d(100, random_state=seed)
    model, _ = fitted_stages(data.X, data.y, ["constant"], [], random_state=seed, **SHORT)
    truth = data.truth.cdf(Y_GRID, 0.0)
    rows = []
    for stage in ("ensemble", "full"):
        law = model.predict_distribution(data.X[:1], stage=stage)
        gap = np.abs(law.cdf(Y_GRID[None])[0] - truth)
        row = {"l1": np.trapezoid(gap, Y_GRID), "mode": law.mode()[0]}
        rows.append({"method": SHORT_NAMES[stage]} | row)
    steps = np.searchsorted(np.sort(data.y), Y_GRID, side="right") / len(data.y)
    gap = np.trapezoid(np.abs(steps - truth), Y_GRID)
    return [*rows, {"method": "empirical CDF", "l1": gap, "mode": np.nan}]


def wave(variant: int, n: int, repeat: int, group: str) -> list[dict[str, Any]]:
    """Score one group of methods on one 1-D data set.

    Distances to the truth are taken on a grid, scores on fresh observations.
    """
    data = make_wave_1d(n, variant=variant, random_state=repeat)
    on_grid, truth = data.features(GRID), data.truth.distribution(GRID)
    fresh = data.sample(FRESH, random_state=repeat)

    def row(name: str, predict: Predict, seconds: float) -> dict[str, Any]:
        law = predict(on_grid)
        distances = {
            "rmse_mean": float(np.sqrt(np.mean((law.mean() - truth.mean()) ** 2))),
            "l1": l1_distance(law, truth, Y_GRID),
        }
        scores = calibration_scores(predict(fresh.X), fresh.y)
        return {"method": name} | distances | scores | {"seconds": seconds}

    if group == "comparators":
        others = fitted_comparators(data.X, data.y, EXPERTS, ["x"], seed=repeat)
        return [row(*other) for other in others]
    model, seconds = fitted_stages(data.X, data.y, EXPERTS, ["x"], random_state=repeat, **SHORT)
    rows = [row(name, predict, seconds) for name, predict in stages_of(model).items()]
    rows[-1] |= posterior_mass(model, data)
    return rows


def posterior_mass(model: BNERegressor, data: SimulatedData) -> dict[str, float]:
    """Return the fractions of posterior draws of F that lie beyond each epsilon of the truth.

    The distance is that of Theorem 1, in L2; its median is returned as well.
    """
    distance = draw_distances(model, data)
    row = {f"mass_{epsilon:g}": float(np.mean(distance > epsilon)) for epsilon in EPSILONS}
    return row | {"l2_median": float(np.median(distance))}


def draw_distances(model: BNERegressor, data: SimulatedData) -> Array:
    """Return the distance ``||F_s - F*||_2`` of every draw, with x uniform on the grid: (S,)."""
    y = Y_GRID[::2]
    draws = conditional_draws(model._stages("full")[0], model._rows(data.features(GRID)))
    scaled = model.scaling_.outcome(y)
    square = np.zeros(len(draws.mu))
    for i, x in enumerate(GRID):
        row = np.full(len(y), i)
        F = draws.ratio.cdf(draws.standardise(scaled, row), row)
        gap = (F - data.truth.cdf(y, x)[None, :]) ** 2
        square += np.trapezoid(gap, y, axis=1)
    return np.sqrt(square / len(GRID))


def run_gamma(folder: Path, repeats: int, n_jobs: int | None, quiet: bool) -> pd.DataFrame:
    """Run what is missing of Figure 2 and return all its rows."""
    keys = [{"seed": seed} for seed in range(1, repeats + 1)]
    return resume(folder / "fig2_rows.csv", keys, gamma, n_jobs=n_jobs, quiet=quiet)


def run_wave(
    folder: Path, repeats: int, n_jobs: int | None, quiet: bool, sizes: tuple[int, ...] = SIZES
) -> pd.DataFrame:
    """Run what is missing of Figure 4, both variants, and return all its rows."""
    keys = [
        {"variant": variant, "n": n, "repeat": repeat, "group": group}
        for variant in (1, 2)
        for repeat in range(1, repeats + 1)
        for n in sizes
        for group in GROUPS
    ]
    return resume(folder / "fig4_rows.csv", keys, wave, n_jobs=n_jobs, quiet=quiet)


def read_wave(folder: Path) -> pd.DataFrame:
    """Read the stored rows of Figure 4."""
    return read_paired(folder / "fig4_rows.csv", ["variant", "n", "repeat"])
