"""Looking into a log without reading all of it: by seq, without chunks, by record, by reference."""

from __future__ import annotations

import pytest

from turnlog.errors import NoSuchSession, SessionExists
from turnlog.stores.port import Batch, Record
from turnlog.testing.conformance.base import Handles, StoreSuite, commit
from turnlog.testing.conformance.samples import FIRST, assert_same, chunk, header, notes, prompt


class LookingTests(StoreSuite):
    """What opens a long session, and makes a fork of it, without reading it from end to end."""

    async def test_events_are_read_by_seq(self, handles: Handles) -> None:
        """`read_seqs` gives those of the seqs that are there, in order, whatever was asked for."""
        events = [*notes(0, 4), *(chunk(4 + i, f"{i} ") for i in range(9)), *notes(13, 3)]
        await handles.write("a", events[:2], events[2:9], events[9:])
        store = await handles.open()
        for seqs in ([], [0], [15], [14, 2, 8, 0], [7, 7, 3, 99, -1], range(16)):
            wanted = sorted({seq for seq in seqs if 0 <= seq < 16})
            assert_same(await store.read_seqs("a", seqs), [events[seq] for seq in wanted])
        with pytest.raises(NoSuchSession):
            await store.read_seqs("b", [0])

    async def test_chunks_are_left_out_on_request(self, handles: Handles) -> None:
        """A range is read with its streamed pieces, or without them."""
        said = [prompt(0, "Hello"), *(chunk(1 + i, f"{i} ") for i in range(9)), *notes(10, 2)]
        await handles.write("a", said[:5], said[5:])
        store = await handles.open()
        assert_same(await store.read("a", 0, chunks=False), [said[0], *said[10:]])
        assert_same(await store.read("a", 3, 11, chunks=False), [said[10]])
        assert_same(await store.read("a", 3, 11), said[3:11])

    async def test_a_header_is_read_by_itself(self, handles: Handles) -> None:
        """`header` gives what was written before the first event, of a session that is there."""
        made = header("a", cwd="/w", seed_length=2, source_format="dsh/v4")
        await handles.write(made, notes(0, 2))
        async with handles.another() as store:
            assert await store.header("a") == made
            with pytest.raises(NoSuchSession):
                await store.header("b")

    async def test_the_last_record_is_kept(self, handles: Handles) -> None:
        """A record is given back as it came with a batch, the last one; or none is ever kept."""
        await handles.write("a", notes(0, 3))
        store = await handles.open()
        claim = await store.claim("a", FIRST)
        first, last = Record(3, b"one\x00"), Record(5, b"\xfftwo")
        assert await store.commit([Batch(claim, notes(3, 1), None, first)]) == [None]
        kept = await store.record("a")
        assert kept == (first if store.keeps_records else None)
        assert await store.commit([Batch(claim, notes(4, 1), None, last)]) == [None]
        assert await store.commit([Batch(claim, notes(5, 1))]) == [None]
        async with handles.another() as other:
            assert await other.record("a") == (last if kept else None)
        only = Record(6, b"three")
        assert await store.commit([Batch(claim, (), 6, only)]) == [None]
        assert await store.record("a") == (only if kept else None)
        assert await store.next_seq("a") == 6

    async def test_a_fork_by_reference_has_its_parents_events(self, handles: Handles) -> None:
        """Where events are shared, a child begins with its parent's, and grows by itself."""
        events = [prompt(0, "Hello"), *(chunk(1 + i, f"{i} ") for i in range(9)), *notes(10, 2)]
        await handles.write("a", events[:5], events[5:])
        store = await handles.open()
        shared = await store.fork(header("b", parent_session="a", seed_length=6), "a", 6)
        assert await store.exists("b") == shared
        if not shared:
            return
        assert_same((await store.load("b")).events, events[:6])
        claim = await store.claim("b", FIRST)
        await commit(store, claim, notes(6, 3, "its own"))
        assert await store.fork(header("c", parent_session="b", seed_length=8), "b", 8)
        async with handles.another() as other:
            assert_same((await other.load("a")).events, events)
            assert_same((await other.load("b")).events, events[:6] + notes(6, 3, "its own"))
            assert_same((await other.load("c")).events, events[:6] + notes(6, 2, "its own"))
            assert_same(await other.read("c", 4, 7), [*events[4:6], *notes(6, 1, "its own")])
            assert await other.next_seq("c") == 8
        with pytest.raises(SessionExists):
            await store.fork(header("c"), "a", 1)
        with pytest.raises(NoSuchSession):
            await store.fork(header("d"), "nobody", 0)
        assert not await store.exists("d")
