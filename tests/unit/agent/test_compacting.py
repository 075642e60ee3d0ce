"""Compaction in the loop: when it happens, what is in the log then, what interrupts it."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from tests.unit.agent.scenes import assert_lawful, at_once, end, types
from turnlog import Image, Session, open_store, tool
from turnlog.agent import AgentBusy
from turnlog.agent.loop import ReactLoopAgent
from turnlog.commands import Cancel, Command, Compact, Prompt, Steer
from turnlog.compaction.engine import BasicCompactionEngine
from turnlog.errors import CompactionBusy, CompactionFailed
from turnlog.events import CompactionEnd, CompactionStart
from turnlog.models.scripted import Call, Fail, Hang, ScriptedModel, Used, Wait
from turnlog.stores.live import StoredSession
from turnlog.stores.store import Store
from turnlog.views.loop import loop_fold

WORDS = "plain words that say nothing much and take their room in every request "
LONG = WORDS * 40
GOOD = "## Goals\n- ship it\n\n## State\n- half done"


def agent(*answers: Any, window: int = 4000, **options: Any) -> ReactLoopAgent:
    """An agent whose model answers as told, and has a small window."""
    model = ScriptedModel(list(answers), context_window=window)
    return ReactLoopAgent(model, delay=at_once, **options)


def either(body: bytes) -> str:
    """A summary where one is asked for, else an answer."""
    return GOOD if b"Summarize our conversation" in body else "yes"


def sent(runner: ReactLoopAgent) -> list[dict[str, Any]]:
    """The requests that its model got."""
    model = runner.model
    assert isinstance(model, ScriptedModel)
    return [json.loads(body) for body in model.requests]


def purposes(session: Session) -> list[str]:
    """What each request was for."""
    return [request.purpose for request in session.requests()]


def reasons(session: Session) -> list[str | None]:
    """Why each compaction began."""
    return [e.data.reason for e in session.events if isinstance(e.data, CompactionStart)]


def errors(session: Session) -> list[Any]:
    """How each compaction ended: None, or a code or word."""
    found = [e.data.error for e in session.events if isinstance(e.data, CompactionEnd)]
    return [error["code"] if isinstance(error, dict) else error for error in found]


def filled(turns: int = 8) -> Session:
    """A session that nearly fills the window."""
    session = Session.create("s")
    for number in range(turns):
        session.add_user(f"question {number}: {WORDS * 16}")
        session.add_assistant(f"answer {number}: {WORDS * 16}")
    return session


@asynccontextmanager
async def opened(path: Path) -> AsyncGenerator[tuple[Store, StoredSession]]:
    """A durable session."""
    async with open_store(f"jsonl:{path}") as store, store.session("s") as session:
        yield store, session


async def post(path: Path, *commands: Command) -> None:
    """Post from elsewhere."""
    async with open_store(f"jsonl:{path}") as store:
        for command in commands:
            await store.inbox("s").post(command)


async def test_a_long_conversation_goes_on_without_an_error() -> None:
    """Far past the window, with a compaction where one is due and proofs for every request."""

    def answer(body: bytes) -> str:
        return GOOD if b"Summarize our conversation" in body else f"well: {WORDS * 8}"

    runner = agent(*[answer] * 80, system="be kind")
    session = Session.create("s")
    for number in range(40):
        result = await runner.run(session, f"{number}: {WORDS * 8}")
        assert result.end_reason.kind == "completed"
    assert 2 <= len(reasons(session)) <= 20
    assert set(errors(session)) == {None}
    assert max(len(json.dumps(body)) for body in sent(runner)) < 4000 * 6
    assert_lawful(session)


async def test_compaction_comes_before_the_step_with_its_input_counted() -> None:
    """The prompt that made it due is whole, behind the summary, and in the step."""
    session = filled()
    runner = agent(GOOD, "done")
    first = session.next_seq
    result = await runner.run(session, LONG)
    assert result.text == "done"
    kinds = [kind for kind in types(session, first) if kind != "request/context"]
    assert kinds == [
        "turn/start",
        "compaction/start",
        "request/header",
        "request/sent",
        "compaction/summary",
        "user/message",
        "compaction/end",
        "step/start",
        "user/message",
        "request/sent",
        "assistant/chunk",
        "assistant/message",
        "step/end",
        "turn/end",
    ]
    assert session.derive_messages()[-2].text == LONG
    assert reasons(session) == ["threshold"]
    assert_lawful(session)


async def test_a_turns_usage_has_that_of_its_compactions() -> None:
    """They were paid for too; a bucket is unknown where any part is."""
    session = filled()
    runner = agent([Used(900, 20, 0, 0, 0), GOOD], [Used(100, 5, 0, 0, 0), "done"])
    result = await runner.run(session, LONG)
    assert (result.usage.input_tokens, result.usage.output_tokens) == (1000, 25)
    total = session.usage().own.total.total
    assert total.known == 1025


async def test_a_turn_of_many_steps_is_compacted_between_two_of_them() -> None:
    """Calls stay with their results, and the turn goes on."""

    def read(path: str) -> str:
        return f"{path}: {WORDS * 20}"

    def answer(body: bytes) -> Any:
        if b"Summarize our conversation" in body:
            return GOOD
        number = len(sent(runner))
        return "done" if number > 40 else Call("read", {"path": f"f{number}"})

    runner = agent(*[answer] * 60, tools=[read])
    session = Session.create("s")
    result = await runner.run(session, "read all of it")
    assert result.text == "done"
    assert len(reasons(session)) >= 2
    assert set(errors(session)) == {None}
    assert_lawful(session)


async def test_an_overflow_is_recovered_from_once() -> None:
    """The request is smaller and is sent again, in the same step."""
    session = filled(3)
    runner = agent(Fail("overflow-tokens"), GOOD, "done")
    result = await runner.run(session, "go on")
    assert result.text == "done"
    assert purposes(session) == ["step", "compaction", "step"]
    assert reasons(session) == ["overflow"]
    assert result.error is None
    assert session.derive_messages()[-2].text == "go on"
    assert_lawful(session)


async def test_a_second_overflow_ends_the_turn() -> None:
    """Recovery is tried once for each request, and the error is the provider's."""
    session = filled(3)
    runner = agent(Fail("overflow-tokens"), GOOD, Fail("overflow-tokens"), "never")
    result = await runner.run(session, "go on")
    assert result.error is not None
    assert result.error.code == "overflow-tokens"
    assert len(sent(runner)) == 3
    assert_lawful(session)


