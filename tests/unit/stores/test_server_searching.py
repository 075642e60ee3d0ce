"""Searching stores on servers that hold many messages: of what is in most of them, the newest."""

from __future__ import annotations

from collections.abc import AsyncIterator
from itertools import count

import pytest

from tests.store_urls import SERVERS, url_of
from turnlog.session import Session
from turnlog.stores import open_store
from turnlog.stores.memory import MemoryStore
from turnlog.stores.server.ranking import ENOUGH, LOOKED_AT
from turnlog.stores.store import Store
from turnlog.testing.conformance.samples import NOON

pytestmark = pytest.mark.anyio

SESSIONS = {"old": 600, "long": LOOKED_AT + 100, "new": 90}
"""How many messages each has, the oldest first; one has more than are looked at."""
ALL = sum(SESSIONS.values())
QUERIES = ["once", "once everywhere", "everywhere once", "ten", "everywhere ten", "numb* once"]


async def fill(store: Store) -> None:
    """Save the sessions: with words that all messages hold, each tenth of a session, and one."""
    clock = count(NOON).__next__
    for name, messages in SESSIONS.items():
        session = Session.create(name, clock=clock)
        for i in range(messages):
            words = ["everywhere", f"number{i}", "every*ten" * (i % 10 == 0), "once" * (i == 7)]
            session.add_user(" ".join(filter(None, words)))
        await store.save(session)


@pytest.fixture(scope="module", params=SERVERS)
async def store(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Store]:
    """A store with the sessions, for all tests: they only search it."""
    url = url_of(request.param, tmp_path_factory.mktemp("searching"))
    async with open_store(url, durability="none") as opened:
        await fill(opened)
        yield opened


@pytest.mark.parametrize("query", QUERIES)
async def test_what_is_rare_is_found_wherever_it_is(store: Store, query: str) -> None:
    """Each message that holds all words is found, however many hold one of them."""
    async with Store(MemoryStore()) as memory:
        await fill(memory)
        for session in (None, *SESSIONS):
            plain = await memory.search(query, session=session, limit=1000)
            hits = await store.search(query, session=session, limit=1000)
            assert {(hit.session, hit.seq) for hit in hits} == {
                (hit.session, hit.seq) for hit in plain
            }
            assert hits


async def test_of_what_is_everywhere_the_newest_are_found(store: Store) -> None:
    """A word of nearly all messages is sought in the newest; pages of it follow on each other."""
    pages = [await store.search("everywhere", limit=20, skip=skip) for skip in range(0, ENOUGH, 20)]
    hits = [hit for page in pages for hit in page]
    assert len({(hit.session, hit.seq) for hit in hits}) == ENOUGH
    assert {hit.session for hit in hits} <= {"long", "new"}
    first = ALL - SESSIONS["old"] - LOOKED_AT
    assert min(hit.seq for hit in hits if hit.session == "long") >= first
    assert [hit.score for hit in hits] == sorted((hit.score for hit in hits), reverse=True)


async def test_who_wants_more_than_the_newest_gets_them(store: Store) -> None:
    """Page by page, each message is found once that holds a word."""
    found: list[tuple[str, int]] = []
    for skip in range(0, ALL, 1000):
        hits = await store.search("everywhere", limit=1000, skip=skip)
        found += [(hit.session, hit.seq) for hit in hits]
    assert len(found) == len(set(found)) == ALL
