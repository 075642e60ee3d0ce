"""The store on a database server, whichever it is: all that differs is in its driver.

See the modules beside this one: `schema` for the tables; `leases`, `tenures`, `writing`,
`committing` and `changes` for writing; `reading` and `decoding`, `listing`, `inbox`; `tailing` for
waiting.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from typing import TYPE_CHECKING, TypeVar

import anyio

from turnlog import _ambient
from turnlog.errors import ForkedProcess, NoSuchSession, StoreClosed, StoreError, TurnlogError
from turnlog.stores.scanning import scan
from turnlog.stores.server.committing import Committing
from turnlog.stores.server.driver import Fault
from turnlog.stores.server.failures import translated
from turnlog.stores.server.fulltext import Index
from turnlog.stores.server.inbox import Inbox
from turnlog.stores.server.leases import LEASE, Leases
from turnlog.stores.server.listing import PAGE, Listing
from turnlog.stores.server.pool import PATIENCE, Pool
from turnlog.stores.server.reading import Reader
from turnlog.stores.server.schema import key_of, migrate, plan
from turnlog.stores.server.searching import Searching
from turnlog.stores.server.tailing import Tailing
from turnlog.stores.server.tenures import Tenures
from turnlog.stores.server.writing import Writing
from turnlog.stores.sql.heads import read_header, stored_id
from turnlog.stores.sql.kinds import most_of
from turnlog.stores.upkeep import Diagnosed

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

    from turnlog.commands import Command
    from turnlog.errors import StoreError as AnyStoreError
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
    from turnlog.stores.server.driver import Connection, Driver
    from turnlog.stores.upkeep import Migration

T = TypeVar("T")

_READERS = 4
_WRITERS = 2  # one commits, while the other renews leases or posts
_FAR = 0.05  # seconds to a server that are many
_PATIENCE_AT_OPENING = 2.0  # seconds: who typed a wrong name is to be told soon


class _Open:
    """What a store has while it is open."""

    def __init__(self, driver: Driver, lease: float, patience: float) -> None:
        url, dialect = driver.url, driver.dialect
        self.pid = _ambient.process_id()
        self.readers = Pool(driver, _READERS, patience)
        self.writers = Pool(driver, _WRITERS, patience)
        self.tenures = Tenures(dialect, url)
        self.reader = Reader(dialect, url)
        self.leases = Leases(
            self.writers, dialect, lambda: sorted({one.key for one in self.tenures}), lease
        )
        self.writing = Writing(self.writers, dialect, self.reader, self.leases, self.tenures, url)
        self.committing = Committing(
            self.writers, dialect, self.reader, self.tenures, self.leases.length
        )
        self.listing = Listing(self.readers, dialect, self.reader, url)
        self.inbox = Inbox(self.writers, dialect, self.reader)
        self.tailing = Tailing(driver, self.readers)
        self.index = Index(self.writers, dialect, self.reader)
        self.searching = Searching(self.readers, dialect, self.reader, self.index, self.title_of)

    async def title_of(self, session_id: str) -> str:
        """A session's title."""
        return (await self.listing.info(session_id)).title


