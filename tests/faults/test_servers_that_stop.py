"""A database server that is killed in the middle of an agent's turn."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from anyio import to_thread

from tests.faults.scenes import agent, assert_lawful, results, sent, texts
from tests.store_urls import SERVERS
from tests.unit.stores.server_places import MariaDbPlace, PostgresPlace, empty_place
from turnlog import Prompt, tool
from turnlog.errors import WriteFailed
from turnlog.stores.store import Store
from turnlog.testing import Call
from turnlog.worker import Ran, Report, Skipped, Worker

ANSWERS = ([Call("work", {}, id="c1")], ["It is done."])


@pytest.fixture(params=SERVERS)
async def place(request: pytest.FixtureRequest) -> AsyncIterator[PostgresPlace | MariaDbPlace]:
    """An empty place on each server, which is started again if a test left it stopped."""
    found = empty_place(request.param)
    yield found
    await to_thread.run_sync(found.stop)
    await to_thread.run_sync(found.start)


async def test_a_server_that_restarts_while_a_tool_runs_is_not_noticed(
    place: PostgresPlace | MariaDbPlace,
) -> None:
    """The server is killed and started between a call and its result: the turn completes."""
    ran: list[str] = []

    @tool
    async def work() -> str:
        """Outlive the server."""
        ran.append("work")
        await to_thread.run_sync(place.stop)
        await to_thread.run_sync(place.start)
        return "worked"

    runner = agent(*ANSWERS, tools=[work])
    async with Store(place.store()) as store, store.session("s") as session:
        await runner.run(session, "Work, please.")
    async with Store(place.store()) as store:
        found = await store.read("s", load="all")
    assert list(found.events) == list(session.events)
    assert texts(found) == ["Work, please.", "", "worked", "It is done."]
    assert ran == ["work"]
    assert_lawful(found)


async def test_a_server_that_stays_away_ends_the_turn(
    place: PostgresPlace | MariaDbPlace,
) -> None:
    """Nothing is sent once a flush failed; with the server back, the same session goes on."""
    ran: list[str] = []

    @tool
    async def work() -> str:
        """See the server die."""
        ran.append("work")
        await to_thread.run_sync(place.stop)
        return "worked"

    runner = agent(*ANSWERS, tools=[work])
    async with Store(place.store(patience=0.1)) as store, store.session("s") as session:
        with pytest.raises(WriteFailed, match="cannot be reached"):
            await runner.run(session, "Work, please.")
        assert len(sent(runner)) == 1
        assert session.events[session.durable_seq - 1].type == "tool/call"
        await to_thread.run_sync(place.start)
        await session.flush()
        assert session.durable_seq == session.next_seq
        await runner.run(session, "Go on.")
    async with Store(place.store()) as store:
        found = await store.read("s", load="all")
    assert list(found.events) == list(session.events)
    assert results(found) == [("c1", "worked", None)]
    assert ran == ["work"]
    assert_lawful(found)


async def test_a_worker_waits_for_a_server_that_stays_away(
    place: PostgresPlace | MariaDbPlace,
) -> None:
    """Longer than the store does itself: the tool's result is kept, and the turn completes."""
    ran: list[str] = []
    reports: list[Report] = []

    @tool
    async def work() -> str:
        """See the server die."""
        ran.append("work")
        await to_thread.run_sync(place.stop)
        return "worked"

    def report(one: Report) -> None:
        reports.append(one)
        if isinstance(one, Ran):
            worker.drain()
        elif one.session_id == "s":  # the turn's own flush has failed
            place.start()

    async with Store(place.store(patience=0.1)) as store:
        await store.inbox("s").post(Prompt("Work, please."), create=True)
        worker = Worker(store, agent(*ANSWERS, tools=[work]), on_report=report)
        await worker.run()
        found = await store.read("s", load="all")
    assert [type(one) for one in reports if one.session_id == "s"] == [Skipped, Ran]
    assert results(found) == [("c1", "worked", None)]
    assert texts(found) == ["Work, please.", "", "worked", "It is done."]
    assert ran == ["work"]
    assert_lawful(found)
