"""The inbox: prompts, steering and cancels from any process, and crashes between them."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from tests.unit.agent.scenes import agent, assert_lawful, end, results, types
from turnlog import Session, open_store
from turnlog.agent import ReactLoopAgent
from turnlog.commands import Approve, Cancel, Command, Prompt, Steer
from turnlog.content import Failure, ToolCall
from turnlog.errors import RequestRefused, TurnlogError
from turnlog.models.scripted import Call, Hang, ScriptedModel, Wait
from turnlog.stores.live import StoredSession
from turnlog.stores.store import Store


@asynccontextmanager
async def opened(folder: Path) -> AsyncGenerator[tuple[Store, StoredSession]]:
    """A store with the session "s"."""
    async with open_store(f"jsonl:{folder}") as store, store.session("s") as session:
        yield store, session


async def post(folder: Path, *commands: Command) -> None:
    """Post from another handle on the store."""
    async with open_store(f"jsonl:{folder}") as other:
        for command in commands:
            await other.inbox("s").post(command)


def said(session: Session) -> list[str]:
    """What users and the model said, in order."""
    return [message.text for message in session.derive_messages()]


def sent(runner: ReactLoopAgent) -> list[bytes]:
    """The bodies that the agent's model got."""
    model: Any = runner.model
    return model.requests


async def test_prompts_that_wait_have_a_turn_each_before_the_callers_own(tmp_path: Path) -> None:
    """In order of posting; the result is that of the caller's own."""
    async with opened(tmp_path) as (store, session):
        await post(tmp_path, Prompt("one"), Prompt("two"))
        result = await agent("1", "2", "3").run(session, "three")
        assert said(session) == ["one", "1", "two", "2", "three", "3"]
        assert (result.turn, result.text) == (3, "3")
        assert types(session)[:4] == ["turn/start", "step/start", "inbox/accepted", "user/message"]
        assert await store.inbox("s").waiting() == []
        assert await store.pending() == []
        assert_lawful(session)


async def test_a_loop_without_a_prompt_runs_what_waits(tmp_path: Path) -> None:
    """And says so when nothing does."""
    async with opened(tmp_path) as (_, session):
        await post(tmp_path, Prompt("one"))
        runner = agent("1")
        assert (await runner.run(session)).text == "1"
        with pytest.raises(TurnlogError, match="nothing to run"):
            await runner.run(session)


async def test_a_prompt_waits_in_the_inbox_until_its_turn_is_over(tmp_path: Path) -> None:
    """So that somebody finds the session if this process dies."""
    during: list[list[str]] = []

    async def look() -> str:
        async with open_store(f"jsonl:{tmp_path}") as other:
            during.append(await other.pending())
        return "looked"

    async with opened(tmp_path) as (store, session):
        await post(tmp_path, Prompt("one"))
        await agent([Call("look")], "1", tools=[look]).run(session)
        assert during == [["s"]]
        assert await store.pending() == []
        assert await store.inbox("s").waiting() == []


async def test_one_turn_of_what_waits_is_run(tmp_path: Path) -> None:
    """With `one=True`, and then the next; nothing at all has no result."""
    async with opened(tmp_path) as (_, session):
        await post(tmp_path, Prompt("one"), Prompt("two"))
        runner = agent("1", "2")
        texts: list[str | None] = []
        for _ in range(3):
            async with runner.stream(session, one=True) as turn:
                async for _ in turn:
                    pass
            texts.append(turn.result and turn.result.text)
        assert texts == ["1", "2", None]
        with pytest.raises(TurnlogError, match="expected no prompt"):
            runner.stream(session, "three", one=True)


async def test_a_prompt_that_says_nothing_has_no_effect(tmp_path: Path) -> None:
    """It is accepted, so that it does not wait for ever."""
    async with opened(tmp_path) as (store, session):
        await post(tmp_path, Prompt(" \n"), Steer(""))
        await agent("1").run(session, "one")
        assert said(session) == ["one", "1"]
        assert await store.inbox("s").waiting() == []


@pytest.mark.parametrize("prompt", ["", "  \n", [], [""]])
async def test_the_callers_prompt_must_say_something(tmp_path: Path, prompt: Any) -> None:
    """It is refused in words, before anything is logged."""
    async with opened(tmp_path) as (_, session):
        with pytest.raises(TurnlogError, match="visible content"):
            await agent("1").run(session, prompt)
        assert len(session) == 0


