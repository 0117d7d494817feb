"""Gaussian processes: kernels, their features, and how features follow the length-scale."""
