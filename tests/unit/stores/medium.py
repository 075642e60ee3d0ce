"""Disks that fail: the system's calls for JSONL, an SQLite VFS for SQLite; which fails is chosen.

A medium numbers each call that changes a file, from 1, since it was told what shall fail. Kinds:

- `full`: a write stores half of its bytes, and the disk is full
- `io`: a write, sync, cut or removal is an I/O error, and does nothing
- `fsync`: a sync fails, and what it was to make durable is forgotten, as Linux may do
- `after`: a write, sync, cut or removal is done, and reported as an I/O error
"""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownLambdaType=false
# (apsw's types are not complete)
from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn, Protocol, cast

import apsw
import pytest

KINDS = ("full", "io", "fsync", "after")


class Medium(Protocol):
    """What a store's files lie on."""

    count: int
    hits: int

    def fail(self, kind: str, first: int, last: int | None = None) -> None:
        """Let the calls with these numbers fail, counted from now; without `last` only the first.

        Calls of a sort that the kind does not concern are not counted.
        """
        ...

    def work(self) -> None:
        """Let nothing fail any more."""
        ...


class Plan:
    """Which calls fail."""

    def __init__(self) -> None:
        self.kind = ""
        self.count = 0
        self.hits = 0
        self._numbers = range(0)
        self.on_call: Callable[[str, str], object] = lambda _name, _file: None
        self.concerns: Callable[[str, str], bool] = lambda _name, _file: True

    def fail(self, kind: str, first: int, last: int | None = None) -> None:
        """See `Medium`."""
        self.kind, self.count, self.hits = kind, 0, 0
        self._numbers = range(first, (first if last is None else last) + 1)

    def work(self) -> None:
        """See `Medium`."""
        self._numbers = range(0)

    def due(self, name: str, file: str) -> bool:
        """Count a call; whether it fails."""
        self.on_call(name, file)
        concerned = {"full": name == "write", "fsync": name == "sync"}.get(
            self.kind, name != "read"
        )
        if self.kind == "read":
            concerned = name == "read"
        if not concerned or not self.concerns(name, file):
            return False
        self.count += 1
        failing = self.count in self._numbers
        self.hits += failing
        return failing


# -- SQLite ------------------------------------------------------------------------------------


def raise_code(code: int) -> NoReturn:
    """Raise what SQLite would return."""
    error: Any = apsw.exception_for(code)
    error.extendedresult = code
    raise error


_CODES = {
    "read": apsw.SQLITE_IOERR_READ,
    "write": apsw.SQLITE_IOERR_WRITE,
    "sync": apsw.SQLITE_IOERR_FSYNC,
    "truncate": apsw.SQLITE_IOERR_TRUNCATE,
    "delete": apsw.SQLITE_IOERR_DELETE,
}
_VFSFile: Any = apsw.VFSFile
_VFS: Any = apsw.VFS


class _File(_VFSFile):
    """A file as SQLite opened it."""

    def __init__(self, disk: Disk, path: str | None, name: Any, flags: list[int]) -> None:
        super().__init__("unix", name, flags)
        self._disk = disk
        self._path = path
        if path is not None and path not in disk.synced and (size := super().xFileSize()):
            disk.synced[path] = super().xRead(size, 0)  # it was there before

    def _call(self, name: str, act: Callable[[], object], half: Callable[[], object]) -> None:
        disk, file = self._disk, "" if self._path is None else Path(self._path).name
        failing = disk.due(name, file)
        if failing and disk.kind == "full":
            half()
            raise_code(apsw.SQLITE_FULL)
        if failing and disk.kind == "fsync" and self._path is not None:
            kept = disk.synced.get(self._path, b"")
            super().xWrite(kept, 0)
            super().xTruncate(len(kept))
        if not failing or disk.kind == "after":
            act()
            if name == "sync" and self._path is not None:
                disk.synced[self._path] = super().xRead(super().xFileSize(), 0)
        if failing:
            raise_code(_CODES[name])

    def xRead(self, amount: int, offset: int) -> bytes:  # noqa: N802 - SQLite's name
        """Read."""
        if self._disk.due("read", "" if self._path is None else Path(self._path).name):
            raise_code(apsw.SQLITE_IOERR_READ)
        return super().xRead(amount, offset)

    def xWrite(self, data: bytes, offset: int) -> None:  # noqa: N802 - SQLite's name
        """Write."""
        write: Callable[[bytes, int], None] = super().xWrite
        half = len(data) // 2
        self._call("write", lambda: write(data, offset), lambda: write(bytes(data)[:half], offset))

    def xSync(self, flags: int) -> None:  # noqa: N802 - SQLite's name
        """Make durable."""
        sync: Callable[[int], None] = super().xSync
        self._call("sync", lambda: sync(flags), lambda: None)

    def xTruncate(self, size: int) -> None:  # noqa: N802 - SQLite's name
        """Cut off."""
        truncate: Callable[[int], None] = super().xTruncate
        self._call("truncate", lambda: truncate(size), lambda: None)


