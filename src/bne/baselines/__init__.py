"""Other ways to predict a distribution from base models, to compare with.

Each has ``fit(X, y)`` on a frame that holds inputs and the experts' predictions, and
``predict_distribution(X)``. They need the extra ``baselines``.
"""

from bne.baselines._deep_ensemble import DeepEnsemble
from bne.baselines._kde import ConditionalKDE
from bne.baselines._laws import Mixture, QuantileLaw
from bne.baselines._mixture_of_experts import MixtureOfExperts
from bne.baselines._stacking import BayesianStacking
from bne.baselines._trees import NaturalGradientBoosting, QuantileForest

__all__ = [
    "BayesianStacking",
    "ConditionalKDE",
    "DeepEnsemble",
    "Mixture",
    "MixtureOfExperts",
    "NaturalGradientBoosting",
    "QuantileForest",
    "QuantileLaw",
]
