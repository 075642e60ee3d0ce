"""Locks that the operating system frees when their holder dies, however it dies.

`flock` where there is one; on Windows one byte far past the end of the file, so that nobody's
reading is disturbed. A lock's file is never removed: only whether it is locked means anything. A
forked child closes its copies, so that it does not keep a dead parent's lock alive.
"""

from __future__ import annotations

import os
import sys
import time
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

from turnlog import jsontext
from turnlog.errors import StoreError
from turnlog.stores.files import open_file, opened, read_at, write_at
from turnlog.stores.port import Owner

if TYPE_CHECKING:
    from collections.abc import Generator
    from pathlib import Path

_POLL = 0.005
_OWNER_MAX = 4096

if sys.platform == "win32":
    import msvcrt

    _FAR = 1 << 62

    def try_lock(fd: int) -> bool:
        """Lock the open file for this process, if nobody else has."""
        os.lseek(fd, _FAR, os.SEEK_SET)
        try:
            msvcrt.locking(fd, msvcrt.LK_NBLCK, 1)
        except PermissionError:
            return False
        return True

    def unlock(fd: int) -> None:
        """Free the open file."""
        os.lseek(fd, _FAR, os.SEEK_SET)
        msvcrt.locking(fd, msvcrt.LK_UNLCK, 1)

    def is_locked(fd: int) -> bool:
        """Whether someone else has locked the open file; who looks has it for a moment."""
        if not try_lock(fd):
            return True
        unlock(fd)
        return False

else:
    import fcntl

    def try_lock(fd: int) -> bool:
        """Lock the open file for this process, if nobody else has."""
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def unlock(fd: int) -> None:
        """Free the open file."""
        fcntl.flock(fd, fcntl.LOCK_UN)

    def is_locked(fd: int) -> bool:
        """Whether someone else has locked the open file; any number may look at once."""
        try:
            fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        unlock(fd)
        return False


@contextmanager
def locked(fd: int, patience: float) -> Generator[bool]:
    """Hold the lock on an open file for a moment; False if it was not to be had in time.

    Args:
        fd: the file.
        patience: how many seconds to wait for whoever holds it.
    """
    deadline = time.monotonic() + patience
    while not (got := try_lock(fd)) and time.monotonic() < deadline:
        time.sleep(_POLL)
    try:
        yield got
    finally:
        if got:
            unlock(fd)


class Lock:
    """A lock that is held until `release`, or until the process is gone."""

    __slots__ = ("__weakref__", "fd", "path")

    def __init__(self, fd: int, path: Path) -> None:
        self.fd = fd
        self.path = path
        _held.add(self)

    @classmethod
    def acquire(cls, path: Path, owner: Owner) -> Lock | None:
        """The lock, with the owner's name in its file; None if another holds it.

        Raises:
            OSError: the file cannot be written.
        """
        fd = open_file(path, os.O_RDWR | os.O_CREAT)
        try:
            if not try_lock(fd):
                os.close(fd)
                return None
            os.ftruncate(fd, 0)
            write_at(fd, jsontext.encode(owner), 0)
        except BaseException:
            os.close(fd)
            raise
        return cls(fd, path)

    @property
    def held(self) -> bool:
        """Whether it was neither released nor left behind in a parent process."""
        return self.fd >= 0

    def release(self) -> None:
        """Give it back. Idempotent."""
        fd, self.fd = self.fd, -1
        if fd >= 0:
            _held.discard(self)
            try:
                with suppress(OSError):  # a name that stays there means nothing
                    os.ftruncate(fd, 0)
                unlock(fd)
            finally:
                os.close(fd)


_held: WeakSet[Lock] = WeakSet()


def _leave_to_parent() -> None:
    for lock in list(_held):
        os.close(lock.fd)
        lock.fd = -1
    _held.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_leave_to_parent)


def owner_of(path: Path) -> Owner | None:
    """Who wrote his name into the lock's file last, as far as that can be read."""
    try:
        with opened(path) as fd:
            return _owner_in(jsontext.decode(read_at(fd, 0, _OWNER_MAX)))
    except (OSError, ValueError):
        return None  # for a message only


def _owner_in(wire: Any) -> Owner | None:
    match wire:
        case {"pid": int(pid), "host": str(host), "since": int(since)}:
            return Owner(pid, host, since, wire.get("token", 0))
        case _:
            return None


@contextmanager
def holding(path: Path, patience: float, what: str) -> Generator[None]:
    """Hold a lock file for a moment, waiting for others.

    Raises:
        StoreError: it was not to be had within `patience` seconds.
        OSError: the file cannot be written.
    """
    with opened(path, os.O_RDWR | os.O_CREAT) as fd, locked(fd, patience) as got:
        if not got:
            raise StoreError(f"{what}: another process has held {path.name} for {patience:g} s")
        yield
