"""Scores of predictions, and the distance of a predictive distribution to the truth.

A *distribution* here is what ``BNERegressor.predict_distribution`` returns, or a frozen SciPy
distribution with parameters of shape (N,): one distribution for each row. A score is averaged over
the rows, and lower is better; ``reduce=False`` returns one score for each row. The formulas come
from `scoringrules`. This package checks the shapes first, so that (N,) is never combined with
(N, 1) by accident.
"""

from bne.metrics._distance import l1_distance
from bne.metrics._distributions import crps, crps_scorer, log_score, pit
from bne.metrics._summaries import coverage, crps_ensemble, interval_score, pinball_loss

__all__ = [
    "coverage",
    "crps",
    "crps_ensemble",
    "crps_scorer",
    "interval_score",
    "l1_distance",
    "log_score",
    "pinball_loss",
    "pit",
]
