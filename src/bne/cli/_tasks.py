"""The work of each command. This module does not import typer."""

import importlib
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from sklearn.cluster import KMeans
from sklearn.model_selection import KFold
from tqdm import tqdm

from bne import BNERegressor, io
from bne._answers.columns import column_names
from bne._base.typing import Array
from bne._regressor.wide_table import wide_table
from bne._stage_names import SHORT_NAMES
from bne.cli import _files
from bne.datasets import make_wave_1d

LONGITUDES, LATITUDES = {"lon", "long", "longitude", "lng"}, {"lat", "latitude"}
"""Names of inputs that are longitudes and latitudes."""

LEVEL = 0.9
"""Nominal coverage of the intervals that `evaluate` scores."""


class Task(NamedTuple):
    """The roles of a table's columns: the observed outcome, the models' predictions, the inputs.

    With `degrees`, inputs that are named like longitude and latitude are measured in kilometres.
    """

    target: str
    models: tuple[str, ...]
    inputs: list[str]
    degrees: bool

    @property
    def geographic(self) -> tuple[str, str] | None:
        """The inputs that are named like longitude and latitude, if there is one of each."""
        lon = [c for c in self.inputs if c.lower() in LONGITUDES]
        lat = [c for c in self.inputs if c.lower() in LATITUDES]
        found = self.degrees and len(lon) == 1 and len(lat) == 1
        return (lon[0], lat[0]) if found else None

    def regressor(self, settings: dict[str, Any]) -> BNERegressor:
        """Return the model, not yet fitted."""
        experts = [(name, name) for name in self.models]
        return BNERegressor(experts, inputs=self.inputs, geographic=self.geographic, **settings)


def split_names(text: str) -> list[str]:
    """Split a list of names at its commas."""
    return [name.strip() for name in text.split(",") if name.strip()]


def split_levels(text: str) -> list[float]:
    """Split a list of levels at its commas; each must lie in (0, 1)."""
    try:
        levels = [float(part) for part in split_names(text)]
    except ValueError:
        raise ValueError(
            f"`--quantiles` must be numbers separated by commas; got {text!r}. Write 0.05,0.95."
        ) from None
    if not levels or not all(0 < level < 1 for level in levels):
        raise ValueError(f"`--quantiles` must lie in (0, 1); got {text!r}. Write 0.9, not 90.")
    return levels


def columns_of(
    rows: pd.DataFrame, names: list[str], source: Path, gaps: bool = False
) -> pd.DataFrame:
    """Return the named columns; they must be numeric.

    Rows with missing or infinite values are an error. With `gaps` they are left out.
    """
    missing = [name for name in names if name not in rows]
    if missing:
        raise ValueError(
            f"{source.name!r} has no column {', '.join(map(repr, missing))}; it has "
            f"{', '.join(map(str, rows.columns))}."
        )
    part = rows[names]
    for name in names:
        if not pd.api.types.is_numeric_dtype(part[name]):
            example = next((v for v in part[name] if _not_a_number(v)), part[name].iloc[0])
            raise ValueError(
                f"Column {name!r} of {source.name!r} must be numeric; got {example!r}, for "
                "example. Correct the values or name another column."
            )
    values = part.to_numpy(float)
    holes = ~np.isfinite(values).all(axis=1)
    if gaps and holes.all():
        raise ValueError(
            f"No place of {source.name!r} has all of {', '.join(names)}. Check its missing values."
        )
    if holes.any() and not gaps:
        first = int(np.flatnonzero(holes)[0]) + 1
        raise ValueError(
            f"{int(holes.sum())} of {len(rows)} rows of {source.name!r} have missing or infinite "
            f"values in the columns used; the first is row {first}. Drop or fill them."
        )
    return part[~holes]


def _not_a_number(value: Any) -> bool:
    try:
        float(value)
    except (TypeError, ValueError):
        return True
    return False


def training_table(
    task: Task, data: Path, more: str = ""
) -> tuple[pd.DataFrame, pd.DataFrame, Array]:
    """Read a file. Return all its columns, the columns that the model sees, and the outcome.

    `more` is one more variable to read from a grid.
    """
    used = [*dict.fromkeys([*task.inputs, *task.models, task.target])]
    table = _files.read(data, [*used, more], task.target)
    if task.target in task.models or task.target in task.inputs:
        raise ValueError(
            f"The target {task.target!r} cannot be a model or an input as well. Name another one."
        )
    part = columns_of(table.rows, used, data)
    return table.rows, part.drop(columns=task.target), part[task.target].to_numpy(float)


