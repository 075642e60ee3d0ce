"""Calls whose results never came: after a cancel, a timeout, a crash, an error of the provider."""

from __future__ import annotations

from pathlib import Path

import anyio
import pytest

from tests.faults.scenes import (
    agent,
    assert_accepted,
    assert_lawful,
    killed,
    leap,
    of_type,
    results,
    sent,
    texts,
    until,
)
from turnlog import Session, ToolCall, open_store, tool
from turnlog.content import ToolCallDelta
from turnlog.testing import Call, Fail, Hang, Think
from turnlog.testing.builders import Author

FOUR = [Call("slow", id=f"c{i}") for i in range(4)]


async def slow() -> None:
    """Take for ever."""
    await anyio.sleep_forever()


async def test_four_cancelled_calls_neither_block_the_next_turn_nor_a_compaction() -> None:
    """Each call is closed once; a prompt, a compaction and one more prompt are all taken."""
    session = Session.create("s")
    runner = agent(FOUR, ["fine"], ["still fine"], tools=[slow])
    async with runner.stream(session, "work") as turn:
        await until(turn, "tool/call", 4)
        await turn.cancel()
    assert [(c, e) for c, _, e in results(session)] == [
        (f"c{i}", "TOOL_OUTCOME_UNKNOWN") for i in range(4)
    ]
    assert (await runner.run(session, "and now?")).text == "fine"
    assert_lawful(session)
    Author(session).compact(0, 5)
    assert texts(session) == ["what happened before", "and now?", "fine"]
    assert (await runner.run(session, "more")).text == "still fine"
    assert_lawful(session)


async def test_interrupting_twice_while_arguments_stream_leaves_no_call() -> None:
    """Half a call is no call: the turn ends once, and the next prompt is taken everywhere."""
    session = Session.create("s")
    half = [ToolCallDelta(0, "c1", "edit", '{"text": "a lo'), ToolCallDelta(0, "c1", "", "ng")]
    runner = agent([*half, Hang()], ["fine"], tools=[slow])
    async with runner.stream(session, "edit") as turn:
        await until(turn, "assistant/chunk", 2)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(turn.cancel)
            tasks.start_soon(turn.cancel)
    assert len(of_type(session, "turn/end")) == 1
    assert [message.tool_calls for message in session.derive_messages()] == [()]
    assert (await runner.run(session, "say anything")).text == "fine"
    assert_lawful(session)


async def test_a_session_killed_in_a_tool_is_repaired_before_the_next_prompt(
    tmp_path: Path,
) -> None:
    """Opening the session closes the call of the dead process; a prompt goes on from there."""
    url = f"jsonl:{tmp_path / 'store'}"
    killed(url, tmp_path / "effects", "hang")
    runner = agent(["I will look."])
    async with open_store(url) as store, store.session("s") as session:
        assert [(c, e) for c, _, e in results(session)] == [("call-hang", "TOOL_OUTCOME_UNKNOWN")]
        assert of_type(session, "turn/end")[-1].data.reason.kind == "interrupted"
        assert (await runner.run(session, "What happened?")).text == "I will look."
        assert_lawful(session)


async def test_an_open_call_at_the_very_end_of_the_log_is_closed_once(tmp_path: Path) -> None:
    """The end of the log is a boundary like any other, however often the session is opened."""
    url = f"jsonl:{tmp_path}"
    async with open_store(url) as store:
        async with store.session("s") as session:
            session.add_user("look")
            session.add_assistant(ToolCall("c1", "read", "{}"))
        for _ in range(3):
            async with store.session("s") as session:
                assert [event.type for event in session.events] == [
                    "user/message",
                    "assistant/message",
                    "tool/result",
                ]
                assert session.request_messages().mends == ()
                assert_accepted(session)


async def test_a_first_tool_cancelled_before_it_yields_anything_is_closed() -> None:
    """Of one call none has a result: it is repaired like any other, and the history goes on."""
    session = Session.create("s")
    runner = agent([Call("slow", id="c1")], ["fine"], tools=[slow])
    async with runner.stream(session, "work") as turn:
        await until(turn, "tool/call")
    assert len(results(session)) == 1
    resumed = Session.from_events(session.header, [e.to_dict() for e in session.events])
    assert (await agent(["fine"]).run(resumed, "again")).text == "fine"
    assert_lawful(resumed)


async def test_a_call_that_timed_out_poisons_no_later_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The run says that its time was over, and the third request after it is valid."""

    async def slow() -> None:
        leap(monkeypatch)
        await anyio.sleep_forever()

    session = Session.create("s")
    first = await agent([Call("slow", id="c1")], tools=[slow], max_seconds=60).run(session, "1")
    assert (first.end_reason.kind, first.end_reason.reason) == ("limit", "seconds")
    assert results(session)[0][2] == "TOOL_OUTCOME_UNKNOWN"
    runner = agent(["two"], ["three"])
    await runner.run(session, "2")
    await runner.run(session, "3")
    assert len(sent(runner)) == 2
    assert_lawful(session)


async def test_an_answer_interrupted_before_its_first_token_leaves_no_empty_message() -> None:
    """Neither nothing nor an empty delta becomes a message or a block that a provider refuses."""
    for before in ([], [""], [Think(""), ""]):
        session = Session.create("s")
        runner = agent([*before, Hang()], ["fine"])
        async with runner.stream(session, "hi") as turn:
            await until(turn, "assistant/chunk" if before else "request/sent", len(before) or 1)
        assert [message.role for message in session.derive_messages()] == ["user"]
        await runner.run(session, "again")
        assert texts(session) == ["hi", "again", "fine"]
        assert_lawful(session)


async def test_repair_anchors_to_the_call_whatever_the_side_data_says(tmp_path: Path) -> None:
    """With side data from before the crash, a result follows its own call, and so do prompts."""
    url = f"jsonl:{tmp_path / 'store'}"
    async with open_store(url) as store, store.session("s") as session:
        await agent(["hello"]).run(session, "hi")
        before = session.next_seq
    killed(url, tmp_path / "effects", "hang")
    async with open_store(url) as store, store.session("s") as session:
        (call,) = of_type(session, "tool/call")
        (result,) = of_type(session, "tool/result")
        assert call.seq > before
        assert list(result.source_event_seqs or ()) == [call.seq]
        await agent(["I see."]).run(session, "What now?")
        roles = [message.role for message in session.derive_messages()]
        assert roles == ["user", "assistant", "user", "assistant", "tool", "user", "assistant"]
        assert_lawful(session)


async def test_a_connection_that_breaks_after_the_calls_came_leaves_none_open() -> None:
    """Calls of an answer that failed were never made: the error ends the turn, work goes on."""

    @tool
    def touch() -> str:
        msg = "must not run"
        raise AssertionError(msg)

    session = Session.create("s")
    calls = [Call("touch", id=f"c{i}") for i in range(4)]
    runner = agent([*calls, Fail("transport")], ["fine"], tools=[touch], retries=0)
    result = await runner.run(session, "go")
    assert result.end_reason.kind == "error"
    assert of_type(session, "tool/call") == []
    assert (await runner.run(session, "continue")).text == "fine"
    assert texts(session) == ["go", "continue", "fine"]
    assert_lawful(session)
