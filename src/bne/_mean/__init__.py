"""The mean of the model: a sum of Gaussian terms, and its closed forms."""
