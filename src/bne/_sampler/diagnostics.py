"""Checks of the sampling: R-hat, effective sample size (ESS), divergences and E-BFMI."""

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from arviz_stats.base.array import array_stats

from bne._base.typing import Array
from bne._base.warnings import SamplingWarning

MAX_R_HAT = 1.01
"""R-hat above this raises a warning: the chains do not agree yet. It is the customary limit."""

MIN_ESS = 400
"""An ESS below this raises a warning: ends of intervals are not known well.

It is the customary limit, 100 for each of four chains.
"""

MIN_BFMI = 0.3
"""E-BFMI below this (the customary limit) raises a warning: chains explore the tails slowly."""

MAX_PILOT_R_HAT = 1.1
"""R-hat of a pilot above this raises a warning.

Only the means of a pilot are used, so a looser limit than `MAX_R_HAT` will do.
"""


def summarise_chains(quantities: dict[str, Array]) -> pd.DataFrame:
    """Find mean, sd, ESS and R-hat of named quantities (chain, draw) with ArviZ."""
    rows = {name: _summary(values) for name, values in quantities.items()}
    return pd.DataFrame.from_dict(rows, orient="index").astype(float)


def _summary(values: Array) -> dict[str, Any]:
    """Find the row of one quantity (chain, draw); what cannot be computed is NaN."""
    known = {"mean": np.mean(values), "sd": np.std(values, ddof=1)}
    if np.ptp(values) == 0:
        return known | dict.fromkeys(("ess_bulk", "ess_tail", "r_hat"), np.nan)
    axes: dict[str, Any] = {"chain_axis": 0, "draw_axis": 1}
    with np.errstate(invalid="ignore", divide="ignore"):  # chains that never moved
        return known | {
            "ess_bulk": array_stats.ess(values, method="bulk", **axes),
            "ess_tail": array_stats.ess(values, method="tail", prob=(0.05, 0.95), **axes),
            "r_hat": array_stats.rhat(values, **axes),
        }


def health(
    quantities: Sequence[dict[str, Array]], statistics: Sequence[dict[str, Array]]
) -> tuple[pd.DataFrame, dict[str, Array]]:
    """Join the diagnostics of all shards in one table, and their sampler statistics by name."""
    tables = [summarise_chains(named) for named in quantities]
    if len(tables) > 1:
        tables = [t.rename(index=lambda n, i=i: f"shard {i}: {n}") for i, t in enumerate(tables)]
    joined = {k: np.concatenate([one[k] for one in statistics]) for k in statistics[0]}
    return pd.concat(tables), joined


def warn_if_unhealthy(stage: str, table: pd.DataFrame, statistics: dict[str, Array]) -> None:
    """Give one warning for a stage, which names each problem and its remedy."""
    problems = []
    divergences = int(np.sum(statistics["diverging"]))
    if divergences:
        problems.append(
            f"{divergences} divergent transitions: raise `target_acceptance` towards 0.99"
        )
    r_hat, ess = table["r_hat"], table[["ess_bulk", "ess_tail"]].min(axis=1)
    if r_hat.max() > MAX_R_HAT:
        problems.append(
            f"R-hat up to {r_hat.max():.3f} (> {MAX_R_HAT}: {_named(-r_hat, -MAX_R_HAT)}): raise "
            "`warmup` and `draws`"
        )
    if ess.min() < MIN_ESS:
        problems.append(
            f"effective sample size down to {ess.min():.0f} (< {MIN_ESS}: {_named(ess, MIN_ESS)}): "
            "raise `draws`"
        )
    varying = table["sd"] > 0  # a quantity that is held has no R-hat
    if np.any((r_hat.isna() | ess.isna()) & varying):
        chains, draws = statistics["energy"].shape
        problems.append(
            f"R-hat or effective sample size are not known from {chains} chain(s) of {draws} "
            "draws: raise `draws`, and have more than one chain"
        )
    bfmi = min((_bfmi(energy) for energy in statistics["energy"]), default=1.0)
    if bfmi < MIN_BFMI:
        problems.append(f"E-BFMI {bfmi:.2f} (< {MIN_BFMI}): raise `warmup`")
    if problems:
        message = "; ".join(problems)
        warnings.warn(f"The {stage} stage: {message}.", SamplingWarning, stacklevel=5)


def _bfmi(energy: Array) -> float:
    """Find E-BFMI of one chain; a trajectory that broke off may have an infinite energy."""
    energy = energy[np.isfinite(energy)]
    varies = len(energy) > 1 and np.ptp(energy) > 0
    return float(array_stats.bfmi(energy[None])[0]) if varies else 1.0


def _named(values: pd.Series, limit: float, most: int = 3) -> str:
    """Name the values below a limit, the lowest first; at most `most` names are spelled out."""
    names = list(values[values < limit].sort_values().index)
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")


def warn_if_unsettled(quantities: dict[str, Array]) -> None:
    """Warn if the chains of a pilot do not agree: all shards get its hyperparameters."""
    worst = summarise_chains(quantities)["r_hat"].max()
    if worst > MAX_PILOT_R_HAT:
        warnings.warn(
            f"The pilot that finds the shards' hyperparameters has R-hat up to {worst:.2f} "
            f"(> {MAX_PILOT_R_HAT}): raise `warmup`.",
            SamplingWarning,
            stacklevel=7,
        )
