"""Opening files of a store, private to the user; reading and writing at an offset."""

from __future__ import annotations

import errno
import os
import stat
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Generator
    from pathlib import Path

_FLAGS = (
    getattr(os, "O_CLOEXEC", 0)
    | getattr(os, "O_BINARY", 0)
    | getattr(os, "O_NOFOLLOW", 0)  # a link inside a store is somebody's trap
    | getattr(os, "O_NONBLOCK", 0)  # so is a pipe, to which nobody ever writes
)
_CHUNK = 1 << 20


def open_file(path: Path, flags: int) -> int:
    """A file descriptor that no child process inherits; a new file is its user's alone.

    Raises:
        OSError: it cannot be opened, or is a folder, a link, a pipe, a device.
    """
    fd = os.open(path, flags | _FLAGS, 0o600)
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise OSError(errno.EINVAL, f"{path.parent.name}/{path.name} is no regular file")
    return fd


@contextmanager
def opened(path: Path, flags: int = os.O_RDONLY) -> Generator[int]:
    """`open_file` for the length of a `with` block."""
    fd = open_file(path, flags)
    try:
        yield fd
    finally:
        os.close(fd)


def write_at(fd: int, data: bytes, offset: int) -> None:
    """Write all of `data` at `offset`, in one write if the system takes it whole."""
    os.lseek(fd, offset, os.SEEK_SET)
    left = memoryview(data)
    while left:
        left = left[os.write(fd, left) :]


def read_at(fd: int, offset: int, count: int) -> bytes:
    """`count` bytes from `offset`, fewer at the end of the file."""
    os.lseek(fd, offset, os.SEEK_SET)
    parts: list[bytes] = []
    while count > 0 and (part := os.read(fd, min(count, _CHUNK))):
        parts.append(part)
        count -= len(part)
    return b"".join(parts)
