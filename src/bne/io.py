"""Save fitted models to files, and load them; a model file is never a pickle."""

from collections.abc import Sequence
from pathlib import Path

from bne._base.files import atomic
from bne._regressor import BNERegressor
from bne._storage.archive import load_as, save
from bne._storage.errors import ModelFileError

__all__ = ["ModelFileError", "atomic", "load", "save"]


def load(path: str | Path, *, trusted: Sequence[str] = ()) -> BNERegressor:
    """Read a model that `save` wrote; predictions are the same to the last digit.

    Parameters
    ----------
    trusted : list of str
        Types that stored experts may hold beyond those skops trusts by itself. Loading a file never
        runs code of its own.
    """
    return load_as(BNERegressor, path, trusted)
