"""Joblib's engine of the moment."""

from joblib import Parallel


def parallel(n_jobs: int | None, return_as: str) -> Parallel:
    """Joblib's engine of the moment; one that cannot, as Ray's, gives all results at once."""
    try:
        return Parallel(n_jobs=n_jobs, return_as=return_as)
    except ValueError:
        return Parallel(n_jobs=n_jobs)
