"""What the agent's tests share: agents on scripts, and short ways to read a log."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import turnlog
from turnlog import Session, proof
from turnlog.agent.loop import ReactLoopAgent
from turnlog.agent.tools import Tool
from turnlog.events import ToolResult
from turnlog.invariants import verify
from turnlog.models.scripted import ScriptedModel
from turnlog.repair import is_suspended


def at_once(retry: int, failure: object) -> float:
    """Retry without waiting."""
    del retry, failure
    return 0.0


def agent(
    *answers: Any, tools: Sequence[Tool | Callable[..., Any]] = (), **options: Any
) -> ReactLoopAgent:
    """An agent whose model answers as told."""
    return ReactLoopAgent(ScriptedModel(list(answers)), tools=tools, delay=at_once, **options)


def types(session: Session, start: int = 0) -> list[str]:
    """The types of the events from `start`, runs of chunks as one."""
    found: list[str] = []
    for event in session.events[start:]:
        if event.type != "assistant/chunk" or found[-1:] != ["assistant/chunk"]:
            found.append(event.type)
    return found


def results(session: Session) -> list[tuple[str, str, str | None]]:
    """Each tool result: its call id, its text, its error code."""
    return [
        (
            event.data.message.tool_call_id or "",
            event.data.message.text,
            event.data.error.code if event.data.error else None,
        )
        for event in session.events
        if event.type == "tool/result" and isinstance(event.data, ToolResult)
    ]


def end(session: Session) -> Any:
    """The reason of the last `turn/end`."""
    return next(e.data.reason for e in reversed(session.events) if e.type == "turn/end")


def assert_lawful(session: Session) -> None:
    """No law of the log is broken, and the next request needs no mending but of calls that wait."""
    faults = [
        finding for finding in verify(session, prove=proof.finding) if finding.level == "fault"
    ]
    assert faults == []
    waits = is_suspended(session.header, session.events)
    mends = [mend for mend in session.request_messages().mends if mend.kind != "open-call"]
    assert mends == []
    assert waits or session.request_messages() == session.derive_messages()


def new(session_id: str = "s") -> Session:
    """An empty session in memory."""
    return turnlog.Session.create(session_id)
