"""Prediction of a large grid by the command line: memory and rows per second."""

import sys
import tempfile
import time
import warnings

import numpy as np
import pandas as pd
import psutil
from scaling_world import EXPERTS, SHORT, World, features, regressor
from store import resume

from bne._answers import table
from bne._regressor.wide_table import wide_table

ROWS = 1_000_000
"""Rows of the grid."""


def predicted(rows):
    """Run `bne predict` on a large grid: memory, and rows per second."""
    world = World(500)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = regressor(**SHORT).fit(world.X, world.y)
    grid = features(np.random.default_rng(1).uniform(-3.0, 3.0, size=(rows, 2)))
    with tempfile.TemporaryDirectory() as folder:
        files = [f"{folder}/{name}" for name in ("model.bne", "grid.parquet", "out.parquet")]
        model.save(files[0])
        grid.to_parquet(files[1])
        command = [sys.executable, "-m", "bne", "predict", *files[:2], "-o", files[2]]
        seconds, whole, largest = watched([*command, "--jobs", "2"])
        found = pd.read_parquet(files[2]).iloc[:: rows // 20]
    same = wide_table(model, grid.iloc[:: rows // 20])
    return {
        "draws": len(table.prepare(model._fitted()).wholes[0].draws.sigma_eps),
        "seconds": seconds,
        "rows_per_second_per_core": rows / seconds / 2,
        "limit_rows_per_second": matmul_rate() / flops_per_row(model),
        "all_processes_gb": whole,
        "largest_process_gb": largest,
        "largest_difference": np.max(np.abs(found[same.columns].to_numpy() - same.to_numpy())),
    }


def watched(command):
    """Run a command. Return the seconds, and the peak memory of all processes and of the largest.

    Memory that processes share is counted once (PSS).
    """
    start = time.perf_counter()
    run = psutil.Popen(command)
    whole = largest = 0.0
    while run.poll() is None:
        sizes = [size for p in [run, *children(run)] if (size := proportional(p))]
        whole, largest = max(whole, sum(sizes)), max(largest, *sizes, 0.0)
        time.sleep(1.0)
    if run.returncode:
        raise RuntimeError(f"{command} ended with {run.returncode}")
    return time.perf_counter() - start, whole / 2**30, largest / 2**30


def children(process):
    """Return the processes that a process has started."""
    try:
        return process.children(recursive=True)
    except psutil.NoSuchProcess:
        return []


def proportional(process):
    """Return the memory of a process in bytes, 0 if it has just ended."""
    try:
        return process.memory_full_info().pss
    except psutil.Error:
        return 0


def flops_per_row(model):
    """Count the multiplications and additions in the matrix products for one row."""
    answerer = table.prepare(model._fitted())
    whole, forms = answerer.wholes[0], answerer.gaussians[0].forms
    S, m = whole.draws.terms["residual"].coefficients.shape
    _, m_G, P = whole.draws.calibration.W.shape
    K = len(EXPERTS)
    features = 2 * 4 * (m + m_G * P)  # four nodes of the length-scale's grid
    tables = 2 * 31 * (16 + 2 * 81)
    variances = 2 * np.count_nonzero(np.any(forms, axis=(2, 3))) * (K + m) ** 2
    return S * (features + tables) + variances


def matmul_rate():
    """Measure the floating-point operations per second of one core."""
    from bne._base.threads import single_blas_thread

    a = np.random.default_rng(0).normal(size=(1500, 1500))
    with single_blas_thread():
        a @ a
        times = []
        for _ in range(3):
            start = time.perf_counter()
            a @ a
            times.append(time.perf_counter() - start)
    return 2.0 * 1500**3 / min(times)


def predict(rows=ROWS):
    """Predict one large grid."""
    return resume("scaling_predict", [{"rows": rows}], predicted).assign(case="predict")
