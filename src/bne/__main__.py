"""The command line: ``bne`` and ``python -m bne``."""

import os
import sys

STOPPED = (130, 143)
"""Exit codes of a command that Ctrl-C or SIGTERM ended."""


def main() -> None:
    """Run the command, or say which package is missing."""
    try:
        from bne.cli import app
    except ModuleNotFoundError as error:
        sys.exit(
            f"The command `bne` needs {error.name}, which is missing. Install the extra `cli`."
        )
    try:
        app()
    except SystemExit as end:
        if end.code in STOPPED:
            # JAX may still compute in threads of its own, and crashes if Python ends before them
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(int(end.code))
        raise


if __name__ == "__main__":
    main()