async def test_an_overflow_that_compaction_cannot_help_says_so() -> None:
    """Both reasons are in the error."""
    session = Session.create("s")
    result = await agent(Fail("overflow-tokens", message="too long")).run(session, LONG)
    assert result.error is not None
    assert result.error.code == "overflow-tokens"
    assert result.error.message.startswith("too long (compaction does not help: nothing")
    assert_lawful(session)


async def test_a_failed_compaction_lets_the_request_be_sent() -> None:
    """The provider has the last word; the log says what failed."""
    session = filled()
    engine_model = ScriptedModel([""] * 9, context_window=4000, name="scripted:other")
    engine = BasicCompactionEngine(engine_model, fallback="none", delay=at_once)
    runner = agent("done", compaction=engine)
    assert (await runner.run(session, LONG)).text == "done"
    assert errors(session) == ["empty"]
    assert_lawful(session)


async def test_cancelled_while_it_compacts_the_prompt_is_kept() -> None:
    """The bracket is closed, the surface as it was, and the prompt in the log, not answered."""
    session = filled()
    before = list(session.derive_messages())
    runner = agent(["## Goals", Hang()])
    async with runner.stream(session, LONG) as turn:
        async for event in turn:
            if event.type == "request/sent":
                await turn.cancel()
    assert end(session).kind == "aborted"
    assert errors(session) == ["cancelled"]
    assert list(session.derive_messages()) == [*before, session.derive_messages()[-1]]
    assert session.derive_messages()[-1].text == LONG
    assert_lawful(session)


