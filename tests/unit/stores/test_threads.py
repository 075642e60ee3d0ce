"""Appends from threads other than the event loop's."""

from __future__ import annotations

import threading
from pathlib import Path

import anyio
import pytest

import turnlog
from tests.store_urls import DURABLE, url_of


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    """Both event loops."""
    return str(request.param)


@pytest.mark.parametrize("name", DURABLE)
async def test_an_append_never_waits_for_the_event_loop(name: str, tmp_path: Path) -> None:
    """A thread appends while the loop is busy: it holds a lock that the loop may wait for."""
    url = url_of(name, tmp_path)
    async with turnlog.open_store(url) as store, store.session("a") as session:
        thread = threading.Thread(target=session.add_user, args=("hi",))
        thread.start()
        thread.join()  # this blocks the loop
        await session.flush()
        assert [m.text for m in (await store.read("a")).derive_messages()] == ["hi"]


async def test_an_append_from_a_thread_becomes_durable_by_itself(tmp_path: Path) -> None:
    """The writer is woken by it, and needs no flush."""
    url = f"jsonl:{tmp_path}"
    async with turnlog.open_store(url) as store, store.session("a") as session:
        thread = threading.Thread(target=session.add_user, args=("hi",))
        thread.start()
        thread.join()
        with anyio.fail_after(60):
            await store.backend.wait("a", -1, 60)
        assert await store.backend.next_seq("a") == 1
