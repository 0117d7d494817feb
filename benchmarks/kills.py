"""Fits killed at random times: when continued, each must give the draws of an unbroken fit.

``python benchmarks/kills.py [kills]`` continues where it was stopped. A kill takes half a minute.
"""

import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from store import resume

from bne import BNERegressor
from bne._sampler import checkpoint as _checkpoint
from bne.datasets import make_wave_1d

KILLS = 20
STAGES = ("ensemble", "additive", "full")


def fit(folder):
    """Make a short fit that writes every block of draws to disk."""
    _checkpoint.INTERVAL = 0.0
    data = make_wave_1d(60, random_state=2)
    experts = [(c, c) for c in ("rbf_short", "rbf_long", "periodic")]
    settings = {"inputs": ["x"], "chains": 2, "warmup": 200, "draws": 300, "random_state": 0}
    return BNERegressor(experts, checkpoint=folder, **settings).fit(data.X, data.y)


def positions(model):
    """Return all draws of all stages."""
    return {name: stage.draws.position for name, stage in model.posterior_.shards[0].stages.items()}


def start(folder):
    """Start `fit` in a process of its own."""
    return subprocess.Popen([sys.executable, __file__, "fit", str(folder)])


class Unbroken:
    """A fit that is not killed: its draws, and its number of blocks on disk."""

    def __init__(self):
        with tempfile.TemporaryDirectory() as folder:
            start(folder).wait()
            self.blocks = blocks(folder)
            self.draws = positions(fit(folder))


def blocks(folder):
    """Count the blocks of draws on disk."""
    return len(list(Path(folder).rglob("*.npz")))


def killed(kill, unbroken):
    """Kill a fit at a random time, continue it, and compare.

    The time is uniform over the blocks of the fit, not over its seconds, half of which are
    compilation.
    """
    rng = np.random.default_rng(kill)
    interrupted = False
    while not interrupted:  # a fit may end before it is killed; then try again
        with tempfile.TemporaryDirectory() as name:
            target, process = rng.integers(unbroken.blocks), start(name)
            while blocks(name) < target and process.poll() is None:
                time.sleep(0.01)
            time.sleep(rng.uniform(0.0, 0.3))
            process.kill()
            interrupted = process.wait() == -signal.SIGKILL
            if interrupted:
                left = {stage: blocks(Path(name) / stage) for stage in STAGES}
                found = positions(fit(name))
    same = all(np.array_equal(found[k], v) for k, v in unbroken.draws.items())
    return left | {"of": unbroken.blocks, "identical": same}


def run(kills=KILLS):
    """Run what is not stored yet, and return all rows."""
    unbroken = Unbroken()
    keys = [{"kill": i} for i in range(kills)]
    rows = resume("kills_rows", keys, lambda kill: killed(kill, unbroken))
    return rows.to_dict("records")


if __name__ == "__main__":
    if sys.argv[1:2] == ["fit"]:
        fit(sys.argv[2])
    else:
        rows = run(int(sys.argv[1]) if len(sys.argv) > 1 else KILLS)
        good = sum(row["identical"] for row in rows)
        print(f"{good} of {len(rows)} identical")
