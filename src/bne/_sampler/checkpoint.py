"""Checkpoints: a run that was killed can continue from the draws on disk.

A folder holds ``run.json``, which describes the data and the settings of the run, and a folder of
files for every chain. A file holds the draws since the last file, and the state of the sampler
after them. So a run that continues gives the draws of an unbroken run, to the last bit.

Files are numpy archives, read without pickle. They appear whole or not at all. If a file cannot be
read, the chain continues from the file before it.
"""

import hashlib
import io
import json
import time
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from bne import __version__
from bne._base.files import atomic
from bne._base.typing import Array

INTERVAL = 2.0
"""Smallest number of seconds between two writes of a chain.

This much work is lost at most if a run is killed between blocks; shorter intervals write more
files.
"""

DESCRIPTION = "run.json"
"""Name of the file that describes the run."""

PACKAGES = ("jax", "jaxlib", "blackjax", "numpy", "scipy")
"""Packages whose versions are compared: another version of any of them may change the draws."""


class CheckpointError(ValueError):
    """An error for a checkpoint that does not belong to this run, or cannot be read."""


class Checkpoint(NamedTuple):
    """A folder of checkpoints.

    Attributes
    ----------
    folder : Path or None
        The folder; None stores nothing.
    run : str
        Digest of the description of the run, which every file of the run repeats.
    """

    folder: Path | None = None
    run: str = ""

    def part(self, name: str) -> "Checkpoint":
        """Return the checkpoint of the part of the run with this name."""
        return self if self.folder is None else self._replace(folder=self.folder / name)

    def chain(self, name: str) -> "ChainLog":
        """Return the log of the chain with this name."""
        return ChainLog(self.part(name).folder, self.run)


NO_CHECKPOINT = Checkpoint()
"""A checkpoint that stores nothing."""


def open_checkpoint(
    folder: str | Path | None, data: Mapping[str, Array], settings: Mapping[str, Any], seed: int
) -> tuple[Checkpoint, int]:
    """Open the checkpoint of a folder, or make one, and return it with the seed of its run.

    Parameters
    ----------
    data : dict of arrays
        Data on which the draws depend. If they differ from those of the checkpoint, an error is
        raised.
    settings : dict
        Settings on which the draws depend, compared in the same way. JSON must be able to hold
        them.
    seed : int
        Seed of a new run. A run that continues keeps its own.
    """
    if folder is None:
        return NO_CHECKPOINT, seed
    folder = Path(folder).resolve()
    folder.mkdir(parents=True, exist_ok=True)
    versions = {"bne": __version__} | {name: version(name) for name in PACKAGES}
    now = {
        "data": {name: _digest(values) for name, values in data.items()},
        "settings": json.loads(json.dumps({**versions, **settings}, default=_plain)),
    }
    description = folder / DESCRIPTION
    if not description.exists():
        if next(folder.rglob("*.npz"), None) is not None:
            raise CheckpointError(
                f"{str(folder)!r} has .npz files, but no {DESCRIPTION} that describes their run. "
                "Name another folder."
            )
        with atomic(description) as file:
            file.write(json.dumps(now | {"seed": seed}, indent=1).encode())
    text = description.read_text()
    try:
        before = json.loads(text)
        changed = [k for kind in now for k in _differing(before[kind], now[kind])]
        seed = int(before["seed"])
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise CheckpointError(
            f"{str(description)!r} is not the description of a run ({error!r}). Name another "
            "folder."
        ) from error
    if changed:
        raise CheckpointError(
            f"The checkpoint {str(folder)!r} belongs to a run with other {', '.join(changed)}. "
            "To continue it, repeat that call unchanged. To start a new run, name another folder."
        )
    return Checkpoint(folder, hashlib.sha256(text.encode()).hexdigest()), seed


def _differing(before: dict[str, Any], now: dict[str, Any]) -> list[str]:
    """Find the names whose values differ, or that only one of the two dictionaries has."""
    names = [*now, *(k for k in before if k not in now)]
    return [k for k in names if k not in now or k not in before or before[k] != now[k]]


