"""Save fitted models to files, and load them. A model file is never a pickle."""

from collections.abc import Sequence
from pathlib import Path

from bne._base.files import atomic
from bne._regressor import BNERegressor
from bne._storage.archive import load_as, save
from bne._storage.errors import ModelFileError

__all__ = ["ModelFileError", "atomic", "load", "save"]


def load(path: str | Path, *, trusted: Sequence[str] = ()) -> BNERegressor:
    """Read a model that `save` wrote. Its predictions are the same to the last digit.

    Loading a file never runs code that the file holds.

    Parameters
    ----------
    path : path
        The model file.
    trusted : list of str
        Types that stored regressors may contain, besides those that skops trusts by itself.
    """
    return load_as(BNERegressor, path, trusted)
