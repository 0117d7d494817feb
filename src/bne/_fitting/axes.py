"""Axes of the experts' predictions, and features from which these axes are removed.

They serve only to find good coordinates for the sampler: the posterior does not depend on them. All
products are weighted by the precision of the rows. In this file F is the matrix of the experts'
predictions at the training rows, (n, K), and not a CDF.
"""

import numpy as np

from bne._base.typing import Array
from bne._data.places import Places


def expert_axes(F: Array, weights: Array) -> tuple[Array, Array, Array]:
    """Find E, s and the axes V with ``F V = E sqrt(s)`` and ``E^T D E = I``.

    F (n, K) holds the experts' predictions at the training rows, and D is the diagonal matrix of
    the rows' weights. A direction that the experts do not span has s = 0 and a zero column in E.
    """
    s, V = np.linalg.eigh((F * weights[:, None]).T @ F)
    spanned = s > 1e-12 * np.max(s, initial=0.0)
    s = np.where(spanned, s, 0.0)
    return np.where(spanned, F @ V, 0.0) / np.sqrt(np.where(spanned, s, 1.0)), s, V


def without_experts(
    table: Array, E: Array, weights: Array, places: Places, share: float = 1.0
) -> Array:
    """Subtract from features (J, U, m) a share of what the experts can express.

    The result has one row for each place. Products of its columns equal those of
    ``sqrt(D) (I - share E E^T D) a`` at the rows, where D is the diagonal matrix of the rows'
    weights and a is a column of the features.
    """
    seen, size, _ = np.linalg.svd(places.folded(E, weights), full_matrices=False)
    left = 1.0 - share * (2.0 - share) * size**2
    lost = 1.0 - np.sqrt(np.where(left > 1e-12, left, 0.0))
    weighted = places.raised(table, weights)
    return weighted - (lost * seen) @ (seen.T @ weighted)
