"""Waiting for room in the writer's queue, while writes fail."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager

import anyio
import pytest

from turnlog.errors import StaleWriter, StoreError, WriteFailed
from turnlog.stores.memory import MemoryStore
from turnlog.stores.port import Batch
from turnlog.stores.writer import Outbox, Writer
from turnlog.testing.conformance.samples import FIRST, SECOND, header, notes


class Failing(MemoryStore):
    """A store that cannot write for so many commits; it says when one has failed."""

    def __init__(self, failures: int) -> None:
        super().__init__()
        self.failures = failures
        self.failed = anyio.Event()

    async def commit(self, batches: Sequence[Batch]) -> list[StoreError | None]:
        """Store, or fail."""
        if not self.failures:
            return await super().commit(batches)
        self.failures -= 1
        self.failed.set()
        return [WriteFailed("no disk there")] * len(batches)


@asynccontextmanager
async def running(store: Failing) -> AsyncGenerator[tuple[Writer, list[Outbox]]]:
    """A writer that has room for one event, and an outbox each for two sessions."""
    writer = Writer(store, window=0.0, bound=1)
    outboxes: list[Outbox] = []
    for name in ("a", "b"):
        await store.create(header(name))
        outboxes.append(writer.attach(await store.claim(name, FIRST), 0))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(writer.run)
        await writer.ready.wait()
        yield writer, outboxes
        writer.stop()


async def test_who_waits_for_room_tries_again_what_failed() -> None:
    """Nothing else would: the queue would stay full for ever."""
    store = Failing(1)
    async with running(store) as (writer, (outbox, _)):
        writer.put(outbox, notes(0, 1)[0])
        await store.failed.wait()
        await writer.room(outbox)
        assert outbox.durable == 1


async def test_who_waits_for_room_is_told_that_it_fails_again() -> None:
    """As by a flush; what waits is kept."""
    store = Failing(2)
    async with running(store) as (writer, (outbox, _)):
        writer.put(outbox, notes(0, 1)[0])
        await store.failed.wait()
        with pytest.raises(WriteFailed, match="no disk there"):
            await writer.room(outbox)
        await writer.flush(outbox)
        assert outbox.durable == 1


async def test_who_waits_for_room_is_told_of_another_owner() -> None:
    """What waits never becomes durable."""
    store = Failing(0)
    async with running(store) as (writer, (outbox, _)):
        await store.claim("a", SECOND, steal=True)
        writer.put(outbox, notes(0, 1)[0])
        with pytest.raises(StaleWriter):
            await writer.room(outbox)


async def test_a_session_that_is_given_up_makes_room() -> None:
    """For others, who wait for it."""
    store = Failing(1)
    async with running(store) as (writer, (failed, other)), anyio.create_task_group() as tasks:
        writer.put(failed, notes(0, 1)[0])
        await store.failed.wait()
        tasks.start_soon(writer.room, other)
        await anyio.wait_all_tasks_blocked()
        writer.detach(failed)
