"""The roles of the columns of X: predictions, inputs, features of regressors, geographic inputs."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from bne._base.typing import Array


class Columns(NamedTuple):
    """The purpose of each column of X, by position.

    Attributes
    ----------
    predictions : dict of str to int
        Position of the column with an expert's predictions, by the expert's name.
    inputs : (d,) list of int
        Columns on which delta and G depend.
    features : list of int
        Columns that regressors see: all that are not predictions.
    """

    predictions: dict[str, int]
    inputs: list[int]
    features: list[int]


def is_column(expert: Any) -> bool:
    """Say whether an expert is a column of X; if not, it is a regressor."""
    return isinstance(expert, str | int | np.integer) and not isinstance(expert, bool)


def resolve_columns(
    estimators: Sequence[tuple[str, Any]], inputs: Any, names: Sequence[str] | None, width: int
) -> Columns:
    """Find the positions of all columns from their names or indices."""
    predictions = {
        name: _position(expert, names, width, f"Expert {name!r}")
        for name, expert in estimators
        if is_column(expert)
    }
    features = [i for i in range(width) if i not in predictions.values()]
    if inputs is None:
        chosen = features
    else:
        given = [inputs] if is_column(inputs) else list(inputs)
        chosen = [_position(column, names, width, "`inputs`") for column in given]
        if len(set(chosen)) < len(chosen):
            raise ValueError(f"`inputs` names a column twice; got {given}. Name each once.")
    return Columns(predictions, chosen, features)


def resolve_geographic(
    geographic: Any, inputs: list[int], names: Sequence[str] | None, width: int, x: Array
) -> tuple[int, int] | None:
    """Find which of the inputs x (N, d) are longitude and latitude, and check their range."""
    if geographic is None:
        return None
    if isinstance(geographic, str) or len(geographic) != 2:
        raise ValueError(
            f"`geographic` must be two inputs; got {geographic!r}. Pass (longitude, latitude)."
        )
    lon, lat = (_position(column, names, width, "`geographic`") for column in geographic)
    if lon not in inputs or lat not in inputs:
        raise ValueError(
            f"`geographic` must name two of the inputs; got {geographic!r}. Add them to `inputs`."
        )
    lon, lat = inputs.index(lon), inputs.index(lat)
    if np.any(np.abs(x[:, lat]) > 90.0):
        raise ValueError(
            f"Latitudes must lie between -90 and 90 degrees; got {x[:, lat].min():g} to "
            f"{x[:, lat].max():g}. Are longitude and latitude swapped, or are these not degrees?"
        )
    return lon, lat


def _position(column: Any, names: Sequence[str] | None, width: int, who: str) -> int:
    if isinstance(column, str):
        if names is None:
            raise ValueError(
                f"{who} names the column {column!r}, but X has no column names. Pass X as a "
                "DataFrame, or give the column's index."
            )
        matches = [i for i, n in enumerate(names) if n == column]
        if len(matches) != 1:
            problem = "is not in X" if not matches else "is in X more than once"
            raise ValueError(
                f"{who} names the column {column!r}, which {problem}. Its columns: {list(names)}."
            )
        return matches[0]
    if not is_column(column):
        raise ValueError(f"{who} must be a column name or index; got {column!r}.")
    if not -width <= column < width:
        raise ValueError(
            f"{who} is column {column}, but X has only {width} columns. Pass 0 to {width - 1}."
        )
    return int(column) % width
