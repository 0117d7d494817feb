"""Axes of the experts on the training rows, and features clear of them: for coordinates only.

Products are weighted by the rows' precision.
"""

import numpy as np

from bne._base.typing import Array
from bne._data.places import Places


def expert_axes(F: Array, weights: Array) -> tuple[Array, Array, Array]:
    """E, s and U with ``F U = E sqrt(s)`` and ``E^T D E = I``, D the rows' weights.

    Directions that the experts do not span have s = 0 and a zero column in E.
    """
    s, U = np.linalg.eigh((F * weights[:, None]).T @ F)
    spanned = s > 1e-12 * np.max(s, initial=0.0)
    s = np.where(spanned, s, 0.0)
    return np.where(spanned, F @ U, 0.0) / np.sqrt(np.where(spanned, s, 1.0)), s, U


def without_experts(
    table: Array, E: Array, weights: Array, places: Places, share: float = 1.0
) -> Array:
    """Weighted features (J, U, m) less this share of what the experts can express.

    With D the rows' weights, products of the answer's columns are those of ``sqrt(D) (I - share E
    E^T D) a`` at the rows.
    """
    seen, size, _ = np.linalg.svd(places.folded(E, weights), full_matrices=False)
    left = 1.0 - share * (2.0 - share) * size**2
    lost = 1.0 - np.sqrt(np.where(left > 1e-12, left, 0.0))
    weighted = places.raised(table, weights)
    return weighted - (lost * seen) @ (seen.T @ weighted)
