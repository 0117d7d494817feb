"""Files that appear whole or not at all."""

import os
import tempfile
from pathlib import Path
from typing import Any

# the mask can only be read by setting it, and threads must not do that: read it once
UMASK = os.umask(0)
os.umask(UMASK)


class atomic:  # noqa: N801  used like a function
    """Open a temporary file beside `path` for writing; rename it to `path` if no error occurs."""

    def __init__(self, path: str | Path) -> None:
        self.path: Path = Path(path)

    def __enter__(self) -> Any:
        """Open the temporary file."""
        folder = self.path.absolute().parent
        if not folder.is_dir():
            raise FileNotFoundError(
                f"There is no folder {str(folder)!r} to write to. Make it first."
            )
        handle, name = tempfile.mkstemp(prefix=f".{self.path.name}.", dir=folder)
        self._temporary = Path(name)
        self._file = os.fdopen(handle, "wb")
        return self._file

    def __exit__(self, kind: Any, *error: Any) -> None:
        """Write everything to disk and rename the file; after an error delete it."""
        if kind is None:
            self._file.flush()
            os.fsync(self._file.fileno())
        self._file.close()
        if kind is not None:
            self._temporary.unlink(missing_ok=True)
            return
        self._temporary.chmod(0o666 & ~UMASK)
        self._temporary.replace(self.path)