def fit(task: Task, data: Path, settings: dict[str, Any]) -> BNERegressor:
    """Fit a model to the rows of a file."""
    _, X, y = training_table(task, data)
    model = task.regressor(settings).fit(X, y)
    if not task.inputs:
        warnings.warn(
            "Without `--inputs` there is no residual process: an error that all models share is "
            "not looked for.",
            stacklevel=2,
        )
    return model


def fit_summary(model: BNERegressor) -> str:
    """Return the weights and the diagnostics of the sampler in a few lines."""
    diagnostics = model.diagnostics()
    rhat, ess = diagnostics["r_hat"].max(), diagnostics["ess_bulk"].min()
    return (
        f"{model.explain_weights().round(3).to_string()}\n"
        f"{model.n_rows_} rows; R-hat at most {rhat:.3f}, effective draws at least {ess:.0f}, "
        f"{diagnostics.attrs['divergences']} divergences"
    )


def predict(
    model: Path, grid: Path, output: Path, levels: list[float], jobs: int, quiet: bool
) -> int:
    """Write all answers at the rows of a file, and return the number of rows."""
    fitted = io.load(model)
    names = _names(fitted, model)
    table = _files.read(grid, names)
    X = columns_of(table.rows, names, grid, gaps=table.grid is not None)
    new = _renamed(table, column_names(levels), grid)
    with tqdm(total=len(X), desc="Predicting", unit="row", disable=quiet) as bar:
        answers = wide_table(fitted, X, quantiles=levels, n_jobs=jobs, progress=bar.update)
    # places where a model has no prediction, such as oceans, get missing answers
    given = table.rows.rename(columns=new)
    answers = answers.reindex(given.index)
    _files.write(pd.concat([given, answers], axis=1), output, table.grid)
    return len(X)


def _renamed(table: _files.Table, answers: list[str], source: Path) -> dict[str, str]:
    """Find new names for the columns of a table that have the name of an answer."""
    taken = [name for name in table.rows.columns if name in answers]
    new = {name: f"input_{name}" for name in taken}
    impossible = [n for n in taken if new[n] in table.rows or new[n] in answers]
    if table.grid is not None:
        impossible += [n for n in taken if n in table.grid.coords or n in table.grid.sizes]
    if impossible:
        raise ValueError(
            f"{source.name!r} has {', '.join(map(repr, impossible))}, the name of an answer. "
            "Rename it."
        )
    if taken:
        warnings.warn(
            f"Columns of {source.name!r} have the names of answers. They are written as "
            f"{', '.join(new.values())}.",
            stacklevel=2,
        )
    return new


def _names(fitted: BNERegressor, model: Path) -> list[str]:
    """Return the names of the columns to which a model was fitted."""
    if not hasattr(fitted, "feature_names_in_"):
        raise ValueError(
            f"The model {model.name!r} was fitted to an array, whose columns have no names. Fit it "
            "to a DataFrame, or predict in Python."
        )
    return [str(n) for n in fitted.feature_names_in_]


def report(model: Path, grid: Path | None, output: Path, title: str, quiet: bool) -> None:
    """Write the HTML page about a model."""
    from bne.report import write_report

    fitted = io.load(model)
    X = None
    if grid is not None:
        names = _names(fitted, model)
        table = _files.read(grid, names)
        X = columns_of(table.rows, names, grid, gaps=table.grid is not None)
    total = fitted.n_rows_ if X is None else len(X)
    with tqdm(total=total, desc="Predicting", unit="row", disable=quiet) as bar:
        write_report(fitted, output, X, title=title, progress=bar.update)


def write(table: pd.DataFrame, output: Path) -> None:
    """Write a table; its extension says how."""
    _files.write(table, output)


def splits(
    rows: pd.DataFrame, X: pd.DataFrame, task: Task, folds: int, fold_column: str, blocks: bool
) -> Iterator[Any]:
    """Yield one mask for each fold: which rows are held out."""
    if fold_column:
        if fold_column not in rows:
            raise ValueError(
                f"There is no column {fold_column!r} for `--fold-column`. Name one of the table's."
            )
        labels: Any = rows[fold_column].to_numpy()
        gaps = int(pd.isna(labels).sum())
        if gaps:
            raise ValueError(
                f"Column {fold_column!r} of `--fold-column` has {gaps} missing values. Give every "
                "row a fold."
            )
    elif not 2 <= folds <= len(X):
        raise ValueError(f"`--folds` must lie between 2 and the {len(X)} rows; got {folds}.")
    elif blocks:
        if not task.inputs:
            raise ValueError("`--blocks` makes regions of the inputs. Name them with `--inputs`.")
        x = X[task.inputs].to_numpy(float)
        labels = KMeans(folds, n_init=10, random_state=0).fit_predict((x - x.mean(0)) / x.std(0))
    else:
        labels = np.empty(len(X), int)
        for i, (_, test) in enumerate(KFold(folds, shuffle=True, random_state=0).split(X)):
            labels[test] = i
    for label in pd.unique(labels):
        yield labels == label


