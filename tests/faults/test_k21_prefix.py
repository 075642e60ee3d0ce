"""What is sent again after a restart: the same bytes, whatever the world did meanwhile."""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

from tests.faults.scenes import agent, assert_lawful, of_type, sent
from turnlog import ReactLoopAgent, Session, Tool, open_store, tool
from turnlog.testing import Call, Used

DAY = 24 * 60 * 60 * 1000


def look(path: str) -> str:
    """Look at a file."""
    return f"what is in {path}"


def touch(path: str) -> str:
    """Touch a file."""
    return path


def speaker(*, tools: list[Any], system: str = "Be brief.") -> ReactLoopAgent:
    """An agent that looks first and answers then, again and again."""

    def say(body: bytes) -> Any:
        asked = json.loads(body)["messages"][-1]["role"] == "user"
        return [Call("look", {"path": "a"}, id=f"c{len(body)}")] if asked else ["I see."]

    return agent(*[say] * 10, tools=tools, system=system)


async def test_a_request_is_the_same_bytes_with_a_restart_before_it_or_without(
    tmp_path: Path,
) -> None:
    """All that is sent is in the log, so a resumed session sends what a live one would."""
    live = speaker(tools=[look, touch])
    resumed: list[bytes] = []
    async with open_store(f"jsonl:{tmp_path}") as store, store.session("live") as session:
        for turn in range(3):
            session.add_context(f"branch {turn}")
            await live.run(session, f"prompt {turn}")
    for turn in range(3):
        async with open_store(f"jsonl:{tmp_path}") as store, store.session("cut") as session:
            again = speaker(tools=[touch, look])
            session.add_context(f"branch {turn}")
            await again.run(session, f"prompt {turn}")
            resumed += sent(again)
            assert_lawful(session)
    assert resumed == sent(live)


async def test_another_day_changes_nothing_that_was_said() -> None:
    """A session that is resumed a day later extends the very bytes of yesterday's request."""
    first = Session.create("s", clock=count(1_700_000_000_000).__next__)
    before, after = speaker(tools=[look]), speaker(tools=[look])
    await before.run(first, "today")
    later = count(1_700_000_000_000 + DAY).__next__
    second = Session.from_events(first.header, list(first.events), clock=later)
    await after.run(second, "tomorrow")
    assert second.events[-1].time - first.events[-1].time > DAY // 2
    for old, new in zip(sent(before), sent(after), strict=True):
        assert new.startswith(old[: old.rindex(b"]")])
    assert len(of_type(second, "request/header")) == 1


async def test_the_same_tools_are_logged_once_and_a_text_that_changes_is_seen(
    tmp_path: Path,
) -> None:
    """The same tools add no header; a tool text with an address of its own does each time."""

    def volatile(session_url: str) -> Tool:
        return Tool(look, description=f"Look at a file of {session_url}.")

    async def resume(*tools: Callable[..., Any] | Tool) -> list[Any]:
        async with open_store(f"jsonl:{tmp_path}") as store, store.session("s") as session:
            await speaker(tools=list(tools)).run(session, "go")
            assert_lawful(session)
            return [event.data.reason for event in of_type(session, "request/header")]

    assert await resume(look, touch) == ["initial"]
    assert await resume(touch, look) == ["initial"]
    assert await resume(look, touch) == ["initial"]
    assert await resume(volatile("https://one.example"), touch) == ["initial", "change"]
    assert await resume(volatile("https://two.example"), touch) == ["initial", "change", "change"]


async def test_a_tool_added_in_mid_session_is_an_event_and_its_cost_is_seen() -> None:
    """From that request on the header is another, and the account shows what the cache lost."""
    session = Session.create("s")
    cached = [["on", Used(input_tokens=1, cache_read_tokens=800)]] * 50
    runner = agent(*cached, tools=[tool(look)])
    for turn in range(50):
        await runner.run(session, f"{turn}")
    paid = ["on", Used(input_tokens=801, cache_read_tokens=0)]
    await agent(paid, tools=[look, touch]).run(session, "with one more")
    *before, last = session.requests()
    assert {request.header_seq for request in before} == {before[0].header_seq}
    assert last.header_seq == of_type(session, "request/header")[1].seq
    assert last.header is not None
    assert last.header.tools is not None
    assert [schema.name for schema in last.header.tools] == ["look", "touch"]
    assert last.usage is not None
    assert (last.usage.input_tokens, last.usage.cache_read_tokens) == (801, 0)
    turns = session.usage().own.by_turn
    assert turns[50].total.cache_read.exact == 800
    assert turns[51].total.cache_read.exact == 0
    assert_lawful(session)