async def test_a_prompt_of_the_inbox_is_not_answered_again_after_such_a_cancel(
    tmp_path: Path,
) -> None:
    """It was accepted, and its turn is over."""
    async with opened(tmp_path) as (store, session):
        for _ in range(6):
            session.add_user(WORDS * 16)
            session.add_assistant(WORDS * 16)
        await post(tmp_path, Prompt(LONG))
        runner = agent(["## Goals", Hang()], "never")

        async def cancel() -> None:
            await post(tmp_path, Cancel())

        async with runner.stream(session) as turn:
            async for event in turn:
                if event.type == "request/sent":
                    await cancel()
        assert end(session).kind == "aborted"
        assert await store.inbox("s").waiting() == []
        assert len(sent(runner)) == 1
        assert_lawful(session)


async def test_inside_a_tool_it_waits_for_the_next_boundary() -> None:
    """The step is not touched; before the next one it is done."""
    session = filled(3)
    at: list[int] = []

    async def work() -> str:
        at.append(len(reasons(session)))
        assert await runner.compact(session, instruction="keep the schema") is None
        return "worked"

    runner = agent(Call("work"), GOOD, "done", tools=[work])
    result = await runner.run(session, "go")
    assert result.text == "done"
    assert at == [0]
    assert reasons(session) == ["manual"]
    assert purposes(session) == ["step", "compaction", "step"]
    assert "keep the schema" in json.dumps(sent(runner)[1])
    for _ in range(3):
        assert (await agent("more").run(session, "and on")).end_reason.kind == "completed"
    assert_lawful(session)


async def test_asked_for_in_the_last_step_it_is_done_at_the_turns_end() -> None:
    """No step follows, and it is not forgotten."""
    session = filled(3)

    async def ask() -> None:
        assert await runner.compact(session) is None

    runner = agent(["done", Wait(ask)], GOOD)
    await runner.run(session, "go")
    assert reasons(session) == ["manual"]
    assert session.events[-1].type == "turn/end"
    assert_lawful(session)


async def test_by_hand_between_turns() -> None:
    """The agent does it at once, with its own header; a turn that is to start is refused."""
    session = filled(3)
    refused: list[bool] = []

    async def start() -> None:
        with pytest.raises(AgentBusy):
            await runner.run(session, "now")
        with pytest.raises(CompactionBusy):
            await runner.compact(session)
        refused.append(True)

    runner = agent([Wait(start), GOOD], "yes", system="be kind")
    done = await runner.compact(session, instruction="keep names")
    assert done is not None
    assert refused == [True]
    assert sent(runner)[0]["messages"][0]["content"] == "be kind"
    assert (await runner.run(session, "now")).text == "yes"
    assert types(session).count("request/header") == 1
    assert_lawful(session)


async def test_the_inbox_can_ask_for_it_while_a_turn_runs(tmp_path: Path) -> None:
    """It is performed at the next boundary, by the loop that owns the session."""
    async with opened(tmp_path) as (store, session):
        for _ in range(3):
            session.add_user(WORDS * 16)
            session.add_assistant(WORDS * 16)

        async def work() -> str:
            await post(tmp_path, Compact("keep the schema"), Steer("go on"))
            return "worked"

        runner = agent(Call("work"), GOOD, "done", tools=[work])
        assert (await runner.run(session, "go")).text == "done"
        assert purposes(session) == ["step", "compaction", "step"]
        assert session.derive_messages()[-2].text == "go on"
        assert await store.inbox("s").waiting() == []
        assert_lawful(session)


async def test_the_inbox_can_ask_for_it_when_no_turn_runs(tmp_path: Path) -> None:
    """The next loop does it, whether or not there is a prompt."""
    async with opened(tmp_path) as (store, session):
        for _ in range(3):
            session.add_user(WORDS * 16)
            session.add_assistant(WORDS * 16)
        await post(tmp_path, Compact())
        async with agent(GOOD).stream(session) as turn:
            async for _ in turn:
                pass
        assert turn.result is None
        assert reasons(session) == ["manual"]
        assert await store.inbox("s").waiting() == []
        await post(tmp_path, Compact())
        session.add_user(WORDS * 40)
        assert (await agent(GOOD, "yes").run(session, "now")).text == "yes"
        assert reasons(session) == ["manual", "manual"]
        assert await store.inbox("s").waiting() == []
        assert_lawful(session)


