"""Diagnostics and time of the full stage with default settings, on the 1-D experiment.

``python benchmarks/health.py`` fits all cases in one process; only the first fit has to compile.
When a case ends, it is stored in ``benchmarks/results/health_rows.csv``, so that a killed run can
be continued.
"""

import time
import warnings

import numpy as np
import pandas as pd
from arviz_stats.base.array import array_stats
from stages import EXPERTS
from store import resume

from bne import BNERegressor
from bne._law.conditional import conditional_draws
from bne.datasets import make_wave_1d

AXES = {"chain_axis": 0, "draw_axis": 1}


def table(model):
    """Return ESS and R-hat of three kinds of quantities of the full stage.

    The kind "named" holds weights, scales, length-scales, and F(y|x) at 20 pairs (y, x). The kind
    "row" holds delta and E[y|x] at every training row. The kind "raw" holds the coordinates of the
    sampler.
    """
    stage, posterior = model._stages("full")[0], model.posterior_
    draws, rows, y = stage.draws, posterior.rows, posterior.y
    pairs = np.linspace(0, len(y) - 1, 20).astype(int)
    at = conditional_draws(stage, type(rows)(rows.x[pairs], rows.f[pairs]))
    levels = np.quantile(y, np.linspace(0.1, 0.9, 20))
    F = at.ratio.cdf(at.standardise(levels, np.arange(20)), np.arange(20))
    named = stage.quantities(model.expert_names_)
    named |= {f"F(y|x)[{i}]": draws.by_chain(F[:, i]) for i in range(20)}
    delta, mean = stage.value("residual", rows), means(stage, rows)
    by_row = {f"delta[{i}]": draws.by_chain(delta[:, i]) for i in range(len(y))}
    by_row |= {f"E[y|x][{i}]": draws.by_chain(mean[:, i]) for i in range(len(y))}
    raw = {f"raw[{i}]": draws.position[:, :, i] for i in range(draws.position.shape[2])}
    kinds = {"named": named, "row": by_row, "raw": raw}
    return pd.DataFrame(
        [{"kind": kind, "name": k} | health(v) for kind, q in kinds.items() for k, v in q.items()]
    )


def means(stage, rows, size=100):
    """Return E[y|x] of every draw at the rows, (S, n), computed a few rows at a time."""
    parts = [slice(i, i + size) for i in range(0, len(rows.f), size)]
    draws = [conditional_draws(stage, rows.part(p)).moments()[0] for p in parts]
    return np.concatenate(draws, axis=1)


def health(values):
    return {
        "r_hat": float(array_stats.rhat(values, **AXES)),
        "ess_bulk": float(array_stats.ess(values, method="bulk", **AXES)),
        "ess_tail": float(array_stats.ess(values, method="tail", prob=(0.05, 0.95), **AXES)),
    }


CASES = [("logistic", 500), ("logistic", 100), ("logistic", 1000), ("cgp", 100)]
started = []


def fitted(calibration, n):
    """Fit one case. Return its time and the worst diagnostics of every kind of quantity."""
    data = make_wave_1d(n, random_state=1)
    model = BNERegressor(EXPERTS, inputs=["x"], calibration=calibration, random_state=0, n_jobs=2)
    cold = not started
    started.append(n)
    start = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(data.X, data.y)
    row = {"seconds": time.perf_counter() - start, "cold": cold}
    statistics = model._stages("full")[0].draws.statistics
    row["divergences"] = int(np.sum(statistics["diverging"]))
    row["steps_per_draw"] = float(np.mean(statistics["n_steps"]))
    for kind, part in table(model).groupby("kind"):
        row[f"{kind}_r_hat"] = part["r_hat"].max()
        row[f"{kind}_ess"] = part[["ess_bulk", "ess_tail"]].min(axis=None)
    return row


def run():
    """Run all cases."""
    keys = [{"calibration": calibration, "n": n} for calibration, n in CASES]
    return resume("health_rows", keys, fitted).to_dict("records")


if __name__ == "__main__":
    print(pd.DataFrame(run()).to_string())
