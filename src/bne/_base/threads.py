"""Hold BLAS to one thread where its matrices are small and many."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from threadpoolctl import threadpool_limits

_lock = threading.Lock()
_inside = 0
_limit: threadpool_limits | None = None


@contextmanager
def single_blas_thread() -> Iterator[None]:
    """One BLAS thread while any fit is inside; the caller's setting when the last one leaves.

    The setting belongs to the process, so fits in threads must not each save and restore it.
    """
    global _inside, _limit
    with _lock:
        if _inside == 0:
            _limit = threadpool_limits(1, user_api="blas")
        _inside += 1
    try:
        yield
    finally:
        with _lock:
            _inside -= 1
            if _inside == 0 and _limit is not None:
                _limit.restore_original_limits()
