"""Real data beyond the paper: scores of every method on held-out rows.

The data sets are not part of the package. The environment variable ``BNE_DATA`` names their folder;
without it the folder is ``../shared/data``. A set that is not there is skipped.
"""

import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from sklearn.base import clone
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.linear_model import LinearRegression, RidgeCV
from sklearn.model_selection import KFold, cross_val_predict
from sklearn.neighbors import KNeighborsRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from bne._base.typing import Array
from bne._data.scaling import KM_PER_DEGREE
from bne.baselines import Mixture
from paper.scores import (
    GROUPS,
    fitted_comparators,
    fitted_stages,
    observed_scores,
    stages_of,
)
from paper.store import resume

SETTINGS = {"chains": 2, "warmup": 300, "draws": 400, "n_jobs": 1}
"""Settings of all fits; a data set may change some of them."""

LARGE = {"draws": 250, "n_jobs": 2, "length_scales": "per_input", "checkpoint": "out/uw_srft_2004"}
"""Settings for the weather's many rows. The fit takes half an hour with both chains at a time, and
writes checkpoints."""

TABULAR = {"length_scales": "per_input"}
"""Settings for inputs of different kinds. In all three sets of `uci` they gave better scores in a
three-fold comparison on the training rows of the first split."""


class Split(NamedTuple):
    """One division of a data set into training rows and held-out rows.

    The frames hold the inputs and the experts' predictions.
    """

    train: pd.DataFrame
    y_train: Array
    test: pd.DataFrame
    y_test: Array
    experts: list[str]
    inputs: list[str]
    settings: dict[str, Any]


def folder() -> Path:
    """Return the folder of the data sets."""
    return Path(os.environ.get("BNE_DATA", "../shared/data"))


def in_km(frame: pd.DataFrame, lon: str, lat: str) -> pd.DataFrame:
    """Add columns east and north in kilometres, scaled as at the mean latitude."""
    shrink = np.cos(np.deg2rad(frame[lat].mean()))
    east, north = KM_PER_DEGREE * shrink * frame[lon], KM_PER_DEGREE * frame[lat]
    return frame.assign(east=east, north=north)


def _held_out(
    frame: pd.DataFrame, target: str, test: Any, experts: list[str], inputs: list[str]
) -> Split:
    """Divide the rows of a frame by a mask of the held-out rows."""
    columns, y = frame[[*inputs, *experts]], frame[target].to_numpy(float)
    return Split(columns[~test], y[~test], columns[test], y[test], experts, inputs, {})


def eastma_pm25_2011(split: int) -> Split:
    """PM2.5 in Eastern Massachusetts; the splits are spatial folds."""
    data = in_km(pd.read_csv(folder() / "eastma_pm25_2011/training51_kmeans6.csv"), "lon", "lat")
    test = (data["fold"].astype(int) == split + 1).to_numpy()
    models = ["pred_av", "pred_gs", "pred_caces"]
    return _held_out(data, "aqs", test, models, ["east", "north"])


def eu_pm10_2010(split: int) -> Split:
    """PM10 in Europe, on a square-root scale; the splits are ten random folds."""
    data = pd.read_csv(folder() / "eu_pm10_2010/pm10.csv.gz").dropna().reset_index(drop=True)
    test = np.zeros(len(data), bool)
    test[list(KFold(10, shuffle=True, random_state=0).split(data))[split][1]] = True
    return _held_out(data, "pm10.obs", test, ["pm10.ctm"], ["x.coord", "y.coord"])


def epf_np(split: int, inputs: list[str] | None = None) -> Split:
    """Electricity price at Nord Pool at hour 18; the last 364 days are held out.

    The column ``spread``, which may be an input, is the log of the experts' standard deviation. The
    larger it is, the larger their errors are.
    """
    del split
    data = pd.read_csv(folder() / "epf_np/NP.csv.gz", parse_dates=["datetime"])
    data = data[data["datetime"].dt.hour == 18].reset_index(drop=True)
    experts = [c for c in data if c.startswith(("DNN", "LEAR")) and "Ensemble" not in c]
    data = data.assign(spread=np.log(data[experts].std(axis=1)))
    later = np.arange(len(data)) >= len(data) - 364
    return _held_out(data, "Real price", later, experts, inputs or [])


WEATHER_MODELS = ["CMCG", "ETA", "GASP", "GFS", "JMA", "NGPS", "TCWB", "UKMO"]
WEATHER_INPUTS = ["east", "north", "elevation", "no_elevation"]


def weather() -> tuple[pd.DataFrame, pd.DataFrame]:
    """Read the forecasts of 4 to 29 January, and those of 31 January.

    A missing elevation is replaced by the median, and ``no_elevation`` is 1 there.
    """
    data = pd.read_csv(folder() / "uw_srft_2004/srft_dev_jan.csv.gz")
    known = data["elevation"].mask(data["elevation"] == -9999)
    data = data.assign(elevation=known.fillna(known.median()), no_elevation=known.isna() * 1.0)
    data = in_km(data, "longitude", "latitude")
    day = data["date"] // 100 % 100
    return data[(day >= 4) & (day <= 29)], data[day == 31]


def uw_srft_2004(split: int) -> Split:
    """Temperature at 712 stations on 31 January; 4 to 29 January are the training rows."""
    del split
    train, test = weather()
    both = pd.concat([train, test], ignore_index=True)
    later = np.arange(len(both)) >= len(train)
    held_out = _held_out(both, "observation", later, WEATHER_MODELS, WEATHER_INPUTS)
    return held_out._replace(settings=LARGE)


