"""Results that come when nobody waits for them any more."""

from __future__ import annotations

import logging
import threading
from pathlib import Path
from typing import Any

import anyio
import pytest

from tests.unit.agent.scenes import agent, assert_lawful, new, results, types
from turnlog import Session, open_store
from turnlog.agent import ToolAborted, Turn
from turnlog.models.scripted import Call


class Stubborn:
    """A tool that returns, or raises, only when it is let go, whatever happens meanwhile."""

    def __init__(self, error: Exception | None = None) -> None:
        self.began, self._go, self.gone = (threading.Event() for _ in range(3))
        self._error = error

    def work(self) -> str:
        """Take one's time."""
        self.began.set()
        self._go.wait()
        if self._error is not None:
            raise self._error
        return "the truth"

    async def cancelled(self, turn: Turn) -> None:
        """Follow the turn until the body runs, and cancel it then."""
        async for event in turn:
            if event.type == "tool/call":
                await anyio.to_thread.run_sync(self.began.wait)
                await turn.cancel()

    async def let_go(self, session: Session) -> None:
        """Let the body return, and wait until the log has it."""
        came = threading.Event()
        stop = session.observe(lambda event: came.set() if event.type in _LATE else None)
        self._go.set()
        await anyio.to_thread.run_sync(came.wait)
        stop()

    def go(self) -> None:
        """Let the body return."""
        self._go.set()


_LATE = ("tool/late-result", "tool/settled")


@pytest.mark.parametrize(
    ("error", "text", "code"),
    [
        (None, "the truth", None),
        (OSError("disk full"), "OSError: disk full", "TOOL_FAILED"),
        (ToolAborted("nothing was written"), "nothing was written", "TOOL_ABORTED"),
    ],
)
async def test_a_late_result_is_context_of_the_next_step(
    error: Exception | None, text: str, code: str | None
) -> None:
    """The placeholder stays; what the body brought, good or bad, enters once, with its source."""
    session = new()
    stubborn = Stubborn(error)
    runner = agent(Call("work", id="c1"), "I see", "yes", tools=[stubborn.work])
    async with runner.stream(session, "go") as turn:
        await stubborn.cancelled(turn)
    await stubborn.let_go(session)
    late = session.events[-1]
    assert (late.type, late.data.error and late.data.error.code) == ("tool/late-result", code)
    await runner.run(session, "and?")
    await runner.run(session, "sure?")
    contexts = [event for event in session.events if event.type == "context/message"]
    assert len(contexts) == 1
    assert contexts[0].source_event_seqs == (late.seq,)
    assert text in contexts[0].data.text
    assert results(session)[0][2] == "TOOL_OUTCOME_UNKNOWN"
    assert_lawful(session)


async def test_a_late_result_survives_a_restart(tmp_path: Path) -> None:
    """Logged before the store was closed, it enters when the session runs again."""
    url = f"jsonl:{tmp_path}"
    stubborn = Stubborn()
    async with open_store(url) as store, store.session("s") as session:
        runner = agent(Call("work", id="c1"), tools=[stubborn.work])
        async with runner.stream(session, "go") as turn:
            await stubborn.cancelled(turn)
        await stubborn.let_go(session)
    async with open_store(url) as store, store.session("s") as session:
        runner = agent("I see")
        await runner.run(session, "and?")
        model: Any = runner.model
        assert b"the truth" in model.requests[0]
        assert_lawful(session)


async def test_a_late_result_after_the_session_was_closed_is_reported(tmp_path: Path) -> None:
    """There is nobody left to tell but the program's own log."""
    stubborn = Stubborn()
    reported, said = threading.Event(), list[str]()

    class Handler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            said.append(record.getMessage())
            reported.set()

    handler = Handler()
    logging.getLogger("turnlog").addHandler(handler)
    try:
        async with open_store(f"jsonl:{tmp_path}") as store, store.session("s") as session:
            runner = agent(Call("work", id="c1"), tools=[stubborn.work])
            async with runner.stream(session, "go") as turn:
                await stubborn.cancelled(turn)
        stubborn.go()
        await anyio.to_thread.run_sync(reported.wait)
    finally:
        logging.getLogger("turnlog").removeHandler(handler)
    assert "'c1' came after the session was closed" in said[0]
    assert types(session)[-1] == "turn/end"


async def test_a_result_that_comes_while_the_turn_is_being_closed_is_no_late_one() -> None:
    """Before its call has a result it is settled, and the closers enter it: nothing is lost."""
    session = new()
    stubborn = Stubborn()

    async def slow_to_die() -> None:
        try:
            await anyio.sleep_forever()
        finally:
            with anyio.CancelScope(shield=True):
                await stubborn.let_go(session)

    calls = [Call("work", id="c1"), Call("slow_to_die", id="c2")]
    runner = agent(calls, "I see", tools=[stubborn.work, slow_to_die])
    async with runner.stream(session, "go") as turn:
        seen = 0
        async for event in turn:
            seen += event.type == "tool/call"
            if seen == 2:
                await anyio.to_thread.run_sync(stubborn.began.wait)
                await turn.cancel()
    assert results(session)[0] == ("c1", "the truth", None)
    assert results(session)[1][2] == "TOOL_OUTCOME_UNKNOWN"
    assert "tool/late-result" not in types(session)
    assert_lawful(session)
