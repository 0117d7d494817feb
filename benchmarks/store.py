"""Rows of a table that are stored as they come: a killed run goes on where it was."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1]))  # the folder of `paper`

from paper import store

FOLDER = Path(__file__).parent / "results"


def resume(name, keys, compute):
    """``paper.store``'s, for ``results/<name>.csv``."""
    return store.resume(FOLDER / f"{name}.csv", keys, compute)
