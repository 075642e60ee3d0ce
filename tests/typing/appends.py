"""How `Session.append` is typed. Never run: test_typing.py has pyright read it.

A line that ends in an ignore must be an error of just these rules, every other line none.
"""

# pyright: strict, reportUnnecessaryTypeIgnoreComment=true

from __future__ import annotations

from typing import Any, assert_type

from turnlog import (
    Event,
    Message,
    Record,
    Session,
    ToolCall,
    assistant_message,
    register_event_type,
    tool_message,
    user_message,
)
from turnlog import events as ev
from turnlog.events import Replace
from turnlog.views.sequence import MessageList


class Deployed(Record, frozen=True):
    """An application's payload."""

    version: str


def messages_say_how_they_enter(session: Session) -> None:
    """A message type needs `surface_op`; the event that comes back knows its payload."""
    hi = user_message("hi")
    event = session.append("user/message", hi, surface_op="append")
    assert_type(event, Event[Message])
    assert_type(event.data, Message)
    session.append("user/message", hi)  # pyright: ignore[reportArgumentType, reportCallIssue]
    session.append("context/message", hi)  # pyright: ignore[reportArgumentType, reportCallIssue]
    session.append("user/message", hi, surface_op=None)  # pyright: ignore[reportArgumentType, reportCallIssue]
    session.append("user/message", hi, surface_op="prepend")  # pyright: ignore[reportArgumentType, reportCallIssue]
    session.append("user/message", hi, surface_op=Replace(0, 1), source_event_seqs=[0, 1])
    session.append("user/message", hi, surface_op={"op": "replace", "start": 0, "end": 1})
    session.append("user/message", {"id": "m"}, surface_op="append")


def messages_have_their_payload(session: Session) -> None:
    """Each message type takes its own struct, or a dict."""
    answer = ev.AssistantMessage(assistant_message("hi"))
    event = session.append("assistant/message", answer, surface_op="append", source_event_seqs=())
    assert_type(event.data, ev.AssistantMessage)
    hi = user_message("hi")
    session.append("assistant/message", hi, surface_op="append")  # pyright: ignore[reportArgumentType, reportCallIssue]
    result = session.append(
        "tool/result", ev.ToolResult(tool_message("c", "x")), surface_op="append"
    )
    assert_type(result.data, ev.ToolResult)
    session.append("tool/result", answer, surface_op="append")  # pyright: ignore[reportArgumentType, reportCallIssue]
    session.append("user/message", answer, surface_op="append")  # pyright: ignore[reportArgumentType, reportCallIssue]


def records_stay_off_the_surface(session: Session) -> None:
    """A log-only type takes neither `surface_op` nor `source_event_seqs`."""
    session.append("turn/start", ev.TurnStart(1))
    session.append("turn/start", {"turn": 1})
    session.append("turn/start", ev.TurnStart(1), surface_op="append")  # pyright: ignore[reportArgumentType, reportCallIssue]
    session.append("turn/start", ev.TurnStart(1), source_event_seqs=[0])  # pyright: ignore[reportCallIssue]


def applications_have_their_own(session: Session) -> None:
    """A registered type takes what it was registered with, off the surface."""
    deployed = register_event_type("acme/deployed", Deployed)
    event = session.append(deployed, Deployed("1"))
    assert_type(event, Event[Any])
    session.append(deployed, {"version": "1"})
    session.append(deployed, Deployed("1"), surface_op="append")  # pyright: ignore[reportArgumentType, reportCallIssue]
    session.append("acme/deployed", Deployed("1"))  # pyright: ignore[reportArgumentType, reportCallIssue]


def everyday_forms(session: Session) -> None:
    """The everyday forms need no more than what is said."""
    assert_type(session.add_user("hi"), Event[Message])
    assert_type(session.add_assistant([ToolCall("c", "f", "{}")]), Event[ev.AssistantMessage])
    assert_type(session.add_tool_result("c", "x"), Event[ev.ToolResult])
    session.add_user(7)  # pyright: ignore[reportArgumentType]
    assert_type(session.derive_messages(), MessageList)
    assert_type(session.derive_messages()[0], Message)
    session.derive_messages()[0] = user_message("x")  # pyright: ignore[reportIndexIssue]
    session.events.append(session.events[0])  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType]
    session.events[0].seq = 7  # pyright: ignore[reportAttributeAccessIssue]
