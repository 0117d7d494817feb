"""Save fitted models to files, and load them. A model file is never a pickle."""

from collections.abc import Sequence
from pathlib import Path

from bne._base.files import atomic
from bne._regressor import BNERegressor
from bne._regressor.settings import check_settings
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
    model = load_as(BNERegressor, path, trusted)
    try:
        check_settings(model)
    except ValueError as error:
        raise ModelFileError(
            f"{str(path)!r} is not a valid model file: {error} Save the model again."
        ) from error
    return model
