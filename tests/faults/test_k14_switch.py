"""Another model or provider in mid-session."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anyio
import pytest

from tests.faults.scenes import assert_lawful, until
from turnlog import ReactLoopAgent, open_store
from turnlog.dialects import ENCODERS
from turnlog.testing import Call, ScriptedModel, Think


def on(encoder: str, *answers: Any, tools: Any = ()) -> ReactLoopAgent:
    """An agent on a model of the encoder's provider."""
    name = f"{encoder.partition('@')[0]}:m"
    return ReactLoopAgent(ScriptedModel(answers, name=name, encoder=encoder), tools=tools)


@pytest.mark.parametrize("encoder", ENCODERS)
async def test_a_switch_right_after_a_cancelled_call_sends_no_open_call(
    tmp_path: Path, encoder: str
) -> None:
    """Ids that the new provider would refuse, a cancelled call, private reasoning: all is taken."""

    async def slow() -> None:
        await anyio.sleep_forever()

    async with open_store(f"jsonl:{tmp_path}") as store:
        async with store.session("s") as session:
            calls = [Call("slow", id=i) for i in ("Write:6", "Write|6", "x" * 80)]
            first = on("deepseek@1", [Think("hm"), *calls], tools=[slow])
            async with first.stream(session, "go") as turn:
                await until(turn, "tool/call", 3)
        async with store.session("s") as session:
            assert (await on(encoder, ["on"]).run(session, "again")).text == "on"
            assert_lawful(session)


async def test_reading_a_session_needs_no_provider(tmp_path: Path) -> None:
    """Without its model or any key a session is read, viewed, verified and resumed on another."""
    async with open_store(f"jsonl:{tmp_path}") as store:
        async with store.session("s") as session:
            await on("anthropic@1", ["hello"]).run(session, "hi")
        session = await store.read("s")
        said = await session.transcript()
        assert [message.text for message in said] == ["hi", "hello"]
        assert said[1].source.provider == "anthropic"
        assert_lawful(session)
        async with store.session("s") as session:
            await on("openai@1", ["still here"]).run(session, "and now?")
            assert_lawful(session)
