"""Checks of arguments. Each error says what is wrong, what was got and what to do."""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from bne._base.typing import Array


def unmasked(values: Any) -> Any:
    """Return a masked array of NumPy as an array with NaN in place of masked values."""
    if isinstance(values, np.ma.MaskedArray):
        return np.ma.filled(values.astype(np.float64), np.nan)
    return values


def check_outcomes(y: ArrayLike) -> Array:
    """Return y as an array (N,); raise an error unless it is finite and not empty."""
    y = np.asarray(unmasked(y), dtype=float)
    if y.ndim != 1 or y.size == 0:
        raise ValueError(
            f"`y` must have shape (N,), N > 0; got {y.shape}. Flatten a column with `.ravel()`."
        )
    if not np.isfinite(y).all():
        raise ValueError(
            f"`y` must be finite; got {np.sum(~np.isfinite(y))} NaN or infinite "
            "values. Drop those rows."
        )
    return y


def check_shape(values: ArrayLike, shape: tuple[int, ...], name: str) -> Array:
    """Return an array; raise an error unless it has exactly this shape (nothing is broadcast)."""
    values = np.asarray(unmasked(values), dtype=float)
    if values.shape != shape:
        raise ValueError(
            f"`{name}` must have shape {shape}; got {values.shape}. Give one row per "
            "outcome, without extra axes."
        )
    return values


def check_no_nan(values: ArrayLike, name: str) -> Array:
    """Return an array; raise an error if it holds NaN."""
    values = np.asarray(unmasked(values), dtype=float)
    if np.isnan(values).any():
        raise ValueError(
            f"`{name}` must not hold NaN; got {np.isnan(values).sum()}. Drop those rows."
        )
    return values


def check_interval(y: ArrayLike, lower: ArrayLike, upper: ArrayLike) -> tuple[Array, Array, Array]:
    """Return outcomes and the ends of their intervals, (N,) each; raise an error if invalid."""
    y = check_outcomes(y)
    lower, upper = check_no_nan(lower, "lower"), check_no_nan(upper, "upper")
    check_shape(lower, y.shape, "lower")
    check_shape(upper, y.shape, "upper")
    if (lower > upper).any():
        raise ValueError(
            f"`lower` must not exceed `upper`; got {np.sum(lower > upper)} rows where "
            "it does. Check the order of the arguments."
        )
    return y, lower, upper


def check_levels(levels: ArrayLike, name: str) -> Array:
    """Return levels as an array; raise an error unless all lie in (0, 1)."""
    levels = np.asarray(levels, dtype=float)
    outside = levels[~((levels > 0) & (levels < 1))]
    if outside.size:
        raise ValueError(f"`{name}` must lie in (0, 1); got {outside.flat[0]:g}. Pass 0.9, not 90.")
    return levels


def check_grid(y_grid: ArrayLike, n_rows: int) -> Array:
    """Return a grid of values of y for each row, (N, Q); raise an error unless they increase."""
    y_grid = np.atleast_2d(np.asarray(y_grid, dtype=float))
    if y_grid.ndim != 2 or (len(y_grid) != n_rows and 1 not in (len(y_grid), n_rows)):
        raise ValueError(
            f"`y_grid` must have shape (Q,) or (N, Q) with N = {n_rows}; got "
            f"{y_grid.shape}. Pass one row of values per row of the laws."
        )
    if y_grid.shape[1] < 2 or not (np.diff(y_grid, axis=1) >= 0).all():
        raise ValueError(
            "`y_grid` must hold at least two increasing values per row; got "
            f"{y_grid.shape[1]}, or unsorted or NaN ones. Sort it."
        )
    return np.broadcast_to(y_grid, (max(n_rows, len(y_grid)), y_grid.shape[1]))
