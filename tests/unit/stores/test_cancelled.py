"""A cancel around the store: what was appended becomes durable, and nothing hangs."""

from __future__ import annotations

import anyio
import anyio.lowlevel
import pytest

import turnlog


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    """Both event loops."""
    return str(request.param)


async def test_a_cancel_around_the_store_still_flushes(anyio_backend: str) -> None:
    """Leaving by an outer scope's cancel makes durable what had been appended."""
    url = f"memory:cancelled-{anyio_backend}"
    with anyio.CancelScope() as scope:
        async with turnlog.open_store(url) as store, store.session("s") as session:
            session.add_user("a")
            await session.flush()
            session.add_user("b")
            scope.cancel()
            await anyio.lowlevel.checkpoint()
    assert scope.cancelled_caught
    async with turnlog.open_store(url) as store:
        assert [m.text for m in (await store.read("s")).derive_messages()] == ["a", "b"]


async def test_opening_under_a_cancel_does_not_hang() -> None:
    """A scope that was cancelled before the store opened leaves it closed."""
    with anyio.CancelScope() as scope:
        scope.cancel()
        async with turnlog.open_store("memory:"):
            await anyio.lowlevel.checkpoint()
    assert scope.cancelled_caught
