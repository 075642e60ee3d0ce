"""Files that are written whole, and made durable."""

from __future__ import annotations

import os
import sys
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

from turnlog.errors import StoreError
from turnlog.stores.files import opened, read_at, write_at

if TYPE_CHECKING:
    from collections.abc import Callable, Generator
    from pathlib import Path

_CHUNK = 1 << 20
_RENAME_TRIES = 7

if sys.platform == "darwin":
    import fcntl

    def sync(fd: int) -> None:
        """Make the file's bytes survive a loss of power."""
        fcntl.fcntl(fd, fcntl.F_FULLFSYNC)  # fsync stops at the drive's cache there

else:

    def sync(fd: int) -> None:
        """Make the file's bytes survive a loss of power."""
        os.fsync(fd)


def make_folder(path: Path) -> None:
    """Make the folder, private to its user, unless it is there."""
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError):
        msg = f"jsonl:{path}: expected a folder, there is a file of that name"
        raise StoreError(msg) from None


def sync_folder(path: Path) -> None:
    """Make names that were added to a folder survive a loss of power."""
    if os.name == "nt":
        return  # a folder cannot be opened there; NTFS logs its own changes
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def copy_range(fd: int, start: int, stop: int, target: Path) -> None:
    """Copy a stretch of an open file into a new file, durably.

    Raises:
        FileExistsError: there is a file of that name.
    """
    with opened(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL) as copy:
        try:
            at = start
            while at < stop and (chunk := read_at(fd, at, min(_CHUNK, stop - at))):
                write_at(copy, chunk, at - start)
                at += len(chunk)
            sync(copy)
        except OSError:
            target.unlink()
            raise
    sync_folder(target.parent)


def publish(
    path: Path, data: bytes, *, durable: bool, pause: Callable[[float], None] = time.sleep
) -> None:
    """Put a file in its place at once: nobody ever sees half of it."""
    draft = path.with_name(f"{path.name}.new")
    with opened(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC) as fd:
        write_at(fd, data, 0)
        if durable:
            sync(fd)
    replace(draft, path, pause=pause)
    if durable:
        sync_folder(path.parent)


def replace(source: Path, target: Path, *, pause: Callable[[float], None] = time.sleep) -> None:
    """Rename over what is there; a lock that another program holds for a moment is waited for."""
    for attempt in range(_RENAME_TRIES):
        try:
            source.replace(target)
        except PermissionError:
            if attempt == _RENAME_TRIES - 1:
                raise
            pause(0.01 * 2**attempt)
        else:
            return


@contextmanager
def translated(doing: str) -> Generator[None]:
    """Turn an `OSError` into a `StoreError` that says what was being done."""
    try:
        yield
    except OSError as error:
        raise StoreError(f"{doing}: {error.strerror or error}") from error
