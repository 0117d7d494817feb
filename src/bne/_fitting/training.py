"""The training rows as the densities see them: outcomes, and tables of the mean's terms.

In this file F is the matrix of the experts' predictions at the training rows, and not a CDF.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from bne._base.priors import Priors, length_scale_grid
from bne._base.typing import Array
from bne._data.places import Places
from bne._data.rows import Rows
from bne._mean.residual import places_of
from bne._mean.term import Term, fixed_features, moving, priors_of
from bne._process.interpolation import N_NODES


class Training(NamedTuple):
    """Outcomes, and the features of all terms at the training rows.

    Attributes
    ----------
    y : (n,)
        Outcomes.
    F : (n, K)
        Features that depend on no length-scale: the experts' predictions.
    table : (J, U, m)
        Features that depend on a length-scale (those of delta), at the places of the rows and at
        every node; m = 0 in a model without delta.
    grid : (J,)
        Log length-scales of the nodes.
    places : Places
        The rows that share their inputs.
    priors : Priors
        Priors of the hyperparameters.
    power : float
        Power to which the likelihood is raised: every row counts that many times.
    """

    y: Array
    F: Array
    table: Array
    grid: Array
    places: Places
    priors: Priors
    power: float = 1.0

    def rotated(self, rotations: Array) -> "Training":
        """Return the same rows with rotated features."""
        return self._replace(table=self.table @ rotations)


def training(rows: Rows, y: Array, terms: Sequence[Term], power: float = 1.0) -> Training:
    """Tabulate the terms at the training rows."""
    mover, priors = moving(terms), priors_of(terms)
    places = places_of(rows, mover)
    if mover is None:
        table = np.zeros((N_NODES, len(places.first), 0))
    else:
        table = mover.tabulate(rows.part(places.first))
    grid = length_scale_grid(priors.ell, N_NODES)
    return Training(y, fixed_features(terms, rows), table, grid, places, priors, power)
