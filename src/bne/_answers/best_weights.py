"""The weights under which the experts come nearest to the truth, draw by draw."""

import numpy as np

from bne._base.typing import Array
from bne._data.rows import Rows
from bne._draws.stage import Stage
from bne._law.conditional import chunks, conditional_draws

ALIKE = 1e-4
"""Combinations of the experts that are smaller than this part of the largest are not weighted."""

WEIGHED_ROWS = 1000
"""Rows at the most that the best weights are worked out from."""


def best_weights(stage: Stage, rows: Rows) -> Array:
    """Weights that come nearest to E[y|x] at these rows in every draw: (S, K).

    They are found by least squares: what delta, G and the experts can all express is given to the
    experts. Where rows are many, some of them, evenly spaced, are used.
    """
    kept = np.linspace(0, len(rows.f) - 1, min(len(rows.f), WEIGHED_ROWS)).round().astype(int)
    rows = rows.part(kept)
    parts = chunks(len(kept), stage.row_elements * stage.draws.size)
    means = [conditional_draws(stage, rows.part(part)).moments()[0] for part in parts]
    return np.concatenate(means, axis=1) @ np.linalg.pinv(rows.f, rcond=ALIKE).T
