"""What `BNERegressor` is given: settings, rows and predictions, checked."""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pandas as pd
from sklearn.utils.validation import check_array, column_or_1d, validate_data

from bne._base.typing import Array
from bne._data.experts import numeric

CALIBRATIONS = ("logistic", "cgp")
MIN_ROWS = 3
SIZES = (("chains", 1), ("warmup", 1), ("draws", 1), ("feature_points", 2), ("partitions", 1))
"""Parameters that count something, and the least they can be."""


def check_settings(model: Any) -> None:
    """Parameters that the model was made with."""
    for name, least in SIZES:
        value = getattr(model, name)
        if name == "feature_points" and value is None:
            continue
        if not isinstance(value, int | np.integer) or value < least:
            raise ValueError(f"`{name}` must be an integer >= {least}; got {value!r}.")
    if model.calibration not in (None, *CALIBRATIONS):
        raise ValueError(
            f"`calibration` must be one of {list(CALIBRATIONS)} or None; got {model.calibration!r}."
        )
    if model.length_scales not in ("shared", "per_input"):
        raise ValueError(
            f"`length_scales` must be 'shared' or 'per_input'; got {model.length_scales!r}."
        )
    if not 0 < model.target_acceptance < 1:
        raise ValueError(
            f"`target_acceptance` must lie in (0, 1); got {model.target_acceptance!r}."
        )


def check_rows(model: Any, X: Any, y: Any, *, reset: bool) -> tuple[Any, Array]:
    """Scikit-learn's checks; a frame stays a frame, so that experts see its column names."""
    if not isinstance(X, pd.DataFrame):
        how: dict[str, Any] = {"dtype": np.float64, "order": "C"}
        if y is None and not reset:
            return validate_data(model, X, reset=False, **how), np.empty(0)
        X, y = validate_data(model, X, y, y_numeric=True, ensure_min_samples=MIN_ROWS, **how)
        return X, np.ascontiguousarray(y, dtype=np.float64)
    validate_data(model, X, y if reset else "no_validation", reset=reset, skip_check_array=True)
    if len(X) < (MIN_ROWS if reset else 1):
        raise ValueError(
            f"Found array with {len(X)} sample(s) (n_samples={len(X)}); at least "
            f"{MIN_ROWS if reset else 1} are needed."
        )
    numbers = [i for i, t in enumerate(X.dtypes) if pd.api.types.is_numeric_dtype(t)]
    numeric(X, numbers)
    if not reset:
        return X, np.empty(0)
    y = column_or_1d(y, warn=True)
    y = check_array(y, ensure_2d=False, dtype=np.float64, input_name="y")
    if len(y) != len(X):
        raise ValueError(f"X has {len(X)} rows but y has {len(y)}. Pass one y for each row.")
    return X, np.ascontiguousarray(y)


def drop_unpredicted(x: Array, f: Array, y: Array) -> tuple[Array, Array, Array]:
    """Leave out rows that the splitter never predicted (time-series splits begin with such)."""
    known = np.all(np.isfinite(f), axis=1)
    if np.all(known):
        return x, f, y
    left = int(np.sum(known))
    if left < MIN_ROWS:
        raise ValueError(
            f"`cv` predicts only {left} of {len(y)} rows out of fold; at least {MIN_ROWS} are "
            "needed. Use a splitter whose test sets cover more rows."
        )
    warnings.warn(
        f"`cv` leaves {len(y) - left} of {len(y)} rows without an out-of-fold prediction; the "
        "ensemble is fitted to the others (the experts to all).",
        UserWarning,
        stacklevel=4,
    )
    return x[known], f[known], y[known]


@contextmanager
def unchanged_by_failure(model: Any) -> Iterator[None]:
    """Leave a model as it was where something fails, or is interrupted, on the way."""
    before = vars(model).copy()
    try:
        yield
    except BaseException:
        vars(model).clear()
        vars(model).update(before)
        raise


def warn_constant(names: list[str], f: Array) -> None:
    """Name experts that predict one value."""
    constant = [n for n, c in zip(names, f.T, strict=True) if np.ptp(c) <= 1e-12 * np.abs(c).max()]
    if constant and len(f) > 1:
        warnings.warn(
            f"Experts {constant} predict the same value at every training row; they act as an "
            "intercept.",
            UserWarning,
            stacklevel=4,
        )
