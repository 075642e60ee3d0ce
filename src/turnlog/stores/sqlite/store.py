"""The SQLite store: all sessions in one file, in WAL mode.

All I/O happens in worker threads. See the modules beside this one: `connection` for the file,
`ownership` and `writing`, `reading` and `salvage`, `listing` and `inbox`.
"""

from __future__ import annotations

import os
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import anyio
from anyio import from_thread, to_thread

from turnlog.errors import NoSuchSession, StoreClosed, StoreError, TurnlogError
from turnlog.stores.sql.heads import read_header
from turnlog.stores.sql.kinds import most_of
from turnlog.stores.sqlite import inbox
from turnlog.stores.sqlite.connection import PATIENCE, Database
from turnlog.stores.sqlite.failures import translated
from turnlog.stores.sqlite.inspecting import inspect
from turnlog.stores.sqlite.listing import Listing
from turnlog.stores.sqlite.ownership import Handles
from turnlog.stores.sqlite.reading import Reader
from turnlog.stores.sqlite.searching import Searching
from turnlog.stores.sqlite.waiting import Waiting
from turnlog.stores.sqlite.writing import Writing

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence

    from turnlog.commands import Command
    from turnlog.events import AnyEvent, SessionHeader
    from turnlog.stores.port import (
        Batch,
        Claim,
        Durability,
        Owner,
        Queued,
        Record,
        SessionInfo,
        Stored,
    )
    from turnlog.stores.searching import Hit, Search
    from turnlog.stores.sqlite.driver import Connection
    from turnlog.stores.upkeep import Migration

T = TypeVar("T")

_READERS = 4
_PAUSE = 0.002  # seconds between steps of indexing, in which other processes may write


