"""Commits of which nobody knows whether they were done, on both servers, and what comes after."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from random import Random

import anyio
import pytest

from tests.servers.proxy import Proxy
from tests.store_urls import SERVERS
from tests.unit.stores.server_places import MariaDbPlace, PostgresPlace, empty_place
from tests.unit.stores.server_suite import PATIENCE, opened
from turnlog.errors import StaleWriter, WriteFailed
from turnlog.events import AnyEvent
from turnlog.stores.info import InfoFold
from turnlog.stores.port import Batch, Claim
from turnlog.stores.server.schema import key_of
from turnlog.stores.server.store import ServerStore
from turnlog.testing.conformance.base import commit
from turnlog.testing.conformance.samples import (
    FIRST,
    SECOND,
    answer,
    assert_same,
    chunk,
    conversation,
    header,
    notes,
    prompt,
)

# What only the last packet of a commit says, on either server.
WITH_CARE = (b"COMMIT\0", b"\x03COMMIT")
AT_ONCE = (key_of(b"a"), b";COMMIT")

pytestmark = pytest.mark.anyio


@pytest.fixture(params=SERVERS)
def place(request: pytest.FixtureRequest) -> PostgresPlace | MariaDbPlace:
    """An empty place on a server."""
    return empty_place(request.param)


@pytest.fixture
async def proxy(place: PostgresPlace | MariaDbPlace) -> AsyncGenerator[Proxy]:
    """A line to the server."""
    async with Proxy.before(place.port) as proxy:
        yield proxy


@pytest.fixture
async def store(place: PostgresPlace | MariaDbPlace, proxy: Proxy) -> AsyncGenerator[ServerStore]:
    """A handle behind the proxy that gives up soon, with an empty session `a`."""
    async with opened(place.store(port=proxy.port, patience=0.1)) as store:
        await store.create(header("a"))
        yield store


async def lose_answer(
    proxy: Proxy, store: ServerStore, claim: Claim, events: list[AnyEvent], *words: bytes
) -> None:
    """Commit events, and cut the line for too long when the server has done it, by its `words`."""
    proxy.cut("after", *words, for_good=True)
    with pytest.raises(WriteFailed):
        await commit(store, claim, events)
    proxy.refusing = False
    with anyio.fail_after(PATIENCE):
        while await store.next_seq("a") != events[-1].seq + 1:
            pass  # the server does it while nobody hears of it


async def test_a_batch_that_grew_since_its_answer_was_lost_is_stored_once(
    proxy: Proxy, store: ServerStore
) -> None:
    """What was appended meanwhile is stored behind what turns out to be there."""
    claim = await store.claim("a", FIRST)
    await commit(store, claim, notes(0, 1))
    await lose_answer(proxy, store, claim, notes(1, 2), *AT_ONCE)
    await lose_answer(proxy, store, claim, notes(1, 4), *WITH_CARE)
    await commit(store, claim, notes(1, 6))
    await commit(store, claim, notes(7, 1))
    assert_same((await store.load("a")).events, notes(0, 8))


@pytest.mark.parametrize("end", range(4, 7))
async def test_chunks_of_a_lost_commit_are_there_once(
    proxy: Proxy, store: ServerStore, end: int
) -> None:
    """A streamed answer that is stored while commits are lost has each of its pieces once."""
    events = conversation()
    claim = await store.claim("a", FIRST)
    await commit(store, claim, events[:3])
    await lose_answer(proxy, store, claim, events[3:end], *AT_ONCE)
    await commit(store, claim, events[3:6])
    await commit(store, claim, events[6:])
    found = await store.load("a")
    assert_same(found.events, events)
    assert not found.damage
    info = await store.info("a")
    assert (info.events, info.messages, info.health) == (len(events), 2, "ok")


async def test_what_is_there_must_be_the_beginning_of_the_batch(
    proxy: Proxy, store: ServerStore
) -> None:
    """What else was stored meanwhile in its place, or beyond its end, is no part of a batch."""
    claim = await store.claim("a", FIRST)
    await lose_answer(proxy, store, claim, notes(0, 3), *WITH_CARE)
    for other in (notes(0, 4, "other"), notes(0, 2)):
        (refusal,) = await store.commit([Batch(claim, other)])
        assert isinstance(refusal, StaleWriter)
    assert_same((await store.load("a")).events, notes(0, 3))
    thief = await store.claim("a", SECOND, steal=True)
    await commit(store, thief, notes(3, 1))
    (refusal,) = await store.commit([Batch(claim, notes(0, 5))])
    assert isinstance(refusal, StaleWriter)


SEEDS = [pytest.param(seed, marks=[pytest.mark.long] if seed else []) for seed in range(50)]
LAST_WORDS = [*AT_ONCE, *WITH_CARE, b"INSERT INTO", b"UPDATE sessions", b"FOR UPDATE", b"DELETE"]


def more(random: Random, start: int, streamed: list[int]) -> list[AnyEvent]:
    """A few events from a seq on: pieces of an answer, the answer that cites them, or others."""
    events: list[AnyEvent] = []
    for seq in range(start, start + random.choice([1, 1, 2, 5, 20])):
        kind = random.random()
        if kind < 0.6:
            events.append(chunk(seq, "piece " * random.randint(0, 5)))
            streamed.append(seq)
        elif kind < 0.8:
            events.append(answer(seq, "the answer", cited=streamed or None))
            streamed.clear()
        elif kind < 0.9:
            events.append(prompt(seq, "a long question " * random.choice([1, 1, 5_000])))
        else:
            events += notes(seq, 1)
    return events


@pytest.mark.parametrize("seed", SEEDS)
async def test_what_grows_while_commits_are_lost_is_stored_once(
    place: PostgresPlace | MariaDbPlace, proxy: Proxy, seed: int
) -> None:
    """Wherever a line ends in a commit, and whatever is appended until the next: all is there once.

    The listing's line is that of the whole log, and no event is in two rows.
    """
    random = Random(seed)  # noqa: S311 - a test that can be repeated
    events: list[AnyEvent] = []
    streamed: list[int] = []
    durable = failed = 0
    async with opened(place.store(port=proxy.port, patience=0.0)) as store:
        await store.create(header("a"))
        claim = await store.claim("a", FIRST)
        for cuts in [True] * 40 + [False]:
            events += more(random, len(events), streamed)
            words = random.sample(LAST_WORDS, 2) if cuts else ()
            proxy.cut(random.choice(["before", "after"]), *words)
            (refusal,) = await store.commit([Batch(claim, events[durable:])])
            if refusal is None:
                durable = len(events)
            else:
                assert isinstance(refusal, WriteFailed)
                failed += 1
        assert failed > 5
        stored = await store.load("a")
        assert_same(stored.events, events)
        info = await store.info("a")
        assert info == InfoFold.of(header("a"), events).info(size=info.bytes)
    (single,) = place.sql("SELECT count(*) FROM events")
    (packed,) = place.sql("SELECT coalesce(sum(last - first + 1), 0) FROM chunks")
    assert int(single) + int(packed) == len(events)
