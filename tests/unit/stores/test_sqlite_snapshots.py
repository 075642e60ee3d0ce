"""What a read of an SQLite store shows while another handle writes between its statements."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.store_urls import SERVERS, url_of
from tests.unit.stores.sqlite_files import FILE, opened
from turnlog.stores import open_store
from turnlog.stores.sqlite.connection import Database
from turnlog.stores.sqlite.reading import Reader
from turnlog.stores.store import Store
from turnlog.testing.conformance.base import commit
from turnlog.testing.conformance.samples import FIRST, answer, chunk, event, header, prompt

if TYPE_CHECKING:
    from collections.abc import Sequence

    from turnlog.events import AnyEvent
    from turnlog.stores.sqlite import SqliteStore

pytestmark = pytest.mark.anyio

WORDS = ["Let me look ", "this up ", "for you ", "now."]


async def test_one_read_sees_one_state(tmp_path: Path) -> None:
    """A commit between two statements of a read changes nothing of what the read shows."""
    async with opened(tmp_path) as store:
        await store.create(header("a"))
        claim = await store.claim("a", FIRST)
        streamed = [chunk(seq, text) for seq, text in enumerate(WORDS, 1)]
        await commit(store, claim, [prompt(0, "Hello"), *streamed])
        database = Database(tmp_path / FILE, store.url, "turn")
        database.open()
        try:
            reader = Reader(store.url)
            with database.reading() as db:
                before = reader.head(db, "a").next_seq
                message = answer(5, "".join(WORDS), cited=[1, 2, 3, 4])
                await commit(store, claim, [message])
                seqs = [e.seq for e in reader.read(db, "a", 0, None)]
                assert (before, seqs) == (5, [0, 1, 2, 3, 4])
            with database.reading() as db:
                assert reader.head(db, "a").next_seq == 6
        finally:
            database.close()


class Late:
    """A store whose first read of some events lacks one of them that is there."""

    def __init__(self, store: SqliteStore, lacks: int) -> None:
        self._store = store
        self._lacks: int | None = lacks

    def __getattr__(self, name: str) -> object:
        return getattr(self._store, name)

    async def read(
        self, session_id: str, start: int, stop: int | None = None, *, chunks: bool = True
    ) -> Sequence[AnyEvent]:
        """As the port has it."""
        events = await self._store.read(session_id, start, stop, chunks=chunks)
        if events:
            lacks, self._lacks = self._lacks, None
            events = [event for event in events if event.seq != lacks]
        return events


async def test_a_tail_looks_twice_at_a_gap(tmp_path: Path) -> None:
    """An event that one read lacks and the next one has is shown by `tail`, in its place."""
    async with opened(tmp_path) as store:
        await store.create(header("a"))
        claim = await store.claim("a", FIRST)
        await commit(store, claim, [event(seq) for seq in range(4)])
        await store.release(claim)
        async with Store(Late(store, 1)) as late:  # pyright: ignore[reportArgumentType]
            tail = late.tail("a", -1)
            assert [(await anext(tail)).seq for _ in range(4)] == [0, 1, 2, 3]


@pytest.mark.parametrize("kind", ["sqlite", *SERVERS])
async def test_a_listing_leaves_out_nothing_that_is_written_to_meanwhile(
    kind: str, tmp_path: Path
) -> None:
    """A session that becomes the last active one while someone lists is listed all the same."""
    async with open_store(url_of(kind, tmp_path)) as opened_store:
        store = opened_store.backend
        names = [f"s{n:03}" for n in range(250)]
        for name in names:
            await store.create(header(name))
        order = [info.id async for info in store.sessions()]
        found: list[str] = []
        async for info in store.sessions():
            if not found:
                claim = await store.claim(order[-1], FIRST)
                await commit(store, claim, [event(0)])
            found.append(info.id)
    assert sorted(found) == names