async def test_a_compaction_that_was_accepted_is_performed_by_the_next_loop(
    tmp_path: Path,
) -> None:
    """Where a crash came between, at any event of the bracket that came first."""
    async with opened(tmp_path) as (_, session):
        for _ in range(3):
            session.add_user(WORDS * 16)
            session.add_assistant(WORDS * 16)
        first = session.next_seq
        await post(tmp_path, Compact())
        async with agent(GOOD).stream(session) as turn:
            async for _ in turn:
                pass
        whole = session.events
        for cut in range(first + 1, len(whole) + 1):
            again = Session.from_events(session.header, whole[:cut])
            runner = agent(either, either)
            assert (await runner.run(again, "now")).text == "yes"
            replaced = sum(r.seq >= first for r in again.surface.replacements)
            assert replaced == 1, whole[cut - 1]
            assert_lawful(again)


async def test_a_crash_at_any_event_of_a_turn_that_compacts_loses_nothing() -> None:
    """What follows is a healthy session, and its next request is one."""
    session = filled()
    first = session.next_seq
    await agent(GOOD, "done").run(session, LONG)
    for cut in range(first, len(session) + 1):
        again = Session.from_events(session.header, session.events[:cut])
        result = await agent(*[either] * 3).run(again, LONG)
        assert result.text == "yes"
        assert again.surface.replace_generation == 1
        assert_lawful(again)


async def test_an_accepted_prompt_survives_the_compaction_that_precedes_its_second_try() -> None:
    """A summary is nobody's prompt: the prompt that a crash cut off still has its turn."""
    session = filled()
    session.append("inbox/accepted", {"command": {"type": "prompt", "text": "mine", "id": "p"}})
    engine = BasicCompactionEngine(ScriptedModel([GOOD], context_window=4000))
    await engine.compact_now(session)
    unfinished = session.fold(loop_fold).unfinished
    assert unfinished is not None
    assert unfinished.text == "mine"
    assert (await agent("yes").run(session)).text == "yes"


async def test_a_suspended_turn_is_left_as_it_is() -> None:
    """By hand, what lies before its open step is compacted."""

    @tool(approve="ask")
    async def drop() -> str:
        """Drop it."""
        return "dropped"

    session = filled(3)
    runner = agent(Call("drop", id="c"), GOOD, tools=[drop])
    result = await runner.run(session, "drop it")
    assert result.end_reason.kind == "suspended"
    asked = [m.text for m in session.derive_messages()[-2:]]
    done = await runner.compact(session)
    assert done is not None
    assert [m.text for m in session.derive_messages()[-2:]] == asked
    assert_lawful(session)


async def test_a_session_that_was_refused_once_is_not_blocked_by_its_image() -> None:
    """What a provider does not take is left out of the next turn."""
    session = Session.create("s")
    runner = agent(Fail("overflow-media"), "fine")
    refused = await runner.run(session, ["look", Image("image/png", "A" * 4000)])
    assert refused.error is not None
    assert (await runner.run(session, "forget it")).text == "fine"
    assert "AAAA" not in json.dumps(sent(runner)[-1])
    assert_lawful(session)


async def test_time_limits_hold_while_it_compacts() -> None:
    """A turn that may take no longer ends, and the bracket is closed."""
    session = filled()
    result = await agent([GOOD, Hang()], max_seconds=0.0).run(session, LONG)
    assert result.end_reason.kind == "limit"
    assert session.derive_messages()[-1].text == LONG
    assert_lawful(session)


async def test_failing_by_hand_is_told() -> None:
    """Nothing that could be summarised is there."""
    with pytest.raises(CompactionFailed) as caught:
        await agent(GOOD).compact(Session.create("s"))
    assert caught.value.code == "nothing-to-gain"


async def test_two_sessions_are_compacted_at_once() -> None:
    """The lock is a session's."""
    one, two = filled(3), filled(3)
    runner = agent(GOOD, GOOD)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(runner.compact, one)
        tasks.start_soon(runner.compact, two)
    assert reasons(one) == reasons(two) == ["manual"]
