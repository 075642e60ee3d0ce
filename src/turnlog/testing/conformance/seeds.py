"""What imports need: logs with gaps, and a header that is exchanged while the seed grows."""

from __future__ import annotations

import pytest

from turnlog.errors import StaleWriter
from turnlog.stores.port import Batch
from turnlog.testing.conformance.base import Handles, StoreSuite, commit
from turnlog.testing.conformance.samples import (
    FIRST,
    SECOND,
    assert_same,
    assert_same_header,
    event,
    header,
    notes,
)


class SeedTests(StoreSuite):
    """Gaps of what is imported stay where they are; its header can be exchanged."""

    async def test_gaps_are_kept(self, handles: Handles) -> None:
        """Seqs that an import lacks, within batches and between them, are lacking in the store."""
        await handles.write("a")
        store = await handles.open()
        claim = await store.claim("a", FIRST)
        first = [*notes(0, 2), *notes(5, 2)]
        second = [*notes(9, 1), *notes(12, 2)]
        assert list(await store.commit([Batch(claim, first)])) == [None]
        assert await store.next_seq("a") == 7
        assert list(await store.commit([Batch(claim, second, after=7)])) == [None]
        assert await store.next_seq("a") == 14
        await commit(store, claim, notes(14, 1))
        async with handles.another() as reader:
            stored = await reader.load("a")
            expected = [*first, *second, *notes(14, 1)]
            assert_same(stored.events, expected)
            for hole in stored.damage:
                lost = (hole.first_seq, hole.last_seq)
                assert lost in {(2, 4), (7, 8), (10, 11)}
            for start, stop in [(0, 15), (2, 5), (1, 6), (3, 6), (7, 10), (11, 13), (14, None)]:
                kept = [e for e in expected if start <= e.seq < (15 if stop is None else stop)]
                assert_same(await reader.read("a", start, stop), kept)

    async def test_a_gap_stands_where_the_log_ends(self, handles: Handles) -> None:
        """A batch behind a gap is refused unless it names the log's end."""
        await handles.write("a", notes(0, 3))
        store = await handles.open()
        claim = await store.claim("a", FIRST)
        for after in (2, 4, 5):
            (refusal,) = await store.commit([Batch(claim, notes(5, 1), after=after)])
            assert isinstance(refusal, StaleWriter)
        assert await store.next_seq("a") == 3
        assert_same((await handles.load("a")).events, notes(0, 3))

    async def test_an_import_may_begin_with_a_gap(self, handles: Handles) -> None:
        """A log whose first records were lost is stored from the first one that is there."""
        await handles.write("a")
        store = await handles.open()
        claim = await store.claim("a", FIRST)
        assert list(await store.commit([Batch(claim, notes(3, 2), after=0)])) == [None]
        async with handles.another() as reader:
            assert_same((await reader.load("a")).events, notes(3, 2))
            assert await reader.next_seq("a") == 5

    async def test_a_header_can_be_exchanged(self, handles: Handles) -> None:
        """`reseed` exchanges the header for every handle and leaves the events alone."""
        await handles.write(header("a", seed_length=2, source={"n": 1}), notes(0, 2))
        grown = header("a", seed_length=4, source={"n": 2}, extra={"x": [1.0]})
        store = await handles.open()
        claim = await store.claim("a", FIRST)
        await store.reseed(claim, grown)
        await commit(store, claim, notes(2, 3))
        await store.release(claim)
        stored = await handles.load("a")
        assert_same_header(stored.header, grown)
        assert_same(stored.events, notes(0, 5))
        async with handles.another() as reader:
            assert [info.events async for info in reader.sessions()] == [5]

    async def test_a_robbed_writer_exchanges_no_header(self, handles: Handles) -> None:
        """`reseed` by a former owner is refused and changes nothing."""
        made = header("a", seed_length=1)
        await handles.write(made, [event(0, {})])
        robbed, thief = await handles.open(), await handles.open()
        old = await robbed.claim("a", FIRST)
        await thief.claim("a", SECOND, steal=True)
        with pytest.raises(StaleWriter):
            await robbed.reseed(old, header("a", seed_length=9))
        assert_same_header((await handles.load("a")).header, made)
