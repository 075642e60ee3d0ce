"""What the loop reads off the end of a log, and off the surface."""

from __future__ import annotations

from collections.abc import Sequence

from turnlog.content import Message, ToolCall
from turnlog.events import AssistantMessage, ToolResult
from turnlog.session import Session

LATE = "late-result"
CUT_OFF = "cut-off"


def open_calls(session: Session) -> list[ToolCall]:
    """The calls of the open step's answer that have no result yet, in order."""
    answered: list[str] = []
    for event in reversed(session.events):
        if event.type in ("turn/start", "step/start", "step/end"):
            return []
        if event.type == "tool/result" and isinstance(event.data, ToolResult):
            answered.append(event.data.message.tool_call_id or "")
        elif event.type == "assistant/message" and isinstance(event.data, AssistantMessage):
            return [call for call in event.data.message.tool_calls if call.id not in answered]
    return []


def is_answered(session: Session) -> bool:
    """Whether what the model sees ends with a whole answer that calls no tool."""
    seqs = session.surface.seqs
    data = session.event_at(seqs[-1]).data if seqs else None
    if not isinstance(data, AssistantMessage):
        return False
    return not data.interrupted and not data.message.tool_calls


def system_node(session: Session) -> tuple[int, Message] | None:
    """The surface's first `system/message` and its seq; imported logs keep system text there."""
    for seq in session.surface.seqs:
        event = session.event_at(seq)
        if event.type == "system/message" and event.message is not None:
            return seq, event.message
        if event.type in ("assistant/message", "tool/result"):
            return None
    return None


def seqs_range(seqs: Sequence[int]) -> Sequence[int]:
    """Seqs as a range when nothing came between."""
    if seqs and seqs[-1] - seqs[0] == len(seqs) - 1:
        return range(seqs[0], seqs[-1] + 1)
    return seqs
