"""Batches are stored whole or not at all, in order, and only where the log ends."""

from __future__ import annotations

from collections.abc import Sequence

import anyio
import pytest
from anyio.lowlevel import checkpoint

from turnlog.errors import SessionInUse, StaleWriter
from turnlog.events import AnyEvent
from turnlog.stores.port import Batch, Claim, Owner, SessionEventStore
from turnlog.testing.conformance.base import Handles, StoreSuite, commit
from turnlog.testing.conformance.samples import FIRST, NOON, assert_same, event, header, notes

WRITERS = 8
ROUNDS = 5


class CommitTests(StoreSuite):
    """A batch enters whole, at the end of the log, or not at all."""

    async def test_batches_follow_on_each_other(self, handles: Handles) -> None:
        """Each commit continues where the last one ended, also through another handle."""
        await handles.write("a", notes(0, 3), notes(3, 1), notes(4, 2))
        async with handles.another() as store:
            claim = await store.claim("a", FIRST)
            assert await store.next_seq("a") == 6
            await commit(store, claim, notes(6, 2))
            assert await store.next_seq("a") == 8
        assert_same((await handles.load("a")).events, notes(0, 8))

    async def test_a_batch_behind_the_end_is_refused(self, handles: Handles) -> None:
        """A batch whose first seq is stored already is refused, the same events or others."""
        await handles.write("a", notes(0, 3))
        store = await handles.open()
        claim = await store.claim("a", FIRST)
        for events in (notes(0, 3), notes(0, 5), [event(0, "another")]):
            with pytest.raises(StaleWriter, match="a"):
                await commit(store, claim, events)
        assert_same((await handles.load("a")).events, notes(0, 3))
        await commit(store, claim, notes(3, 1))

    async def test_a_batch_beyond_the_end_is_refused(self, handles: Handles) -> None:
        """A batch that would leave a gap before it is refused."""
        await handles.write("a", notes(0, 2))
        store = await handles.open()
        claim = await store.claim("a", FIRST)
        with pytest.raises(StaleWriter, match="a"):
            await commit(store, claim, notes(3, 3))
        assert_same((await handles.load("a")).events, notes(0, 2))
        await commit(store, claim, notes(2, 1))

    async def test_sessions_commit_together(self, handles: Handles) -> None:
        """One commit stores batches of many sessions, each in its own."""
        store = await handles.open()
        ids = [f"s{i}" for i in range(20)]
        batches: list[Batch] = []
        for i, session_id in enumerate(ids):
            await store.create(header(session_id))
            claim = await store.claim(session_id, FIRST)
            batches.append(Batch(claim, notes(0, i % 3 + 1, say=session_id)))
        assert list(await store.commit(batches)) == [None] * len(ids)
        for i, session_id in enumerate(ids):
            assert_same((await handles.load(session_id)).events, notes(0, i % 3 + 1, session_id))

    async def test_a_stale_batch_hurts_no_other(self, handles: Handles) -> None:
        """Of several sessions' batches the stale one is refused, and the others are stored."""
        store = await handles.open()
        for session_id in ("a", "b", "c"):
            await handles.write(session_id, notes(0, 2))
        first, stale, last = [await store.claim(session_id, FIRST) for session_id in "abc"]
        batches = [Batch(first, notes(2, 3)), Batch(stale, notes(1, 4)), Batch(last, notes(2, 1))]
        before, refused, after = await store.commit(batches)
        assert (before, after) == (None, None)
        assert isinstance(refused, StaleWriter)
        assert_same((await handles.load("a")).events, notes(0, 5))
        assert_same((await handles.load("b")).events, notes(0, 2))
        assert_same((await handles.load("c")).events, notes(0, 3))

    async def test_what_was_committed_survives_its_process(self, handles: Handles) -> None:
        """After `commit` returned, the death of the writer's process loses nothing of it."""
        doomed = await handles.open()
        await doomed.create(header("a"))
        claim = await doomed.claim("a", FIRST)
        await commit(doomed, claim, notes(0, 3))
        await commit(doomed, claim, notes(3, 2))
        await handles.kill(doomed)
        assert_same((await handles.load("a")).events, notes(0, 5))

    async def test_a_cancelled_commit_leaves_all_or_nothing(self, handles: Handles) -> None:
        """Wherever a commit is cancelled, its batch is there whole or not at all, and once."""
        await handles.write("a", notes(0, 1))
        store = await handles.open()
        claim = await store.claim("a", FIRST)
        stored = 1
        for patience in range(12):
            batch = notes(stored, 7)
            await _cancelled(store, claim, batch, after=patience)
            (again,) = await store.commit([Batch(claim, batch)])  # what a writer does: ask again
            assert again is None or isinstance(again, StaleWriter)
            stored += 7
            assert await store.next_seq("a") == stored
            assert_same((await handles.load("a")).events, notes(0, stored))

    async def test_concurrent_commits_of_many_sessions(self, handles: Handles) -> None:
        """Tasks that commit to sessions of their own through one handle do not disturb another."""
        store = await handles.open()

        async def write(session_id: str) -> None:
            await store.create(header(session_id))
            claim = await store.claim(session_id, FIRST)
            for i in range(ROUNDS):
                await commit(store, claim, notes(4 * i, 4, session_id))

        with anyio.fail_after(self.patience):
            async with anyio.create_task_group() as tasks:
                for i in range(WRITERS):
                    tasks.start_soon(write, f"s{i}")
        for i in range(WRITERS):
            assert_same((await handles.load(f"s{i}")).events, notes(0, 4 * ROUNDS, f"s{i}"))

    async def test_of_racing_batches_one_is_stored(self, handles: Handles) -> None:
        """Tasks that race for the same seqs, and retry, fill the log densely, each event once."""
        await handles.write("a", notes(0, 1, "start"))
        store = await handles.open()
        claim = await store.claim("a", FIRST)

        async def write(name: str) -> None:
            for i in range(ROUNDS):
                while True:
                    seq = await store.next_seq("a")
                    (error,) = await store.commit([Batch(claim, [event(seq, f"{name}.{i}")])])
                    if error is None:
                        break
                    assert isinstance(error, StaleWriter)
                    await checkpoint()

        with anyio.fail_after(self.patience):
            async with anyio.create_task_group() as tasks:
                for i in range(WRITERS):
                    tasks.start_soon(write, f"w{i}")
        self._holds_each_once((await handles.load("a")).events[1:])

    async def test_eight_writers_take_turns(self, handles: Handles) -> None:
        """Handles that claim, write and release in turn fill the log densely, each event once."""
        await handles.write("a", notes(0, 1, "start"))

        async def write(number: int) -> None:
            store = await handles.open()
            owner = Owner(pid=number, host="test.example", since=NOON)
            for i in range(ROUNDS):
                claim = await _claimed(store, "a", owner)
                await checkpoint()
                seq = await store.next_seq("a")
                await commit(store, claim, [event(seq, f"w{number}.{i}")])
                await store.release(claim)
                await checkpoint()

        with anyio.fail_after(self.patience):
            async with anyio.create_task_group() as tasks:
                for i in range(WRITERS):
                    tasks.start_soon(write, i)
        self._holds_each_once((await handles.load("a")).events[1:])

    def _holds_each_once(self, events: Sequence[AnyEvent]) -> None:
        assert [e.seq for e in events] == list(range(1, WRITERS * ROUNDS + 1))
        written = [e.data for e in events]
        assert sorted(written) == sorted(f"w{w}.{i}" for w in range(WRITERS) for i in range(ROUNDS))
        for w in range(WRITERS):
            mine = [said for said in written if said.startswith(f"w{w}.")]
            assert mine == [f"w{w}.{i}" for i in range(ROUNDS)]

    async def test_a_reader_sees_a_prefix(self, handles: Handles) -> None:
        """Whoever reads while another handle writes sees a prefix of the log, never a hole."""
        await handles.write("a")
        store = await handles.open()
        claim = await store.claim("a", FIRST)
        total = 60
        done = anyio.Event()

        async def write() -> None:
            for start in range(0, total, 3):
                await commit(store, claim, notes(start, 3))
                await checkpoint()
            done.set()

        seen = 0
        with anyio.fail_after(self.patience):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(write)
                while not done.is_set():
                    stored = await handles.load("a")
                    assert_same(stored.events, notes(0, len(stored.events)))
                    assert len(stored.events) >= seen
                    seen = len(stored.events)
                    await checkpoint()
        assert_same((await handles.load("a")).events, notes(0, total))


async def _claimed(store: SessionEventStore, session_id: str, owner: Owner) -> Claim:
    while True:
        try:
            return await store.claim(session_id, owner)
        except SessionInUse:
            await checkpoint()


async def _cancelled(
    store: SessionEventStore, claim: Claim, events: Sequence[AnyEvent], *, after: int
) -> None:
    """Start to commit a batch and cancel it after that many turns of the event loop."""
    scope = anyio.CancelScope()

    async def write() -> None:
        with scope:
            await store.commit([Batch(claim, events)])

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(write)
        for _ in range(after):
            await checkpoint()
        scope.cancel()
