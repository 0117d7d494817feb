"""Labels of the answers: those of X where X is a frame."""

from typing import Any

import pandas as pd

from bne._base.typing import Array


def labelled(values: Array, columns: list[Any], X: Any) -> Any:
    """A frame with X's index when X is a frame."""
    if isinstance(X, pd.DataFrame):
        return pd.DataFrame(values, index=X.index, columns=columns)
    return values


def index_of(X: Any, values: Array) -> pd.Index:
    """X's index when X is a frame, else 0, 1, ..."""
    return X.index if isinstance(X, pd.DataFrame) else pd.RangeIndex(len(values))
