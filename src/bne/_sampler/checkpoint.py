"""Runs that survive being killed: every chain's blocks on disk, and what they belong to.

A folder holds ``run.json``, which says of what data and settings the run is, and a folder of blocks
for every chain. A block's file has the draws made since the last one and the sampler's state after
them, so that going on from it gives the draws of an unbroken run to the last bit. Files are numpy
archives, read without pickle; they appear whole or not at all, and one that cannot be read ends
what is gone on from.
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
"""Seconds between two writes of a chain."""

DESCRIPTION = "run.json"

PACKAGES = ("jax", "jaxlib", "blackjax", "numpy", "scipy")
"""Another version of any may change the draws, as one of ours may."""


class CheckpointError(ValueError):
    """A checkpoint of another run than the one that was asked for."""


class Checkpoint(NamedTuple):
    """A folder of checkpoints, or None for none, and the run that it is of."""

    folder: Path | None = None
    run: str = ""

    def part(self, name: str) -> "Checkpoint":
        """The part of the run with this name."""
        return self if self.folder is None else self._replace(folder=self.folder / name)

    def chain(self, name: str) -> "ChainLog":
        """The blocks of one chain."""
        return ChainLog(self.part(name).folder, self.run)


NO_CHECKPOINT = Checkpoint()


def open_checkpoint(
    folder: str | Path | None, data: Mapping[str, Array], settings: Mapping[str, Any], seed: int
) -> tuple[Checkpoint, int]:
    """The folder's checkpoint, made if there is none, and the seed of its run.

    Parameters
    ----------
    data : dict of arrays
        What the draws depend on; a change of any is refused.
    settings : dict
        Likewise; values that JSON can hold.
    seed : int
        Of a new run; one that goes on has its own, unless ``settings["random_state"]`` differs.
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
                f"{str(folder)!r} has draws, but no {DESCRIPTION} that says of what run. Name "
                "another folder, or delete this one."
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
            f"{str(description)!r} is not the description of a run ({error!r}). Delete the folder, "
            "or name another one."
        ) from error
    if changed:
        raise CheckpointError(
            f"The checkpoint {str(folder)!r} belongs to a run with other {', '.join(changed)}. "
            "Repeat that call unchanged to go on with it, or name another folder."
        )
    return Checkpoint(folder, hashlib.sha256(text.encode()).hexdigest()), seed


def _differing(before: dict[str, Any], now: dict[str, Any]) -> list[str]:
    """Names whose values differ, or that only one of the two has."""
    names = [*now, *(k for k in before if k not in now)]
    return [k for k in names if k not in now or k not in before or before[k] != now[k]]


def _plain(value: Any) -> Any:
    """A NumPy number as Python's."""
    return value.item()


def _digest(values: Array) -> str:
    values = np.ascontiguousarray(values)
    return hashlib.sha256(f"{values.dtype}{values.shape}".encode() + values.tobytes()).hexdigest()


class ChainLog:
    """Blocks of one chain: trees of arrays whose first axis is that of iterations."""

    def __init__(self, folder: Path | None, run: str = "") -> None:
        self._folder = folder
        self._run = np.frombuffer(run.encode(), np.uint8)
        self._waiting: list[Any] = []
        self._next = 0
        self._written = 0.0

    def resume(self, block_like: Any, state_like: Any) -> tuple[list[Any], Any, int]:
        """Blocks on disk, the state after them (None without any), and the iterations they hold.

        Parameters
        ----------
        block_like, state_like
            Trees of the shape that `add` is given.
        """
        blocks, state, done = [], None, 0
        self._written = time.monotonic()  # of the machine that samples
        if self._folder is None:
            return blocks, state, done
        self._folder.mkdir(parents=True, exist_ok=True)
        for path in sorted(self._folder.glob("*.npz")):
            arrays = _read(path) if path.stem == f"{done:08d}" else None
            if arrays is None or not self._fits(arrays, block_like, state_like):
                path.unlink()  # damaged, of another run, or after such a one
                continue
            blocks.append(_tree(block_like, arrays, "block"))
            state = _tree(state_like, arrays, "state")
            done += len(arrays["block0"])
        self._next = done
        return blocks, state, done

    def _fits(self, arrays: dict[str, Array], block_like: Any, state_like: Any) -> bool:
        """Whether a file's arrays are of this run, and have the shapes of its draws and state."""
        expected = {f"block{i}": a.shape[1:] for i, a in enumerate(jax.tree.leaves(block_like))}
        expected |= {f"state{i}": a.shape for i, a in enumerate(jax.tree.leaves(state_like))}
        run = arrays.pop("run", None)
        found = {k: a.shape[1:] if k.startswith("block") else a.shape for k, a in arrays.items()}
        ours = run is not None and np.array_equal(run, self._run)
        return ours and found == expected

    def add(self, block: Any, state: Any, last: bool) -> None:
        """Keep a block; write what waits when it is time to, or with the `last` one."""
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
    """Arrays of a file, or None where it is damaged; a disk that cannot be read is no damage."""
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
