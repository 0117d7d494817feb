"""Files that appear whole or not at all."""

import os
import secrets
import shutil
from contextlib import suppress
from pathlib import Path
from typing import Any


class atomic:  # noqa: N801  used like a function
    """Open a temporary file beside `path` for writing; rename it to `path` if no error occurs.

    A file that is replaced passes its permissions on. If `path` is a link, the file that it points
    to is replaced, and the link stays.
    """

    def __init__(self, path: str | Path) -> None:
        self.path: Path = Path(path)

    def __enter__(self) -> Any:
        """Open the temporary file."""
        self._target = Path(os.path.realpath(self.path))
        folder = self._target.parent
        if not folder.is_dir():
            raise FileNotFoundError(
                f"There is no folder {str(folder)!r} to write to. Make it first."
            )
        self._temporary = folder / f".{self._target.name}.{secrets.token_hex(4)}"
        # the operating system applies the user's mask to the permissions
        handle = os.open(self._temporary, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o666)
        self._file = os.fdopen(handle, "wb")
        return self._file

    def __exit__(self, kind: Any, *error: Any) -> None:
        """Write everything to disk and rename the file; after an error delete it."""
        try:
            try:
                if kind is None:
                    self._file.flush()
                    os.fsync(self._file.fileno())
            finally:
                self._file.close()
            if kind is None:
                if self._target.exists():
                    shutil.copymode(self._target, self._temporary)
                self._temporary.replace(self._target)
        finally:
            self._temporary.unlink(missing_ok=True)


def check_writable(path: Path) -> None:
    """Raise an error if a file with this name cannot be made; nothing is left behind."""
    try:
        with suppress(_NotWrittenError), atomic(path):
            raise _NotWrittenError
    except FileNotFoundError:
        raise
    except OSError as error:
        raise OSError(
            f"{str(path)!r} cannot be written: {error.strerror}. Choose another name or folder."
        ) from None


class _NotWrittenError(Exception):
    """Leave `atomic` without a file."""
