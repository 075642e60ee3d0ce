"""Where system text lives: in the header of our own logs, on the surface of imported ones."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.unit.agent.scenes import agent, assert_lawful, new, types
from turnlog import Session
from turnlog.agent import ReactLoopAgent
from turnlog.content import Message, Source, Text
from turnlog.events import SessionHeader, SystemMessage
from turnlog.models.scripted import Call


def imported(text: str = "old rules") -> Session:
    """A log whose surface holds system text, as imports have it, ended as a seed."""
    source = new("source")
    message = Message("m1", "system", (Text(text),), Source("system-prompt"))
    source.append("system/message", SystemMessage(message), surface_op="append")
    source.add_user("hello")
    source.add_assistant("hi")
    header = SessionHeader("imported", 1, seed_length=source.next_seq)
    session = Session.from_events(header, list(source.events))
    session.end_seed("interrupted")
    return session


def system(runner: ReactLoopAgent, number: int = -1) -> list[str]:
    """The system texts of a request."""
    model: Any = runner.model
    messages = json.loads(model.requests[number])["messages"]
    return [m["content"] for m in messages if m["role"] == "system"]


def headers(session: Session) -> list[str | None]:
    """The system text of each native header."""
    return [e.data.header.system for e in session.events if e.type == "request/header"]


async def test_our_own_system_text_lives_in_the_header() -> None:
    """There is no node for it."""
    session = new()
    runner = agent("hi", system="be brief")
    await runner.run(session, "hello")
    assert headers(session) == ["be brief"]
    assert system(runner) == ["be brief"]
    assert "system/message" not in types(session)


async def test_the_node_of_an_import_is_replaced_and_headers_carry_none() -> None:
    """When the agent's text differs; once, so that later requests extend the same prefix."""
    session = imported()
    runner = agent("one", "two", system="new rules")
    await runner.run(session, "first")
    await runner.run(session, "second")
    assert system(runner, 0) == system(runner, 1) == ["new rules"]
    assert headers(session) == [None]
    assert session.surface.replace_generation == 1
    assert session.event_at(0).message == session.derive_messages(at=0)[0]
    assert_lawful(session)


@pytest.mark.parametrize("text", ["old rules", None])
async def test_the_node_stays_when_the_agent_has_nothing_else_to_say(text: str | None) -> None:
    """The same text, or none, changes nothing."""
    session = imported()
    runner = agent("one", system=text)
    await runner.run(session, "first")
    assert system(runner) == ["old rules"]
    assert headers(session) == [None]
    assert session.surface.replace_generation == 0
    assert_lawful(session)


async def test_an_import_without_system_text_gets_it_in_the_header() -> None:
    """As a session of our own does."""
    source = new("source")
    source.add_user("hello")
    header = SessionHeader("imported", 1, seed_length=source.next_seq)
    session = Session.from_events(header, list(source.events))
    runner = agent("one", system="new rules")
    await runner.run(session, "first")
    assert headers(session) == ["new rules"]
    assert types(session)[1] == "session/end-seed"
    assert_lawful(session)


async def test_a_forced_step_has_its_instruction_in_the_node() -> None:
    """For that step only: there is one place for system text, and the agent's comes back."""

    def look() -> str:
        return "seen"

    session = imported()
    runner = agent('{"tool": "look", "arguments": {}}', "done", tools=[look], system="new rules")
    model: Any = runner.model
    model.native_tools = False
    await runner.run(session, "first", tool_choice="required")
    assert system(runner, 0)[0].startswith("You call tools.")
    assert system(runner, 1) == ["new rules"]
    assert headers(session) == [None, None]
    assert_lawful(session)


async def test_tools_and_system_of_two_turns_with_another_agent_are_headers() -> None:
    """Whatever an agent brings is in the log before it is sent."""

    def look() -> str:
        return "seen"

    session = new()
    await agent(Call("look"), "one", tools=[look], system="a").run(session, "1")
    await agent("two", system="b").run(session, "2")
    found = [e.data for e in session.events if e.type == "request/header"]
    assert [(h.reason, h.header.system, len(h.header.tools or ())) for h in found] == [
        ("initial", "a", 1),
        ("change", "b", 0),
    ]
    assert_lawful(session)
