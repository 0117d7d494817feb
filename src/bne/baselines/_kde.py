"""Conditional kernel density estimation with cross-validated bandwidths (statsmodels)."""

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from scipy import special
from sklearn.base import BaseEstimator
from statsmodels.nonparametric.kernel_density import KDEMultivariateConditional

from bne._base.typing import Array
from bne.baselines._laws import Mixture


@dataclass(eq=False, repr=False)
class ConditionalKDE(BaseEstimator):
    """Kernel estimate of y given the inputs, with Gaussian kernels; it does not use the experts.

    The bandwidths maximise the cross-validated likelihood (Hall, Racine and Li 2004); statsmodels
    finds them. The estimate itself is a Gaussian mixture. It is computed here, in logarithms: if a
    bandwidth shrinks to almost 0, the weights then go to the nearest training row instead of
    becoming 0 / 0.

    Parameters
    ----------
    inputs : list of str
        Columns of the inputs.
    """

    inputs: list[str]

    def fit(self, X: Any, y: Array) -> Self:
        """Find the bandwidths."""
        x = X[self.inputs].to_numpy(float)
        with np.errstate(all="ignore"):  # the search tries bandwidths at which all weights are 0
            kde = KDEMultivariateConditional(
                y, x, dep_type="c", indep_type="c" * x.shape[1], bw="cv_ml", rng=0
            )
        bandwidths = np.abs(kde.bw)
        self.bandwidth_y_: float = bandwidths[0]
        self.bandwidths_x_: Array = bandwidths[1:]
        self.x_: Array = x
        self.y_: Array = np.asarray(y, float)
        return self

    def predict_distribution(self, X: Any) -> Mixture:
        """Return a mixture centred at the training outcomes; near rows have large weights."""
        gap = X[self.inputs].to_numpy(float)[:, None, :] - self.x_[None, :, :]
        log_kernel = -0.5 * np.sum((gap / self.bandwidths_x_) ** 2, axis=2)
        weights = special.softmax(log_kernel, axis=1)
        means = np.broadcast_to(self.y_, weights.shape)
        return Mixture(means, np.full_like(weights, max(self.bandwidth_y_, 1e-9)), weights)
