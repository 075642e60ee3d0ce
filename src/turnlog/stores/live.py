"""A durable session: the one in memory, whose appends the store's writer makes durable."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import anyio
import anyio.lowlevel
import anyio.to_thread

from turnlog import _ambient, jsontext
from turnlog.codec import encode_lines
from turnlog.content import Message
from turnlog.errors import DamagedSession, ForkedProcess, ReadOnly, StaleWriter
from turnlog.events import AnyEvent
from turnlog.log import SessionLog, unacknowledged
from turnlog.session import Session
from turnlog.standing import STANDING
from turnlog.stores.loading import range_of
from turnlog.stores.patience import Patience
from turnlog.stores.port import Queued, Record, SessionEventStore
from turnlog.stores.resuming import log_at, pages, said_before
from turnlog.stores.writer import Outbox, Writer
from turnlog.views.derive import DerivedMessages
from turnlog.views.sequence import MessageList
from turnlog.views.transcript import said

T = TypeVar("T")

RECORD_EVERY = 2_000
"""After how many events a session that is written to gets a new opening record."""
FOLD_EVERY = 500
"""After how many events a flush has them folded: 2 ms in a worker thread."""
_TURNS = frozenset({"turn/start", "turn/end"})


class StoredSession(Session):
    """A session that a store holds; without an outbox it is for reading only.

    Attributes:
        patience: how long `flush`, `commands` and `accept` wait for a store that is away, besides
            its own patience; None: not at all.
        knows_its_loss: whether a flush has raised that another process owns the session now.
    """

    def __init__(
        self,
        log: SessionLog,
        backend: SessionEventStore,
        writer: Writer | None = None,
        outbox: Outbox | None = None,
        *,
        standing: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(log, commit=self._put, standing=standing)
        self._backend = backend
        self._writer = writer
        self._outbox = outbox
        self._pid = _ambient.process_id()
        self._blocked = bool(unacknowledged(log))
        self._folded = log.first_held  # up to where the standing folds were brought
        self._recorded = log.first_held  # up to where the last record goes
        self._try_at = 0  # the next seq from which on a record is worth trying
        self._turning = False  # whether a turn began that has not ended
        self.patience: Patience | None = None
        self.knows_its_loss = False

    # -- writing -------------------------------------------------------------------------------

    def _put(self, event: AnyEvent) -> None:
        """Queue an event before it enters the log; raising refuses it."""
        self._check_writable(event.type)
        if self._writer is not None and self._outbox is not None:
            self._writer.put(self._outbox, event)
        if event.type in _TURNS:
            self._turning = event.type == "turn/start"

    def _check_writable(self, type_name: str) -> None:
        if self._writer is None or self._outbox is None:
            msg = f"session {self.id!r} was opened for reading: open it with store.session(…)"
            raise ReadOnly(msg)
        self._check_process()
        if self._blocked and type_name != "session/damage-acknowledged":
            first = unacknowledged(self._log)[0]
            msg = (
                f"session {self.id!r} is damaged ({first.reason}): it can be read; to write on, "
                "acknowledge_damage() or `turnlog repair --accept-damage`"
            )
            raise DamagedSession(msg)

    def _check_process(self) -> None:
        if _ambient.process_id() != self._pid:
            msg = (
                f"session {self.id!r} was opened by process {self._pid}: a child made by fork() "
                "must open its own store"
            )
            raise ForkedProcess(msg)

    @property
    def writable(self) -> bool:
        """Whether it was opened for writing and no damage blocks that."""
        return self._outbox is not None and not self._blocked

    async def flush(self) -> None:
        """Wait until everything appended so far is durable, at the store's durability.

        Raises:
            WriteFailed: it is not; it is kept, and the next flush tries again.
            StaleWriter: it never will be: another process owns the session now.
            ForkedProcess: called in a child of the process that opened the session.
        """
        self._check_process()
        if self._writer is not None and self._outbox is not None:
            if self._outbox.pending:  # a record goes with what is stored
                await self._fold_new()
                if self._is_due(RECORD_EVERY):
                    record = await anyio.to_thread.run_sync(self.due_record, RECORD_EVERY)
                    self._outbox.record = record or self._outbox.record
            writer, outbox = self._writer, self._outbox
            try:
                await self._patiently(lambda: writer.flush(outbox))
            except StaleWriter:
                self.knows_its_loss = True
                raise

    async def _patiently(self, work: Callable[[], Awaitable[T]]) -> T:
        """Do what may be done again, again while the store is away and there is patience."""
        return await (work() if self.patience is None else self.patience.keep(work))

    async def _fold_new(self) -> None:
        """Fold what is new as the session goes, so that a record need not wait for it."""
        seq = self._log.next_seq
        if self._backend.keeps_records and seq - self._folded >= FOLD_EVERY:
            self._folded = seq
            await anyio.to_thread.run_sync(self._fold_standing)

    def _fold_standing(self) -> None:
        for fold in STANDING.values():
            self.fold(fold)

    def due_record(self, every: int) -> Record | None:
        """A record to open the session from, if one is worth it and the log is at rest.

        To be called in a worker thread: it takes as long as the surface.

        Args:
            every: after how many events one is worth it; more where the surface is longer.
        """
        with self._lock:
            if not self._is_due(every):
                return None
            self._try_at = self._log.next_seq + every // 4  # looking is not free
            record = record_of(self, every)
            if record is not None:
                self._recorded = record.seq
            return record

    def _is_due(self, every: int) -> bool:
        """Whether it is time for a record."""
        worth = self._recorded + max(every, len(self._log.surface) // 2)
        late = self._log.next_seq >= max(worth, self._try_at)
        return late and self._backend.keeps_records and not self._turning

    async def room(self) -> None:
        """Wait while too much waits to become durable; a loop does this before it goes on.

        Raises:
            WriteFailed, StaleWriter: it waits because of this session, as `flush` says.
        """
        writer, outbox = self._writer, self._outbox
        if writer is not None and outbox is not None:
            await self._patiently(lambda: writer.room(outbox))

    async def commands(self) -> list[Queued]:
        """What waits in the session's inbox, in order of posting."""
        return await self._patiently(lambda: self._backend.inbox(self.id))

    async def accept(self, positions: Sequence[int]) -> None:
        """Take commands out of the inbox: after their `inbox/accepted` was flushed."""
        outbox = self._outbox
        if outbox is not None:
            await self._patiently(lambda: self._backend.accept(outbox.claim, positions))

    @property
    def durable_seq(self) -> int:
        """Every event with a smaller seq is durable."""
        return self.next_seq if self._outbox is None else self._outbox.durable

    def acknowledge_damage(self) -> AnyEvent | None:
        """Accept what cannot be read as lost, which allows writing on; None if there is none."""
        with self._lock:
            lost = unacknowledged(self._log)
            if not lost:
                return None
            ranges = [range_of(damage) for damage in lost]
            self._blocked = False  # what ends an imported seed comes before the event
            try:
                return self.append("session/damage-acknowledged", {"ranges": ranges})
            except BaseException:
                self._blocked = True
                raise

    async def detach(self, path: str | Path) -> Path:
        """Save the whole log, what no store took included, as one JSONL file; returns its path.

        For when the store is broken: `turnlog import PATH` takes the file.

        Raises:
            StoreError: the first events are not in memory, and the store cannot give them.
        """
        header = self.header
        body = jsontext.encode(header.to_dict()) + b"\n" + encode_lines(await self.read_events())
        await anyio.to_thread.run_sync(_write_private, Path(path), body)
        return Path(path)

    # -- reading -------------------------------------------------------------------------------

    async def read_events(self, start: int = 0, stop: int | None = None) -> list[AnyEvent]:
        """The events with `start <= seq < stop`: from memory, and from the store what is not there.

        Raises:
            StoreError: the store cannot be read.
        """
        await anyio.lowlevel.checkpoint()
        log = self._log
        first = log.first_held
        end = log.next_seq if stop is None else stop
        older: list[AnyEvent] = []
        async for page in pages(self._backend, log.header, min(end, first), start=max(start, 0)):
            older += page
        if end <= first:
            return older
        return older + log.events[log.index(max(start, first)) : log.index(end)]

    async def view(self, at: int | None = None) -> MessageList:
        """What the model saw after event `at`, wherever that is; see `derive_messages`.

        Raises:
            NoSuchEvent: there is no such event.
            StoreError: the store cannot be read.
        """
        await anyio.lowlevel.checkpoint()
        log = self._log
        if type(at) is int and -1 <= at < log.first_held - 1:
            return DerivedMessages(await log_at(self._backend, log.header, at)).current()
        return self.derive_messages(at)

    async def transcript(
        self, *, include_tools: bool = False, include_context: bool = False
    ) -> tuple[Message, ...]:
        """What a person reads, all of it; see `extract_chat_messages`.

        Raises:
            StoreError: the store cannot be read.
        """
        await anyio.lowlevel.checkpoint()
        log = self._log
        if log.base is None:
            return self.extract_chat_messages(
                include_tools=include_tools, include_context=include_context
            )
        before = await said_before(
            self._backend, log.header, log.first_held, tools=include_tools, context=include_context
        )
        with self._lock:
            each = (said(e, tools=include_tools, context=include_context) for e in log.messages)
            return (*before, *(message for message in each if message is not None))


def record_of(session: Session, every: int = RECORD_EVERY) -> Record | None:
    """An opening record of a session with so many events, if its log is at rest."""
    if session.next_seq < every:
        return None
    data = session.opening_record()
    return None if data is None else Record(session.next_seq, data)


def _write_private(path: Path, body: bytes) -> None:
    """Write a file that only its owner can read."""
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(handle, "wb") as file:
        file.write(body)