class SqliteStore:
    """`sqlite:FILE`.

    Args:
        path: the store's file; made, private to the user, when it is not there.
        durability: see `Durability`.
        patience: seconds to wait for another process that writes.
    """

    def __init__(
        self, path: Path, *, durability: Durability = "turn", patience: float = PATIENCE
    ) -> None:
        self.url = f"sqlite:{path}"
        self.durability: Durability = durability
        self.keeps_records = True
        real = Path(os.path.realpath(path))
        self._database = Database(real, self.url, durability, patience)
        self._handles = Handles(self._database.owners)
        self._reader = Reader(self.url)
        self._writing = Writing(self._database, self._reader, self._handles)
        self._listing = Listing(self._database, self._reader)
        self._searching = Searching(
            self._database, self._reader, lambda session_id: self._listing.info(session_id).title
        )
        self._waiting = Waiting(self._next_seqs, self._changes)
        self._suspects: set[str] = set()  # sessions in which damage was met
        self._readers: anyio.CapacityLimiter | None = None
        self._writer: anyio.CapacityLimiter | None = None

    # -- opening and closing -------------------------------------------------------------------

    async def open(self) -> None:
        """Connect; makes the file and its tables unless they are there."""
        if self._writer is None:
            with translated(self.url), anyio.CancelScope(shield=True):
                await to_thread.run_sync(self._database.open)
            self._readers = anyio.CapacityLimiter(_READERS)
            self._writer = anyio.CapacityLimiter(1)

    async def migrate(self, *, dry_run: bool = False) -> Migration:
        """Bring the file's schema to the newest version, or say what would do so."""
        with translated(self.url):
            planned = await to_thread.run_sync(self._database.plan)
        if not dry_run and planned.before != planned.after:
            await self.open()
            await self.close()
        return planned

    async def inspect(self, *, most: int | None = None) -> list[str] | None:
        """What is wrong with the file; None if it has more than `most` bytes."""
        if most is not None and self._database.path.stat().st_size > most:
            return None
        return await self._read(inspect, from_thread.check_cancelled)

    async def close(self) -> None:
        """Give back what was claimed, and disconnect."""
        writer, self._writer, self._readers = self._writer, None, None
        if writer is not None:
            with anyio.CancelScope(shield=True), translated(self.url):
                await to_thread.run_sync(self._close, limiter=writer)

    def _close(self) -> None:
        try:
            with suppress(TurnlogError), translated(self.url):  # the lock's end frees them, too
                self._writing.release_all()
        finally:
            self._handles.release()
            self._searching.close()
            self._database.close()

    async def _read(self, call: Callable[..., T], *args: object) -> T:
        """Call it in a worker thread, with a connection for reading."""
        return await self._run(self._readers, partial(self._with_reader, call), *args)

    def _with_reader(self, call: Callable[..., T], *args: object) -> T:
        with self._database.reading() as db:
            return call(db, *args)

    async def _write(self, call: Callable[..., T], *args: object) -> T:
        """Call it in a worker thread, one call at a time; a cancellation waits until it is done."""
        return await self._run(self._writer, call, *args)

    async def _run(
        self, limiter: anyio.CapacityLimiter | None, call: Callable[..., T], *args: object
    ) -> T:
        if limiter is None:
            msg = f"the store {self.url} is closed"
            raise StoreClosed(msg)
        with translated(self.url):
            return await to_thread.run_sync(partial(call, *args), limiter=limiter)

    # -- sessions ------------------------------------------------------------------------------

    async def create(self, header: SessionHeader) -> None:
        """Add an empty session, durably."""
        await self._write(self._writing.create, header)

    async def fork(self, header: SessionHeader, parent_id: str, boundary: int) -> bool:
        """Add a session that shares its first events with another, by reference."""
        await self._write(self._writing.create, header, parent_id, boundary)
        return True

    async def exists(self, session_id: str) -> bool:
        """Whether there is a session with that id."""
        try:
            await self._read(self._reader.head, session_id)
        except NoSuchSession:
            return False
        return True

    async def header(self, session_id: str) -> SessionHeader:
        """What was written before the first event."""
        head = await self._read(self._reader.head, session_id)
        return read_header(head.header, head.sum)

    async def info(self, session_id: str) -> SessionInfo:
        """One session's line."""
        return await self._run(self._readers, self._listing.info, session_id)

    async def sessions(self) -> AsyncIterator[SessionInfo]:
        """All sessions, the last active first; a page at a time."""
        remade = await self._run(self._readers, self._listing.refresh)
        pages = self._listing.pages(remade)
        while infos := await self._run(self._readers, lambda: next(pages, None)):
            for info in infos:
                yield info

    # -- writing -------------------------------------------------------------------------------

    async def claim(self, session_id: str, owner: Owner, *, steal: bool = False) -> Claim:
        """Become the one writer; the handle is a `Tenure`."""
        got: list[Claim] = []
        with anyio.CancelScope(shield=True):  # else nobody would have what was claimed
            call = partial(self._writing.claim, session_id, owner, steal=steal)
            got.append(await self._write(call))
        return got[0]

    async def release(self, claim: Claim) -> None:
        """Give it back."""
        if self._writer is not None:
            await self._write(self._writing.release, claim)
            with suppress(TurnlogError):  # else the next search sees to it
                if await self._run(self._readers, self._searching.was_used):
                    while await self._write(self._searching.fill, claim.handle.no):
                        pass

    async def reseed(self, claim: Claim, header: SessionHeader) -> None:
        """Exchange the header."""
        await self._write(self._writing.reseed, claim, header)

    async def commit(self, batches: Sequence[Batch]) -> list[StoreError | None]:
        """Store all batches in one transaction, with one fsync."""
        results = await self._write(self._writing.commit, batches)
        for batch, error in zip(batches, results, strict=True):
            if error is None:
                self._waiting.grown(batch.claim.session_id, batch.next_seq)
        return results

    # -- reading -------------------------------------------------------------------------------

    async def load(self, session_id: str) -> Stored:
        """The whole session."""
        stored = await self._read(self._reader.load, session_id)
        gaps = bool(stored.events) and stored.events[-1].seq >= len(stored.events)
        if (stored.damage or gaps) and session_id not in self._suspects:
            self._suspects.add(session_id)
            with suppress(StoreError):  # the listing is derived: it says so where it can be kept
                await self._write(self._listing.suspect, session_id)
        return stored

    async def next_seq(self, session_id: str) -> int:
        """The seq that the next event will have."""
        return (await self._read(self._reader.head, session_id)).next_seq

    async def read(
        self, session_id: str, start: int, stop: int | None = None, *, chunks: bool = True
    ) -> list[AnyEvent]:
        """The events with `start <= seq < stop`."""
        call = partial(self._reader.read, chunks=chunks)
        return await self._read(call, session_id, start, stop)

    async def read_seqs(self, session_id: str, seqs: Sequence[int]) -> list[AnyEvent]:
        """The events with these seqs."""
        return await self._read(self._reader.read_seqs, session_id, seqs)

    async def record(self, session_id: str) -> Record | None:
        """The last opening record."""
        return await self._read(self._reader.record, session_id)

    async def search(self, wanted: Search) -> list[Hit]:
        """Messages by their words, once all are indexed: step by step, others write between."""
        hits = None
        while hits is None:
            while await self._write(self._searching.fill):  # noqa: ASYNC110 - it is no waiting
                await anyio.sleep(_PAUSE)
            hits = await self._run(self._readers, self._searching.search, wanted)
        return hits

    async def wait(self, session_id: str, after: int, timeout: float) -> None:  # noqa: ASYNC109 - the port's
        """Return when there is more: at once for what is written here, else by looking."""
        await self._waiting.wait(session_id, after, timeout)

    async def _changes(self) -> int:
        return await self._run(self._readers, self._database.changes)

    async def _next_seqs(self, session_ids: Sequence[str]) -> list[int]:
        def look(db: Connection) -> list[int]:
            return [self._reader.head(db, session_id).next_seq for session_id in session_ids]

        return await self._read(look)

    # -- the inbox -----------------------------------------------------------------------------

    async def post(self, session_id: str, command: Command) -> bool:
        """Queue a command durably; False when its id was posted before."""
        return await self._write(self._post, session_id, command)

    def _post(self, session_id: str, command: Command) -> bool:
        with self._database.writing() as db:
            return inbox.post(db, self._reader.head(db, session_id).no, command)

    async def inbox(self, session_id: str) -> list[Queued]:
        """The commands that wait."""

        def look(db: Connection) -> list[Queued]:
            return inbox.waiting(db, self._reader.head(db, session_id).no)

        return await self._read(look)

    async def accept(self, claim: Claim, positions: Sequence[int]) -> None:
        """Take commands out of the inbox."""
        await self._write(self._accept, claim.handle.no, positions)

    def _accept(self, no: int, positions: Sequence[int]) -> None:
        with self._database.writing() as db:
            inbox.accept(db, no, positions)

    async def pending(self, *, only_prompts: bool = True, only_free: bool = False) -> list[str]:
        """Sessions whose inbox holds a prompt, or anything to do, the longest waiting first."""
        handles = self._handles if only_free else None
        return await self._read(inbox.pending, most_of(only_prompts=only_prompts), handles)
