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
    """Mean, sd, quantiles, parts of the variance and probability of bias, one row a row of X.

    `bne._answers.columns` declares the columns.
    """
    answerer = table.prepare(model._fitted(), quantiles)
    columns = table.answers(answerer, model._rows(X), n_jobs=n_jobs, progress=progress)
    return pd.DataFrame(columns, index=X.index)
