"""Figure 5: maps over the real monitors, and a simulated twin whose truth is known.

The exposure models' predictions are known at the monitors only. Between the monitors they are
interpolated by smooth surfaces. The twin has the same monitors and surfaces. Its outcome is a
weighted mean of the surfaces, plus a smooth bias and skewed noise, so that coverage and bias can be
scored at every place.
"""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy import stats
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, WhiteKernel

from bne import BNERegressor
from bne._base.typing import Array
from paper.real import folder, in_km
from paper.scores import calibration_scores, fitted_stages, stages_of
from paper.store import resume

MODELS = ["pred_av", "pred_gs", "pred_caces"]
"""Columns of the exposure models' predictions."""

PLACE = ["east", "north"]
"""Columns of the places, in kilometres."""

SIDE = 21
"""Number of places along each side of the map."""

WEIGHTS = np.array([0.5, 0.0, 0.5])
"""True weights of the models in the twin."""

BIAS = 1.5
"""Greatest bias in the twin: about the spread of the real outcomes."""

NOISE = 0.5
"""Standard deviation of the noise in the twin."""


def monitors() -> pd.DataFrame | None:
    """Read the 51 monitors, with places in kilometres; None if the file is absent."""
    path = folder() / "eastma_pm25_2011" / "training51_kmeans6.csv"
    return in_km(pd.read_csv(path), "lon", "lat") if path.exists() else None


def surfaces(table: pd.DataFrame, x: Array) -> pd.DataFrame:
    """Interpolate the models' predictions from the monitors to places (N, 2)."""
    kernel = RBF(50.0, (10.0, 500.0)) + WhiteKernel(0.1, (1e-4, 1.0))
    columns = {}
    for name in MODELS:
        process = GaussianProcessRegressor(kernel, normalize_y=True)
        columns[name] = process.fit(table[PLACE].to_numpy(), table[name]).predict(x)
    return pd.DataFrame(x, columns=PLACE).assign(**columns)


def map_grid(table: pd.DataFrame) -> Array:
    """Return the places of a grid over the monitors, (SIDE^2, 2)."""
    sides = [np.linspace(table[c].min(), table[c].max(), SIDE) for c in PLACE]
    return np.stack(np.meshgrid(*sides), axis=-1).reshape(-1, 2)


def true_bias(x: Array, centre: Array, width: float) -> Array:
    """Return the bias at places x: one hill, on which the models are too low."""
    return BIAS * np.exp(-0.5 * np.sum((x - centre) ** 2, axis=1) / width**2)


def twin_data(
    table: pd.DataFrame, repeat: int
) -> tuple[pd.DataFrame, Array, pd.DataFrame, Array, Array]:
    """Simulate one data set: training rows and outcomes; the grid, its outcomes and its bias."""
    rng = np.random.default_rng([repeat, 5])
    places = table[PLACE].to_numpy()
    centre = places[rng.integers(len(places))]
    width = 0.25 * np.mean(np.ptp(places, axis=0))

    def outcomes(X: pd.DataFrame) -> Array:
        mean = X[MODELS].to_numpy() @ WEIGHTS + true_bias(X[PLACE].to_numpy(), centre, width)
        noise = stats.gamma(2.0).rvs(len(X), random_state=rng) - 2.0
        return mean + NOISE * noise / np.sqrt(2.0)

    train, grid = surfaces(table, places), surfaces(table, map_grid(table))
    bias = true_bias(grid[PLACE].to_numpy(), centre, width)
    return train, outcomes(train), grid, outcomes(grid), bias


TWIN = {"chains": 2, "warmup": 300, "draws": 400, "n_jobs": 1}
"""Settings of the fits to the twin."""


def twin(repeat: int) -> list[dict[str, Any]]:
    """Fit one data set of the twin, and score each stage at the outcomes of the grid."""
    table = monitors()
    assert table is not None
    train, y, grid, fresh, bias = twin_data(table, repeat)
    model, _ = fitted_stages(train, y, MODELS, PLACE, random_state=repeat, **TWIN)
    too_low = model.detect_bias(grid).delta.prob_positive
    high = bias > 0.5 * BIAS
    found = {"prob_low_on_hill": too_low[high].mean(), "prob_low_off_hill": too_low[~high].mean()}
    return [
        {"method": name} | calibration_scores(predict(grid), fresh) | found
        for name, predict in stages_of(model).items()
    ]


def run_twin(path: Path, repeats: int, n_jobs: int | None, quiet: bool) -> pd.DataFrame:
    """Run the twins that are missing and return the scores of all."""
    keys = [{"repeat": repeat} for repeat in range(1, repeats + 1)]
    return resume(path / "fig5_rows.csv", keys, twin, n_jobs=n_jobs, quiet=quiet)


def fit_monitors(
    table: pd.DataFrame, n_jobs: int | None
) -> tuple[BNERegressor, pd.DataFrame, pd.DataFrame]:
    """Fit the real monitors with default settings.

    Returns the model, the parts of the uncertainty and the bias at the monitors, and the grid.
    """
    train = table[[*PLACE, *MODELS]]
    y = table["aqs"].to_numpy(float)
    model, _ = fitted_stages(train, y, MODELS, PLACE, random_state=0, n_jobs=n_jobs)
    parts = model.decompose(train, measure="variance").to_frame()
    bias = model.detect_bias(train).to_frame()
    return model, parts.join(bias), surfaces(table, map_grid(table))
