"""turnlog: event-sourced sessions for LLM agents.

A session is an append-only log of typed events. What the model sees, what a person reads and what a
screen draws are folds of that log.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from turnlog.commands import Approve, Cancel, Command, Compact, Deny, Prompt, Steer
from turnlog.content import (
    Image,
    Message,
    Reasoning,
    Source,
    Text,
    ToolCall,
    Usage,
    assistant_message,
    tool_message,
    user_message,
)
from turnlog.errors import AdmissionError, ForkedProcess, TurnlogError
from turnlog.events import Event, SessionHeader, register_event_type
from turnlog.records import Record
from turnlog.session import Fold, Session
from turnlog.views.projector import SurfaceProjector

if TYPE_CHECKING:
    from turnlog.stores import open_store as open_store
    from turnlog.stores.port import SessionInfo as SessionInfo

__version__ = "0.1.0"

#: Names that are loaded when they are first used, and from where.
_LAZY = {
    "SessionInfo": "turnlog.stores.port",
    "open_store": "turnlog.stores",
}

__all__ = [
    "AdmissionError",
    "Approve",
    "Cancel",
    "Command",
    "Compact",
    "Deny",
    "Event",
    "Fold",
    "ForkedProcess",
    "Image",
    "Message",
    "Prompt",
    "Reasoning",
    "Record",
    "Session",
    "SessionHeader",
    "SessionInfo",
    "Source",
    "Steer",
    "SurfaceProjector",
    "Text",
    "ToolCall",
    "TurnlogError",
    "Usage",
    "assistant_message",
    "open_store",
    "register_event_type",
    "tool_message",
    "user_message",
]


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        msg = f"module 'turnlog' has no attribute {name!r}"
        raise AttributeError(msg)
    value = globals()[name] = getattr(import_module(_LAZY[name]), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
