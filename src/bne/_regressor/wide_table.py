"""All answers of a fitted model at the rows of a frame, as one wide frame."""

from collections.abc import Callable, Sequence
from typing import Any

import pandas as pd

from bne._answers import table
from bne._answers.columns import QUANTILES


def wide_table(
    model: Any,
    X: pd.DataFrame,
    *,
    quantiles: Sequence[float] = QUANTILES,
    n_jobs: int | None = None,
    progress: Callable[[int], object] = lambda n: None,
) -> pd.DataFrame:
    """Find mean, sd, quantiles, parts of the variance and probability of bias at the rows of X.

    The columns are those that `bne._answers.columns` declares. `progress` is called with the number
    of rows just done.
    """
    answerer = table.prepare(model._fitted(), quantiles)
    columns = table.answers(answerer, model._rows(X), n_jobs=n_jobs, progress=progress)
    return pd.DataFrame(columns, index=X.index)