class Disk(Plan, _VFS):
    """The VFS of every SQLite file that this process opens, until `unregister`.

    Attributes:
        synced: path -> its bytes when it was last synced: what a power cut leaves.
        slept: seconds that SQLite wanted to wait for a lock; no time passes.
        on_sleep: called instead.
        refuse: endings of the names of files that cannot be opened.
    """

    def __init__(self) -> None:
        Plan.__init__(self)
        self.synced: dict[str, bytes] = {}
        self.slept = 0.0
        self.on_sleep: Callable[[], object] = lambda: None
        self.refuse: tuple[str, ...] = ()
        _VFS.__init__(self, "tests", "unix", makedefault=True)

    def xOpen(self, name: Any, flags: list[int]) -> _File:  # noqa: N802 - SQLite's name
        """Open a file, unless it is one to refuse."""
        found = name if isinstance(name, str) or name is None else name.filename()
        if found is not None and found.endswith(self.refuse or ("\0",)):
            raise_code(apsw.SQLITE_CANTOPEN)
        return _File(self, found, name, flags)

    def xDelete(self, name: str, sync: bool) -> None:  # noqa: FBT001, N802 - SQLite's name
        """Remove a file."""
        failing = self.due("delete", Path(name).name)
        if not failing or self.kind == "after":
            super().xDelete(name, sync)
            self.synced.pop(name, None)
        if failing:
            raise_code(apsw.SQLITE_IOERR_DELETE)

    def xSleep(self, microseconds: int) -> int:  # noqa: N802 - SQLite's name
        """Wait for a lock: at once."""
        self.slept += microseconds / 1e6
        self.on_sleep()
        return microseconds

    def power_cut(self, folder: Path, target: Path) -> None:
        """Copy what a power cut would leave of a folder's files."""
        target.mkdir()
        for path, content in self.synced.items():
            if Path(path).parent == folder:
                (target / Path(path).name).write_bytes(content)


# -- JSONL -------------------------------------------------------------------------------------


class Calls(Plan):
    """The system's calls that change files, as Python makes them."""

    NAMES = ("write", "fsync", "ftruncate")

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__()
        for name in self.NAMES:
            monkeypatch.setattr(os, name, self._failing(name, getattr(os, name)))

    def _failing(self, name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        said = {"fsync": "sync", "ftruncate": "truncate"}.get(name, name)

        def call(fd: int, *args: Any) -> Any:
            if not stat.S_ISREG(os.fstat(fd).st_mode) or not self.due(said, ""):
                return real(fd, *args)
            if self.kind == "after":
                real(fd, *args)
            if self.kind == "full":
                real(fd, bytes(args[0])[: len(args[0]) // 2])
                raise OSError(errno.ENOSPC, "No space left on device")
            raise OSError(errno.EIO, "Input/output error")

        return call


def media(name: str, monkeypatch: pytest.MonkeyPatch) -> Medium:
    """The medium of a store, by its name in `tests.store_urls`; `done` ends it."""
    return cast("Medium", Disk() if name == "sqlite" else Calls(monkeypatch))


def done(medium: Medium) -> None:
    """Give the process its own disk back."""
    if isinstance(medium, Disk):
        medium.unregister()
