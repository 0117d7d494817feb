"""All answers at the rows of a frame as one wide table, in chunks: memory does not grow."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pandas as pd

from bne._bias import summarise

CHUNK = 500
"""Rows at a time."""

QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)
PARTS = (
    "total",
    "aleatoric",
    "epistemic",
    "parametric",
    "structural_delta",
    "structural_G",
    "hyperparameters",
)


def answers(
    model: Any,
    X: pd.DataFrame,
    *,
    quantiles: Sequence[float] = QUANTILES,
    progress: Callable[[int], object] = lambda n: None,
) -> pd.DataFrame:
    """Mean, sd, quantiles, parts of the variance and probability of bias, one row a row of X.

    Columns: ``mean sd q05 ... variance_total ... variance_hyperparameters bias
    prob_models_too_low``.
    """
    tables = []
    for first in range(0, len(X), CHUNK):
        part = X.iloc[first : first + CHUNK]
        tables.append(_answers(model, part, quantiles))
        progress(len(part))
    return pd.concat(tables)


def _answers(model: Any, X: pd.DataFrame, quantiles: Sequence[float]) -> pd.DataFrame:
    parts = model.decompose(X, measure="variance")
    values = model.predict_quantiles(X, quantiles)
    delta = model._stage("full").thinned().delta(model._rows(X)) * model.scaling_.y_scale
    bias = summarise(delta, 0.9)  # as in `detect_bias`, which looks at G besides
    columns = {"mean": parts.mean, "sd": np.sqrt(parts.total)}
    columns |= {quantile_name(q): values[q].to_numpy() for q in values}
    columns |= {f"variance_{name}": getattr(parts, name) for name in PARTS}
    columns |= {"bias": bias.mean, "prob_models_too_low": bias.prob_positive}
    return pd.DataFrame(columns, index=X.index)


def quantile_name(level: float) -> str:
    """``q05`` for .05, ``q97.5`` for .975."""
    percent = f"{100 * level:g}"
    return "q" + (percent.zfill(2) if "." not in percent else percent)
