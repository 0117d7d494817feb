"""Labels of the answers: if X is a frame, they are the labels of X."""

from typing import Any

import pandas as pd

from bne._base.typing import Array


def labelled(values: Array, columns: list[Any], X: Any) -> Any:
    """Return a frame with the index of X if X is a frame; else return the values."""
    if isinstance(X, pd.DataFrame):
        return pd.DataFrame(values, index=X.index, columns=columns)
    return values


def index_of(X: Any, values: Array) -> pd.Index:
    """Return the index of X if X is a frame; else 0, 1, ..."""
    return X.index if isinstance(X, pd.DataFrame) else pd.RangeIndex(len(values))
