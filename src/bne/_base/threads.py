"""Limit BLAS to one thread, which is quicker for many small matrices."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from threadpoolctl import threadpool_limits

_lock = threading.Lock()
_inside = 0
_limit: threadpool_limits | None = None


@contextmanager
def single_blas_thread() -> Iterator[None]:
    """Limit BLAS to one thread while any fit is inside, and restore the setting after the last.

    The setting belongs to the whole process. So fits in several threads must not each save and
    restore it: the first one saves it, and the last one restores it.
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
