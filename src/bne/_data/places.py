"""Rows that share their inputs, as a station's days do: what inputs alone decide is found once.

With U places in n rows, delta, h and the normaliser of G cost O(U m) in place of O(n m).
"""

from typing import NamedTuple

import numpy as np

from bne._base.typing import Array, Integers

FEW = 0.5
"""Places, as a share of the rows, above which it does not pay to tell them from rows."""


class Places(NamedTuple):
    """Which rows share their inputs.

    Attributes
    ----------
    first : (U,)
        A row at each place.
    of_row : (n,)
        The place of each row.
    """

    first: Integers
    of_row: Integers

    @property
    def shared(self) -> bool:
        """Whether some place has several rows; otherwise places are the rows, in their order."""
        return len(self.first) < len(self.of_row)

    def sums(self, values: Array) -> Array:
        """Sums (U, ...) of (n, ...) over the rows of each place."""
        if not self.shared:
            return values
        out = np.zeros((len(self.first), *values.shape[1:]))
        np.add.at(out, self.of_row, values)
        return out

    def raised(self, values: Array, weights: Array | None = None) -> Array:
        """Values (..., U, m) times the root of the weight of their place."""
        if weights is None and not self.shared:
            return values
        weights = np.ones(len(self.of_row)) if weights is None else weights
        return np.sqrt(self.sums(weights))[:, None] * values

    def folded(self, values: Array, weights: Array | None = None) -> Array:
        """What of (n, ...) an array that is constant at each place can see: (U, ...).

        With D the rows' weights and C those of the places, `raised` ``sqrt(C) a`` stands for
        ``sqrt(D) a`` at the rows in all products with itself, and with this for ``sqrt(D) values``.
        """
        weights = np.ones(len(self.of_row)) if weights is None else weights
        column = (slice(None), *[None] * (values.ndim - 1))
        total = np.sqrt(self.sums(weights))[column]
        return self.sums(weights[column] * values) / np.where(total > 0, total, 1.0)


def every_row(n: int) -> Places:
    """Each row is a place of its own."""
    return Places(np.arange(n), np.arange(n))


def find_places(x: Array) -> Places:
    """Places of inputs (n, d), where they are few."""
    n, d = x.shape
    if d == 0:
        return Places(np.zeros(1, dtype=int), np.zeros(n, dtype=int))
    _, first, of_row = np.unique(x, axis=0, return_index=True, return_inverse=True)
    return Places(first, of_row.ravel()) if len(first) <= FEW * n else every_row(n)
