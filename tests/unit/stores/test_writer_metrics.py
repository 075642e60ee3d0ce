"""What the writer tells whoever measures it, with a clock of the test's own."""

from __future__ import annotations

import logging
import threading
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager

import anyio
import pytest

from turnlog.errors import QueueFull, StaleWriter, StoreError, WriteFailed
from turnlog.stores.memory import MemoryStorage, MemoryStore
from turnlog.stores.metrics import Commit, Queue, WriterMetrics, kind_of
from turnlog.stores.port import Batch
from turnlog.stores.writer import MAX_BATCH, OVERHEAD, Outbox, Writer
from turnlog.testing.conformance.samples import FIRST, SECOND, header, notes

pytestmark = pytest.mark.anyio


class Clock:
    """Seconds that pass when a test says so."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        """Seconds."""
        return self.now


class Told:
    """Keeps what it is told."""

    def __init__(self) -> None:
        self.queues: list[Queue] = []
        self.commits: list[Commit] = []
        self.refusals: list[tuple[int, int]] = []

    def opened(self, queue: Queue) -> None:
        """One more."""
        self.queues.append(queue)

    def closed(self, queue: Queue) -> None:
        """One less."""
        self.queues.remove(queue)

    def committed(self, queue: Queue, commit: Commit) -> None:
        """Well or badly."""
        assert queue in self.queues
        self.commits.append(commit)

    def refused(self, queue: Queue) -> None:
        """What waits meanwhile."""
        self.refusals.append(queue.waiting())


class Broken(Told):
    """Fails at everything."""

    def opened(self, queue: Queue) -> None:
        """No."""
        raise RuntimeError(f"{queue.kind} opened")

    def closed(self, queue: Queue) -> None:
        """No."""
        raise RuntimeError(f"{queue.kind} closed")

    def committed(self, queue: Queue, commit: Commit) -> None:
        """No."""
        raise RuntimeError(f"{queue.kind} committed {commit.events}")

    def refused(self, queue: Queue) -> None:
        """No."""
        raise RuntimeError(f"{queue.kind} refused")


class Slow(MemoryStore):
    """Something happens during each commit; then it succeeds, or fails as it is told to."""

    def __init__(self, storage: MemoryStorage | None = None) -> None:
        super().__init__(storage)
        self.meanwhile: Callable[[], object] = lambda: None
        self.failure: StoreError | None = None

    async def commit(self, batches: Sequence[Batch]) -> list[StoreError | None]:
        """Take its time."""
        self.meanwhile()
        if self.failure is not None:
            raise self.failure
        return await super().commit(batches)


@asynccontextmanager
async def running(writer: Writer) -> AsyncGenerator[None]:
    """Let it drain meanwhile."""
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(writer.run)
        await writer.ready.wait()
        yield
        writer.stop()


async def outbox_of(writer: Writer, store: MemoryStore, session_id: str) -> Outbox:
    """Of a new session."""
    await store.create(header(session_id))
    return writer.attach(await store.claim(session_id, FIRST), 0)


@pytest.fixture
def clock() -> Clock:
    """A clock."""
    return Clock()


async def test_a_commit_says_how_long_what_waited(clock: Clock) -> None:
    """The lag is that of each session's oldest event; what came meanwhile belongs to the next."""
    told, store = Told(), Slow()
    writer = Writer(store, metrics=told, clock=clock)
    a, b = await outbox_of(writer, store, "a"), await outbox_of(writer, store, "b")
    events = notes(0, 5)
    for outbox, event in ((a, events[0]), (a, events[1]), (b, events[0])):
        writer.put(outbox, event)
        clock.now += 1

    def meanwhile() -> None:
        clock.now += 4
        for event in events[2:4]:
            writer.put(a, event)
            clock.now += 8

    store.meanwhile = meanwhile
    async with running(writer):
        await writer.flush(a)
        store.meanwhile = lambda: None
        clock.now += 32
        await writer.flush(a)
        writer.put(a, events[4])
        await writer.flush(a)
    size = len(events[0].raw)
    assert told.commits == [
        Commit(20.0, 3, 3 * size, [23.0, 21.0], []),
        Commit(0.0, 2, 2 * size, [48.0], []),
        Commit(0.0, 1, size, [0.0], []),
    ]
    assert told.queues == []


