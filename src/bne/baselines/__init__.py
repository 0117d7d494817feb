"""Comparators: other methods that predict a distribution from the models' predictions.

Each method has ``fit(X, y)`` and ``predict_distribution(X)``. X is a frame that holds the inputs
and the models' predictions (the "experts"). The methods need the extra ``baselines``.

`COMPARATORS` is the one list of them. To add a method, write it in a file of its own and declare it
here. The paper's experiments then run it on every data set whose results are not stored yet.
"""

from typing import Any

from bne.baselines._comparator import Comparator
from bne.baselines._deep_ensemble import DeepEnsemble
from bne.baselines._kde import ConditionalKDE
from bne.baselines._laws import Mixture, QuantileLaw
from bne.baselines._mixture_of_experts import MixtureOfExperts
from bne.baselines._stacking import BayesianStacking
from bne.baselines._trees import NaturalGradientBoosting, QuantileForest

__all__ = [
    "COMPARATORS",
    "BayesianStacking",
    "Comparator",
    "ConditionalKDE",
    "DeepEnsemble",
    "Mixture",
    "MixtureOfExperts",
    "NaturalGradientBoosting",
    "QuantileForest",
    "QuantileLaw",
    "comparators",
]

COMPARATORS = (
    # the search for the bandwidths takes a time that grows with the square of the rows
    Comparator(
        "CondKDE",
        ConditionalKDE,
        needs=("inputs",),
        least_inputs=1,
        most_inputs=3,
        most_rows=2000,
    ),
    Comparator("stack", BayesianStacking, needs=("experts", "random_state"), least_experts=2),
    Comparator("BME", MixtureOfExperts, least_inputs=1),
    Comparator("DeepEns", DeepEnsemble),
    Comparator("NGBoost", NaturalGradientBoosting),
    Comparator("QRF", QuantileForest),
)
"""All comparators, in the order in which they are run."""


def comparators(
    experts: list[str], inputs: list[str], n_rows: int, random_state: int = 0
) -> dict[str, Any]:
    """Return the comparators that can be fitted to data of this size, by short name.

    Parameters
    ----------
    experts, inputs : list of str
        Columns of the experts' predictions and of the inputs.
    n_rows : int
        Number of training rows.
    random_state : int, default=0
        Seed of the methods that draw at random.

    Returns
    -------
    methods : dict of str to estimator
        The estimators are not fitted yet.
    """
    given = {"experts": experts, "inputs": inputs, "random_state": random_state}
    return {
        one.name: one.build(**given)
        for one in COMPARATORS
        if one.applies_to(len(experts), len(inputs), n_rows)
    }
