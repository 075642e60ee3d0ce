"""Replacements around calls and results, wherever a cut was made."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

from tests.faults.compacting import (
    GOOD,
    WORDS,
    asked,
    assert_openai,
    codes,
    engine,
    starts,
    strict,
)
from tests.faults.scenes import (
    agent,
    assert_accepted,
    assert_lawful,
    of_type,
    results,
    texts,
    until,
)
from turnlog import Message, Session, Source, Text, ToolCall
from turnlog.testing import Call, Fail

CALL = ToolCall("a", "read", "{}")


def shadow(session: Session, first: int, last: int, summary: str) -> None:
    """Let a summary take the place of nodes, by their positions, whatever they are."""
    nodes = list(session.surface.seqs[first : last + 1])
    message = Message(summary, "user", (Text(summary),), Source("compact-checkpoint"))
    op = {"op": "replace", "start": nodes[0], "end": nodes[-1]}
    session.append("user/message", message, surface_op=op, source_event_seqs=nodes)


@pytest.mark.parametrize(("first", "last"), [(0, 0), (0, 1), (0, 2), (1, 1), (1, 2), (2, 4)])
def test_two_compactions_in_a_row_leave_no_result_without_its_call(first: int, last: int) -> None:
    """One while the call is open, one beside its group or through it: what is sent is valid."""
    session = Session.create("s")
    session.add_user("one")
    session.add_assistant("two")
    session.add_user("three")
    session.add_assistant(CALL)
    shadow(session, 0, 1, "first summary")
    session.add_tool_result("a", "result")
    for i in range(3):
        session.add_user(f"more {i}")
        session.add_assistant(f"answer {i}")
    shadow(session, first, last, "second summary")
    assert "second summary" in texts(session)
    for at in range(session.next_seq):
        assert len(session.request_messages(at)) > 0
    assert_accepted(session)


@pytest.mark.parametrize("last", [1, 2, 3])
async def test_closers_share_the_fate_of_their_calls(last: int) -> None:
    """After a cancel, a compaction that takes calls leaves no closer of theirs to be sent."""

    async def slow() -> str:
        await anyio.sleep_forever()
        return ""

    session = Session.create("s")
    runner = agent([Call("slow", id="c1"), Call("slow", id="c2")], ["on"], ["on"], tools=[slow])
    async with runner.stream(session, "go") as turn:
        await until(turn, "tool/call", 2)
        await turn.cancel()
    assert len(results(session)) == 2
    shadow(session, 0, last, "summary")
    assert [m.tool_calls for m in session.request_messages()] == [()]
    assert (await runner.run(session, "next")).text == "on"
    assert texts(session) == ["summary", "next", "on"]
    assert_accepted(session)


async def test_after_an_overflow_a_compaction_keeps_the_last_complete_group() -> None:
    """The refused request left a call and its result: they stay together, and the turn goes on."""

    def look() -> str:
        return "seen"

    session = Session.create("s")
    runner = agent(
        ["hello"],
        [Call("look", id="c1")],
        Fail("overflow-tokens"),
        ["fits now"],
        tools=[look],
    )
    await runner.run(session, "hi")
    assert (await runner.run(session, "look")).end_reason.kind == "error"
    assert len(of_type(session, "user/message")) == 2
    shadow(session, 0, 1, "summary")
    assert (await runner.run(session, "continue")).text == "fits now"
    assert texts(session) == ["summary", "look", "", "seen", "continue", "fits now"]
    assert_lawful(session)


def test_calls_in_flight_survive_a_compaction() -> None:
    """History before an open call is replaced; its result comes, and the pair is whole."""
    session = Session.create("s")
    session.add_user("one")
    session.add_assistant("two")
    session.add_user("go")
    session.add_assistant(CALL)
    shadow(session, 0, 2, "summary")
    assert_accepted(session)
    session.add_tool_result("a", "result")
    assert texts(session) == ["summary", "", "result"]
    assert session.request_messages().mends == ()
    assert session.repair() == []
    assert_accepted(session)


def test_a_result_whose_call_was_compacted_in_flight_is_not_sent() -> None:
    """A cut that takes an open call takes its result too, when it comes."""
    session = Session.create("s")
    session.add_user("go")
    session.add_assistant(CALL)
    shadow(session, 0, 1, "summary")
    assert session.repair() == []
    session.add_tool_result("a", "result")
    assert texts(session) == ["summary"]
    assert [mend.kind for mend in session.request_messages().mends] == ["orphan-result"]
    assert_accepted(session)


async def test_a_compaction_asked_for_inside_a_tool_waits_and_the_session_goes_on() -> None:
    """The tool's call keeps its result, the compaction comes behind them; twenty turns follow."""
    session = Session.create("s")
    inside: list[int] = []

    async def work() -> str:
        assert await runner.compact(session) is None
        inside.append(len(starts(session)))
        return "worked"

    script = [["one"], [Call("work", id="c1")], ["two"], *[["on"]] * 20]
    runner = agent(*script, tools=[work], compaction=engine())
    await runner.run(session, f"first: {WORDS * 20}")
    await runner.run(session, "now work")
    assert inside == [0]
    assert codes(session) == [None]
    assert results(session) == [("c1", "worked", None)]
    assert starts(session)[0].turn == 2
    for number in range(20):
        assert (await runner.run(session, f"turn {number}")).text == "on"
    assert_lawful(session)


@pytest.mark.parametrize("filler", range(0, 60, 4))
async def test_the_request_for_a_summary_never_splits_a_pair(filler: int) -> None:
    """A history above the summariser's window, wherever in its pairs the window ends."""
    session = Session.create("s")
    session.add_user("go " + "filler " * filler)
    for number in range(30):
        ids = [f"c{number}-{i}" for i in range(2)]
        session.add_assistant([Text(f"look {number}"), *(ToolCall(i, "read", "{}") for i in ids)])
        for call in ids:
            session.add_tool_result(call, WORDS * 3)
    made = engine(window=900)
    done = await made.compact_now(session)
    assert done is not None
    assert len(asked(made)) > 2
    assert_openai(asked(made))
    assert_lawful(session)


async def test_a_refused_request_for_a_summary_is_cut_elsewhere_and_never_inside_a_pair() -> None:
    """The summariser takes less than it says: each next request is smaller, and a legal one."""
    session = Session.create("s")
    for number in range(24):
        session.add_user(f"question {number}")
        session.add_assistant([ToolCall(f"c{number}", "read", "{}")])
        session.add_tool_result(f"c{number}", WORDS * 4)
    made = engine(strict(600), window=4000, fallback="none")
    done = await made.compact_now(session)
    assert done is not None
    assert done.policy == "model"
    assert_openai(asked(made))
    refused = [body for body in asked(made) if is_above(600, body)]
    assert 1 <= len(refused) <= 2
    assert len(set(asked(made))) == len(asked(made))
    assert_lawful(session)


def is_above(window: int, body: bytes) -> bool:
    """Whether the strict model refused it."""
    answer: Any = strict(window)(body)
    return answer != GOOD