async def test_a_command_posted_twice_counts_once(tmp_path: Path) -> None:
    """By its id, whether it was accepted in between or not."""
    async with opened(tmp_path) as (_, session):
        await post(tmp_path, Prompt("one", id="p1"), Prompt("one", id="p1"))
        runner = agent("1", "2")
        await runner.run(session)
        await post(tmp_path, Prompt("one", id="p1"))
        await runner.run(session, "two")
        assert said(session) == ["one", "1", "two", "2"]


async def test_steering_enters_the_running_turn_at_its_next_step(tmp_path: Path) -> None:
    """After the tools of the step during which it came; and it makes an answer not the last."""

    async def work() -> str:
        await post(tmp_path, Steer("faster", turn=1))
        return "worked"

    async def more() -> None:
        await post(tmp_path, Steer("and shorter"))

    async with opened(tmp_path) as (store, session):
        runner = agent(Call("work", id="c1"), ["so", Wait(more)], "end", tools=[work])
        await runner.run(session, "go")
        assert said(session) == ["go", "", "worked", "faster", "so", "and shorter", "end"]
        assert types(session).count("turn/start") == 1
        assert await store.inbox("s").waiting() == []
        assert_lawful(session)


async def test_stale_steering_has_no_effect(tmp_path: Path) -> None:
    """What names a turn that is over is accepted and not said."""
    async with opened(tmp_path) as (store, session):
        runner = agent("1", "2")
        await runner.run(session, "one")
        await post(tmp_path, Steer("too late", turn=1))
        await runner.run(session, "two")
        assert said(session) == ["one", "1", "two", "2"]
        assert await store.inbox("s").waiting() == []


@pytest.mark.parametrize("turn", [None, 2])
async def test_a_cancel_keeps_what_had_arrived(tmp_path: Path, turn: int | None) -> None:
    """Partial text becomes an interrupted message; the reason is in the log."""
    async with opened(tmp_path) as (store, session):
        runner = agent("1", ["half an ", "answer", Hang()], "3")
        await runner.run(session, "one")
        async with runner.stream(session, "two") as running:
            async for event in running:
                if event.type == "assistant/chunk" and b"answer" in event.raw:
                    await post(tmp_path, Cancel(turn, reason="boss"))
        assert running.result is not None
        assert running.result.text == "half an answer"
        assert end(session).kind == "aborted"
        assert end(session).reason == {"kind": "boss"}
        assert await store.inbox("s").waiting() == []
        await runner.run(session, "three")
        assert said(session) == ["one", "1", "two", "half an answer", "three", "3"]
        assert_lawful(session)


async def test_a_cancel_ends_its_turn_and_no_other(tmp_path: Path) -> None:
    """Prompts that wait, and the caller's own, still have their turns."""

    async def cancel() -> None:
        await post(tmp_path, Cancel(1))
        await anyio.sleep_forever()

    async with opened(tmp_path) as (_, session):
        await post(tmp_path, Prompt("one"), Prompt("two"))
        result = await agent(["1", Wait(cancel)], "2", "3").run(session, "three")
        assert said(session) == ["one", "1", "two", "2", "three", "3"]
        assert result.end_reason.kind == "completed"
        assert_lawful(session)


async def test_a_stopped_run_leaves_prompts_in_the_inbox(tmp_path: Path) -> None:
    """Leaving the block cancels the turn that runs; what waits goes on waiting."""
    async with opened(tmp_path) as (store, session):
        await post(tmp_path, Prompt("one"), Prompt("two"))
        async with agent(["1", Hang()]).stream(session) as turn:
            async for event in turn:
                if event.type == "assistant/chunk":
                    break
        assert said(session) == ["one", "1"]
        assert [queued.command.type for queued in await store.inbox("s").waiting()] == ["prompt"]
        assert_lawful(session)


@pytest.mark.parametrize("turn", [None, 1])
async def test_a_stale_cancel_has_no_effect(tmp_path: Path, turn: int | None) -> None:
    """One that came when no turn ran, or for one that is over."""
    async with opened(tmp_path) as (store, session):
        runner = agent("1", "2")
        await runner.run(session, "one")
        await post(tmp_path, Cancel(turn), Approve("c1"))
        assert (await runner.run(session, "two")).end_reason.kind == "completed"
        assert await store.inbox("s").waiting() == []
        assert_lawful(session)


