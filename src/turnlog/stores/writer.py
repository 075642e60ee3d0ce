"""The writer: one per store, it makes what sessions append durable.

`append` is synchronous and only queues. The writer drains all sessions together: whatever is due,
of all of them, goes to the backend in one `commit`. Due is what waited for the window, what a
`flush` waits for, and with durability "event" everything at once.

A commit runs in the writer's own task, so a cancelled `flush` never leaves half a batch. A failed
write is kept, reported at the next flush, and tried again there; until then nothing further of
that session becomes durable.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import anyio
import anyio.lowlevel

from turnlog import _ambient
from turnlog.errors import QueueFull, StaleWriter, StoreClosed, StoreError, WriteFailed
from turnlog.events import AnyEvent
from turnlog.stores.metrics import Commit, Queue, WriterMetrics, kind_of
from turnlog.stores.port import Batch, Claim, Record, SessionEventStore

WINDOW = 0.2
BOUND = 64 * 1024 * 1024
MAX_BATCH = 20_000
OVERHEAD = 200  # bytes of an event besides its payload, roughly


class Outbox:
    """The events of one session that wait to become durable."""

    __slots__ = (
        "bytes",
        "claim",
        "durable",
        "error",
        "lost",
        "pending",
        "record",
        "since",
        "taken",
        "waiting",
    )

    def __init__(self, claim: Claim, next_seq: int) -> None:
        self.claim = claim
        self.pending: list[AnyEvent] = []
        self.bytes = 0
        self.durable = next_seq  # every seq below it is durable
        self.error: StoreError | None = None  # the last write failed; only a flush tries again
        self.lost: StaleWriter | None = None  # someone else owns the session now
        self.waiting: list[tuple[int, anyio.Event]] = []
        self.record: Record | None = None  # to be kept with what is stored next
        self.taken = 0  # how many of `pending` a commit has in hand
        self.since = 0.0  # when the first one behind these was appended, if anybody measures


class Writer:
    """Drains the outboxes of one store into its backend."""

    def __init__(
        self,
        backend: SessionEventStore,
        *,
        window: float = WINDOW,
        bound: int = BOUND,
        metrics: WriterMetrics | None = None,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._backend = backend
        self._window = 0.0 if backend.durability == "event" else window
        self._bound = bound
        self._lock = threading.Lock()
        self._outboxes: dict[int, Outbox] = {}
        self._bytes = 0
        self._wake = anyio.Event()
        self._hurry = anyio.Event()
        self._room = anyio.Event()
        self._thread = 0  # the event loop's
        self.ready = anyio.Event()
        self._scope = anyio.CancelScope(shield=True)
        self._soon: Callable[[Callable[[], object]], object] | None = None  # from other threads
        self._closed = False
        self._idle = True
        self._metrics = metrics
        self._clock = clock
        self._queue = Queue(kind_of(backend.url), bound, self._waiting)

    # -- appending -----------------------------------------------------------------------------

    def attach(self, claim: Claim, next_seq: int) -> Outbox:
        """An outbox for a session that was claimed; `next_seq` is the stored one."""
        outbox = Outbox(claim, next_seq)
        with self._lock:
            self._outboxes[id(outbox)] = outbox
        return outbox

    def detach(self, outbox: Outbox) -> None:
        """Forget an outbox and what is in it."""
        with self._lock:
            self._outboxes.pop(id(outbox), None)
            self._bytes -= outbox.bytes
            outbox.pending, outbox.bytes = [], 0
            room, self._room = self._room, anyio.Event()
        room.set()

    def put(self, outbox: Outbox, event: AnyEvent) -> None:
        """Queue an event, from any thread.

        Raises:
            QueueFull: more than the bound waits already; nothing was queued.
            StaleWriter: the session has another owner.
            StoreClosed: the store was closed.
        """
        size = len(event.raw) + OVERHEAD
        with self._lock:
            if outbox.lost is not None:
                raise outbox.lost
            if self._closed or id(outbox) not in self._outboxes:
                msg = f"session {outbox.claim.session_id!r} is closed"
                raise StoreClosed(msg)
            full = self._bytes if self._bytes and self._bytes + size > self._bound else 0
            idle = self._idle and not full
            if not full:
                if self._metrics is not None and len(outbox.pending) == outbox.taken:
                    outbox.since = self._clock()
                outbox.pending.append(event)
                outbox.bytes += size
                self._bytes += size
                self._idle = False
        if full:
            raise self._full(full)
        if idle:
            if self._soon is None or threading.get_ident() == self._thread:
                self._wake.set()
            else:
                self._soon(self._wake_up)

    def _full(self, waiting: int) -> QueueFull:
        if self._metrics is not None:
            self._tell(self._metrics.refused)  # without the lock, for it may ask what waits
        return QueueFull(
            f"{waiting} bytes wait to become durable, the bound is {self._bound}: "
            "await flush() before appending more"
        )

    def _wake_up(self) -> None:
        self._wake.set()

    async def room(self, outbox: Outbox) -> None:
        """Wait until the queue is at most half full: what a loop does before it goes on.

        Raises:
            WriteFailed: the last write of this outbox failed, and so did another try.
            StaleWriter: its session has another owner.
        """
        while self._bytes > self._bound // 2 and not self._closed:
            if outbox.error is not None or outbox.lost is not None:
                await self.flush(outbox)  # nothing else tries again, or says why not
                continue
            room = self._room
            self._hurry.set()
            self._wake.set()
            await room.wait()

    # -- making durable ------------------------------------------------------------------------

    async def flush(self, outbox: Outbox) -> None:
        """Wait until everything that was appended so far is durable.

        Raises:
            WriteFailed: it is not; it is kept, and the next flush tries again.
            StaleWriter: it never will be: the session has another owner.
        """
        with self._lock:
            if outbox.lost is not None:
                raise outbox.lost
            if not outbox.pending:
                return
            if self._closed:
                msg = f"session {outbox.claim.session_id!r} is closed"
                raise StoreClosed(msg)
            target = outbox.pending[-1].seq + 1
            outbox.error = None
            settled = anyio.Event()
            outbox.waiting.append((target, settled))
            self._idle = False
        self._hurry.set()
        self._wake.set()
        await settled.wait()
        if outbox.lost is not None:
            raise outbox.lost
        if outbox.durable < target:
            raise outbox.error or WriteFailed(
                f"session {outbox.claim.session_id!r}: the store was closed before the flush"
            )

    async def run(self) -> None:
        """Drain until `stop`; a cancel from outside does not, for something waits."""
        self._thread = threading.get_ident()
        self._soon = _from_other_threads()
        if self._metrics is not None:
            self._tell(self._metrics.opened)
        try:
            with self._scope:
                self.ready.set()
                await self._drain_always()
        finally:
            if self._metrics is not None:
                self._tell(self._metrics.closed)

    async def _drain_always(self) -> None:
        while True:
            await self._wake.wait()
            if self._window and not self._hurry.is_set():
                with anyio.move_on_after(self._window):
                    await self._hurry.wait()
            self._wake, self._hurry = anyio.Event(), anyio.Event()
            await self._drain()
            self._again()

    def stop(self) -> None:
        """End `run`; after `close`."""
        self._scope.cancel()

    def _again(self) -> None:
        """After a drain: go on at once for who waits or for a backlog, else after the window."""
        with self._lock:
            live = [o for o in self._outboxes.values() if o.error is None and o.lost is None]
            left = [o for o in live if o.pending]
            self._idle = not left
            if not left:
                return
            if any(o.waiting or len(o.pending) >= MAX_BATCH for o in left):
                self._hurry.set()
            self._wake.set()

    async def close(self, deadline: float) -> None:
        """Flush everything, for at most `deadline` seconds, and take no more."""
        with anyio.move_on_after(deadline, shield=True):
            for outbox in list(self._outboxes.values()):
                if outbox.pending and outbox.lost is None:
                    try:
                        await self.flush(outbox)
                    except StoreError:
                        continue  # kept in the outbox: the session's own close reports it
        self._closed = True
        self._room.set()

    async def _drain(self) -> None:
        """Commit what is due, once."""
        with self._lock:
            due = [
                (outbox, _batch(outbox), outbox.since)
                for outbox in self._outboxes.values()
                if outbox.pending and outbox.error is None and outbox.lost is None
            ]
            for outbox, batch, _ in due:
                outbox.taken = len(batch.events)
        if not due:
            return
        results: list[StoreError | None] = []
        began = self._clock()
        with anyio.CancelScope(shield=True):
            results = await self._commit([batch for _, batch, _ in due])
        ended = self._clock()
        with self._lock:
            for (outbox, batch, since), error in zip(due, results, strict=True):
                self._settle(outbox, batch, error)
                outbox.taken = 0
                if error is not None:
                    outbox.since = since
            room, self._room = self._room, anyio.Event()
        room.set()
        if self._metrics is not None:
            self._tell(self._metrics.committed, _commit(due, results, began, ended))

    async def _commit(self, batches: list[Batch]) -> list[StoreError | None]:
        try:
            return list(await self._backend.commit(batches))
        except StoreError as error:
            return [error] * len(batches)
        except Exception as error:  # noqa: BLE001 - a backend's bug must not lose what is queued
            failure = WriteFailed(
                f"{self._backend.url}: unexpected {type(error).__name__}: {error}"
            )
            failure.__cause__ = error
            return [failure] * len(batches)

    def _settle(self, outbox: Outbox, batch: Batch, error: StoreError | None) -> None:
        if error is None:
            count = len(batch.events)
            if outbox.pending:
                size = outbox.bytes
                if count < len(outbox.pending):
                    size = sum(len(event.raw) + OVERHEAD for event in batch.events)
                del outbox.pending[:count]
                outbox.bytes -= size
                self._bytes -= size
            outbox.durable = batch.next_seq
            if batch.record is outbox.record:
                outbox.record = None
        elif isinstance(error, StaleWriter):
            outbox.lost = error
        else:
            outbox.error = error
        still: list[tuple[int, anyio.Event]] = []
        for target, settled in outbox.waiting:
            if error is not None or outbox.durable >= target:
                settled.set()
            else:
                still.append((target, settled))
        outbox.waiting = still

    # -- being measured ------------------------------------------------------------------------

    def _waiting(self) -> tuple[int, int]:
        with self._lock:
            return sum(len(outbox.pending) for outbox in self._outboxes.values()), self._bytes

    def _tell(self, say: Callable[..., None], *what: Commit) -> None:
        try:
            say(self._queue, *what)
        except Exception:  # noqa: BLE001 - of whoever measures: it must not hurt what is measured
            _ambient.report_metrics(self._queue.kind)


def _batch(outbox: Outbox) -> Batch:
    """The next events of a session, and its record if they reach as far."""
    events, record = outbox.pending[:MAX_BATCH], outbox.record
    if record is not None and record.seq > events[-1].seq + 1:
        record = None
    return Batch(outbox.claim, events, outbox.durable, record)


def _commit(
    due: Sequence[tuple[Outbox, Batch, float]],
    results: Sequence[StoreError | None],
    began: float,
    ended: float,
) -> Commit:
    """What is to be told of a commit."""
    pairs = zip(due, results, strict=True)
    stored = [(batch.events, since) for (_, batch, since), error in pairs if error is None]
    return Commit(
        ended - began,
        sum(len(events) for events, _ in stored),
        sum(len(event.raw) for events, _ in stored for event in events),
        [ended - since for _, since in stored],
        [error for error in results if error is not None],
    )


def _from_other_threads() -> Callable[[Callable[[], object]], object]:
    """How other threads have something called in the event loop that runs here.

    They do not wait for it: who appends holds the session's lock, and the loop may want that.
    """
    token: Any = anyio.lowlevel.current_token()
    native: Any = getattr(token, "native_token", token)
    on_asyncio = getattr(native, "call_soon_threadsafe", None)
    return on_asyncio or native.run_sync_soon
