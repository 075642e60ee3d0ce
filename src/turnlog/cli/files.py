"""Writing a file that is private to the user, whole or not at all."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from tempfile import NamedTemporaryFile

from turnlog.errors import TurnlogError


def write_private(path: Path, parts: Iterable[bytes], *, overwrite: bool = False) -> int:
    """Write a file, mode 0600; returns its size in bytes.

    Raises:
        TurnlogError: it cannot be written, or is there and not to be overwritten.
    """
    if not overwrite and (path.exists() or path.is_symlink()):
        raise TurnlogError(f"{path} is there already; --force overwrites it")
    written = 0
    try:
        with NamedTemporaryFile(
            dir=path.parent, prefix=f".{path.name[:40]}.", delete=False
        ) as file:
            try:
                for part in parts:
                    written += file.write(part)
                file.flush()
                os.fsync(file.fileno())
                Path(file.name).replace(path)
            except BaseException:
                Path(file.name).unlink(missing_ok=True)
                raise
    except OSError as error:
        raise TurnlogError(f"cannot write {path}: {error.strerror or error}") from None
    return written
