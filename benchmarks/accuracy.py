"""Distance of each stage to the truth: the paper's 0-D and 1-D experiments over many seeds.

Every seed is a row of ``benchmarks/results/accuracy_rows.csv``. A row is written when its fit ends,
so that a killed run can be continued. Two chains of 500 draws are enough for averages over seeds.

``python benchmarks/accuracy.py gamma wave-100 wave-500 [--calibration cgp]``
"""

import argparse
import time
import warnings

import numpy as np
import pandas as pd
from sklearn.metrics import root_mean_squared_error
from stages import EXPERTS
from statsmodels.nonparametric.kernel_density import KDEMultivariateConditional
from store import resume

from bne import BNERegressor
from bne.datasets import make_gamma_0d, make_wave_1d
from bne.metrics import l1_distance

GRID = np.linspace(-5, 5, 101)
SETTINGS = {"chains": 2, "draws": 500, "random_state": 0, "n_jobs": 2}
CASES = {"gamma": range(1, 21), "wave-100": range(1, 11), "wave-500": range(1, 11)}


def fit(data, experts, inputs, calibration):
    model = BNERegressor(experts, inputs=inputs, calibration=calibration, **SETTINGS)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return model.fit(data.X, data.y)


def gamma(seed, calibration):
    """0-D: L1 of each stage and of the empirical CDF, and the modes (the true mode is 1)."""
    data = make_gamma_0d(100, random_state=seed)
    model = fit(data, [("constant", "constant")], [], calibration)
    row, here = {}, data.X[:1]
    y = np.linspace(-15.0, 40.0, 20_001)
    true_cdf = data.truth.cdf(y, 0.0)
    for stage in ("ensemble", "full"):
        law = model.predict_distribution(here, stage=stage)
        row[f"l1_{stage}"] = np.trapezoid(np.abs(law.cdf(y[None])[0] - true_cdf), y)
        row[f"mode_{stage}"] = law.mode()[0]
    steps = np.searchsorted(np.sort(data.y), y, side="right") / len(data.y)
    return row | {"l1_empirical": np.trapezoid(np.abs(steps - true_cdf), y)}


def wave(seed, n, calibration):
    """1-D, first variant: L1, RMSE and NLL of each stage, and of conditional KDE."""
    data = make_wave_1d(n, random_state=seed)
    model = fit(data, EXPERTS, ["x"], calibration)
    on_grid, fresh = data.features(GRID), data.sample(1000, random_state=seed)
    truth = data.truth.distribution(GRID)
    row = {"nll_truth": -np.mean(np.log(data.truth.pdf(fresh.y, fresh.X["x"])))}
    for stage in ("ensemble", "additive", "full"):
        law = model.predict_distribution(on_grid, stage=stage)
        row[f"l1_{stage}"] = l1_distance(law, truth)
        row[f"rmse_{stage}"] = root_mean_squared_error(data.truth.mean(GRID), law.mean())
        row[f"nll_{stage}"] = -np.mean(model.predict_distribution(fresh.X, stage).logpdf(fresh.y))
    return row | conditional_kde(data)


def conditional_kde(data):
    """Return the L1 of conditional KDE by statsmodels, with cross-validated bandwidths."""
    x = data.X[["x"]].to_numpy()
    kde = KDEMultivariateConditional(data.y, x, dep_type="c", indep_type="c", bw="cv_ml", rng=0)
    y = np.linspace(-12.0, 25.0, 741)
    gaps = []
    for x0 in GRID:
        cdf = kde.cdf(y[:, None], np.full((len(y), 1), x0))
        true_cdf = data.truth.cdf(y, np.full(len(y), x0))
        gaps.append(np.trapezoid(np.abs(cdf - true_cdf), y))
    return {"l1_kde": np.mean(gaps), "kde_bandwidth_y": kde.bw[0], "kde_bandwidth_x": kde.bw[1]}


def accuracy(case, calibration, seed):
    start = time.perf_counter()
    _, *n = case.split("-")
    result = wave(seed, int(n[0]), calibration) if n else gamma(seed, calibration)
    return result | {"seconds": time.perf_counter() - start}


def run(cases=tuple(CASES), calibration="logistic", seeds=None):
    """Run what is not stored yet, and return the means by case."""
    keys = [
        {"case": case, "calibration": calibration, "seed": seed}
        for case in cases
        for seed in seeds or CASES[case]
    ]
    done = resume("accuracy_rows", keys, accuracy)
    means = done.groupby(["case", "calibration"]).mean().drop(columns="seed")
    means.insert(0, "seeds", done.groupby(["case", "calibration"]).size())
    return means.reset_index().to_dict("records")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("cases", nargs="*", default=list(CASES))
    parser.add_argument("--calibration", default="logistic")
    parser.add_argument("--seeds", type=int, nargs="*")
    print(pd.DataFrame(run(**vars(parser.parse_args()))).T.to_string())
