"""The experts' weights explained: their posterior, and what each expert carries."""

import warnings
from collections.abc import Sequence

import numpy as np
import pandas as pd

from bne._base.typing import Array
from bne._law.averaged import average_draws

COLLINEAR = 0.99
"""Correlation of two experts' predictions from which on their weights cannot be told apart."""


def weights_table(
    omegas: Sequence[Array], f: Array, names: list[str], coverage: float
) -> pd.DataFrame:
    """Posterior of the weights, (S, K) a shard, and shares of the ensemble's variance over rows.

    An expert's share is the covariance of its term with the whole, over the variance of the whole:
    shares add up to 1 in every draw, and are negative where a term works against the others.
    """
    tail = 0.5 * (1.0 - coverage)
    omega = average_draws(omegas)
    lower, upper = np.quantile(omega, [tail, 1.0 - tail], axis=0)
    covariance = np.cov(f, rowvar=False).reshape(len(names), len(names))
    joint = np.concatenate(list(omegas))
    carried = joint * (joint @ covariance)
    whole = np.sum(carried, axis=1, keepdims=True)
    share = carried / np.where(whole > 0, whole, np.nan)
    return pd.DataFrame(
        {
            "mean": np.mean(omega, axis=0),
            "sd": np.std(omega, axis=0),
            "lower": lower,
            "upper": upper,
            "prob_positive": np.mean(omega > 0, axis=0),
            "variance_share": np.nanmean(share, axis=0) if np.any(whole > 0) else np.nan,
        },
        index=pd.Index(names, name="expert"),
    )


def warn_if_collinear(f: Array, names: list[str]) -> None:
    """Name the pairs of experts whose predictions are too alike for separate weights."""
    spread = np.std(f, axis=0)
    varying = np.flatnonzero(spread > 1e-12 * np.max(np.abs(f), initial=1.0))
    correlation = np.corrcoef(f[:, varying], rowvar=False).reshape(len(varying), len(varying))
    i, j = np.nonzero(np.triu(np.abs(correlation) > COLLINEAR, k=1))
    if len(i):
        pairs = ", ".join(
            f"{names[varying[a]]} and {names[varying[b]]}" for a, b in zip(i, j, strict=True)
        )
        warnings.warn(
            f"Predictions correlate by more than {COLLINEAR}: {pairs}. The sum of their weights is "
            "known, their difference hardly; read the weights together or leave one out.",
            stacklevel=3,
        )
