"""One row of scores for any predictive distribution."""

import time
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from bne import BNERegressor
from bne._base.typing import Array

STAGES = {"ensemble": "ensemble", "additive": "BAE", "full": "BNE"}
GROUPS = ("bne", "comparators")
"""Methods that are run and stored together: a change of bne makes the first stale alone."""

LEVELS = (0.5, 0.8, 0.9, 0.95)
KDE_ROWS = 2000
"""Cross-validating a kernel estimate costs their square, hundreds of times."""

Predict = Callable[[pd.DataFrame], Any]


def read_paired(path: Path, keys: list[str]) -> pd.DataFrame:
    """Rows of the data sets (told apart by `keys`) on which every group of methods has run.

    So a run that is not finished compares all methods on the same data sets.
    """
    rows = pd.read_csv(path)
    groups = rows.groupby(keys)["group"].transform("nunique")
    return rows[groups == len(GROUPS)]


def calibration_scores(law: Any, y: Array) -> dict[str, float]:
    """Negative log score and coverage at outcomes; a law without density has no log score.

    An outcome is in the central interval where its CDF value is near enough to a half.
    """
    row = {"nll": -float(np.mean(law.logpdf(y))) if hasattr(law, "logpdf") else np.nan}
    distance = np.abs(law.cdf(y) - 0.5)
    return row | {
        f"coverage_{100 * level:.0f}": float(np.mean(distance <= 0.5 * level)) for level in LEVELS
    }


def observed_scores(law: Any, y: Array) -> dict[str, float]:
    """CRPS and RMSE, and `calibration_scores`."""
    row = {
        "crps": float(np.mean(law.crps(y))),
        "rmse": float(np.sqrt(np.mean((law.mean() - y) ** 2))),
    }
    return row | calibration_scores(law, y)


def fitted_stages(
    X: pd.DataFrame, y: Array, experts: list[str], inputs: list[str], **settings: Any
) -> tuple[BNERegressor, float]:
    """Fit BNE on columns; the model and the seconds it took. Short chains are not warned of."""
    start = time.perf_counter()
    model = BNERegressor([(name, name) for name in experts], inputs=inputs, **settings)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(X[[*inputs, *experts]], y)
    return model, time.perf_counter() - start


def comparators(experts: list[str], inputs: list[str], n: int, seed: int) -> dict[str, Any]:
    """Every other method by its short name, unfitted, where it is defined and affordable."""
    from bne import baselines

    both = {"experts": experts, "inputs": inputs, "random_state": seed}
    methods = {
        "CondKDE": baselines.ConditionalKDE(inputs),
        "stack": baselines.BayesianStacking(experts, random_state=seed),
        "BME": baselines.MixtureOfExperts(**both),
        "DeepEns": baselines.DeepEnsemble(**both),
        "NGBoost": baselines.NaturalGradientBoosting(**both),
        "QRF": baselines.QuantileForest(**both),
    }
    if len(inputs) not in (1, 2, 3) or n > KDE_ROWS:
        del methods["CondKDE"]
    if not inputs:
        del methods["BME"]
    if len(experts) == 1:
        del methods["stack"]
    return methods


def stages_of(model: BNERegressor) -> dict[str, Predict]:
    """The three stages by their short names."""
    return {
        name: partial(model.predict_distribution, stage=stage) for stage, name in STAGES.items()
    }


def fitted_comparators(
    X: pd.DataFrame, y: Array, experts: list[str], inputs: list[str], seed: int
) -> Iterator[tuple[str, Predict, float]]:
    """Name, function of X to a predictive distribution, and seconds to fit."""
    for name, method in comparators(experts, inputs, len(y), seed).items():
        start = time.perf_counter()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            method.fit(X, y)
        yield name, method.predict_distribution, time.perf_counter() - start
