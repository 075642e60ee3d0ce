"""The check that runs after every test with an agent notices what it is for."""

from __future__ import annotations

from tests.prefixes import broken_prefixes
from tests.unit.agent.scenes import agent, new
from turnlog.content import ToolCall
from turnlog.events import Header, ModelConfig, RequestHeader, RequestSent
from turnlog.models.scripted import Call


def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


async def test_a_session_of_ours_extends_its_prefix() -> None:
    """Tools, turns and required steps leave every request an extension of the last one alike."""
    session = new()
    runner = agent([Call("add", {"a": 1, "b": 2})], "3", "4", tools=[add], system="sys")
    await runner.run(session, "add", tool_choice="required")
    await runner.run(session, "more")
    assert len(session.requests()) == 3
    assert broken_prefixes(session) == []


def test_a_request_that_says_something_else_is_noticed() -> None:
    """A request that went out while a call was open is not what the next one begins with."""
    session = new()
    config = ModelConfig("scripted", "m")
    session.append("request/header", RequestHeader(Header(config), "initial"))
    session.add_user("go")
    session.add_assistant(ToolCall("c1", "read", "{}"))
    sent = RequestSent("step", "sha256:0", "openai@1", "scripted:m")
    session.append("request/sent", sent)
    session.add_tool_result("c1", "done")
    session.append("request/sent", sent)
    assert broken_prefixes(session) == ["request 2 does not extend request 1"]
