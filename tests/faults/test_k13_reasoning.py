"""Reasoning that a provider wants back exactly as it was."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.faults.scenes import agent, assert_accepted, assert_lawful, bodies, sent
from turnlog import ReactLoopAgent, Reasoning, Session, Text, ToolCall, open_store
from turnlog.dialects import ENCODERS
from turnlog.testing import Call, ScriptedModel, Think

THINKING = [
    Reasoning("first thought", "c2lnMQ=="),
    Text("Let me see."),
    ToolCall("a", "read", '{"path": "x"}'),
    Reasoning("second thought", "c2lnMg=="),
    ToolCall("b", "read", '{"path": "y"}'),
]


def anthropic(session: Session) -> list[Any]:
    """The content blocks of the first answer as Anthropic gets them."""
    body = json.loads(bodies(session)[ENCODERS.index("anthropic@1")])
    return next(m["content"] for m in body["messages"] if m["role"] == "assistant")


async def test_signed_thoughts_are_replayed_as_they_were_after_reopening(tmp_path: Path) -> None:
    """Thought, text, call, thought, call: the same blocks in the same order, live and from disk."""
    async with open_store(f"jsonl:{tmp_path}") as store:
        async with store.session("s") as session:
            session.add_user("go")
            session.add_assistant(THINKING, provider="anthropic")
            session.add_tool_result("a", "one")
            session.add_tool_result("b", "two")
            live, shown = bodies(session), anthropic(session)
        async with store.session("s") as session:
            assert bodies(session) == live
            assert session.derive_messages()[1].content == tuple(THINKING)
    kinds = ["thinking", "text", "tool_use", "thinking", "tool_use"]
    assert [block["type"] for block in shown] == kinds
    assert shown[0] == {"type": "thinking", "thinking": "first thought", "signature": "c2lnMQ=="}
    assert shown[3] == {"type": "thinking", "thinking": "second thought", "signature": "c2lnMg=="}


def test_a_note_and_a_cancelled_call_between_thoughts_leave_them_alone() -> None:
    """Whatever comes between an answer and its results, the answer's blocks are not touched."""
    session = Session.create("s")
    session.add_user("go")
    session.add_assistant(THINKING, provider="anthropic")
    before = anthropic(session)
    session.add_context("a note", source="shell")
    session.add_tool_result("a", "one")
    session.repair()  # the other call was cancelled
    session.add_assistant([Reasoning("third", "c2lnMw=="), Text("ok")], provider="anthropic")
    session.add_user("on")
    assert anthropic(session) == before
    assert_accepted(session)


async def test_a_reasoning_model_takes_the_second_prompt() -> None:
    """Reasoning, call, result, answer, prompt: every dialect has a place for each or leaves it."""

    def look() -> str:
        return "seen"

    session = Session.create("s")
    script = [[Think("hm"), Call("look", id="c1")], [Think("so"), "one"], [Think("and"), "two"]]
    runner = agent(*script, tools=[look])
    await runner.run(session, "first")
    assert (await runner.run(session, "second")).text == "two"
    assert_lawful(session)


async def test_a_resumed_thinking_session_gives_its_reasoning_back(tmp_path: Path) -> None:
    """A provider that wants reasoning back with a call gets it from a resumed session too."""

    def look() -> str:
        return "seen"

    def thinker(*answers: Any) -> ReactLoopAgent:
        model = ScriptedModel(answers, name="deepseek:reasoner", encoder="deepseek@1")
        return ReactLoopAgent(model, tools=[look])

    async with open_store(f"jsonl:{tmp_path}") as store:
        async with store.session("s") as session:
            first = thinker([Think("a long thought"), Call("look", id="c1")], ["seen it"])
            await first.run(session, "go")
        async with store.session("s") as session:
            second = thinker(["on"])
            await second.run(session, "and?")
            assert_lawful(session)
    for body in (sent(first)[1], sent(second)[0]):
        answer = json.loads(body)["messages"][1]
        assert answer["reasoning_content"] == "a long thought"