def uw_srft_2004_days(split: int) -> Split:
    """Temperature on 21 to 29 January; earlier days are the training rows. Both are samples.

    The weather is similar at all stations on one day. So the coverage on the 31st alone says
    little about other days.
    """
    del split
    known = weather()[0]
    later = known["date"] // 100 % 100 > 20
    parts = [known[part].sample(2500, random_state=0) for part in (~later, later)]
    both = pd.concat(parts, ignore_index=True)
    test = np.arange(len(both)) >= len(parts[0])
    held_out = _held_out(both, "observation", test, WEATHER_MODELS, WEATHER_INPUTS)
    return held_out._replace(settings=TABULAR)


BASE_LEARNERS = {
    "ridge": make_pipeline(StandardScaler(), RidgeCV(np.logspace(-3, 3, 13))),
    "neighbours": make_pipeline(StandardScaler(), KNeighborsRegressor(5)),
    "boosting": HistGradientBoostingRegressor(random_state=0),
}


def uci(split: int, name: str) -> Split:
    """One of the usual splits of a UCI data set; base learners are the experts.

    They predict every training row from the folds that do not hold it.
    """
    data = np.load(folder() / f"uci/{name}.npz")
    test = np.isin(np.arange(len(data["y"])), data["test_index"][split])
    inputs = [f"x{i}" for i in range(data["X"].shape[1])]
    frame = pd.DataFrame(data["X"], columns=inputs).assign(y=data["y"])
    train, rest = frame[~test], frame[test]
    folds = KFold(5, shuffle=True, random_state=split)
    for learner, model in BASE_LEARNERS.items():
        fitted = clone(model).fit(train[inputs], train["y"])
        out_of_fold = cross_val_predict(model, train[inputs], train["y"], cv=folds)
        train, rest = (
            train.assign(**{learner: out_of_fold}),
            rest.assign(**{learner: fitted.predict(rest[inputs])}),
        )
    both = pd.concat([train, rest], ignore_index=True)
    split_at = np.arange(len(both)) >= len(train)
    learners = list(BASE_LEARNERS)
    return _held_out(both, "y", split_at, learners, inputs)._replace(settings=TABULAR)


DATA: dict[str, tuple[Callable[[int], Split], int]] = {
    "eastma_pm25_2011": (eastma_pm25_2011, 6),
    "eu_pm10_2010": (eu_pm10_2010, 10),
    "epf_np": (epf_np, 1),
    "epf_np/spread": (partial(epf_np, inputs=["spread"]), 1),
    "uw_srft_2004": (uw_srft_2004, 1),
    "uw_srft_2004/days": (uw_srft_2004_days, 1),
    "uci/yacht": (partial(uci, name="yacht"), 20),
    "uci/energy": (partial(uci, name="energy"), 20),
    "uci/concrete": (partial(uci, name="concrete"), 20),
}
"""For each data set: a function that returns a split by its number, and the number of splits."""


def simple_methods(split: Split) -> dict[str, Mixture]:
    """Predict by the experts' equal mean and by least squares, with Gaussian errors."""
    f, g = (a[split.experts].to_numpy(float) for a in (split.train, split.test))
    line = LinearRegression().fit(f, split.y_train)
    pairs = {
        "equal mean": (f.mean(axis=1), g.mean(axis=1)),
        "least squares": (line.predict(f), line.predict(g)),
    }
    laws = {}
    for name, (fitted, predicted) in pairs.items():
        sd = np.sqrt(np.mean((split.y_train - fitted) ** 2))
        mean = predicted[:, None]
        laws[name] = Mixture(mean, np.full_like(mean, sd), np.ones_like(mean))
    return laws


def score(data: str, split: int, group: str) -> list[dict[str, Any]]:
    """Score the methods of one group on one split."""
    task = DATA[data][0](split)
    both = (task.train, task.y_train, task.experts, task.inputs)
    if group == "bne":
        settings = SETTINGS | task.settings
        model, seconds = fitted_stages(*both, random_state=split, **settings)
        rows = [(name, predict(task.test), seconds) for name, predict in stages_of(model).items()]
    else:
        rows = [(name, law, 0.0) for name, law in simple_methods(task).items()]
        others = fitted_comparators(*both, seed=split)
        rows += [(name, predict(task.test), seconds) for name, predict, seconds in others]
    return [
        {"method": name, "n_train": len(task.train), "n_test": len(task.test)}
        | observed_scores(law, task.y_test)
        | {"seconds": seconds}
        for name, law, seconds in rows
    ]


def run(path: Path, n_jobs: int | None, quiet: bool) -> pd.DataFrame:
    """Run what is missing of the data sets that are present, and return all rows."""
    present = [name for name in DATA if (folder() / name.split("/")[0]).exists()]
    keys = [
        {"data": name, "split": i, "group": group}
        for name in present
        for i in range(DATA[name][1])
        for group in GROUPS
    ]
    if not keys:
        print(f"Skipped: no data set in {folder()}. Set BNE_DATA to the folder that holds them.")
        return pd.DataFrame()
    return resume(path / "real_rows.csv", keys, score, n_jobs=n_jobs, quiet=quiet)


def summary(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the scores of every data set and method, pooled over the rows of all splits."""
    weights = rows["n_test"]
    scores = [c for c in rows if c in ("crps", "nll") or c.startswith("coverage")]
    weighted = rows[["data", "method"]].join(rows[scores].mul(weights, axis=0))
    weighted = weighted.assign(square=rows["rmse"] ** 2 * weights, n_test=weights)
    sums = weighted.groupby(["data", "method"], sort=False).sum(min_count=1)
    means = sums[scores].div(sums["n_test"], axis=0)
    means.insert(1, "rmse", np.sqrt(sums["square"] / sums["n_test"]))
    splits = rows.groupby(["data", "method"], sort=False)["split"].nunique()
    return means.assign(splits=splits, rows=sums["n_test"].astype(int)).reset_index()
