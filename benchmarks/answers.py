"""Check the full stage's decomposition and bias by simulation.

Every fit is a row of ``benchmarks/results/answers_*.csv``. A row is written when its fit ends, so
that a killed run can be continued. ``python benchmarks/answers.py entropy spread`` runs two cases;
the others are ``bump``, ``alarms`` and ``shape``.
"""

import argparse
import warnings

import numpy as np
import pandas as pd
from scipy import stats
from stages import EXPERTS
from store import resume

from bne import BNERegressor
from bne._law.conditional import conditional_draws
from bne.datasets import make_wave_1d
from paper import maps

SETTINGS = {"chains": 2, "warmup": 300, "draws": 400, "random_state": 0, "n_jobs": 2}
INSIDE = np.linspace(-4.5, 4.5, 46)
NOISE = 0.3
CENTRE, WIDTH = 0.35, 0.1
"""Centre of the planted bump, and its full width at half height: a tenth of the range."""


def fit(X, y, experts, inputs, **settings):
    """Fit a model; warnings about short chains are not shown."""
    model = BNERegressor(experts, inputs=inputs, **(SETTINGS | settings))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return model.fit(X, y)


def entropy(n, seed):
    """1-D: compare the aleatoric entropy with the true one inside the data; average the parts."""
    data = make_wave_1d(n, random_state=seed)
    model = fit(data.X, data.y, EXPERTS, ["x"])
    parts = model.decompose(data.features(INSIDE))
    truth = data.truth.entropy(INSIDE)
    far = model.decompose(data.features(np.array([5.0, 8.0, 12.0, 20.0, 60.0, 200.0])))
    row = {
        "correlation": np.corrcoef(parts.aleatoric, truth)[0, 1],
        "mean_absolute_error": np.mean(np.abs(parts.aleatoric - truth)),
        "additive_spread": np.ptp(additive_aleatoric(model, data)),
    }
    row |= {f"mean_{k}": np.mean(v) for k, v in parts.to_frame().items()}
    return row | {f"delta_{i}": v for i, v in enumerate(far.structural_delta)}


def additive_aleatoric(model, data):
    """Return the entropy of the noise in the additive stage; it should be equal at all places."""
    at = conditional_draws(model._stages("additive")[0], model._rows(data.features(INSIDE)))
    return np.mean(at.entropy(), axis=0)


def spread(map, n, seed):
    """2-D: the rank correlation of the parametric part with the spread of the experts."""
    X, y, grid = twin(seed) if map == "twin" else square(map, n, seed)
    place, names = list(X.columns[:2]), list(X.columns[2:])
    parts = fit(X, y, [(k, k) for k in names], place).decompose(grid)
    disagreement = grid[names].std(axis=1)
    return {"rank_correlation": stats.spearmanr(parts.parametric, disagreement).statistic}


def square(map, n, seed):
    """Simulate rows at places of a square, and a grid; the truth is near the models' mean."""
    rng = np.random.default_rng(seed)
    frame = {"fields": experts_with_fields, "bump": experts_apart_at_one_place}[map](seed)
    x = rng.uniform(-1, 1, size=(n, 2))
    X = frame(x)
    y = X.iloc[:, 2:].mean(axis=1).to_numpy() + 0.3 * x[:, 0] + NOISE * rng.normal(size=n)
    side = np.linspace(-1, 1, 21)
    return X, y, frame(np.stack(np.meshgrid(side, side), axis=-1).reshape(-1, 2))


def twin(seed):
    """Return the twin of Figure 5: real monitors and exposure models, a simulated outcome."""
    table = maps.monitors()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return maps.twin_data(table, seed)[:3]


def experts_with_fields(seed):
    """Make four experts with smooth errors of their own, which are larger towards one corner."""
    rng = np.random.default_rng([seed, 5])
    waves = rng.normal(scale=2.0, size=(4, 8, 2))
    phases = rng.uniform(0, 2 * np.pi, size=(4, 8))

    def frame(x):
        fields = np.mean(np.cos(np.einsum("nd,kjd->knj", x, waves) + phases[:, None]), axis=2)
        size = 0.3 + 1.7 / (1.0 + np.exp(-3.0 * (x[:, 0] + x[:, 1])))
        base = np.sin(2.0 * x[:, 0]) + x[:, 1]
        experts = dict(zip("abcd", base + size * fields, strict=True))
        return pd.DataFrame({"lon": x[:, 0], "lat": x[:, 1], **experts})

    return frame


def experts_apart_at_one_place(seed):
    """Make three experts that differ around one place only.

    Elsewhere the parametric part is the uncertainty of their common level.
    """
    del seed

    def frame(x):
        far_apart = 1.5 * np.exp(-4.0 * np.sum((x - 0.4) ** 2, axis=1))
        base = np.sin(2.0 * x[:, 0]) + x[:, 1]
        wave = np.cos(3.0 * x[:, 1]) * far_apart
        experts = {"a": base + far_apart, "b": base - far_apart, "c": base + wave}
        return pd.DataFrame({"lon": x[:, 0], "lat": x[:, 1], **experts})

    return frame


