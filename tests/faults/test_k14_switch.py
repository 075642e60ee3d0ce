"""Another model or provider in mid-session."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import anyio
import pytest

from tests.faults.compacting import GOOD, WORDS
from tests.faults.scenes import assert_lawful, sent, until
from turnlog import ReactLoopAgent, Reasoning, Session, Text, ToolCall, open_store
from turnlog.dialects import ENCODERS
from turnlog.testing import Call, ScriptedModel, Think
from turnlog.testing.providers import check_anthropic, check_openai, require_valid


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


@pytest.mark.parametrize("encoder", ENCODERS)
async def test_a_compaction_after_a_switch_asks_in_the_new_providers_form(encoder: str) -> None:
    """Ids that it would refuse, and that are alike once mended: the summary request is legal."""
    session = Session.create("s")
    ids = ["Write:6", "Write|6", "Write_6", "x" * 80, "x" * 81, "functions.read:0"]
    for number in range(6):
        session.add_user(f"question {number}: {WORDS}")
        calls = [ToolCall(f"{call}{number or ''}", "read", "{}") for call in ids]
        thought = Reasoning("hm", "c2ln")
        session.add_assistant([thought, Text("let me see"), *calls], provider="elsewhere")
        for call in calls:
            session.add_tool_result(call.id, WORDS)
    runner = on(encoder, GOOD, "on")
    done = await runner.compact(session)
    assert done is not None
    assert done.policy == "model"
    wire = json.loads(sent(runner)[0])
    if encoder.startswith("anthropic"):
        require_valid(check_anthropic(wire))
    else:
        require_valid(check_openai(wire, "deepseek" if "deepseek" in encoder else "openai"))
    assert (await runner.run(session, "go on")).text == "on"
    assert_lawful(session)
