"""The one error of model files."""


class ModelFileError(ValueError):
    """A file that is not a whole model file of a version this package reads."""
