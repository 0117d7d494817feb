"""Tables of results that are stored row by row, so that a killed run can be continued."""

from collections.abc import Callable, Iterable, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pandas as pd
from joblib import Parallel, delayed, parallel_config
from tqdm import tqdm

Row = dict[str, Any]


def resume(
    path: Path,
    keys: Iterable[Row],
    compute: Callable[..., Row | Sequence[Row]],
    *,
    n_jobs: int | None = 1,
    quiet: bool = False,
) -> pd.DataFrame:
    """Compute the rows that the table at `path` does not hold yet, and return the whole table.

    Whenever a task ends, the file is replaced by a new one. So the file is complete at any time.
    Its rows are sorted by key, in whatever order the tasks end.

    Parameters
    ----------
    path : Path
        The CSV file.
    keys : iterable of dict
        One key for each task: what identifies the task, as columns of the table.
    compute : function
        Takes a key as keyword arguments, and returns one row or several.
    n_jobs : int
        Tasks at a time, each in a process of its own if there are several (joblib).
    quiet : bool
        Show no progress bar.
    """
    keys = list(keys)
    names = list(keys[0])
    done = pd.read_csv(path) if path.exists() else pd.DataFrame(columns=names)
    stored = {tuple(row) for row in done[names].itertuples(index=False)}
    missing = [key for key in keys if tuple(key.values()) not in stored]
    path.parent.mkdir(parents=True, exist_ok=True)
    # a single task at a time runs in this process, and may use all of its threads
    alone = n_jobs == 1
    with nullcontext() if alone else parallel_config("loky", inner_max_num_threads=1):
        tasks = Parallel(n_jobs=n_jobs, return_as="generator_unordered")(
            delayed(_keyed)(compute, key) for key in missing
        )
        for rows in tqdm(tasks, path.stem, total=len(missing), disable=quiet or not missing):
            new = pd.DataFrame(rows)
            done = new if done.empty else pd.concat([done, new], ignore_index=True)
            done = done.sort_values(names, kind="stable")
            replace(path, done.to_csv(index=False, float_format="%.6g"))
    return pd.read_csv(path)


def replace(path: Path, text: str) -> None:
    """Write a file completely, or leave the old one as it is."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(path.name + ".partial")
    partial.write_text(text, encoding="utf-8")
    partial.replace(path)


def _keyed(compute: Callable[..., Row | Sequence[Row]], key: Row) -> list[Row]:
    result = compute(**key)
    return [key | row for row in ([result] if isinstance(result, dict) else result)]
