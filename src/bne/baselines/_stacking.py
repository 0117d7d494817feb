"""Bayesian stacking (Yao et al. 2018): a mixture of the experts, weighted by leave-one-out."""

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from arviz_base import from_dict
from arviz_stats import compare  # pyright: ignore[reportPrivateImportUsage]
from scipy import stats
from sklearn.base import BaseEstimator

from bne._base.typing import Array
from bne.baselines._laws import Mixture

DRAWS = 500
"""Draws of every noise scale that the leave-one-out scores are estimated from."""

KEPT = 25
"""Values of every noise scale in the predictive mixture: quantiles at evenly spaced levels."""


@dataclass(eq=False, repr=False)
class BayesianStacking(BaseEstimator):
    """The mixture ``sum_k pi_k phi(y | f_k(x), sigma_k)``, with one weight pi_k for each expert.

    The weights maximise the leave-one-out log score, as computed by ArviZ. The posterior of every
    noise scale sigma_k under the prior 1 / sigma_k^2 is known in closed form.

    Parameters
    ----------
    experts : list of str
        Columns of the experts' predictions.
    random_state : int, default=0
    """

    experts: list[str]
    random_state: int = 0

    def fit(self, X: Any, y: Array) -> Self:
        """Draw the noise scales, then find the weights."""
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
