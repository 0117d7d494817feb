"""The command ``bne``; it needs the extra ``cli``."""

from bne.cli._commands import app

__all__ = ["app"]
