"""The rows that the page shows, and all answers at them.

Only this module of the report knows the columns of the wide table.
"""

from typing import NamedTuple

import numpy as np
import pandas as pd

from bne._answers.columns import quantile_name


class Places(NamedTuple):
    """Rows to show.

    Attributes
    ----------
    inputs : DataFrame
        The inputs by name.
    answers : DataFrame
        The wide table of all answers at these rows.
    """

    inputs: pd.DataFrame
    answers: pd.DataFrame

    @property
    def prediction(self) -> pd.Series:
        """Predictive mean."""
        return self.answers["mean"]

    @property
    def interval(self) -> tuple[pd.Series, pd.Series]:
        """Lower and upper ends of the 90% interval."""
        return self.answers[quantile_name(0.05)], self.answers[quantile_name(0.95)]

    @property
    def prob_too_low(self) -> pd.Series:
        """Probability that the models are too low."""
        return self.answers["prob_models_too_low"]

    def variance(self, part: str) -> pd.Series:
        """Return one part of the predictive variance."""
        return self.answers[f"variance_{part}"]

    def sd(self, part: str) -> pd.Series:
        """Return the square root of a part of the variance, and NaN where the part is negative."""
        variance = self.variance(part)
        return np.sqrt(variance.where(variance >= 0))
