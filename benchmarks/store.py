"""Tables of results that are stored row by row, so that a killed run can be continued."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1]))  # the folder of `paper`

from paper import store

FOLDER = Path(__file__).parent / "results"


def resume(name, keys, compute):
    """Call ``paper.store.resume`` with the file ``results/<name>.csv``."""
    return store.resume(FOLDER / f"{name}.csv", keys, compute)
