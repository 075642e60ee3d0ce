"""The loop: the order of events, limits, errors, retries, cancellation."""

from __future__ import annotations

import threading
from typing import Any

import anyio
import pytest

from tests.unit.agent.scenes import agent, assert_lawful, end, new, results, types
from turnlog.agent.loop import AgentBusy
from turnlog.agent.tools import ToolAborted, tool
from turnlog.errors import RequestRefused, TurnlogError
from turnlog.events import AssistantMessage
from turnlog.models.scripted import Call, Fail, Hang, Think, Used


def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


async def test_a_plain_turn_logs_its_events_in_the_order_of_the_law() -> None:
    """Start, input, header, proof, stream, answer, end: in this order and no other."""
    session = new()
    result = await agent(["Hel", "lo"]).run(session, "hi")
    assert result.text == "Hello"
    assert result.end_reason.kind == "completed"
    assert types(session) == [
        "turn/start",
        "step/start",
        "user/message",
        "request/header",
        "request/sent",
        "assistant/chunk",
        "assistant/message",
        "step/end",
        "turn/end",
    ]
    assert_lawful(session)


async def test_the_header_is_logged_again_only_when_it_changed() -> None:
    """Two turns of one agent share a header; another system text brings another."""
    session = new()
    one = agent(["a"], ["b"])
    await one.run(session, "1")
    await one.run(session, "2")
    assert types(session).count("request/header") == 1
    await agent(["c"], system="be brief").run(session, "3")
    assert types(session).count("request/header") == 2
    assert_lawful(session)


async def test_tools_registered_in_another_order_make_the_same_header() -> None:
    """The order of registration never reaches a request."""

    def other(x: str) -> str:
        return x

    first, second = agent(["a"], tools=[add, other]), agent(["b"], tools=[other, add])
    assert first.header("auto") == second.header("auto")


async def test_a_tool_call_runs_and_its_result_reaches_the_next_request() -> None:
    """Call, result, answer: two steps, and the second request holds the result."""
    session = new()
    runner = agent([Call("add", {"a": 1, "b": 2}, id="c1")], ["3"], tools=[add])
    result = await runner.run(session, "add")
    assert result.text == "3"
    assert results(session) == [("c1", "3", None)]
    model: Any = runner.model
    assert b'"tool_call_id":"c1"' in model.requests[1]
    assert_lawful(session)


async def test_results_enter_in_call_order_whatever_finishes_first() -> None:
    """A result that arrives before an earlier call's is settled at once and enters in order."""
    first_may_go = anyio.Event()

    async def first() -> str:
        await first_may_go.wait()
        return "one"

    async def second() -> str:
        return "two"

    session = new()

    def release(event: Any) -> None:
        if event.type == "tool/settled":
            first_may_go.set()

    session.observe(release)
    await agent(
        [Call("first", id="c1"), Call("second", id="c2")], ["ok"], tools=[first, second]
    ).run(session, "go")
    assert results(session) == [("c1", "one", None), ("c2", "two", None)]
    assert "tool/settled" in types(session)
    assert_lawful(session)


async def test_exclusive_tools_never_run_beside_another() -> None:
    """While an exclusive body runs, no other has begun and not ended."""
    running: list[str] = []
    seen: list[int] = []

    async def shared(name: str) -> str:
        running.append(name)
        await anyio.lowlevel.checkpoint()
        running.remove(name)
        return name

    @tool(exclusive=True)
    async def alone(name: str) -> str:
        running.append(name)
        seen.append(len(running))
        await anyio.lowlevel.checkpoint()
        seen.append(len(running))
        running.remove(name)
        return name

    session = new()
    calls = [
        Call("shared", {"name": "a"}),
        Call("alone", {"name": "b"}),
        Call("shared", {"name": "c"}),
        Call("alone", {"name": "d"}),
    ]
    await agent(calls, ["ok"], tools=[shared, alone]).run(session, "go")
    assert seen == [1, 1, 1, 1]
    assert [text for _, text, _ in results(session)] == ["a", "b", "c", "d"]


async def test_what_a_model_gets_wrong_becomes_a_result_that_it_can_read() -> None:
    """An unknown tool, bad arguments and a raising body end in error results, not in errors."""

    def broken() -> str:
        msg = "disk on fire"
        raise OSError(msg)

    session = new()
    calls = [
        Call("nope", id="c1"),
        Call("add", {"a": "x", "b": 2}, id="c2"),
        Call("add", "{not json", id="c3"),
        Call("broken", id="c4"),
    ]
    result = await agent(calls, ["sorry"], tools=[add, broken]).run(session, "go")
    assert result.text == "sorry"
    assert [(c, code) for c, _, code in results(session)] == [
        ("c1", "TOOL_UNKNOWN"),
        ("c2", "TOOL_BAD_ARGUMENTS"),
        ("c3", "TOOL_BAD_ARGUMENTS"),
        ("c4", "TOOL_FAILED"),
    ]
    assert "disk on fire" in results(session)[3][1]
    assert types(session).count("tool/call") == 1
    assert_lawful(session)


