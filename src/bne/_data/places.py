"""Places: the distinct inputs of the rows. Many rows may share one, such as the days of a station.

All quantities that depend on the inputs alone are computed once at each place. With U places in n
rows, delta and G then cost O(U m) in place of O(n m).
"""

from typing import NamedTuple

import numpy as np

from bne._base.typing import Array, Integers

FEW = 0.5
"""Largest number of places, as a share of the rows, for which places are used.

With more places little work is saved, and looking values up row by row costs time.
"""


class Places(NamedTuple):
    """The places of n rows: which rows share their inputs.

    Attributes
    ----------
    first : (U,)
        Index of the first row at each place.
    of_row : (n,)
        Index of the place of each row.
    """

    first: Integers
    of_row: Integers

    @property
    def shared(self) -> bool:
        """Whether some place has several rows. If not, the places are the rows, in their order."""
        return len(self.first) < len(self.of_row)

    def sums(self, values: Array) -> Array:
        """Sum values (n, ...) over the rows of each place: (U, ...)."""
        if not self.shared:
            return values
        out = np.zeros((len(self.first), *values.shape[1:]))
        np.add.at(out, self.of_row, values)
        return out

    def raised(self, values: Array, weights: Array | None = None) -> Array:
        """Multiply values (..., U, m) by the square root of the weight of their place.

        The weight of a place is the sum of the weights (n,) of its rows, which are 1 if None.
        """
        if weights is None and not self.shared:
            return values
        weights = np.ones(len(self.of_row)) if weights is None else weights
        return np.sqrt(self.sums(weights))[:, None] * values

    def folded(self, values: Array, weights: Array | None = None) -> Array:
        """Average values (n, ...) over the rows of each place, times the root of its weight.

        Let D be the diagonal matrix of the weights of the rows, and let a (U, m) have one row for
        each place. Then ``raised(a)^T folded(values)`` is the product ``a^T D values`` over all
        rows, with a repeated at the rows of each place. The result is (U, ...).
        """
        weights = np.ones(len(self.of_row)) if weights is None else weights
        column = (slice(None), *[None] * (values.ndim - 1))
        total = np.sqrt(self.sums(weights))[column]
        return self.sums(weights[column] * values) / np.where(total > 0, total, 1.0)


def every_row(n: int) -> Places:
    """Make each row a place of its own."""
    return Places(np.arange(n), np.arange(n))


def find_places(x: Array) -> Places:
    """Find the places of inputs x (n, d); if they are many, each row is a place of its own."""
    n, d = x.shape
    if d == 0:
        return Places(np.zeros(1, dtype=int), np.zeros(n, dtype=int))
    _, first, of_row = np.unique(x, axis=0, return_index=True, return_inverse=True)
    return Places(first, of_row.ravel()) if len(first) <= FEW * n else every_row(n)
