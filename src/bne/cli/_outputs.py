"""Checks of the files that a command will write, before it begins its work."""

import os
from collections.abc import Sequence
from pathlib import Path

from bne._base.files import check_writable
from bne.cli import _files

MODEL, REPORT, TABLE = (".bne",), (".html", ".htm"), tuple(_files.KINDS)
"""Endings of the names of outputs: model files, reports and tables."""


def check_output(path: Path, endings: Sequence[str], inputs: Sequence[Path | None]) -> None:
    """Raise an error if an output cannot be written, or would replace what it must not replace.

    Parameters
    ----------
    path : Path
        The output.
    endings : list of str
        Endings that its name may have.
    inputs : list of Path or None
        Inputs of the same command, which it must not replace.
    """
    if not path.name.lower().endswith(tuple(endings)):
        raise ValueError(
            f"The output {path.name!r} has an unknown extension for this command. Use one of "
            f"{', '.join(endings)}."
        )
    for source in inputs:
        if source is not None and _within(path, source):
            raise ValueError(
                f"The output {str(path)!r} would replace the input {str(source)!r}. Name another "
                "output."
            )
    folder = path.absolute().parent
    if not folder.is_dir():
        raise FileNotFoundError(f"There is no folder {str(folder)!r} to write to. Create it first.")
    if tuple(endings) == TABLE:
        _files.kind_of(path)  # raises if its package is missing
    if path.name.lower().endswith(".zarr"):
        _files.check_replaceable(path)
    elif path.is_dir():
        raise IsADirectoryError(f"{str(path)!r} is a folder. Name a file.")
    check_writable(path)


def _within(path: Path, source: Path) -> bool:
    """Say whether writing `path` would change `source`: the same file, or one of its folders."""
    output, given = Path(os.path.realpath(path)), Path(os.path.realpath(source))
    if output.exists() and given.exists() and output.samefile(given):
        return True
    return output == given or given in output.parents or output in given.parents