async def test_a_retry_is_logged_and_never_doubles_the_prompt() -> None:
    """A failed attempt is closed, the retry logged, and the prompt stands once."""
    session = new()
    result = await agent(["par", Fail("server")], ["whole"]).run(session, "hi")
    assert result.text == "whole"
    assert types(session)[4:10] == [
        "request/sent",
        "assistant/chunk",
        "assistant/attempt",
        "llm/retry",
        "request/sent",
        "assistant/chunk",
    ]
    assert [m.text for m in session.derive_messages()] == ["hi", "whole"]
    assert_lawful(session)


async def test_a_refused_request_ends_the_turn_and_the_next_turn_works() -> None:
    """An error that no retry helps is in the result and in `turn/end`; the session goes on."""
    session = new()
    runner = agent(["x", Fail("refused", message="bad key")], ["fine"])
    result = await runner.run(session, "hi")
    assert result.end_reason.kind == "error"
    assert result.error is not None
    assert "bad key" in result.error.message
    assert types(session).count("llm/retry") == 0
    assert (await runner.run(session, "again")).text == "fine"
    assert_lawful(session)


async def test_retries_end_after_the_limit() -> None:
    """As many retries as allowed, then the turn ends with the last error."""
    session = new()
    result = await agent(*[[Fail("server")]] * 3, retries=2).run(session, "hi")
    assert result.end_reason.kind == "error"
    assert types(session).count("request/sent") == 3
    assert_lawful(session)


@pytest.mark.parametrize("limit", ["steps", "tokens"])
async def test_a_limit_ends_the_turn_with_its_name(limit: str) -> None:
    """A turn that goes on and on ends with reason `limit` that says which."""
    answer = [Call("add", {"a": 1, "b": 1}), Used(input_tokens=30, output_tokens=30)]
    options: dict[str, Any] = {"max_steps": 3} if limit == "steps" else {"max_tokens": 100}
    session = new()
    result = await agent(*[answer] * 9, tools=[add], **options).run(session, "loop")
    assert (result.end_reason.kind, result.end_reason.reason) == ("limit", limit)
    assert_lawful(session)


async def test_a_limit_of_wall_time_stops_a_hanging_model_and_keeps_what_came() -> None:
    """The partial text of a turn that took too long is kept."""
    session = new()
    result = await agent(["some", " more", Hang()], max_seconds=0.01).run(session, "hi")
    assert (result.end_reason.kind, result.end_reason.reason) == ("limit", "seconds")
    assert_lawful(session)


async def test_leaving_the_block_cancels_and_keeps_what_had_arrived() -> None:
    """Partial text becomes an interrupted message that cites its chunks and is sent next time."""
    session = new()
    runner = agent([Think("hm"), "half ", "an answer", Hang()], ["whole"])
    async with runner.stream(session, "hi") as turn:
        async for event in turn:
            if event.type == "assistant/chunk" and b"an answer" in event.raw:
                break
    assert turn.result is not None
    assert turn.result.text == "half an answer"
    message = next(e for e in session.events if e.type == "assistant/message")
    assert isinstance(message.data, AssistantMessage)
    assert message.data.interrupted is True
    chunks = [e.seq for e in session.events if e.type == "assistant/chunk"]
    assert list(message.source_event_seqs or ()) == chunks
    assert end(session).kind == "aborted"
    await runner.run(session, "go on")
    model: Any = runner.model
    assert b"half an answer" in model.requests[1]
    assert_lawful(session)


async def test_cancel_before_anything_shows_leaves_an_attempt_and_the_prompt() -> None:
    """With nothing visible there is no message; the prompt stays."""
    session = new()
    async with agent([Hang()]).stream(session, "hi") as turn:
        async for event in turn:
            if event.type == "request/sent":
                break
        await turn.cancel()
    assert [m.text for m in session.derive_messages()] == ["hi"]
    assert end(session).kind == "aborted"
    assert_lawful(session)


async def test_cancel_while_tools_run_closes_each_call_by_what_is_known() -> None:
    """Settled enters, running is unknown unless its body says otherwise, waiting never started."""

    async def quick() -> str:
        return "done"

    async def slow() -> None:
        await anyio.sleep_forever()

    async def honest() -> None:
        try:
            await anyio.sleep_forever()
        finally:
            msg = "nothing was written"
            raise ToolAborted(msg)

    @tool(exclusive=True)
    def later() -> str:
        return "never"

    session = new()
    calls = [Call(name, id=name) for name in ("slow", "quick", "honest", "later")]
    runner = agent(calls, tools=[quick, slow, honest, later])
    async with runner.stream(session, "go") as turn:
        async for event in turn:
            if event.type == "tool/settled":
                await turn.cancel()
    assert [(c, code) for c, _, code in results(session)] == [
        ("slow", "TOOL_OUTCOME_UNKNOWN"),
        ("quick", None),
        ("honest", "TOOL_ABORTED"),
        ("later", "TOOL_NOT_STARTED"),
    ]
    assert_lawful(session)


