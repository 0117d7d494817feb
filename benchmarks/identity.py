"""Six small fits with fixed seeds, and all their answers, to compare two commits bit by bit.

``python benchmarks/identity.py write before.npz`` at the old commit, then ``python
benchmarks/identity.py compare before.npz`` at the new one, on the same machine. About two minutes.
"""

import sys
import warnings

import numpy as np
import pandas as pd

from bne import BNERegressor
from bne.datasets import make_gamma_0d, make_wave_1d

EXPERTS = [(c, c) for c in ("rbf_short", "rbf_long", "periodic")]
SHORT = {"chains": 2, "warmup": 60, "draws": 60, "random_state": 0}
STAGES = ("ensemble", "additive", "full")


def wave(n=60, **changes):
    """Fit the 1-D experiment; return the model and the rows to predict."""
    data = make_wave_1d(n, random_state=1)
    model = BNERegressor(EXPERTS, inputs=["x"], **(SHORT | changes))
    return model.fit(data.X, data.y), data.features(np.array([-60.0, -4.0, 0.0, 1.3, 4.0, 9.0]))


def shared_places():
    """Fit twelve places with ten rows each."""
    rng = np.random.default_rng(0)
    x = np.repeat(rng.uniform(-2.0, 2.0, size=(12, 2)), 10, axis=0)
    f = np.column_stack([np.sin(x[:, 0]), x[:, 1]]) + 0.1 * rng.normal(size=(120, 2))
    X = pd.DataFrame(np.column_stack([x, f]), columns=["a", "b", "one", "two"])
    y = f @ [0.6, 0.4] + 0.3 * rng.gamma(2.0, size=120)
    model = BNERegressor([("one", "one"), ("two", "two")], inputs=["a", "b"], **SHORT)
    return model.fit(X, y), X.iloc[::17]


def no_inputs():
    """Fit the 0-D experiment, which has weights and G but no residual process."""
    data = make_gamma_0d(60, random_state=1)
    model = BNERegressor([("constant", "constant")], inputs=[], **SHORT)
    return model.fit(data.X, data.y), data.X[:2]


FITS = {
    "logistic": wave,
    "cgp": lambda: wave(calibration="cgp", chains=1, warmup=40, draws=40),
    "partitions": lambda: wave(n=120, partitions=3),
    "places": shared_places,
    "orthogonalised": lambda: wave(orthogonalize=True),
    "no_inputs": no_inputs,
}


def answers(model, X):
    """Yield draws, predictions, decompositions and bias tables by name."""
    shards = model.partitions
    for stage in STAGES:
        for shard in range(shards):
            tree = model.to_datatree(stage=stage, shard=shard)
            for group in ("posterior", "unconstrained_posterior", "log_likelihood", "sample_stats"):
                for name, values in tree[group].dataset.data_vars.items():
                    yield f"{stage}/draws{shard}/{group}/{name}", values.values
        law = model.predict_distribution(X, stage=stage)
        middle = law.mean()
        yield f"{stage}/mean", middle
        yield f"{stage}/sd", law.std()
        yield f"{stage}/quantiles", law.ppf(np.tile([0.05, 0.5, 0.95], (len(X), 1)))
        yield f"{stage}/cdf", law.cdf(middle)
        yield f"{stage}/logpdf", law.logpdf(middle)
        yield f"{stage}/crps", law.crps(middle + 0.5)
        yield f"{stage}/sample", law.sample(5, random_state=0)
        for measure in ("entropy", "variance"):
            frame = model.decompose(X, measure=measure, stage=stage).to_frame(errors=True)
            yield f"{stage}/{measure}", frame.to_numpy()
        yield f"{stage}/weights", model.explain_weights(stage).to_numpy()
    for statistic in ("mean", "variance", "skewness", "modes", "median", 0.9):
        frame = model.detect_bias(X, statistic).to_frame().drop(columns="verdict")
        yield f"bias/{statistic}", frame.to_numpy()


def everything():
    """Return all answers of all fits."""
    found = {}
    for name, fit in FITS.items():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found |= {f"{name}/{k}": np.asarray(v) for k, v in answers(*fit())}
        print(f"{name}: {len(found)} arrays", flush=True)
    return found


def compare(before, now):
    """Print what differs, and return the number of arrays that differ."""
    names = sorted(before.keys() | now.keys())
    different = 0
    for name in names:
        old, new = before.get(name), now.get(name)
        if old is None or new is None or old.shape != new.shape:
            print(f"{name}: {'new' if old is None else 'gone' if new is None else 'other shape'}")
        elif not np.array_equal(old, new, equal_nan=True):
            print(f"{name}: by {np.nanmax(np.abs(old - new)):.3g} at the most")
        else:
            continue
        different += 1
    print(f"{different} of {len(names)} arrays differ")
    return different


if __name__ == "__main__":
    command, path = sys.argv[1:]
    if command == "write":
        np.savez(path, **everything())
    else:
        with np.load(path) as stored:
            sys.exit(compare({k: stored[k] for k in stored.files}, everything()) > 0)
