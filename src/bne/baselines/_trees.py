"""Trees that predict distributions: NGBoost, and quantile regression forests."""

from typing import Any, Self

import numpy as np
from ngboost import NGBRegressor
from quantile_forest import RandomForestQuantileRegressor
from sklearn.base import BaseEstimator

from bne._base.typing import Array
from bne.baselines._laws import Mixture, QuantileLaw

LEVELS = np.linspace(0.0, 1.0, 201)


class NaturalGradientBoosting(BaseEstimator):
    """NGBoost with a Gaussian outcome, on inputs and experts (Duan et al. 2020).

    Parameters
    ----------
    experts, inputs : list of str
    random_state : int
    """

    def __init__(self, experts: list[str], inputs: list[str], random_state: int = 0) -> None:
        self.experts = experts
        self.inputs = inputs
        self.random_state = random_state

    def fit(self, X: Any, y: Array) -> Self:
        """Boost with NGBoost's own settings."""
        x = X[[*self.inputs, *self.experts]].to_numpy(float)
        self.model_: Any = NGBRegressor(verbose=False, random_state=self.random_state).fit(x, y)
        return self

    def predict_distribution(self, X: Any) -> Mixture:
        """Return one Gaussian a row."""
        law = self.model_.pred_dist(X[[*self.inputs, *self.experts]].to_numpy(float))
        mean, sd = (np.asarray(law.params[k], float)[:, None] for k in ("loc", "scale"))
        return Mixture(mean, sd, np.ones_like(mean))


class QuantileForest(BaseEstimator):
    """Quantile regression forest on inputs and experts (Meinshausen 2006).

    Parameters
    ----------
    experts, inputs : list of str
    random_state : int
    """

    def __init__(self, experts: list[str], inputs: list[str], random_state: int = 0) -> None:
        self.experts = experts
        self.inputs = inputs
        self.random_state = random_state

    def fit(self, X: Any, y: Array) -> Self:
        """Grow the forest; leaves of ten rows or more."""
        x = X[[*self.inputs, *self.experts]].to_numpy(float)
        forest = RandomForestQuantileRegressor(min_samples_leaf=10, random_state=self.random_state)
        self.model_: Any = forest.fit(x, y)
        return self

    def predict_distribution(self, X: Any) -> QuantileLaw:
        """Return quantiles at 201 levels."""
        x = X[[*self.inputs, *self.experts]].to_numpy(float)
        values = self.model_.predict(x, quantiles=list(LEVELS))
        return QuantileLaw(LEVELS, np.asarray(values, float))
