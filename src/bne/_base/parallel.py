"""Parallel work through joblib."""

from joblib import Parallel


def parallel(n_jobs: int | None, return_as: str) -> Parallel:
    """Make a `Parallel` for the backend that joblib uses at the moment.

    A backend that cannot return results one by one, such as Ray's, returns all at once.
    """
    try:
        return Parallel(n_jobs=n_jobs, return_as=return_as)
    except ValueError:
        return Parallel(n_jobs=n_jobs)
