"""Experts: they turn rows of X into predictions f of shape (N, K).

An expert has one of three forms: a regressor, which is fitted out of fold and then on all rows; a
regressor that is already fitted (``cv="prefit"`` or a ``FrozenEstimator``); or a column of X that
already holds predictions.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pandas as pd
from joblib import Parallel, delayed
from sklearn.base import clone, is_classifier
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import RidgeCV
from sklearn.model_selection import check_cv
from sklearn.neighbors import KNeighborsRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils import _safe_indexing
from sklearn.utils.validation import check_is_fitted

from bne._base.typing import Array
from bne._data.roles import Columns, is_column


def default_estimators(n_rows: int) -> list[tuple[str, Any]]:
    """Make the default experts: a linear, a local and a boosted model.

    They differ in kind, so that their errors differ, too.
    """
    neighbours = int(np.clip(n_rows // 10, 1, 10))
    knn = make_pipeline(StandardScaler(), KNeighborsRegressor(neighbours, weights="distance"))
    ridge = make_pipeline(StandardScaler(), RidgeCV(alphas=np.logspace(-3, 3, 13)))
    return [
        ("ridge", ridge),
        ("neighbours", knn),
        ("boosting", HistGradientBoostingRegressor(random_state=0)),
    ]


def check_estimators(estimators: Any) -> list[tuple[str, Any]]:
    """Return the list of experts; raise an error if its form or its names are wrong."""
    advice = "Pass pairs such as [('ridge', RidgeCV()), ('gridded', 'column_name')]."
    if isinstance(estimators, str) or not isinstance(estimators, Sequence):
        raise ValueError(
            f"`estimators` must be a list of (name, expert) pairs; got {type(estimators).__name__}."
            f" {advice}"
        )
    pairs: list[tuple[str, Any]] = []
    for pair in estimators:
        if not (isinstance(pair, tuple) and len(pair) == 2 and isinstance(pair[0], str)):
            raise ValueError(f"`estimators` must hold (name, expert) pairs; got {pair!r}. {advice}")
        pairs.append(pair)
    if not pairs:
        raise ValueError(f"`estimators` is empty; at least one expert is needed. {advice}")
    names = [name for name, _ in pairs]
    repeated = sorted({name for name in names if names.count(name) > 1})
    if repeated:
        raise ValueError(
            f"Expert names must be unique; got {repeated} more than once. Rename them."
        )
    for name, expert in pairs:
        _check_expert(name, expert)
    return pairs


def check_names(names: Sequence[str], parameters: Sequence[str]) -> None:
    """Raise an error for an expert that is called like a parameter of the estimator."""
    taken = sorted(set(names) & set(parameters))
    if taken:
        raise ValueError(
            f"Experts must not have the name of a parameter; got {taken}. `set_params` could not "
            "tell them apart. Rename them."
        )


def _check_expert(name: str, expert: Any) -> None:
    if "__" in name:
        raise ValueError(f"Expert names must not contain '__'; got {name!r}. Rename it.")
    if is_column(expert):
        return
    if isinstance(expert, type) or not (hasattr(expert, "fit") and hasattr(expert, "predict")):
        raise ValueError(
            f"Expert {name!r} must be a regressor instance, a column name or a column index; "
            f"got {expert!r}. Pass an instance such as RidgeCV(), not the class."
        )
    if is_classifier(expert):
        raise ValueError(
            f"Expert {name!r} must be a regressor; got the classifier {expert!r}. Replace it, or "
            "leave it out."
        )


def out_of_fold(
    estimators: Sequence[tuple[str, Any]],
    columns: Columns,
    X: Any,
    y: Array,
    *,
    cv: Any,
    groups: Any,
    n_jobs: int | None,
) -> tuple[dict[str, Any], Array]:
    """Fit the experts, and predict each training row with a regressor that has not seen it.

    Returns
    -------
    fitted : dict
        Regressors fitted on all rows, by name. Experts that are columns are not in it.
    f : (n, K) array
        Out-of-fold predictions. A row that the splitter never predicts is NaN; for a row that it
        predicts several times, the predictions are averaged.
    """
    seen = take_columns(X, columns.features)
    regressors = {name: est for name, est in estimators if not is_column(est)}
    if regressors and seen.shape[1] == 0:
        raise ValueError(
            f"The experts {sorted(regressors)} need features, but every column of X is a "
            "prediction. Add columns to X, or drop these experts."
        )
    prefit = _prefit(regressors, cv)
    to_fit = {name: est for name, est in regressors.items() if name not in prefit}
    folds = list(_splits(cv, seen, y, groups)) if to_fit else []
    jobs = [(name, est, split) for name, est in to_fit.items() for split in [*folds, None]]
    results = Parallel(n_jobs=n_jobs, prefer="threads")(
        delayed(_fit_one)(name, est, seen, y, split) for name, est, split in jobs
    )
    fitted = {name: regressors[name] for name in prefit}
    total = {name: np.zeros(len(y)) for name in to_fit}
    count = np.zeros(len(y))
    for _, test in folds:
        count[test] += 1
    for (name, _, split), (model, prediction) in zip(jobs, results, strict=True):
        if split is None:
            fitted[name] = model
        else:
            np.add.at(total[name], split[1], prediction)
    f = predict_experts([name for name, _ in estimators], fitted, columns, X, skip=set(to_fit))
    for k, (name, _) in enumerate(estimators):
        if name in to_fit:
            f[:, k] = np.where(count > 0, total[name] / np.maximum(count, 1), np.nan)
    return fitted, f


def _prefit(regressors: dict[str, Any], cv: Any) -> set[str]:
    """Find the regressors that are used as they are; raise an error if one is not fitted."""
    every = isinstance(cv, str) and cv == "prefit"
    prefit = {name for name, est in regressors.items() if every or isinstance(est, FrozenEstimator)}
    for name in prefit:
        check_is_fitted(
            regressors[name],
            msg=f"Expert {name!r} is used as fitted, but is not fitted. Fit it, or pass cv=5.",
        )
    return prefit


def _splits(cv: Any, X: Any, y: Array, groups: Any) -> Iterable[tuple[Any, Any]]:
    if isinstance(cv, str):
        raise ValueError(
            f"`cv` must be an int, a splitter, an iterable or 'prefit'; got {cv!r}. Pass 5, say."
        )
    folds = min(5, len(y)) if cv is None else cv
    return check_cv(folds, y, classifier=False).split(X, y, groups)


def _fit_one(name: str, estimator: Any, X: Any, y: Array, split: Any) -> tuple[Any, Any]:
    """Fit a clone on the training rows of a split, and predict its test rows.

    Without a split, fit on all rows and return the fitted clone.
    """
    train, test = split if split is not None else (slice(None), None)
    try:
        model = clone(estimator).fit(_safe_indexing(X, train) if test is not None else X, y[train])
    except Exception as error:
        error.add_note(f"This happened while fitting expert {name!r}.")
        raise
    if test is None:
        return model, None
    return None, _checked_prediction(name, model, _safe_indexing(X, test))


def _checked_prediction(name: str, model: Any, X: Any) -> Array:
    n = X.shape[0]
    f = np.asarray(model.predict(X))
    if f.shape == (n, 1):
        f = f[:, 0]
    if f.shape != (n,):
        raise ValueError(
            f"Expert {name!r} returned predictions of shape {f.shape} for {n} rows; expected "
            f"({n},). An expert must predict one number for each row."
        )
    f = f.astype(np.float64)
    if not np.all(np.isfinite(f)):
        raise ValueError(
            f"Expert {name!r} returned NaN or infinity for {int(np.sum(~np.isfinite(f)))} of {n} "
            "rows. Impute its predictions, or drop it."
        )
    return f


def predict_experts(
    names: Sequence[str],
    fitted: dict[str, Any],
    columns: Columns,
    X: Any,
    skip: set[str] = frozenset(),  # type: ignore[assignment]
) -> Array:
    """Predict the rows of X with every expert: (N, K). Columns of experts in `skip` stay NaN."""
    seen = take_columns(X, columns.features)
    f = np.full((X.shape[0], len(names)), np.nan)
    for k, name in enumerate(names):
        if name in columns.predictions:
            f[:, k] = numeric(X, [columns.predictions[name]])[:, 0]
        elif name not in skip:
            f[:, k] = _checked_prediction(name, fitted[name], seen)
    return f


def take_columns(X: Any, positions: Sequence[int]) -> Any:
    """Take columns of a frame or an array, by position, with rows contiguous in memory."""
    if isinstance(X, pd.DataFrame):
        return by_rows_in_memory(X.iloc[:, list(positions)])
    return np.ascontiguousarray(X[:, list(positions)])


def by_rows_in_memory(X: pd.DataFrame) -> pd.DataFrame:
    """Store a frame of numbers as one array of float64, with rows contiguous in memory.

    Sums taken in another order differ in the last digit. So equal values must lie in memory in the
    same way, whether they come as a frame or as an array. A frame with columns that are not numbers
    stays as it is.
    """
    if not all(isinstance(t, np.dtype) and t.kind in "iuf" for t in X.dtypes):
        return X
    values = np.ascontiguousarray(X.to_numpy(np.float64))
    return pd.DataFrame(values, index=X.index, columns=X.columns, copy=False)


def numeric(X: Any, positions: Sequence[int]) -> Array:
    """Return columns as float64, or raise an error with the first that is not finite numbers."""
    part = take_columns(X, positions)
    if not isinstance(part, pd.DataFrame):
        return np.ascontiguousarray(part, dtype=np.float64)
    columns = []
    for name in part.columns:
        if part[name].dtype.kind in "mM":
            raise ValueError(
                f"Column {name!r} holds dates or durations (dtype {part[name].dtype}); the model "
                "cannot choose their unit. Make it a number, such as days since the first date: "
                f"(X[{name!r}] - X[{name!r}].min()) / pd.Timedelta(days=1)."
            )
        if part[name].dtype.kind == "c":
            raise ValueError(
                f"Column {name!r} holds complex numbers. Make it real, or leave it out."
            )
        try:
            columns.append(np.asarray(part[name], dtype=np.float64))
        except (TypeError, ValueError):
            raise ValueError(
                f"Column {name!r} is used as a prediction or an input and must be numeric; got "
                f"dtype {part[name].dtype}. Encode it, or leave it out of `inputs`."
            ) from None
        if not np.all(np.isfinite(columns[-1])):
            raise ValueError(
                f"Input X contains NaN or infinity in column {name!r}. Impute or drop those rows."
            )
    if not columns:
        return np.empty((len(part), 0))
    return np.ascontiguousarray(np.column_stack(columns))
