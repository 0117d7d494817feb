"""Methods made of trees that predict distributions: NGBoost and quantile regression forests."""

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from ngboost import NGBRegressor
from quantile_forest import RandomForestQuantileRegressor
from sklearn.base import BaseEstimator

from bne._base.typing import Array
from bne.baselines._laws import Mixture, QuantileLaw

LEVELS = np.linspace(0.0, 1.0, 201)
"""Levels of the quantiles that the forest predicts."""


def features(X: Any, inputs: list[str], experts: list[str]) -> Array:
    """Return what the trees see at each row: inputs and experts, (N, p)."""
    return X[[*inputs, *experts]].to_numpy(float)


@dataclass(eq=False, repr=False)
class NaturalGradientBoosting(BaseEstimator):
    """NGBoost with a Gaussian outcome (Duan et al. 2020); it sees inputs and experts.

    Parameters
    ----------
    experts, inputs : list of str
        Columns of the experts' predictions and of the inputs.
    random_state : int, default=0
    """

    experts: list[str]
    inputs: list[str]
    random_state: int = 0

    def fit(self, X: Any, y: Array) -> Self:
        """Boost with NGBoost's default settings."""
        x = features(X, self.inputs, self.experts)
        self.model_: Any = NGBRegressor(verbose=False, random_state=self.random_state).fit(x, y)
        return self

    def predict_distribution(self, X: Any) -> Mixture:
        """Return one Gaussian for each row."""
        law = self.model_.pred_dist(features(X, self.inputs, self.experts))
        mean, sd = (np.asarray(law.params[k], float)[:, None] for k in ("loc", "scale"))
        return Mixture(mean, sd, np.ones_like(mean))


@dataclass(eq=False, repr=False)
class QuantileForest(BaseEstimator):
    """Quantile regression forest (Meinshausen 2006); it sees inputs and experts.

    Parameters
    ----------
    experts, inputs, random_state
        As in `NaturalGradientBoosting`.
    """

    experts: list[str]
    inputs: list[str]
    random_state: int = 0

    def fit(self, X: Any, y: Array) -> Self:
        """Grow a forest whose leaves hold ten rows or more."""
        x = features(X, self.inputs, self.experts)
        forest = RandomForestQuantileRegressor(min_samples_leaf=10, random_state=self.random_state)
        self.model_: Any = forest.fit(x, y)
        return self

    def predict_distribution(self, X: Any) -> QuantileLaw:
        """Return the quantiles at 201 levels for each row."""
        x = features(X, self.inputs, self.experts)
        values = self.model_.predict(x, quantiles=list(LEVELS))
        return QuantileLaw(LEVELS, np.asarray(values, float))
