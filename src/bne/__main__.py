"""The command line: ``bne`` and ``python -m bne``."""

import sys


def main() -> None:
    """Run the command, or say which package is missing."""
    try:
        from bne.cli import app
    except ModuleNotFoundError as error:
        sys.exit(
            f"The command `bne` needs {error.name}, which is missing. Install the extra `cli`."
        )
    app()


if __name__ == "__main__":
    main()
