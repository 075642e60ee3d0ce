"""The store as applications use it: sessions to write, to read, to follow, to talk to."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Iterable
from contextlib import AsyncExitStack, asynccontextmanager
from types import TracebackType
from typing import Literal, Self, TypeAlias

import anyio
from anyio import to_thread
from msgspec.structs import replace

from turnlog import _ambient
from turnlog.commands import Command, with_id
from turnlog.errors import (
    NoSuchSession,
    NotLoaded,
    SessionExists,
    StoreClosed,
    StoreError,
    WriteFailed,
)
from turnlog.events import AnyEvent, SessionHeader
from turnlog.session import Session
from turnlog.stores.adopting import Adopted, OnConflict, adopt, fill, this_process
from turnlog.stores.copying import Copied, OnProgress, copy
from turnlog.stores.live import RECORD_EVERY, StoredSession, record_of
from turnlog.stores.metrics import WriterMetrics
from turnlog.stores.port import (
    Batch,
    Durability,
    Queued,
    Record,
    SessionEventStore,
    SessionInfo,
)
from turnlog.stores.resuming import WHOLE, Load, open_log
from turnlog.stores.scanning import scan
from turnlog.stores.searching import Hit, Searcher, asked_for
from turnlog.stores.writer import Outbox, Writer
from turnlog.upcasts import reread

Create: TypeAlias = bool | Literal["only"]

CLOSE_DEADLINE = 10.0
TAIL_POLL = 1.0


class Inbox:
    """The durable queue of commands of one session; any process may post."""

    def __init__(self, backend: SessionEventStore, session_id: str) -> None:
        self._backend = backend
        self._session_id = session_id

    async def post(self, command: Command, *, create: bool = False) -> str:
        """Queue a command durably, once for its id; returns the id.

        Args:
            command: it gets an id if it has none.
            create: make the session if it does not exist.

        Raises:
            NoSuchSession: there is no such session.
        """
        if create:
            await _ensure(self._backend, self._session_id, create)
        if not command.id:
            command = with_id(command, _ambient.new_id())
        await self._backend.post(self._session_id, command)
        return command.id

    async def waiting(self) -> list[Queued]:
        """The commands that nobody has accepted yet, in order of posting."""
        return await self._backend.inbox(self._session_id)


class Store:
    """Sessions on one backend, and the one writer that makes them durable.

    Use as an async context manager; `open_store(url)` makes one.
    """

    def __init__(
        self,
        backend: SessionEventStore,
        *,
        whole: int = WHOLE,
        metrics: WriterMetrics | None = None,
    ) -> None:
        self.backend = backend
        self._whole = whole  # sessions with fewer events are held whole
        self._metrics = metrics
        self._writer: Writer | None = None
        self._stack = AsyncExitStack()

    @property
    def url(self) -> str:
        """What `open_store` took."""
        return self.backend.url

    @property
    def durability(self) -> Durability:
        """What a flush survives: see `Durability`."""
        return self.backend.durability

    async def __aenter__(self) -> Self:
        await self.backend.open()
        self._writer = Writer(self.backend, metrics=self._metrics)
        tasks = await self._stack.enter_async_context(anyio.create_task_group())
        tasks.start_soon(self._writer.run)
        self._stack.callback(self._writer.stop)
        with anyio.CancelScope(shield=True):
            await self._writer.ready.wait()
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._writer is not None:
            await self._writer.close(CLOSE_DEADLINE)
        try:
            await self._stack.aclose()
        finally:
            self._writer = None
            with anyio.CancelScope(shield=True):
                await self.backend.close()

    def _open_writer(self) -> Writer:
        if self._writer is None:
            msg = f"the store {self.url} is not open: use `async with open_store(…) as store`"
            raise StoreClosed(msg)
        return self._writer

    # -- writing -------------------------------------------------------------------------------

    @asynccontextmanager
    async def session(
        self,
        session_id: str | None = None,
        *,
        create: Create = True,
        steal: bool = False,
        load: Load = "surface",
        cwd: str | None = None,
    ) -> AsyncGenerator[StoredSession]:
        """Own a session: its one writer, repaired if it was interrupted.

        An imported session is left as it is until its first native event, which
        `session/end-seed` and what repair has to say precede.

        Leaving flushes, also when cancelled, within a deadline, and gives the session back.

        Args:
            session_id: a new id when left out.
            create: make it if it does not exist (True), never (False), or only then ("only").
            steal: take it from a live owner, whose later writes are refused.
            load: "surface" holds what the model sees and what is new, of a log of 5,000 events and
                more of which the store has a record; "all" holds every event, as JSONL always does.
            cwd: for a new session, the folder the work is about.

        Raises:
            NoSuchSession, SessionExists: by `create`.
            SessionInUse: another live writer owns it; names the owner.
            WriteFailed: on leaving, when what was appended is not durable.
            StaleWriter: the same, because another process owns the session now; not again if a
                flush has said so.
        """
        writer = self._open_writer()
        session_id = _ambient.new_id() if session_id is None else session_id
        await _ensure(self.backend, session_id, create, cwd)
        claim = await self.backend.claim(session_id, this_process(), steal=steal)
        outbox = None
        try:
            # Asked for first: what a thief appends from now on must not count as durable of ours.
            stored = await self.backend.next_seq(session_id)
            log, standing = await open_log(self.backend, session_id, load, self._whole)
            outbox = writer.attach(claim, stored)
            session = StoredSession(log, self.backend, writer, outbox, standing=standing)
            if session.writable and not session.seed_is_open:
                session.repair()
                await session.flush()
            try:
                yield session
            finally:
                with anyio.move_on_after(CLOSE_DEADLINE, shield=True) as scope:
                    if not session.knows_its_loss:
                        await session.flush()
                if scope.cancelled_caught:
                    msg = f"session {session_id!r}: not durable after {CLOSE_DEADLINE} s"
                    raise WriteFailed(msg)
            await self._keep_record(session, outbox)
        finally:
            if outbox is not None:
                writer.detach(outbox)
            with anyio.CancelScope(shield=True):
                await self.backend.release(claim)

    async def _keep_record(self, session: StoredSession, outbox: Outbox) -> None:
        """When a session is given back: a record, if none was kept for long."""
        every, record = RECORD_EVERY // 4, None
        if self.backend.keeps_records and session.next_seq >= every:
            record = await to_thread.run_sync(session.due_record, every)
        record = record or outbox.record
        if record is not None and session.writable and session.durable_seq == record.seq:
            # Derived and disposable: what hinders it is told by whatever is written next.
            await self.backend.commit([Batch(outbox.claim, (), record.seq, record)])

    async def fork(
        self, session_id: str, *, at: int | None = None, new_id: str | None = None
    ) -> str:
        """A durable child that shares the log up to and including event `at`; returns its id.

        The parent does not change and need not be free. A fork that failed half-way is gone on with
        when it is repeated with the child's id.

        Args:
            session_id: the parent.
            at: the last event that is shared; by default the last one there is.
            new_id: the child's id; a new one when left out.

        Raises:
            NoSuchSession, SessionExists, NoSuchEvent: as they say.
        """
        parent = await self.read(session_id)
        try:
            child = parent.fork(at, new_id)
        except NotLoaded:
            parent = await self.read(session_id, load="all")
            child = parent.fork(at, new_id)
        boundary = child.header.seed_length or 0
        try:
            if not await self.backend.fork(child.header, session_id, boundary):
                await self.backend.create(child.header)
        except SessionExists:
            if not await self._is_begun(child.header, boundary):
                raise
        after = await self.backend.next_seq(child.id)
        if after < child.first_held:
            parent = await self.read(session_id, load="all")
            child = parent.fork(boundary - 1, child.id)
        own = [event for event in child.held if event.seq >= after]
        record = await self._record_of(child)
        await fill(self.backend, child.id, own, after=after, record=record)
        return child.id

    async def _is_begun(self, header: SessionHeader, boundary: int) -> bool:
        """Whether a session is what a fork leaves that failed before the child was whole."""
        held = await self.backend.header(header.id)
        same = replace(header, created_at=held.created_at)
        return same == held and await self.backend.next_seq(header.id) <= boundary

    async def save(self, session: Session) -> str:
        """Keep a session that was made in memory, with all its events; returns its id.

        From then on open it with `store.session(id)`; the one in memory is no part of the store.

        Raises:
            SessionExists: the id is taken.
        """
        await self.backend.create(session.header)
        record = await self._record_of(session)
        await fill(self.backend, session.id, session.events, record=record)
        return session.id

    async def _record_of(self, session: Session) -> Record | None:
        """An opening record of a session that is long enough, if the backend keeps any."""
        if not self.backend.keeps_records or session.next_seq < RECORD_EVERY:
            return None
        return await to_thread.run_sync(record_of, session)

    async def adopt(
        self,
        header: SessionHeader,
        events: Iterable[AnyEvent],
        *,
        on_conflict: OnConflict = "error",
    ) -> tuple[str, Adopted]:
        """Take a session that was made elsewhere; returns its id and what was done.

        "imported": it is new here, or an import that was interrupted is now complete.
        "extended": it was here, the source has more by now, and nothing native was appended.
        "identical": it was here. "skipped": something else was here, and was left alone.

        The session is created first and filled in batches; until its seed is whole it is damaged,
        and importing it again goes on where it stopped.

        Args:
            header: with `seed_length`, the next seq after all of the source.
            events: the source's, in order of seq; those left out were lost. Iterated once or twice,
                so no iterator.
            on_conflict: "rename" takes the first free of `id-2`, `id-3` …

        Raises:
            ImportConflict: the id is taken by something else, and `on_conflict` is "error".
            SessionInUse: it would be extended, but another process owns it.
        """
        return await adopt(self.backend, header, events, on_conflict)

    async def copy_to(
        self,
        target: Store,
        ids: Iterable[str] | None = None,
        *,
        on_progress: OnProgress | None = None,
    ) -> list[Copied]:
        """Copy sessions to another open store; returns what became of each, parents first.

        A copy is exact: header, events and waiting commands, byte for byte. Forks are kept by
        reference where the target can; what cannot be read stays so, and the copy's header says why
        (`source_damage`). A session that is being written to is copied as far as it is durable.

        It may be interrupted at any moment and called again: what the target holds of a session is
        compared, and only what it lacks is appended.

        Args:
            target: where to; must not be in the middle of writing to these sessions itself.
            ids: which; all of them when left out.
            on_progress: called after each page and each session.

        Raises:
            CopyFailed: some sessions could not be copied, all others were; `copied` says which, and
                why: `CopyConflict` (the target holds something else under the id), `SessionInUse`
                (someone writes to the copy), or what the stores raise.
        """
        self._open_writer()
        target._open_writer()
        return await copy(self.backend, target.backend, ids, on_progress=on_progress)

    # -- reading -------------------------------------------------------------------------------

    async def read(self, session_id: str, *, load: Load = "surface") -> StoredSession:
        """A reader: no lease, no repair, no lock. It shows what was durable when it was opened.

        Args:
            session_id: which.
            load: as for `session`.

        Raises:
            NoSuchSession: there is none.
        """
        self._open_writer()
        log, standing = await open_log(self.backend, session_id, load, self._whole)
        return StoredSession(log, self.backend, standing=standing)

    def sessions(self) -> AsyncIterator[SessionInfo]:
        """All sessions, the last active first; one bad session hides no other."""
        self._open_writer()
        return self.backend.sessions()

    async def search(
        self,
        text: str,
        *,
        session: str | None = None,
        include_tools: bool = False,
        include_context: bool = False,
        include_shadowed: bool = True,
        limit: int = 20,
        skip: int = 0,
    ) -> list[Hit]:
        """Messages that hold all the words of a text, best first: full-text search.

        Case, width and accents do not matter; `"…"` is a phrase, `word*` the beginning of a word;
        Chinese, Japanese, Korean and Thai need no spaces. What is searched is what was made
        durable, including what a compaction took from the model's view: it was said.

        A fork's inherited messages are found once, in its parent; with `session` in the fork, too.

        SQLite and servers keep an index, made when a store is first searched, which takes a while
        then. The others read every session, one after the other.

        Args:
            text: what to look for.
            session: look in this one only.
            include_tools: also look in tool calls, their results, and reasoning.
            include_context: also in what no person typed: context, system text, and the summaries
                that stand for what was compacted.
            include_shadowed: also find messages that the model sees no longer.
            limit: the most hits to give, up to 1,000.
            skip: how many better hits to leave out.

        Raises:
            InvalidSearch: there is no word in the text, or there are too many.
            NoSuchSession: `session` does not exist.
        """
        self._open_writer()
        wanted = asked_for(
            text,
            session,
            tools=include_tools,
            context=include_context,
            shadowed=include_shadowed,
            limit=limit,
            skip=skip,
        )
        backend = self.backend
        if isinstance(backend, Searcher):
            return await backend.search(wanted)
        return await scan(backend, wanted)

    async def tail(self, session_id: str, after: int | None = None) -> AsyncIterator[AnyEvent]:
        """Events as they become durable, from whichever process; never ends by itself.

        Args:
            session_id: whose.
            after: the seq after which to begin; by default what is there now is left out, -1
                begins at the beginning.

        Raises:
            NoSuchSession: there is none.
        """
        self._open_writer()
        header = await self.backend.header(session_id)
        seq = await self.backend.next_seq(session_id) - 1 if after is None else after
        while True:
            events = await self.backend.read(session_id, seq + 1)
            if not events and (stored := await self.backend.next_seq(session_id)) > seq + 1:
                events = await self.backend.read(session_id, seq + 1, stored)
                seq = stored - 1  # what cannot be read is not waited for
            if events and len(events) < events[-1].seq - seq:  # a gap is one that stays
                events = await self.backend.read(session_id, seq + 1, events[-1].seq + 1)
            for event in events:
                yield reread(header, event) if event.seq < (header.source_length or 0) else event
                seq = max(seq, event.seq)
            while await self.backend.wait(session_id, seq, TAIL_POLL) is False:
                pass

    def inbox(self, session_id: str) -> Inbox:
        """The session's inbox, to which any process may post."""
        return Inbox(self.backend, session_id)

    async def pending(self, *, only_prompts: bool = True, only_free: bool = False) -> list[str]:
        """The sessions whose inbox holds a prompt, the longest waiting first.

        A prompt stays in the inbox until its turn is over: the sessions of turns that run now are
        among them, and so are those of turns that a crash cut off.

        Args:
            only_prompts: if not, also those with a decision, a cancel, or a compaction to do.
            only_free: without those that a live owner has, as far as the store can tell; JSONL
                cannot.
        """
        return await self.backend.pending(only_prompts=only_prompts, only_free=only_free)


async def _ensure(
    backend: SessionEventStore, session_id: str, create: Create, cwd: str | None = None
) -> None:
    """See to it that there is such a session, or refuse, as `create` says."""
    if create == "only" or (create and not await backend.exists(session_id)):
        header = SessionHeader(session_id, _ambient.clock(), cwd=cwd)
        header.check()
        try:
            await backend.create(header)
        except SessionExists:
            if create == "only":
                raise  # else another process was faster, and it exists now
    elif not create and not await backend.exists(session_id):
        msg = f"no session {session_id!r} in {backend.url}: `turnlog ls` lists what there is"
        raise NoSuchSession(msg)


__all__ = ["Inbox", "Store", "StoreError"]
