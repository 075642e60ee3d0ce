"""The open file: one connection that writes, a few that read, one that watches.

SQLite frees a process's locks on a file when *any* descriptor of it is closed, so nothing here
ever opens the database but SQLite itself.
"""

from __future__ import annotations

import os
import secrets
import threading
import time
from contextlib import contextmanager, nullcontext, suppress
from typing import TYPE_CHECKING

import apsw

from turnlog import _ambient
from turnlog.errors import ForkedProcess, StoreClosed, StoreError
from turnlog.stores.files import open_file
from turnlog.stores.sqlite.driver import Connection, connect
from turnlog.stores.sqlite.schema import VERSION, migrate, statements, version_of
from turnlog.stores.upkeep import Migration

if TYPE_CHECKING:
    from collections.abc import Generator
    from pathlib import Path

    from turnlog.stores.port import Durability

PATIENCE = 10.0
"""Seconds to wait for another process that writes."""

_POLL = 0.01
_CACHE = 8 << 10  # KiB of pages that a connection keeps
_CHECKPOINT = 2000  # pages of the WAL, after which a commit moves them into the file
_WAL_LIMIT = 64 << 20  # bytes that the WAL's file keeps once it was moved

_NONE = (0, 0)  # device and number of a file that is not there

_left_to_parent: list[Connection] = []  # never closed: they are another process's


