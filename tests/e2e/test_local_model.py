"""The main job on a real model that runs in this process: no key, no network."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Literal

import pytest

from tests.e2e.local import require_local_model
from tests.unit.agent.scenes import assert_lawful, results, types
from turnlog import ReactLoopAgent, Session, open_store
from turnlog.models import Model, open_model

SMALL, LARGE = 768, 2048  # tokens: one server each


@pytest.fixture(scope="module")
def model() -> Model:
    """The model with a small window."""
    require_local_model()
    return open_model("local:smollm2", context_window=SMALL)


def runner(model: Model, **options: Any) -> ReactLoopAgent:
    """An agent that answers briefly and always the same."""
    options = {"max_output_tokens": 32, "temperature": 0.0, **options}
    return ReactLoopAgent(model, system="Answer in one short sentence.", **options)


async def test_an_answer_streams_into_the_log(model: Model, tmp_path: Path) -> None:
    """Piece by piece; the message is what the pieces were, and the request is proved."""
    async with open_store(f"jsonl:{tmp_path}") as store, store.session("s") as session:
        async with runner(model).stream(session, "Say hello.") as turn:
            chunks = [event.data.chunk async for event in turn if event.type == "assistant/chunk"]
        pieces = [chunk.text for chunk in chunks if chunk.type == "text-delta"]
        assert len(pieces) > 2
        assert turn.result is not None
        assert turn.result.text == "".join(pieces)
        assert turn.result.end_reason.kind in ("completed", "max-tokens")
        assert turn.result.usage.output_tokens
        assert_lawful(session)


async def test_the_second_request_reads_the_cache(model: Model, tmp_path: Path) -> None:
    """It begins with the bytes of the first, which the server need not read again."""
    async with open_store(f"jsonl:{tmp_path}") as store, store.session("s") as session:
        made = runner(model)
        await made.run(session, "Name a colour.")
        second = await made.run(session, "And another one.")
        assert second.usage.cache_read_tokens
        assert second.usage.cache_read_tokens > 10


async def test_a_forced_step_calls_a_tool_that_it_never_saw(model: Model) -> None:
    """Either of two new tools: its schema takes the arguments, its body runs, an answer follows."""
    ran: list[tuple[str, dict[str, Any]]] = []

    def paint_fence(colour: Literal["red", "green", "blue"], metres: int) -> str:
        """Paint a fence."""
        ran.append(("paint_fence", {"colour": colour, "metres": metres}))
        return f"{metres} metres are {colour} now"

    def brew_tea(kind: str, minutes: int = 3) -> str:
        """Brew a pot of tea."""
        ran.append(("brew_tea", {"kind": kind, "minutes": minutes}))
        return f"the {kind} tea is ready after {minutes} minutes"

    session = Session.create("s")
    made = runner(model, tools=[paint_fence, brew_tea], max_output_tokens=64)
    for prompt in ("Please paint 5 metres of the fence green.", "Brew some mint tea."):
        result = await made.run(session, prompt, tool_choice="required")
        assert result.error is None
    calls = [event.data for event in session.events if event.type == "tool/call"]
    assert [call.name for call in calls] == [name for name, _ in ran]
    assert len(ran) == 2
    for call, (name, given) in zip(calls, ran, strict=True):
        assert made.tools[name].read(call.arguments) == given
        assert set(json.loads(call.arguments)) == set(given)
    assert [code for _, _, code in results(session)] == [None, None]
    assert_lawful(session)


async def test_a_real_overflow_ends_the_turn_and_the_session_goes_on(
    model: Model, tmp_path: Path
) -> None:
    """The server answers 400; the failure says of what there was too much; no retry, no loss."""
    async with open_store(f"jsonl:{tmp_path}") as store, store.session("s") as session:
        result = await runner(model).run(session, "word " * (SMALL + 200))
        assert result.end_reason.kind == "error"
        assert result.error is not None
        assert (result.error.code, result.error.status) == ("overflow-tokens", 400)
        assert "llm/retry" not in types(session)
        large = open_model("local:smollm2", context_window=LARGE)
        result = await runner(large).run(session, "Say hello.")
        assert result.end_reason.kind in ("completed", "max-tokens")
        assert result.usage.output_tokens
        assert_lawful(session)