async def test_a_backlog_waits_since_its_beginning(clock: Clock) -> None:
    """Of more events than a batch takes, the rest counts as old as the first one was."""
    told, store = Told(), Slow()
    writer = Writer(store, metrics=told, clock=clock)
    outbox = await outbox_of(writer, store, "a")
    for event in notes(0, MAX_BATCH + 1):
        writer.put(outbox, event)
    store.meanwhile = lambda: setattr(clock, "now", clock.now + 1)
    async with running(writer):
        await writer.flush(outbox)
    assert [(commit.events, commit.lags) for commit in told.commits] == [
        (MAX_BATCH, [1.0]),
        (1, [2.0]),
    ]


async def test_what_failed_is_told_and_waits_on(clock: Clock) -> None:
    """A failed commit names the error, once a session; the lag goes on until it is stored."""
    told, store = Told(), Slow()
    writer = Writer(store, metrics=told, clock=clock)
    a, b = await outbox_of(writer, store, "a"), await outbox_of(writer, store, "b")
    writer.put(a, notes(0, 1)[0])
    writer.put(b, notes(0, 1)[0])
    store.failure = WriteFailed("the disk is full")
    store.meanwhile = lambda: setattr(clock, "now", clock.now + 2)
    async with running(writer):
        with pytest.raises(WriteFailed):
            await writer.flush(a)
        writer.put(a, notes(1, 1)[0])
        store.failure = None
        await writer.flush(a)
        await writer.flush(b)
    assert [(c.seconds, c.events, c.lags) for c in told.commits] == [
        (2.0, 0, []),
        (2.0, 2, [4.0]),
        (2.0, 1, [6.0]),
    ]
    assert [[type(e) for e in c.errors] for c in told.commits] == [[WriteFailed] * 2, [], []]


async def test_a_lost_session_is_told(clock: Clock) -> None:
    """It is the one of its commit that was not stored."""
    told, storage = Told(), MemoryStorage()
    store = Slow(storage)
    writer = Writer(store, metrics=told, clock=clock)
    a, b = await outbox_of(writer, store, "a"), await outbox_of(writer, store, "b")
    await MemoryStore(storage).claim("a", SECOND, steal=True)
    writer.put(a, notes(0, 1)[0])
    writer.put(b, notes(0, 1)[0])
    async with running(writer):
        with pytest.raises(StaleWriter):
            await writer.flush(a)
    (commit,) = told.commits
    assert (commit.events, len(commit.lags)) == (1, 1)
    assert [type(error) for error in commit.errors] == [StaleWriter]


async def test_a_refused_append_is_told_where_it_happens(clock: Clock) -> None:
    """Past the bound, in whichever thread; who is told may ask what waits."""
    told, store = Told(), Slow()
    (first, second) = notes(0, 2)
    size = len(first.raw) + OVERHEAD
    writer = Writer(store, bound=size, metrics=told, clock=clock)
    outbox = await outbox_of(writer, store, "a")
    writer.put(outbox, first)
    raised: list[str] = []

    def append() -> None:
        try:
            writer.put(outbox, second)
        except QueueFull as error:
            raised.append(str(error))

    thread = threading.Thread(target=append)
    thread.start()
    thread.join(60)
    append()
    said = f"{size} bytes wait to become durable, the bound is {size}: await flush() before"
    assert raised == [f"{said} appending more"] * 2
    assert told.refusals == [(1, size)] * 2


async def test_who_fails_to_measure_hurts_no_write(
    clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    """An exception of the one who measures is logged, and nothing else happens."""
    store = Slow()
    (first, second) = notes(0, 2)
    metrics: WriterMetrics = Broken()
    writer = Writer(store, bound=len(first.raw) + OVERHEAD, metrics=metrics, clock=clock)
    outbox = await outbox_of(writer, store, "a")
    with caplog.at_level(logging.ERROR, "turnlog"):
        async with running(writer):
            writer.put(outbox, first)
            with pytest.raises(QueueFull):
                writer.put(outbox, second)
            await writer.flush(outbox)
    assert await store.next_seq("a") == 1
    failures = [str(record.exc_info[1]) for record in caplog.records if record.exc_info]
    assert failures == [
        "memory opened",
        "memory refused",
        "memory committed 1",
        "memory closed",
    ]
    assert {record.getMessage() for record in caplog.records} == {
        "what measures the writer of a store of kind 'memory' failed"
    }


@pytest.mark.parametrize(
    ("url", "kind"),
    [
        ("memory:", "memory"),
        ("sqlite:a.db", "sqlite"),
        ("postgres://me:secret@db/agents", "postgresql"),
        ("postgresql://me:secret@db/agents", "postgresql"),
        ("mariadb://me:secret@db/agents", "mysql"),
    ],
)
def test_a_kind_is_the_beginning_of_the_url(url: str, kind: str) -> None:
    """By one name, and without what only its users may know."""
    assert kind_of(url) == kind