def _plain(value: Any) -> Any:
    """Turn a NumPy number into a Python number."""
    return value.item()


def _digest(values: Array) -> str:
    values = np.ascontiguousarray(values)
    return hashlib.sha256(f"{values.dtype}{values.shape}".encode() + values.tobytes()).hexdigest()


class ChainLog:
    """Blocks of one chain: trees of arrays whose first axis counts iterations."""

    def __init__(self, folder: Path | None, run: str = "") -> None:
        self._folder = folder
        self._run = np.frombuffer(run.encode(), np.uint8)
        self._waiting: list[Any] = []
        self._next = 0
        self._written = 0.0

    def resume(self, block_like: Any, state_like: Any) -> tuple[list[Any], Any, int]:
        """Read the blocks on disk.

        Parameters
        ----------
        block_like, state_like
            A block and a state as `add` gets them. Files with arrays of other shapes are deleted.

        Returns
        -------
        blocks : list
            Blocks in their order.
        state
            State of the sampler after them; None without blocks.
        done : int
            Number of iterations in the blocks.
        """
        blocks, state, done = [], None, 0
        # here, and not in __init__: the chain may run on another machine
        self._written = time.monotonic()
        if self._folder is None:
            return blocks, state, done
        self._folder.mkdir(parents=True, exist_ok=True)
        for path in sorted(self._folder.glob(8 * "[0-9]" + ".npz")):  # others are not ours
            arrays = _read(path) if path.stem == f"{done:08d}" else None
            if arrays is None or not self._fits(arrays, block_like, state_like):
                path.unlink()  # it is damaged, belongs to another run, or follows such a file
                continue
            blocks.append(_tree(block_like, arrays, "block"))
            state = _tree(state_like, arrays, "state")
            done += len(arrays["block0"])
        self._next = done
        return blocks, state, done

    def _fits(self, arrays: dict[str, Array], block_like: Any, state_like: Any) -> bool:
        """Say whether the arrays of a file belong to this run and have the expected shapes."""
        expected = {f"block{i}": a.shape[1:] for i, a in enumerate(jax.tree.leaves(block_like))}
        expected |= {f"state{i}": a.shape for i, a in enumerate(jax.tree.leaves(state_like))}
        run = arrays.pop("run", None)
        found = {k: a.shape[1:] if k.startswith("block") else a.shape for k, a in arrays.items()}
        ours = run is not None and np.array_equal(run, self._run)
        return ours and found == expected

    def add(self, block: Any, state: Any, last: bool) -> None:
        """Keep a block. Waiting blocks are written every `INTERVAL` seconds, and at the `last`."""
        if self._folder is None:
            return
        self._waiting.append(block)
        if last or time.monotonic() - self._written > INTERVAL:
            joined = jax.tree.map(lambda *a: np.concatenate(a), *self._waiting)
            arrays = {f"block{i}": a for i, a in enumerate(jax.tree.leaves(joined))}
            arrays |= {f"state{i}": np.asarray(a) for i, a in enumerate(jax.tree.leaves(state))}
            with atomic(self._folder / f"{self._next:08d}.npz") as file:
                np.savez(file, run=self._run, **arrays)
            self._next += len(arrays["block0"])
            self._waiting, self._written = [], time.monotonic()


def _read(path: Path) -> dict[str, Array] | None:
    """Read the arrays of a file; return None if it is damaged.

    An error of the disk is raised: the file may be whole, and must not be deleted.
    """
    data = path.read_bytes()
    try:
        with np.load(io.BytesIO(data), allow_pickle=False) as arrays:
            return {name: arrays[name] for name in arrays.files}
    except MemoryError:
        raise
    except Exception:  # zipfile and numpy have a dozen ways to fail on a damaged file
        return None


def _tree(like: Any, arrays: dict[str, Array], prefix: str) -> Any:
    structure = jax.tree.structure(like)
    leaves = [arrays[f"{prefix}{i}"] for i in range(structure.num_leaves)]
    return jax.tree.unflatten(structure, leaves)
