"""The error for model files that cannot be read."""


class ModelFileError(ValueError):
    """An error for a file that is damaged, not a model file, or of a format that is not read."""
