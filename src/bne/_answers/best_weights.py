"""The best weights: those under which the experts come nearest to E[y|x], in every draw."""

import numpy as np

from bne._base.typing import Array
from bne._data.rows import Rows
from bne._draws.stage import Stage
from bne._law.conditional import chunks, conditional_draws

ALIKE = 1e-4
"""Cut-off for singular values of the experts' predictions, relative to the largest one.

Combinations of experts that vary less than this get no weight. A lower cut-off would give experts
that are nearly alike huge weights of opposite signs; a higher one would leave out real differences.
"""

WEIGHED_ROWS = 1000
"""The best weights are found from at most this many rows: more rows take time and memory."""


def best_weights(stage: Stage, rows: Rows) -> Array:
    """Find the weights that come nearest to E[y|x] at these rows, in every draw: (S, K).

    They are found by least squares. So the experts get everything that they can express, even if
    delta or G can express it, too. When there are more than `WEIGHED_ROWS` rows, evenly spaced ones
    are used.
    """
    kept = np.linspace(0, len(rows.f) - 1, min(len(rows.f), WEIGHED_ROWS)).round().astype(int)
    rows = rows.part(kept)
    parts = chunks(len(kept), stage.row_elements * stage.draws.size)
    means = [conditional_draws(stage, rows.part(part)).moments()[0] for part in parts]
    return np.concatenate(means, axis=1) @ np.linalg.pinv(rows.f, rcond=ALIKE).T