class Database:
    """The connections of one handle. Every method is to be called in a worker thread.

    Args:
        path: the file; `owners` is the folder of locks beside it.
        url: for messages.
        durability: see `Durability`.
        patience: seconds to wait for another process that writes.
    """

    def __init__(
        self, path: Path, url: str, durability: Durability, patience: float = PATIENCE
    ) -> None:
        self.path = path
        self.owners = path.with_name(f"{path.name}-owners")
        self.url = url
        self.read_only = False
        self._durability = durability
        self._patience = patience
        self._immutable = False
        self._damaged = False
        self._pid = -1
        self._file = self._wal_file = _NONE
        self._wal = path.with_name(f"{path.name}-wal")
        self._guard = threading.Lock()  # of what follows
        self._writer: Connection | None = None
        self._idle: list[Connection] = []
        self._watcher: Connection | None = None
        self._open = False
        self._writing = threading.Lock()

    # -- opening and closing -------------------------------------------------------------------

    def open(self) -> None:
        """Connect; makes the file, private to its user, unless it is there.

        Raises:
            UnsupportedVersion: a newer schema.
            StoreError: it is something else's.
            apsw.Error, OSError: it cannot be opened.
        """
        self._pid = _ambient.process_id()
        self.read_only, self._immutable, self._damaged = False, False, False
        self._wal_file = _NONE
        if not self.path.exists():
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._create()
        elif self.owners.is_dir() and not self.path.stat().st_size:
            msg = (
                f"{self.url}: the file is empty, but held sessions: put a backup in its place, or "
                "remove it to begin anew"
            )
            raise StoreError(msg)
        try:
            if _writable(self.path) and _writable(self.path.parent):
                self._open_writable()
            else:
                self._open_readable()
        except apsw.CorruptError:  # what is left can be read, if SQLite is told to trust nothing
            self._damaged = True
            self._open_readable()
        self._file, self._wal_file = _identity(self.path), _identity(self._wal)
        self._open = True

    def _create(self) -> None:
        """Make a store that is its user's alone, whole at once, under no other process's feet."""
        draft = self.path.with_name(f".{self.path.name}.{secrets.token_hex(8)}")
        os.close(open_file(draft, os.O_RDWR | os.O_CREAT | os.O_EXCL))
        try:
            db = connect(str(draft), apsw.SQLITE_OPEN_READWRITE)
            try:
                self._prepare(db)
            finally:
                db.close()
            try:
                os.link(draft, self.path)
            except FileExistsError:
                pass  # another process was faster
            except OSError:  # a file system without hard links
                with suppress(FileExistsError):
                    os.close(open_file(self.path, os.O_RDWR | os.O_CREAT | os.O_EXCL))
        finally:
            for ending in ("", "-journal", "-wal", "-shm"):
                draft.with_name(draft.name + ending).unlink(missing_ok=True)

    def plan(self) -> Migration:
        """What opening would do to the schema; changes nothing. Raises as `open`."""
        version = 0
        if self.path.exists():
            self._pid, self._immutable = _ambient.process_id(), False
            db = self._connect(apsw.SQLITE_OPEN_READONLY)
            try:
                version = version_of(db, self.url)
            finally:
                db.close()
        return Migration(version, VERSION, statements(version))

    def _open_writable(self) -> None:
        db = self._connect(apsw.SQLITE_OPEN_READWRITE)
        try:
            self._prepare(db)
        except BaseException:
            db.close()
            raise
        self._writer = db

    def _prepare(self, db: Connection) -> None:
        """Make a new file a store, or see that it is one."""
        if version_of(db, self.url) == 0:
            db.pragma("auto_vacuum", 2)  # incremental; only before the first table
        deadline = time.monotonic() + self._patience
        while True:  # SQLite does not wait by itself for who else switches to WAL
            try:
                mode = db.pragma("journal_mode", "wal")
                break
            except (apsw.BusyError, apsw.LockedError):
                if time.monotonic() > deadline:
                    raise
                time.sleep(_POLL)
        if mode != "wal":
            msg = f"{self.url}: its file system cannot share memory: choose a local folder"
            raise StoreError(msg)
        db.pragma("synchronous", "off" if self._durability == "none" else "full")
        db.pragma("wal_autocheckpoint", _CHECKPOINT)
        db.pragma("journal_size_limit", _WAL_LIMIT)
        migrate(db, self.url)

    def _open_readable(self) -> None:
        """See that the file can be read; without its WAL where the folder takes none."""
        self.read_only = True
        try:
            db = self._connect(apsw.SQLITE_OPEN_READONLY)
            try:
                version = version_of(db, self.url)
            except BaseException:
                db.close()
                raise
        except (apsw.CantOpenError, apsw.ReadOnlyError):
            if self._wal.exists() and self._wal.stat().st_size:
                raise  # what was written last is in there
            self._immutable = True
            db = self._connect(apsw.SQLITE_OPEN_READONLY)
            try:
                version = version_of(db, self.url)
            except BaseException:
                db.close()
                raise
        if version:
            self._idle.append(db)
        else:
            db.close()
            msg = f"{self.url}: the file is empty, and nothing can be written to it"
            raise StoreError(msg)

    def _connect(self, flags: int) -> Connection:
        name = str(self.path)
        if self._immutable:
            name = f"{self.path.as_uri()}?immutable=1"
            flags |= apsw.SQLITE_OPEN_URI
        db = connect(name, flags)
        try:
            db.set_busy_timeout(int(self._patience * 1000))
            if self._damaged:
                db.pragma("writable_schema", 1)  # or a file that is too short is not looked into
            db.pragma("cache_size", -_CACHE)
            db.pragma("trusted_schema", 0)
            db.pragma("cell_size_check", 1)  # damage is reported, not interpreted
        except BaseException:
            db.close()
            raise
        return db

    def close(self) -> None:
        """Close all connections. Idempotent."""
        forked = _ambient.process_id() != self._pid  # its copy of a lock may be held by nobody
        with nullcontext() if forked else self._writing, nullcontext() if forked else self._guard:
            found = [*self._idle, *filter(None, (self._watcher, self._writer))]
            self._idle, self._watcher, self._writer, self._open = [], None, None, False
        if forked:
            _left_to_parent.extend(found)
            return
        failed: apsw.Error | None = None
        for db in found:  # the writer last: who closes last moves the WAL into the file
            try:
                db.close()
            except apsw.Error as error:
                failed = failed or error
        if failed is not None:
            raise failed

    def check(self) -> None:
        """Raise unless the file is open, here, and still the one that was opened.

        Raises:
            StoreClosed, ForkedProcess, StoreError: it is not.
        """
        if not self._open:
            msg = f"the store {self.url} is closed"
            raise StoreClosed(msg)
        if _ambient.process_id() != self._pid:
            msg = (
                f"the store {self.url} was opened by process {self._pid}: a child made by fork() "
                "must open its own"
            )
            raise ForkedProcess(msg)
        wal = self._wal_file
        if _identity(self.path) != self._file or wal not in (_NONE, _identity(self._wal)):
            msg = (
                f"{self.url}: the file, or its WAL, was replaced or removed since it was opened: "
                "open it again"
            )
            raise StoreError(msg)

    # -- using it ------------------------------------------------------------------------------

    @contextmanager
    def reading(self) -> Generator[Connection]:
        """A connection that nobody else uses meanwhile, in a transaction: all reads see one state.

        Fetch all rows before you leave it.
        """
        self.check()
        with self._guard:
            db = self._idle.pop() if self._idle else None
        if db is None:
            db = self._connect(apsw.SQLITE_OPEN_READONLY)
        try:
            db.execute("BEGIN")
            try:
                yield db
            finally:
                if db.in_transaction:  # a read that failed may have ended it
                    db.execute("ROLLBACK")
        finally:
            with self._guard:
                keep = self._open and not db.in_transaction
                if keep:
                    self._idle.append(db)
            if not keep:
                db.close()

    @contextmanager
    def writing(self) -> Generator[Connection]:
        """The connection that writes, inside a transaction that ends with the `with` block.

        Raises:
            StoreError: the store is read-only.
        """
        with self._writing:
            self.check()
            db = self._writer
            if db is None:
                why = "it is damaged: copy what is left into another store"
                if not self._damaged:
                    why = "make the file and its folder writable"
                msg = f"{self.url} can only be read: {why}"
                raise StoreError(msg)
            db.execute("BEGIN IMMEDIATE")
            try:
                yield db
                db.execute("COMMIT")
            except BaseException:
                if db.in_transaction:
                    with suppress(apsw.Error):  # what led here is what is told
                        db.execute("ROLLBACK")
                raise

    def changes(self) -> int:
        """A number that is another one when anyone has written since."""
        self.check()
        with self._guard:
            db, self._watcher = self._watcher, None
        if db is None:
            db = self._connect(apsw.SQLITE_OPEN_READONLY)
        try:
            return int(db.pragma("data_version"))
        finally:
            with self._guard:
                keep = self._open and self._watcher is None
                if keep:
                    self._watcher = db
            if not keep:
                db.close()


def _writable(path: Path) -> bool:
    return os.access(path, os.W_OK, effective_ids=os.access in os.supports_effective_ids)


def _identity(path: Path) -> tuple[int, int]:
    try:
        stat = os.stat(path)  # noqa: PTH116 - at each call, and this is faster
    except FileNotFoundError:
        return _NONE
    return stat.st_dev, stat.st_ino