def bump(height, orthogonalize, seed, n=300):
    """1-D: how surely a bump is found that all experts share; its height is in noise scales.

    Returns the probability of a bias at the centre of the bump, and the fraction of 50 random
    places at which there is evidence of one. Without a bump (height 0) these are false alarms.
    """
    rng = np.random.default_rng([seed, 7])

    def frame(x):
        shared = height * NOISE * np.exp(-4.0 * np.log(2.0) * ((x - CENTRE) / WIDTH) ** 2)
        base = np.sin(2 * np.pi * x) + shared
        return pd.DataFrame({"x": x, "a": base + 0.5 * x, "b": base - 0.5 * x})

    x = rng.uniform(size=n)
    y = np.sin(2 * np.pi * x) + NOISE * rng.normal(size=n)
    model = fit(frame(x), y, [("a", "a"), ("b", "b")], ["x"], orthogonalize=orthogonalize)
    places = np.append(CENTRE, rng.uniform(size=50))
    total = model.detect_bias(frame(places)).total
    return {
        "prob_too_high_at_centre": 1.0 - total.prob_positive[0],
        "share_flagged": np.mean(total.evidence[1:] > 0.9),
    }


def alarms(skewness, seed, n=300):
    """1-D: experts whose mean is right, and skewed noise; return the fraction of false alarms."""
    rng = np.random.default_rng([seed, 8])
    x, shape = rng.uniform(-2, 2, size=n), 4.0 / skewness**2
    mean, own = np.sin(2 * x) + 0.5 * x, 0.5 * np.cos(3 * x)
    X = pd.DataFrame({"x": x, "a": mean + own, "b": mean - own})
    y = mean + 0.5 * (rng.gamma(shape, size=n) - shape) / np.sqrt(shape)
    report = fit(X, y, [("a", "a"), ("b", "b")], ["x"]).detect_bias(X)
    flagged = {k: np.mean(getattr(report, k).evidence > 0.9) for k in ("total", "delta")}
    return {f"share_flagged_{k}": v for k, v in flagged.items()}


def shape(skew, seed, n=500):
    """1-D: noise skewed to the right (1), to the left (-1) or not (0), larger on the right half."""
    rng = np.random.default_rng([seed, 9])

    def frame(x):
        return pd.DataFrame({"x": x, "a": np.sin(2 * x), "b": x})

    x = rng.uniform(-2, 2, size=n)
    noise = skew * (rng.gamma(2.0, size=n) - 2.0) / np.sqrt(2.0)
    noise = noise if skew else rng.normal(size=n)
    y = 0.5 * np.sin(2 * x) + 0.3 * x + np.where(x > 0, 0.6, 0.3) * noise
    model = fit(frame(x), y, [("a", "a"), ("b", "b")], ["x"])
    places = frame(np.array([-1.5, -0.8, 0.8, 1.5]))
    G = {
        k: model.detect_bias(places, statistic=k).G.prob_positive for k in ("skewness", "variance")
    }
    names = ("far_left", "left", "right", "far_right")
    return {f"{k}_{place}": p for k, v in G.items() for place, p in zip(names, v, strict=True)}


CASES = {
    "entropy": (entropy, [{"n": n, "seed": 1} for n in (100, 300, 1000)]),
    "spread": (
        spread,
        [
            {"map": m, "n": n, "seed": s}
            for m, n in (("fields", 200), ("bump", 200), ("twin", 51))
            for s in (1, 2, 3)
            if m != "twin" or maps.monitors() is not None
        ],
    ),
    "bump": (
        bump,
        [{"height": 0.0, "orthogonalize": False, "seed": seed} for seed in range(10)]
        + [{"height": 2.0, "orthogonalize": False, "seed": seed} for seed in range(50)]
        + [{"height": h, "orthogonalize": True, "seed": s} for s in range(5) for h in (2.0, 0.0)],
    ),
    "alarms": (
        alarms,
        [{"skewness": k, "seed": s} for s in range(10) for k in (2.0, 1.0)],
    ),
    "shape": (shape, [{"skew": k, "seed": s} for k in (1, -1, 0) for s in (1, 2, 3)]),
}


def bump_summary(table):
    """Return how often the bump is found, and how often there is a false alarm."""
    results = []
    for orthogonalize, rows in table.groupby("orthogonalize"):
        planted, clean = rows[rows["height"] > 0], rows[rows["height"] == 0]
        found = np.mean(planted["prob_too_high_at_centre"] > 0.95)
        case = f"orthogonalize = {orthogonalize}"
        results += [
            {"case": f"{case}, bump: sets with P > .95 at its centre", "value": found}
            | {"sets": len(planted)},
            {"case": f"{case}, no bias: share of places with evidence > .9", "sets": len(clean)}
            | {"value": np.mean(clean["share_flagged"])},
        ]
    return results


def run(cases=tuple(CASES)):
    """Run what is not stored yet, and return a summary of all rows."""
    results = []
    for case in cases:
        compute, keys = CASES[case]
        table = resume(f"answers_{case}", keys, compute)
        if case == "bump":
            results += bump_summary(table)
        else:
            for row in table.to_dict("records"):
                label = f"{case}: " + ", ".join(f"{k} = {row.pop(k)}" for k in keys[0])
                results += [{"case": f"{label}: {k}", "value": v} for k, v in row.items()]
    return results


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("cases", nargs="*", default=list(CASES))
    print(pd.DataFrame(run(**vars(parser.parse_args()))).to_string(index=False))
