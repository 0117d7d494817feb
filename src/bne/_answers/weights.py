"""The experts' weights: their posterior, and each expert's share of the variance."""

import warnings
from collections.abc import Sequence

import numpy as np
import pandas as pd

from bne._base.checks import check_levels
from bne._base.typing import Array
from bne._law.averaged import average_draws

COLLINEAR = 0.99
"""If the predictions of two experts correlate by more than this, a warning names the two.

The data then hardly tell their weights apart. A lower limit would warn about most ensembles, whose
models are usually much alike.
"""


def weights_table(
    omegas: Sequence[Array], f: Array, names: list[str], coverage: float
) -> pd.DataFrame:
    """Summarise the weights, and find each expert's share of the ensemble's variance over rows.

    An expert's share is the covariance of its term ``omega_k f_k`` with the sum of all terms,
    divided by the variance of that sum. The shares add up to 1 in every draw. A share is negative
    if its term works against the others.

    Parameters
    ----------
    omegas : list of (S, K)
        Draws of the weights, for every shard.
    f : (n, K)
        The experts' predictions at the training rows.
    """
    check_levels(coverage, "coverage")
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
    """Warn about pairs of experts whose predictions are too alike for separate weights."""
    spread = np.std(f, axis=0)
    varying = np.flatnonzero(spread > 1e-12 * np.max(np.abs(f), initial=1.0))
    correlation = np.corrcoef(f[:, varying], rowvar=False).reshape(len(varying), len(varying))
    i, j = np.nonzero(np.triu(np.abs(correlation) > COLLINEAR, k=1))
    if len(i):
        pairs = ", ".join(
            f"{names[varying[a]]} and {names[varying[b]]}" for a, b in zip(i, j, strict=True)
        )
        warnings.warn(
            f"Predictions correlate by more than {COLLINEAR}: {pairs}. The data know the sum of "
            "the weights of such a pair, but hardly their difference. Read these weights together, "
            "or leave one of the two models out.",
            stacklevel=3,
        )