class ServerStore:
    """Sessions on a database server.

    Args:
        driver: connects to it.
        durability: see `Durability`; the driver must keep it.
        lease: seconds after which a session is free whose owner says nothing.
        patience: seconds for which the server may be away.
    """

    def __init__(
        self,
        driver: Driver,
        *,
        durability: Durability = "turn",
        lease: float = LEASE,
        patience: float = PATIENCE,
    ) -> None:
        self.url = driver.url
        self.durability: Durability = durability
        self.keeps_records = True
        self._driver = driver
        self._lease = lease
        self._patience = patience
        self._open: _Open | None = None

    # -- opening and closing -------------------------------------------------------------------

    async def open(self) -> None:
        """Connect; makes the tables unless they are there."""
        if self._open is not None:
            return
        opened = _Open(self._driver, self._lease, self._patience)
        await self._at_once(lambda db: migrate(db, self._driver.dialect, self.url), opened.readers)
        self._open = opened
        self._open.leases.start()

    async def _at_once(
        self, call: Callable[[Connection], Awaitable[T]], heir: Pool | None = None
    ) -> T:
        """Call it with a connection of its own, and say why if none is to be had.

        The connection goes to `heir` afterwards, if there is one.
        """
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            msg = f"{self.url}: {self._driver.dialect.name} needs an event loop of asyncio's"
            raise StoreError(msg) from None
        pool = Pool(self._driver, 1, min(_PATIENCE_AT_OPENING, self._patience))

        async def work() -> T:
            async with pool.connection() as db:
                return await call(db)

        try:
            with translated(self.url):
                done = await pool.patiently(work)
            if heir is not None:
                heir.inherit(pool)
            return done
        finally:
            with anyio.CancelScope(shield=True):
                await pool.close()

    async def migrate(self, *, dry_run: bool = False) -> Migration:
        """Bring the tables to the newest version, or say what would do so."""
        does = plan if dry_run else migrate
        return await self._at_once(lambda db: does(db, self._driver.dialect, self.url))

    async def diagnose(self) -> list[Diagnosed]:
        """What there is to say of the server."""
        started = time.monotonic()
        await self._read(lambda db, _: db.fetch("SELECT 1"))
        took = time.monotonic() - started
        slow = took > _FAR
        said = f"answers in {took * 1000:.1f} ms"
        said += ": every flush takes several times that; is it far away?" if slow else ""
        found = [Diagnosed("server", "warning" if slow else "ok", said)]
        found += await self._read(lambda db, _: self._driver.dialect.diagnose(db))
        return found + await self._another()

    async def _another(self) -> list[Diagnosed]:
        """What is wrong with a second connection, which a pooler may mix up with the first."""
        try:
            await (await self._driver.connect()).close()
        except Fault as fault:
            return [Diagnosed("connections", "failed", f"another one: {fault.hint or fault}")]
        return []

    async def close(self) -> None:
        """Give back what was claimed, and disconnect."""
        opened, self._open = self._open, None
        if opened is None:
            return
        if opened.pid != _ambient.process_id():
            return  # a child made by fork(): the connections are its parent's
        with anyio.CancelScope(shield=True):
            await opened.leases.stop()
            with suppress(Fault):  # where nobody is there to be told, the leases run out
                await opened.writing.release_all()
            await opened.tailing.close()
            await opened.writers.close()
            await opened.readers.close()

    async def abandon(self) -> None:
        """Let go of the server as a process that dies would: nothing is given back."""
        opened, self._open = self._open, None
        if opened is not None:
            opened.writers.abort()
            opened.readers.abort()
            await opened.leases.stop()
            await opened.tailing.abort()
            await asyncio.sleep(0)  # the loop closes what was cut

    def _opened(self) -> _Open:
        if self._open is None:
            msg = f"the store {self.url} is closed"
            raise StoreClosed(msg)
        if self._open.pid != _ambient.process_id():
            msg = f"the store {self.url} was opened by process {self._open.pid}: open it anew"
            raise ForkedProcess(msg)
        return self._open

    async def _read(self, call: Callable[[Connection, Reader], Awaitable[T]]) -> T:
        """Call it with a connection for reading."""
        opened = self._opened()

        async def work() -> T:
            async with opened.readers.connection() as db:
                return await call(db, opened.reader)

        with translated(self.url):
            return await opened.readers.patiently(work)

    async def _shielded(self, doing: Awaitable[T]) -> T:
        """Do it to its end; who was cancelled meanwhile is so afterwards."""
        done: list[T] = []
        with anyio.CancelScope(shield=True), translated(self.url):
            done.append(await doing)
        return done[0]

    # -- sessions ------------------------------------------------------------------------------

    async def create(self, header: SessionHeader) -> None:
        """Add an empty session, durably."""
        await self._shielded(self._opened().writing.create(header))

    async def fork(self, header: SessionHeader, parent_id: str, boundary: int) -> bool:
        """Add a session that shares its first events with another, by reference."""
        await self._shielded(self._opened().writing.create(header, parent_id, boundary))
        return True

    async def exists(self, session_id: str) -> bool:
        """Whether there is a session with that id."""
        try:
            await self._read(lambda db, reader: reader.head(db, session_id))
        except NoSuchSession:
            return False
        return True

    async def header(self, session_id: str) -> SessionHeader:
        """What was written before the first event."""
        head = await self._read(lambda db, reader: reader.head(db, session_id))
        return read_header(head.header, head.sum)

    async def info(self, session_id: str) -> SessionInfo:
        """One session's line."""
        with translated(self.url):
            return await self._opened().listing.info(session_id)

    async def sessions(self) -> AsyncIterator[SessionInfo]:
        """All sessions, the last active first; a page at a time."""
        with translated(self.url):
            first, remade = await self._opened().listing.first()
        for info in first.values():
            yield info
        if len(first) < PAGE:
            return
        with translated(self.url):  # what became active since is in it, and what was shown, too
            order = [key for key in await self._opened().listing.order() if key not in first]
        for start in range(0, len(order), PAGE):
            with translated(self.url):
                infos = await self._opened().listing.lines(order[start : start + PAGE], remade)
            for info in infos:
                yield info

    # -- writing -------------------------------------------------------------------------------

    async def claim(self, session_id: str, owner: Owner, *, steal: bool = False) -> Claim:
        """Become the one writer; the handle is a `Tenure`."""
        return await self._shielded(self._opened().writing.claim(session_id, owner, steal=steal))

    async def release(self, claim: Claim) -> None:
        """Give it back."""
        if self._open is not None:
            opened = self._opened()
            await self._shielded(opened.writing.release(claim))
            with suppress(Fault, TurnlogError):  # else the next search sees to it
                if await opened.index.was_used():
                    await self._shielded(opened.index.fill([claim.handle.key]))

    async def renew(self) -> None:
        """Prolong the leases of all claims now; it is done in time without this."""
        await self._shielded(self._opened().leases.renew())

    async def reseed(self, claim: Claim, header: SessionHeader) -> None:
        """Exchange the header."""
        await self._shielded(self._opened().writing.reseed(claim, header))

    async def commit(self, batches: Sequence[Batch]) -> list[AnyStoreError | None]:
        """Store all batches in one transaction."""
        opened = self._opened()
        results = await self._shielded(opened.committing.commit(batches))
        for batch, error in zip(batches, results, strict=True):
            if error is None and batch.events:
                opened.tailing.grown(batch.claim.handle.key, batch.next_seq)
        return results

    # -- reading -------------------------------------------------------------------------------

    async def load(self, session_id: str) -> Stored:
        """The whole session."""
        return await self._read(lambda db, reader: reader.load(db, session_id))

    async def next_seq(self, session_id: str) -> int:
        """The seq that the next event will have."""
        head = await self._read(lambda db, reader: reader.head(db, session_id))
        return head.next_seq

    async def read(
        self, session_id: str, start: int, stop: int | None = None, *, chunks: bool = True
    ) -> list[AnyEvent]:
        """The events with `start <= seq < stop`."""
        return await self._read(
            lambda db, reader: reader.read(db, session_id, start, stop, chunks=chunks)
        )

    async def read_seqs(self, session_id: str, seqs: Sequence[int]) -> list[AnyEvent]:
        """The events with these seqs."""
        return await self._read(lambda db, reader: reader.read_seqs(db, session_id, seqs))

    async def record(self, session_id: str) -> Record | None:
        """The last opening record."""
        return await self._read(lambda db, reader: reader.record(db, session_id))

    async def search(self, wanted: Search) -> list[Hit]:
        """Messages by their words, once all are indexed; who may not do that reads them."""
        with translated(self.url):
            found = await self._opened().searching.search(wanted)
        return await scan(self, wanted) if found is None else found

    async def wait(self, session_id: str, after: int, timeout: float) -> bool | None:  # noqa: ASYNC109 - the port's
        """Return when there is more: at once for what is written here, soon for the rest."""
        key = key_of(stored_id(session_id))
        if not self._opened().reader.knows(key):
            await self._read(lambda db, reader: reader.head(db, session_id))
        return await self._opened().tailing.wait(key, after, timeout)

    # -- the inbox -----------------------------------------------------------------------------

    async def post(self, session_id: str, command: Command) -> bool:
        """Queue a command durably; False when its id was posted before."""
        return await self._shielded(self._opened().inbox.post(session_id, command))

    async def inbox(self, session_id: str) -> list[Queued]:
        """The commands that wait."""
        with translated(self.url):
            return await self._opened().inbox.waiting(session_id)

    async def accept(self, claim: Claim, positions: Sequence[int]) -> None:
        """Take commands out of the inbox."""
        await self._shielded(self._opened().inbox.accept(claim.handle.key, positions))

    async def pending(self, *, only_prompts: bool = True, only_free: bool = False) -> list[str]:
        """Sessions whose inbox holds a prompt, the longest waiting first."""
        with translated(self.url):
            most = most_of(only_prompts=only_prompts)
            return await self._opened().inbox.pending(most, only_free=only_free)
