"""Limits of database servers, and commits that become visible in another order than they began."""

from __future__ import annotations

import random
from contextlib import AsyncExitStack, ExitStack
from pathlib import Path

import anyio
import pytest

from tests.faults.scenes import assert_lawful, results
from tests.store_urls import SERVERS, url_of
from tests.unit.stores.mysql_stores import setting
from tests.unit.stores.server_suite import PATIENCE, begun
from turnlog import ReactLoopAgent, open_store, tool
from turnlog.stores.mysql.driver import MySqlDriver
from turnlog.stores.mysql.urls import options_of
from turnlog.stores.postgres.driver import PostgresDriver
from turnlog.stores.server.driver import Driver
from turnlog.stores.server.schema import key_of
from turnlog.stores.server.store import ServerStore
from turnlog.testing import Call, ScriptedModel
from turnlog.testing.conformance.base import commit
from turnlog.testing.conformance.samples import notes

LOCK = "SELECT next_seq FROM sessions WHERE session = ? FOR UPDATE"
PACKET = 2 << 20


@pytest.fixture(params=SERVERS)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """An empty store on a server."""
    return url_of(request.param, tmp_path)


def driver_of(url: str) -> Driver:
    """A driver, to be used without a store."""
    if url.startswith("mysql:"):
        return MySqlDriver(options_of(url, url), url)
    return PostgresDriver(url, url)


def noise(size: int, seed: int) -> str:
    """Text that does not compress to less than half."""
    return random.Random(seed).randbytes(size // 2).hex()  # noqa: S311 - no secret


async def test_a_session_outgrows_every_limit_of_one_value(url: str) -> None:
    """R113: a history of more than 5 MB, where a value may have 2 MiB: each tool ran once."""
    ran: list[int] = []

    @tool
    def fetch(number: int) -> str:
        """Fetch a large page."""
        ran.append(number)
        return noise(1_000_000, number)

    turns = 6
    answers = [part for i in range(turns) for part in ([Call("fetch", {"number": i})], ["read"])]
    model = ScriptedModel(answers, context_window=10_000_000)
    runner = ReactLoopAgent(model, tools=[fetch])
    with ExitStack() as stack:
        if url.startswith("mysql:"):
            stack.enter_context(setting(max_allowed_packet=str(PACKET)))
        async with open_store(url) as store, store.session("s", load="all") as session:
            for i in range(turns):
                await runner.run(session, f"page {i}")
        async with open_store(url) as store:
            found = await store.read("s", load="all")
            assert list(found.events) == list(session.events)
    assert ran == list(range(turns))
    assert [text for _, text, _ in results(found)] == [noise(1_000_000, i) for i in range(turns)]
    assert sum(len(event.raw) for event in found.events) > 5_000_000
    assert_lawful(found)


async def test_a_tail_skips_nothing_when_commits_overtake_each_other(url: str) -> None:
    """R114, R116: what began first and commits last is seen by who has seen what came between."""
    seen: dict[str, list[int]] = {"late": [], "early": []}
    caught_up = anyio.Event()
    async with AsyncExitStack() as stack:
        handles = [await stack.enter_async_context(open_store(url)) for _ in range(3)]
        first, second, reader = (store.backend for store in handles)
        assert isinstance(first, ServerStore)
        assert isinstance(second, ServerStore)
        late, early = await begun(first, "late"), await begun(second, "early")
        slow = await driver_of(url).connect()
        stack.push_async_callback(slow.close)

        async def follow(name: str) -> None:
            async for event in handles[2].tail(name, after=-1):
                seen[name].append(event.seq)
                if len(seen[name]) == 4:
                    break
            if name == "early":
                caught_up.set()

        with anyio.fail_after(PATIENCE):
            async with anyio.create_task_group() as tasks:
                for name in seen:
                    tasks.start_soon(follow, name)
                await slow.begin()  # it holds up the one commit, and not the other
                await slow.fetch(LOCK, key_of(b"late"))
                tasks.start_soon(commit, first, late, notes(2, 2))
                await commit(second, early, notes(2, 2))
                await caught_up.wait()
                assert await reader.next_seq("late") == 2
                await slow.rollback()
    assert seen == {"late": [0, 1, 2, 3], "early": [0, 1, 2, 3]}
