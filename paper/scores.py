"""Fits of BNE and of the comparators, and their scores: one row for each method and data set."""

import time
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from bne import BNERegressor, baselines
from bne._base.typing import Array
from bne._stage_names import SHORT_NAMES

GROUPS = ("bne", "comparators")
"""Methods that are run and stored together. After a change of bne only the first group is rerun."""

LEVELS = (0.5, 0.8, 0.9, 0.95)
"""Nominal coverage of the central intervals that are scored."""

Predict = Callable[[pd.DataFrame], Any]
"""Function of rows X that returns a predictive distribution."""


def read_paired(path: Path, keys: list[str]) -> pd.DataFrame:
    """Read the rows of those data sets on which every group of methods has run.

    The columns `keys` say which data set a row belongs to. A run that is not finished thus compares
    all methods on the same data sets.
    """
    rows = pd.read_csv(path)
    groups = rows.groupby(keys)["group"].transform("nunique")
    return rows[groups == len(GROUPS)]


def calibration_scores(law: Any, y: Array) -> dict[str, float]:
    """Return the mean negative log density of the outcomes, and the coverage of the intervals.

    A distribution without a density has no log density (NaN). An outcome lies in the central
    interval of coverage c if its CDF value is at most c / 2 away from 1/2.
    """
    row = {"nll": -float(np.mean(law.logpdf(y))) if hasattr(law, "logpdf") else np.nan}
    distance = np.abs(law.cdf(y) - 0.5)
    return row | {
        f"coverage_{100 * level:.0f}": float(np.mean(distance <= 0.5 * level)) for level in LEVELS
    }


def observed_scores(law: Any, y: Array) -> dict[str, float]:
    """Return the mean CRPS, the RMSE, and what `calibration_scores` returns."""
    row = {
        "crps": float(np.mean(law.crps(y))),
        "rmse": float(np.sqrt(np.mean((law.mean() - y) ** 2))),
    }
    return row | calibration_scores(law, y)


def fitted_stages(
    X: pd.DataFrame, y: Array, experts: list[str], inputs: list[str], **settings: Any
) -> tuple[BNERegressor, float]:
    """Fit BNE to a frame and return the model and the seconds it took.

    Warnings about short chains are not shown.
    """
    start = time.perf_counter()
    model = BNERegressor([(name, name) for name in experts], inputs=inputs, **settings)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(X[[*inputs, *experts]], y)
    return model, time.perf_counter() - start


def stages_of(model: BNERegressor) -> dict[str, Predict]:
    """Return the predictions of the three stages by their short names."""
    return {
        name: partial(model.predict_distribution, stage=stage)
        for stage, name in SHORT_NAMES.items()
    }


def fitted_comparators(
    X: pd.DataFrame, y: Array, experts: list[str], inputs: list[str], seed: int
) -> Iterator[tuple[str, Predict, float]]:
    """Fit every comparator that the data allow: its name, its predictions, and the seconds."""
    for name, method in baselines.comparators(experts, inputs, len(y), seed).items():
        start = time.perf_counter()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            method.fit(X, y)
        yield name, method.predict_distribution, time.perf_counter() - start
