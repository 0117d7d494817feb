"""Bayesian stacking (Yao et al. 2018): one mixture weight an expert, by leave-one-out (ArviZ)."""

from typing import Any, Self

import numpy as np
from arviz_base import from_dict
from arviz_stats import compare  # pyright: ignore[reportPrivateImportUsage]
from scipy import stats
from sklearn.base import BaseEstimator

from bne._base.typing import Array
from bne.baselines._laws import Mixture

DRAWS = 500
KEPT = 25
"""Draws of every noise scale that the predictive mixture keeps, evenly spaced quantiles."""


class BayesianStacking(BaseEstimator):
    """``sum_k pi_k phi(y | f_k(x), sigma_k)`` with weights that maximise the leave-one-out score.

    Every sigma_k has its closed posterior under the prior 1 / sigma_k^2.

    Parameters
    ----------
    experts : list of str
        Columns of the experts' predictions.
    random_state : int
    """

    def __init__(self, experts: list[str], random_state: int = 0) -> None:
        self.experts = experts
        self.random_state = random_state

    def fit(self, X: Any, y: Array) -> Self:
        """Draw the noise scales, and find the weights."""
        f = X[self.experts].to_numpy(float)
        squares = np.sum((y[:, None] - f) ** 2, axis=0)
        self._posterior = stats.invgamma(0.5 * len(y), scale=0.5 * squares)
        rng = np.random.default_rng(self.random_state)
        sigma = np.sqrt(self._posterior.rvs((DRAWS, f.shape[1]), random_state=rng))
        log_density = stats.norm.logpdf(y[None, :, None], f[None], sigma[:, None, :])
        models = {
            name: from_dict(
                {
                    "posterior": {"sigma": sigma[None, :, k]},
                    "log_likelihood": {"y": log_density[None, :, :, k]},
                }
            )
            for k, name in enumerate(self.experts)
        }
        self.weights_: Array = compare(models)["weight"][self.experts].to_numpy(float)
        return self

    def predict_distribution(self, X: Any) -> Mixture:
        """Return the mixture over experts and their noise scales."""
        f = X[self.experts].to_numpy(float)
        levels = (np.arange(KEPT) + 0.5) / KEPT
        sigma = np.sqrt(self._posterior.ppf(levels[:, None]))
        shape = (len(f), KEPT * len(self.experts))
        means = np.broadcast_to(f[:, None, :], (len(f), *sigma.shape)).reshape(shape)
        weights = np.broadcast_to(self.weights_ / KEPT, sigma.shape).ravel()
        return Mixture(
            means, np.broadcast_to(sigma.ravel(), shape), np.broadcast_to(weights, shape)
        )
