"""Progress of chains that run in threads, and how these threads are stopped."""

import threading
from collections.abc import Callable
from typing import Any


class StoppedError(RuntimeError):
    """An error that ends a chain after another one failed or the user interrupted the run."""


class Here:
    """A progress function that works in this process, and does nothing in another one.

    It also stops the chains that run in threads. A thread must not run a compiled program while
    Python ends, because that crashes the process.
    """

    def __init__(self, function: Callable[[int], object]) -> None:
        self._function = function
        self._stopped, self._running = False, 0
        self._changed = threading.Condition()

    def __call__(self, n: int) -> None:
        """Report that n more iterations are done."""
        if self._stopped:
            raise StoppedError("The run was stopped.")
        self._function(n)

    def __enter__(self) -> None:
        """Count a chain that begins."""
        with self._changed:
            self._running += 1

    def __exit__(self, *error: object) -> None:
        """Count a chain that ends."""
        with self._changed:
            self._running -= 1
            self._changed.notify_all()

    def stop(self) -> None:
        """Stop every chain when its block is done, and wait until all have stopped."""
        self._stopped = True
        with self._changed:
            self._changed.wait_for(lambda: self._running == 0)

    def __reduce__(self) -> tuple[Any, ...]:
        """Leave the progress bar behind: it cannot be sent to another process."""
        return Here, (no_report,)


def no_report(n: int) -> None:
    """Do nothing: worker processes do not report progress."""