async def test_a_result_that_comes_after_the_cancel_enters_at_the_next_boundary() -> None:
    """The placeholder stays; the late result is logged and becomes context of the next turn."""
    began, may_end, late = threading.Event(), threading.Event(), threading.Event()

    def stubborn() -> str:
        began.set()
        may_end.wait()
        return "the truth"

    session = new()
    session.observe(lambda event: late.set() if event.type == "tool/late-result" else None)
    runner = agent([Call("stubborn", id="c1")], ["I see"], tools=[stubborn])
    async with runner.stream(session, "go") as turn:
        async for event in turn:
            if event.type == "tool/call":
                await anyio.to_thread.run_sync(began.wait)
                await turn.cancel()
    may_end.set()
    await anyio.to_thread.run_sync(late.wait)
    assert results(session)[0][2] == "TOOL_OUTCOME_UNKNOWN"
    await runner.run(session, "and?")
    context = next(e for e in session.events if e.type == "context/message")
    assert "the truth" in context.data.text
    assert_lawful(session)


async def test_an_outer_cancel_closes_the_turn_too() -> None:
    """Cancelling the task that runs the agent leaves a closed log."""
    session = new()
    with anyio.CancelScope() as scope:
        session.observe(lambda event: scope.cancel() if event.type == "assistant/chunk" else None)
        await agent(["part", Hang()]).run(session, "hi")
    assert scope.cancelled_caught
    assert end(session).kind == "aborted"
    assert_lawful(session)


async def test_two_turns_at_once_on_one_session_are_refused() -> None:
    """The second gets one line that says what to do."""
    session = new()
    runner = agent(["a", Hang()])
    async with runner.stream(session, "one"):
        with pytest.raises(AgentBusy, match="in a turn already"):
            await runner.run(session, "two")


async def test_running_with_nothing_to_do_says_so() -> None:
    """Without prompt, inbox and suspended turn there is a clear error, and no event."""
    session = new()
    with pytest.raises(TurnlogError, match="nothing to run"):
        await agent(["a"]).run(session)
    assert len(session) == 0


async def test_usage_is_added_up_and_unknown_stays_unknown() -> None:
    """Buckets add over the steps of a turn; one that was never reported stays None."""
    session = new()
    result = await agent(
        [Call("add", {"a": 1, "b": 1}), Used(input_tokens=5, output_tokens=2)],
        ["2", Used(input_tokens=9, output_tokens=1)],
        tools=[add],
    ).run(session, "go")
    assert result.usage.input_tokens == 14
    assert result.usage.output_tokens == 3
    assert result.usage.cache_read_tokens is None


async def test_an_answer_cut_off_by_its_token_limit_ends_the_turn_so() -> None:
    """`max-tokens` is the reason, and half a tool call is dropped."""
    from turnlog.models.scripted import End  # noqa: PLC0415 - only here

    session = new()
    result = await agent(["long", Call("add", '{"a":'), End("max-tokens")], tools=[add]).run(
        session, "go"
    )
    assert result.end_reason.kind == "max-tokens"
    assert results(session) == []
    assert_lawful(session)


async def test_iterating_a_turn_that_was_not_entered_says_what_to_do() -> None:
    """Without `async with` nothing runs, and the error says so."""
    with pytest.raises(TurnlogError, match="async with"):
        async for _ in agent(["a"]).stream(new(), "hi"):
            pass


@pytest.mark.parametrize("choice", ["add", "required"])
async def test_a_tool_choice_that_makes_no_sense_is_refused(choice: Any) -> None:
    """A choice that there is none of, or one that needs tools, is an error before anything runs."""
    session = new()
    with pytest.raises(TurnlogError, match="tool_choice"):
        await agent(["a"]).run(session, "hi", tool_choice=choice)
    assert len(session) == 0


async def test_a_result_raises_what_went_wrong_when_it_is_asked_to() -> None:
    """`raise_for_error` raises a failed turn's error and gives back any other result."""
    runner = agent([Fail("refused", message="bad key")], ["fine"])
    failed = await runner.run(new(), "hi")
    with pytest.raises(RequestRefused, match="bad key"):
        failed.raise_for_error()
    done = await runner.run(new(), "again")
    assert done.raise_for_error() is done
