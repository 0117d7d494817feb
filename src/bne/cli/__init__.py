"""The command ``bne``; it needs the extra ``cli``."""

from bne.cli.commands import app

__all__ = ["app"]
