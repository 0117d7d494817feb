"""A simulated world for benchmarks with many rows, and models of it."""

import numpy as np
import pandas as pd

from bne import BNERegressor

EXPERTS = [f"model{k}" for k in range(8)]
SHORT = {"chains": 2, "warmup": 400, "draws": 200, "n_jobs": 2, "random_state": 0}
"""Few draws, but the warm-up of the defaults: after a shorter one the sampler has not yet found the
shape of the posterior."""


class World:
    """Data with two inputs, eight models and skewed noise.

    Each model has a smooth error of its own, and all of them share one more error.
    """

    def __init__(self, n, seed=0, places=None):
        rng = np.random.default_rng(seed)
        x = rng.uniform(-3.0, 3.0, size=(places or n, 2))
        self.X = features(x if places is None else x[rng.integers(places, size=n)])
        x = self.X[["a", "b"]].to_numpy()
        scale = 0.3 + 0.1 * np.cos(x[:, 1])
        self.y = truth(x) + scale * (rng.gamma(2.0, size=n) - 2.0)


def truth(x):
    """Return the mean of y at places x."""
    return np.sin(x[:, 0]) + 0.5 * np.cos(2.0 * x[:, 1]) + 0.3 * x[:, 0] * x[:, 1] / 3.0


def features(x):
    """Return a frame of the inputs and of the models' predictions at places x."""
    shared = 0.5 * np.exp(-0.5 * np.sum((x - 1.0) ** 2, axis=1) / 0.6**2)
    columns = {"a": x[:, 0], "b": x[:, 1]}
    for k, name in enumerate(EXPERTS):
        own = 0.3 * np.sin((1.0 + 0.2 * k) * x[:, 0] + k) * np.cos(0.5 * k + x[:, 1])
        columns[name] = truth(x) - shared + own
    return pd.DataFrame(columns)


def regressor(**settings):
    """Return an unfitted model of this world."""
    return BNERegressor([(c, c) for c in EXPERTS], inputs=["a", "b"], **settings)
