"""Files that appear whole or not at all."""

import os
import tempfile
from pathlib import Path
from typing import Any

UMASK = os.umask(0)  # it can only be read by setting it, which threads must not do
os.umask(UMASK)


class atomic:  # noqa: N801  used like a function
    """Open a temporary file beside `path` for writing; it takes the name when all went well."""

    def __init__(self, path: str | Path) -> None:
        self.path: Path = Path(path)

    def __enter__(self) -> Any:
        """Open the temporary file."""
        folder = self.path.absolute().parent
        if not folder.is_dir():
            raise FileNotFoundError(f"There is no folder {str(folder)!r} to write to.")
        handle, name = tempfile.mkstemp(prefix=f".{self.path.name}.", dir=folder)
        self._temporary = Path(name)
        self._file = os.fdopen(handle, "wb")
        return self._file

    def __exit__(self, kind: Any, *error: Any) -> None:
        """Flush to disk and rename; on an error remove what was written."""
        if kind is None:
            self._file.flush()
            os.fsync(self._file.fileno())
        self._file.close()
        if kind is not None:
            self._temporary.unlink(missing_ok=True)
            return
        self._temporary.chmod(0o666 & ~UMASK)
        self._temporary.replace(self.path)
