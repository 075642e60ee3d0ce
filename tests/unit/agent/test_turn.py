"""A running turn as its caller holds it: stopping it, its events, errors of the body."""

from __future__ import annotations

from pathlib import Path

import anyio
import pytest

from tests.unit.agent.scenes import agent, assert_lawful, end, new, types
from turnlog.agent import ApprovalRequest, Tool
from turnlog.commands import Approve
from turnlog.models.scripted import Call, Hang
from turnlog.stores import open_store

pytestmark = pytest.mark.parametrize("anyio_backend", ["asyncio", "trio"])


async def test_an_error_of_the_body_comes_out_as_it_is() -> None:
    """What the body of the block raises is not wrapped; the turn is cancelled and kept."""
    session = new()

    async def fail() -> None:
        async with agent(["some text", Hang()]).stream(session, "hi") as turn:
            async for event in turn:
                if event.type == "assistant/chunk":
                    raise BrokenPipeError

    with pytest.raises(BrokenPipeError):
        await fail()
    assert end(session).reason == {"kind": "left"}
    assert session.derive_messages()[-1].text == "some text"


async def test_cancel_leaves_the_last_events_to_whoever_iterates() -> None:
    """A task that iterates sees `turn/end` though another one cancelled and waited."""
    session = new()
    seen: list[str] = []
    came = anyio.Event()
    async with agent(["some text", Hang()]).stream(session, "hi") as turn:

        async def cancel() -> None:
            await came.wait()
            result = await turn.cancel()
            assert result is not None
            assert result.end_reason.kind == "aborted"

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(cancel)
            async for event in turn:
                seen.append(event.type)
                if event.type == "assistant/chunk":
                    came.set()
    assert seen == [event.type for event in session.events]
    assert seen[-1] == "turn/end"


async def test_stop_names_its_cause() -> None:
    """`stop` returns at once; the turn closes with the cause that it was given."""
    session = new()
    async with agent(["some text", Hang()]).stream(session, "hi") as turn:
        async for event in turn:
            if event.type == "assistant/chunk":
                turn.stop("signal")
    assert end(session).reason == {"kind": "signal"}
    assert_lawful(session)


async def test_a_decision_from_elsewhere_ends_the_question(tmp_path: Path) -> None:
    """While an approver is still thinking, the inbox may decide, and the question is withdrawn."""
    withdrawn: list[str] = []
    ran: list[str] = []

    async with (
        open_store(f"jsonl:{tmp_path}") as store,
        store.session("s") as session,
    ):

        async def ask(request: ApprovalRequest) -> bool:
            await store.inbox("s").post(Approve(request.call_id))
            try:
                await anyio.sleep_forever()
            finally:
                withdrawn.append(request.call_id)
            return False

        wipe = Tool(lambda: ran.append("wiped"), name="wipe", approve="ask")
        runner = agent([Call("wipe", id="c1")], "done", tools=[wipe], approve=ask)
        result = await runner.run(session, "go")
    assert (result.end_reason.kind, result.text) == ("completed", "done")
    assert (withdrawn, ran) == (["c1"], ["wiped"])
    assert types(session).count("approval/decided") == 1
    assert_lawful(session)
