"""The listing of stores on servers, of which the first page is read at once."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.store_urls import SERVERS, url_of
from turnlog.events import Replace
from turnlog.stores import open_store
from turnlog.stores.memory import MemoryStore
from turnlog.stores.port import SessionEventStore
from turnlog.stores.sql.listing import PAGE
from turnlog.testing.conformance.base import commit
from turnlog.testing.conformance.samples import FIRST, NOON, header, prompt

pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("kind", SERVERS)]

SESSIONS = PAGE + 20
ORDER = [f"s{i:03}" for i in range(SESSIONS)]
"""The last active first."""
STALE = [ORDER[3], ORDER[PAGE + 3]]
"""Sessions whose line only the whole log tells: a page shows one, the next page the other."""


async def fill(backend: SessionEventStore) -> None:
    """Make the sessions, in another order than they are listed."""
    for name in sorted(ORDER, key=lambda name: name[::-1]):
        time = NOON + SESSIONS - ORDER.index(name)
        await backend.create(header(name))
        claim = await backend.claim(name, FIRST)
        await commit(
            backend, claim, [prompt(0, f"of {name}", time=time), prompt(1, "2", time=time)]
        )
        if name in STALE:
            both = prompt(2, "both", time=time, op=Replace(0, 1), cited=[0, 1])
            await commit(backend, claim, [both])
        await backend.release(claim)


async def test_pages_of_a_listing_follow_on_each_other(kind: str, tmp_path: Path) -> None:
    """Each session is listed once, the last active first, with the line that any store gives."""
    memory = MemoryStore()
    await fill(memory)
    async with open_store(url_of(kind, tmp_path), durability="none") as store:
        await fill(store.backend)
        for _ in range(2):  # what was stale is made again at first, and kept
            infos = [info async for info in store.sessions()]
            assert [info.id for info in infos] == ORDER
            for info in infos:
                plain = await memory.info(info.id)
                assert (info.events, info.messages, info.title) == (
                    plain.events,
                    plain.messages,
                    plain.title,
                )
                assert (info.last_activity, info.health) == (plain.last_activity, plain.health)


async def test_a_store_without_sessions_lists_none(kind: str, tmp_path: Path) -> None:
    """An empty page is the only one."""
    async with open_store(url_of(kind, tmp_path)) as store:
        assert [info async for info in store.sessions()] == []
