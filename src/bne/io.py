"""Save fitted models to files, and load them; a model file is never a pickle."""

from bne._base.files import atomic
from bne._storage.archive import load, save
from bne._storage.errors import ModelFileError

__all__ = ["ModelFileError", "atomic", "load", "save"]
