"""How a command ends: errors and warnings in one line, and exit codes."""

import functools
import inspect
import signal
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Annotated, Any

import typer

EXPECTED = (ValueError, OSError, ModuleNotFoundError)
"""Errors that bad input may cause. Any other error is a defect, and its traceback is shown."""

Debug = Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")]


def friendly(command: Callable[..., None]) -> Callable[..., None]:
    """Make a command show errors and warnings in one line each.

    An error that the user can correct ends the command with exit code 1. The command gets the
    option ``--debug``, which shows the traceback instead. Ctrl-C and SIGTERM end it with the exit
    codes 130 and 143.
    """

    @functools.wraps(command)
    def run(*args: Any, debug: bool = False, **options: Any) -> None:
        with warnings.catch_warnings():
            warnings.showwarning = _show_warning
            try:
                with _terminated():
                    command(*args, **options)
            except (KeyboardInterrupt, Terminated) as stop:
                typer.echo(f"\n{_what_is_kept(options)}", err=True)  # below a progress bar
                raise typer.Exit(130 if isinstance(stop, KeyboardInterrupt) else 143) from None
            except EXPECTED as error:
                if debug:
                    raise
                message = " ".join(str(error).split())
                typer.echo(f"Error: {message}", err=True)
                raise typer.Exit(1) from None

    run.__signature__ = _with_debug(command)  # type: ignore[attr-defined]
    return run


class Terminated(BaseException):
    """SIGTERM, as an exception: open files are cleaned up on the way out."""


@contextmanager
def _terminated() -> Iterator[None]:
    """Turn SIGTERM into an exception; only the main thread can do so."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def end(*_: object) -> None:
        raise Terminated

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _what_is_kept(options: dict[str, Any]) -> str:
    """Say in one line what a stopped command leaves, and how to go on."""
    if "checkpoint" not in options:
        return "Stopped. Nothing was written."
    if options["checkpoint"] is None:
        return (
            "Stopped. No draws are kept; with `--checkpoint FOLDER` a stopped fit goes on when you "
            "repeat it."
        )
    return (
        f"Stopped. The draws so far are kept in {str(options['checkpoint'])!r}; repeat the command "
        "to go on."
    )


def _with_debug(command: Callable[..., None]) -> Any:
    """Return the command's signature with the option ``--debug`` added."""
    signature = inspect.signature(command)
    debug = inspect.Parameter(
        "debug", inspect.Parameter.KEYWORD_ONLY, default=False, annotation=Debug
    )
    return signature.replace(parameters=[*signature.parameters.values(), debug])


def _show_warning(message: Any, *_: Any, **__: Any) -> None:
    """Print a warning in one line."""
    typer.echo(f"Warning: {' '.join(str(message).split())}", err=True)