def warn_if_copied(rows: pd.DataFrame, masks: list[Any], data: Path) -> None:
    """Warn about copies of a row in several folds: scores are then of rows seen in the fit."""
    fold = np.argmax(masks, axis=0)
    copies = rows.groupby(list(rows.columns), dropna=False, sort=False).ngroup().to_numpy()
    folds = pd.Series(fold).groupby(copies).transform("nunique").to_numpy()
    if np.any(folds > 1):
        first = int(np.flatnonzero(folds > 1)[0]) + 1
        warnings.warn(
            f"{int(np.sum(folds > 1))} of {len(rows)} rows of {data.name!r} have a copy in another "
            f"fold; the first is row {first}. The scores are then too good. Leave the copies out, "
            "or give them one fold with `--fold-column`.",
            stacklevel=2,
        )


def evaluate(
    task: Task,
    data: Path,
    settings: dict[str, Any],
    folds: int,
    fold_column: str,
    blocks: bool,
) -> pd.DataFrame:
    """Score held-out rows: two stages of BNE, each model alone, and the equal-weight mean.

    A model alone, and the mean, become Gaussian predictions: they are shifted by their mean error
    on the training rows, and have the standard deviation of these errors.
    """
    rows, X, y = training_table(task, data, fold_column)
    scores = []
    masks = list(splits(rows, X, task, folds, fold_column, blocks))
    warn_if_copied(X.assign(**{task.target: y}), masks, data)
    quiet = not settings["verbose"]
    for test in tqdm(masks, desc="Folds", disable=quiet):
        model = task.regressor(settings | {"verbose": 0}).fit(X[~test], y[~test])
        for stage in ("full", "additive"):
            law, name = model.predict_distribution(X[test], stage=stage), SHORT_NAMES[stage]
            scores.append(_scores(name, law.mean(), law.crps(y[test]), law.cdf(y[test]), y[test]))
        singles = {m: X[m].to_numpy(float) for m in task.models}
        singles["equal-weight mean"] = X[list(task.models)].to_numpy(float).mean(axis=1)
        for name, f in singles.items():
            scores.append(_gaussian_scores(name, f, y, test))
    pooled = pd.concat(scores).groupby("method", sort=False)
    table = pooled[["crps", "covered"]].mean()
    table.insert(1, "rmse", np.sqrt(pooled["square"].mean()))
    table = table.rename(columns={"covered": f"coverage_{100 * LEVEL:.0f}"})
    return table.assign(rows=pooled.size()).reset_index()


def _scores(name: str, mean: Array, crps: Array, u: Array, y: Array) -> pd.DataFrame:
    """Return the scores of each row, from the predictive mean, the CRPS and the CDF values u."""
    covered = np.abs(u - 0.5) <= 0.5 * LEVEL
    return pd.DataFrame(
        {"method": name, "crps": crps, "square": (mean - y) ** 2, "covered": covered}
    )


def _gaussian_scores(name: str, f: Array, y: Array, test: Any) -> pd.DataFrame:
    """Return the scores of predictions f with Gaussian errors, learned from the training rows."""
    from scipy import stats

    error = (y - f)[~test]
    mean, sd = f[test] + error.mean(), error.std(ddof=1)
    t = (y[test] - mean) / sd
    # Gneiting and Raftery (2007), Eq. 21
    crps = sd * (t * (2 * stats.norm.cdf(t) - 1) + 2 * stats.norm.pdf(t) - 1 / np.sqrt(np.pi))
    return _scores(name, mean, crps, stats.norm.cdf(t), y[test])


def write_demo(output: Path, rows: int, seed: int) -> None:
    """Write data of the paper's 1-D experiment as a table."""
    data = make_wave_1d(rows, random_state=seed)
    _files.write(data.X.assign(y=data.y), output)


def reproduce(figure: str, output: Path, repeats: int, jobs: int, quiet: bool) -> None:
    """Run the experiments in the folder `paper` of a checkout."""
    root = Path(__file__).resolve().parents[3]
    if not (root / "paper" / "figures.py").exists():
        raise ModuleNotFoundError(
            "The paper's experiments are not part of the installed package. Clone the sources and "
            "run `make paper` there."
        )
    if str(root) not in sys.path:
        sys.path.append(str(root))
    figures = importlib.import_module("paper.figures")
    figures.reproduce(figures.names_of(figure), output, repeats, jobs, quiet)
