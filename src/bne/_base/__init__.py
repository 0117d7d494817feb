"""What every layer uses: types, warnings, threads, files, linear algebra, priors, checks."""
