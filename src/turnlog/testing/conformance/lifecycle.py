"""Opening, closing, and what a closed handle answers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, get_args

import pytest

from turnlog.commands import Prompt
from turnlog.errors import StoreClosed
from turnlog.stores.port import Batch, Durability, SessionEventStore
from turnlog.testing.conformance.base import Handles, StoreSuite
from turnlog.testing.conformance.samples import FIRST, assert_same, header, notes


class LifecycleTests(StoreSuite):
    """A handle says what it is, closes any number of times, and is of no use afterwards."""

    async def test_a_handle_says_what_it_is(self, handles: Handles) -> None:
        """A handle has the URL that opens its storage, and one of the levels of durability."""
        store = await handles.open()
        assert store.url
        assert store.durability in get_args(Durability)

    async def test_a_new_storage_is_empty(self, handles: Handles) -> None:
        """A storage that nobody has written to has no sessions and nothing pending."""
        store = await handles.open()
        assert [info async for info in store.sessions()] == []
        assert await store.pending() == []

    async def test_closing_twice_is_harmless(self, handles: Handles) -> None:
        """`close` may be called again, and after errors."""
        store = await handles.open()
        await store.create(header("a"))
        await store.claim("a", FIRST)
        for _ in range(3):
            await store.close()
        async with handles.another() as other:
            assert await other.exists("a")

    async def test_a_closed_handle_refuses(self, handles: Handles) -> None:
        """Every call on a closed handle says that it is closed, and does nothing."""
        await handles.write("a", notes(0, 1))
        store = await handles.open()
        await store.post("a", Prompt("x", id="1"))
        claim = await store.claim("a", FIRST)
        await store.close()
        calls: list[Callable[[], Awaitable[Any]]] = [
            lambda: store.create(header("b")),
            lambda: store.exists("a"),
            lambda: store.claim("a", FIRST),
            lambda: store.reseed(claim, header("a", cwd="other")),
            lambda: store.commit([Batch(claim, notes(1, 1))]),
            lambda: store.load("a"),
            lambda: store.next_seq("a"),
            lambda: store.read("a", 0),
            lambda: _listed(store),
            lambda: store.wait("a", 0, 0.0),
            lambda: store.post("a", Prompt("x", id="2")),
            lambda: store.inbox("a"),
            lambda: store.accept(claim, [0]),
            store.pending,
        ]
        for call in calls:
            with pytest.raises(StoreClosed):
                await call()
        await store.release(claim)
        async with handles.another() as other:
            assert not await other.exists("b")
            assert [queued.command.id for queued in await other.inbox("a")] == ["1"]
        assert_same((await handles.load("a")).events, notes(0, 1))

    async def test_closing_a_handle_leaves_the_others(self, handles: Handles) -> None:
        """Other handles on the same storage go on when one is closed."""
        first, second = await handles.open(), await handles.open()
        await first.create(header("a"))
        claim = await second.claim("a", FIRST)
        await first.close()
        assert list(await second.commit([Batch(claim, notes(0, 1))])) == [None]
        assert await second.next_seq("a") == 1


async def _listed(store: SessionEventStore) -> list[str]:
    return [info.id async for info in store.sessions()]
