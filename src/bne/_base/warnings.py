"""The one warning class for posteriors that cannot be trusted yet."""


class SamplingWarning(UserWarning):
    """The sampler's draws are not good enough; the message names the remedy."""
