"""Tools for every layer: types, warnings, threads, files, linear algebra, priors, checks."""
