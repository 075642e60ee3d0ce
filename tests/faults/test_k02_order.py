"""Results that came late, out of order, or with other things between."""

from __future__ import annotations

from itertools import count
from typing import Any

import anyio

from tests.faults.scenes import (
    agent,
    assert_accepted,
    assert_lawful,
    bodies,
    of_type,
    results,
    sent,
    texts,
)
from turnlog import Message, Session, ToolCall, open_store
from turnlog.events import AnyEvent
from turnlog.testing import Call

THREE = [Call("work", {"n": n}, id=f"c{n}") for n in (1, 2, 3)]


class Gates:
    """A tool whose calls end in the order given, and not before the one before was logged."""

    def __init__(self, *order: int) -> None:
        self._gates = {n: anyio.Event() for n in order}
        self._order = list(order)
        self._release()

    async def work(self, n: int) -> str:
        """Wait for one's turn."""
        await self._gates[n].wait()
        return f"result {n}"

    def observe(self, event: AnyEvent) -> None:
        """Let the next call end once the last one's result is in the log."""
        if event.type in ("tool/settled", "tool/result") and b"result" in event.raw:
            self._release()

    def _release(self) -> None:
        if self._order:
            self._gates[self._order.pop(0)].set()


def calls(*ids: str) -> list[ToolCall]:
    """Calls with these ids."""
    return [ToolCall(call_id, "read", "{}") for call_id in ids]


async def test_all_results_of_parallel_calls_are_there_in_call_order_after_reopening(
    tmp_path: Any,
) -> None:
    """Results that landed 2, 3, 1 are sent 1, 2, 3, live and from disk."""
    gates = Gates(2, 3, 1)
    async with open_store(f"jsonl:{tmp_path}") as store:
        async with store.session("s") as session:
            session.observe(gates.observe)
            await agent(THREE, ["ok"], tools=[gates.work]).run(session, "go")
            landed = [e.data.message.text for e in of_type(session, "tool/settled")]
            assert landed == ["result 2", "result 3"]
            live = list(session.request_messages())
        async with store.session("s") as session:
            assert list(session.request_messages()) == live
            assert texts(session) == ["go", "", "result 1", "result 2", "result 3", "ok"]
            assert_lawful(session)


async def test_a_child_agent_never_enters_its_parents_messages() -> None:
    """A child's turn runs between two results; the parent has three results and no more."""
    child = Session.create("child")
    first_is_in = anyio.Event()

    async def first() -> str:
        return "one"

    async def delegate() -> str:
        await first_is_in.wait()
        inner = agent([Call("secret", id="c1")], ["child's answer"], tools=[secret])
        return (await inner.run(child, "child's prompt")).text

    async def secret() -> str:
        return "child's result"

    session = Session.create("parent")
    session.observe(lambda e: first_is_in.set() if e.type == "tool/result" else None)
    asked = [Call("first", id="a"), Call("delegate", id="b"), Call("first", id="c")]
    await agent(asked, ["done"], tools=[first, delegate]).run(session, "go")
    assert [c for c, _, _ in results(session)] == ["a", "b", "c"]
    assert texts(session) == ["go", "", "one", "child's answer", "one", "done"]
    assert texts(child) == ["child's prompt", "", "child's result", "child's answer"]
    assert_lawful(session)
    assert_lawful(child)


def test_turns_of_another_lane_between_results_do_not_part_them_from_their_calls() -> None:
    """In a log that another program wrote so, the results still follow their calls in order."""
    session = Session.create("s")
    session.add_user("go")
    session.add_assistant(calls("a", "b", "c"))
    session.add_tool_result("a", "one")
    session.add_user("child's prompt", source="agent")
    session.add_assistant("child's answer")
    session.add_tool_result("c", "three")
    session.add_tool_result("b", "two")
    session.add_assistant("done")
    told = ["go", "", "one", "two", "three", "child's prompt", "child's answer", "done"]
    assert texts(session) == told
    assert_accepted(session)


def test_a_note_persisted_while_a_call_runs_comes_after_its_results() -> None:
    """Whatever is appended between a call and its result moves behind the group when sent."""
    session = Session.create("s")
    session.add_user("go")
    session.add_assistant(calls("a", "b"))
    session.add_context("$ ls\nREADME.md", source="shell")
    session.add_tool_result("a", "one")
    session.add_user("and hurry")
    assert_accepted(session)
    session.add_tool_result("b", "two")
    assert texts(session) == ["go", "", "one", "two", "$ ls\nREADME.md", "and hurry"]
    assert_accepted(session)


async def test_the_order_of_results_is_the_same_live_and_after_reopening(tmp_path: Any) -> None:
    """Of two calls that finish in reverse the bytes sent live are those of the log read again."""
    gates = Gates(2, 1)
    async with open_store(f"jsonl:{tmp_path}") as store:
        async with store.session("s") as session:
            session.observe(gates.observe)
            runner = agent(THREE[:2], ["ok"], tools=[gates.work])
            await runner.run(session, "go")
            live = bodies(session)
        async with store.session("s") as session:
            assert bodies(session) == live
            other = agent(["more"], tools=[gates.work])
            await other.run(session, "on")
            before, after = sent(runner)[1], sent(other)[0]
            assert after.startswith(before[: before.rindex(b"]")])


def test_a_result_that_claims_to_be_older_than_its_call_is_still_its_result() -> None:
    """Clocks order nothing: with times that run backwards repair finds nothing to close."""
    backwards = count(1_000_000, -1000)
    session = Session.create("s", clock=backwards.__next__)
    session.add_user("go")
    session.add_assistant(calls("a"))
    result = session.add_tool_result("a", "one")
    assert result.time < session.event_at(1).time
    loaded = Session.from_events(session.header, [e.to_dict() for e in session.events])
    assert loaded.repair() == []
    assert texts(loaded) == ["go", "", "one"]
    messages: list[Message] = list(loaded.request_messages())
    assert messages[2].is_error is not True
    assert_accepted(loaded)
