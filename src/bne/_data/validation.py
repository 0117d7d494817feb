"""Checks of the data that `BNERegressor` is given: rows, outcomes and predictions."""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pandas as pd
from sklearn.utils.validation import check_array, column_or_1d, validate_data

from bne._base.checks import unmasked
from bne._base.typing import Array
from bne._data.experts import numeric

MIN_ROWS = 3
"""Smallest number of training rows that is accepted. Useful fits need many more."""


def check_rows(model: Any, X: Any, y: Any, *, reset: bool) -> tuple[Any, Array]:
    """Check X and y as scikit-learn does, and return them.

    A frame stays a frame, so that the experts see its column names. `reset` is True for training
    rows, and False for rows to predict, which have no y.
    """
    X, y = unmasked(X), unmasked(y)
    if reset:
        _check_kind(y)
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
            f"{MIN_ROWS if reset else 1} are needed. Pass more rows."
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


def _check_kind(y: Any) -> None:
    """Raise an error for outcomes that are dates or durations, whose unit is not known."""
    kind = np.asarray(y).dtype
    if kind.kind in "mM":
        raise ValueError(
            f"y holds dates or durations (dtype {kind}); the model cannot choose their unit. Make "
            "them numbers, such as days: y / np.timedelta64(1, 'D')."
        )


LARGEST = 1e100
"""Largest magnitude of data: the squares of larger numbers and their products would be infinite."""


def check_magnitudes(**given: Array) -> None:
    """Raise an error for values that are too large to compute with."""
    for name, values in given.items():
        largest = float(np.max(np.abs(values), initial=0.0))
        if largest > LARGEST:
            raise ValueError(
                f"The {name} must not exceed {LARGEST:g} in magnitude; got {largest:g}. Choose a "
                "larger unit, or correct the values."
            )


def drop_unpredicted(x: Array, f: Array, y: Array) -> tuple[Array, Array, Array]:
    """Leave out rows that the splitter never predicts, such as the first ones in a time series."""
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
        f"`cv` leaves {len(y) - left} of {len(y)} rows without an out-of-fold prediction. The "
        f"ensemble is fitted to the {left} other rows; the final experts are fitted to all rows. "
        "To use all rows, pass a splitter whose test sets cover them.",
        UserWarning,
        stacklevel=4,
    )
    return x[known], f[known], y[known]


@contextmanager
def unchanged_by_failure(model: Any) -> Iterator[None]:
    """Restore the model if the block inside fails or is interrupted."""
    before = vars(model).copy()
    try:
        yield
    except BaseException:
        vars(model).clear()
        vars(model).update(before)
        raise


FAR = 10.0
"""An expert whose mean is this many standard deviations from that of y is warned about."""


def warn_other_unit(names: list[str], f: Array, y: Array) -> None:
    """Warn about experts that vary about another value than y, as if in another unit."""
    distance, spread = np.abs(np.mean(f, axis=0) - np.mean(y)), np.std(f, axis=0)
    least = np.maximum(np.maximum(spread, np.std(y)), 1e-12 * np.max(np.abs(f), axis=0))
    far = [
        n for n, d, s, m in zip(names, distance, spread, least, strict=True) if s and d > FAR * m
    ]
    if far:
        warnings.warn(
            f"The predictions of {far} are far from y: their mean is more than {FAR:g} standard "
            "deviations from that of y. Are they in the unit of y? In another one, an expert gets "
            "hardly any weight.",
            UserWarning,
            stacklevel=4,
        )


def warn_constant(names: list[str], f: Array) -> None:
    """Warn about experts that predict the same value at every training row."""
    constant = [n for n, c in zip(names, f.T, strict=True) if np.ptp(c) <= 1e-12 * np.abs(c).max()]
    if constant and len(f) > 1:
        warnings.warn(
            f"Experts {constant} predict the same value at every training row, so they act as an "
            "intercept. Leave them out if you do not want one.",
            UserWarning,
            stacklevel=4,
        )
