"""Rows of a table that are stored as they come: a killed run goes on where it was."""

from pathlib import Path

import pandas as pd

FOLDER = Path(__file__).parent / "results"


def resume(name, keys, compute):
    """Compute the rows that ``results/<name>.csv`` does not hold yet, and return the whole table.

    Parameters
    ----------
    keys : iterable of dict
        What tells one row from another.
    compute : function
        Keyword arguments of one key -> dict of results.
    """
    path = FOLDER / f"{name}.csv"
    FOLDER.mkdir(exist_ok=True)
    done = pd.read_csv(path) if path.exists() else pd.DataFrame()
    for key in keys:
        if len(done) and (done[list(key)] == pd.Series(key)).all(axis=1).any():
            continue
        row = key | compute(**key)
        done = pd.concat([done, pd.DataFrame([row])], ignore_index=True)
        partial = path.with_suffix(".partial")
        done.to_csv(partial, index=False, float_format="%.5f")
        partial.replace(path)
        print({k: round(v, 3) if isinstance(v, float) else v for k, v in row.items()}, flush=True)
    return done
