"""The mean mu of the model: a sum of Gaussian terms, with closed forms."""
