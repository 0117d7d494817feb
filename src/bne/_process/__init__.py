"""Gaussian processes: kernels, features, and interpolation of features over the length-scale."""
