"""The warning about posteriors that cannot be trusted yet."""


class SamplingWarning(UserWarning):
    """A warning that the draws are not good enough. Its message names the remedy."""