async def test_a_model_that_cannot_be_reached_does_not_lose_or_repeat_the_prompt(
    tmp_path: Path,
) -> None:
    """The prompt is in the log before the model is loaded; it is not run for ever."""

    class Unreachable(ScriptedModel):
        @asynccontextmanager
        async def connected(self) -> AsyncGenerator[None]:
            if not self.requests:
                raise RequestRefused(Failure("no such server", "refused"))
            yield

    async with opened(tmp_path) as (store, session):
        await post(tmp_path, Prompt("one"))
        result = await ReactLoopAgent(Unreachable([])).run(session)
        assert result.end_reason.kind == "error"
        assert said(session) == ["one"]
        assert await store.inbox("s").waiting() == []
        assert_lawful(session)


def crashed(session: Session, command: dict[str, Any], *, said: bool = True) -> None:
    """Log a first turn that accepted a command, as a crash right after that leaves it."""
    session.append("turn/start", {"turn": 1})
    session.append("step/start", {"turn": 1, "step": 1})
    if said:
        session.add_user("one")
    session.append("inbox/accepted", {"command": command})


async def test_a_prompt_whose_message_a_crash_cut_off_is_run(tmp_path: Path) -> None:
    """It was accepted: repair closes its turn, and the next loop runs it once."""
    async with opened(tmp_path) as (_, session):
        await post(tmp_path, Prompt("one", id="p1"))
        crashed(session, {"type": "prompt", "text": "one", "id": "p1"}, said=False)
    async with opened(tmp_path) as (_, session):
        assert end(session).kind == "interrupted"  # repair comes before draining
        result = await agent("2").run(session)
        assert (result.turn, result.text) == (2, "2")
        assert said(session) == ["one", "2"]
        with pytest.raises(TurnlogError, match="nothing to run"):
            await agent().run(session)
        assert_lawful(session)


async def test_a_prompt_whose_message_is_there_is_not_run_again(tmp_path: Path) -> None:
    """A crash before the command left the inbox does not double the prompt."""
    async with opened(tmp_path) as (_, session):
        await post(tmp_path, Prompt("one", id="p1"))
        crashed(session, {"type": "prompt", "text": "one", "id": "p1"}, said=False)
        session.add_user("one")
    async with opened(tmp_path) as (store, session):
        assert end(session).kind == "interrupted"
        await agent("2").run(session, "two")
        assert said(session) == ["one", "two", "2"]
        assert await store.inbox("s").waiting() == []
        assert_lawful(session)


async def test_steering_whose_message_a_crash_cut_off_is_said(tmp_path: Path) -> None:
    """Its turn is over, so that it becomes a turn of its own."""
    async with opened(tmp_path) as (_, session):
        crashed(session, {"type": "steer", "text": "faster", "id": "s1", "turn": 1})
    async with opened(tmp_path) as (_, session):
        await agent("1", "2").run(session, "two")
        assert said(session) == ["one", "faster", "1", "two", "2"]
        assert_lawful(session)


async def test_stale_steering_is_not_taken_for_cut_off(tmp_path: Path) -> None:
    """What was accepted without effect has none after a restart either."""
    async with opened(tmp_path) as (_, session):
        await agent("1").run(session, "one")
        for text, turn in (("too late", 1), ("  ", None)):
            command = {"type": "steer", "text": text, "id": f"s{turn}", "turn": turn}
            session.append("inbox/accepted", {"command": command})
    async with opened(tmp_path) as (_, session):
        with pytest.raises(TurnlogError, match="nothing to run"):
            await agent().run(session)


async def test_repair_comes_before_the_inbox(tmp_path: Path) -> None:
    """An open call is closed before the prompt that waits has its turn."""
    async with opened(tmp_path) as (_, session):
        session.append("turn/start", {"turn": 1})
        session.append("step/start", {"turn": 1, "step": 1})
        session.add_user("go")
        session.add_assistant(ToolCall("c1", "work", "{}"), turn=1, step=1)
        await session.flush()
        await post(tmp_path, Prompt("next"))
        await agent("ok").run(session)
        assert results(session)[0][2] == "TOOL_OUTCOME_UNKNOWN"
        kinds = types(session)
        assert kinds.index("turn/end") < kinds.index("inbox/accepted")
        assert_lawful(session)


async def test_a_fork_has_an_inbox_of_its_own(tmp_path: Path) -> None:
    """An id that the parent accepted may be posted to the child."""
    async with opened(tmp_path) as (store, session):
        await post(tmp_path, Prompt("one", id="p1"))
        await agent("1").run(session)
        child = await store.fork("s")
        await store.inbox(child).post(Prompt("two", id="p1"))
        async with store.session(child) as forked:
            await agent("2").run(forked)
            assert said(forked) == ["one", "1", "two", "2"]
            assert_lawful(forked)
