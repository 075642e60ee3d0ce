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
    from turnlog import sync as sync
    from turnlog.agent import ReactLoopAgent as ReactLoopAgent
    from turnlog.agent import Tool as Tool
    from turnlog.agent import ToolAborted as ToolAborted
    from turnlog.agent import TurnResult as TurnResult
    from turnlog.agent import ask_on_terminal as ask_on_terminal
    from turnlog.agent import tool as tool
    from turnlog.compaction.engine import BasicCompactionEngine as BasicCompactionEngine
    from turnlog.models import open_model as open_model
    from turnlog.stores import open_store as open_store
    from turnlog.stores.port import SessionInfo as SessionInfo

__version__ = "0.1.0"

#: Names that are loaded when they are first used, and from where.
_LAZY = {
    "BasicCompactionEngine": "turnlog.compaction.engine",
    "ReactLoopAgent": "turnlog.agent",
    "SessionInfo": "turnlog.stores.port",
    "Tool": "turnlog.agent",
    "ToolAborted": "turnlog.agent",
    "TurnResult": "turnlog.agent",
    "ask_on_terminal": "turnlog.agent",
    "open_model": "turnlog.models",
    "open_store": "turnlog.stores",
    "sync": "turnlog.sync",
    "tool": "turnlog.agent",
}

__all__ = [
    "AdmissionError",
    "Approve",
    "BasicCompactionEngine",
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
    "ReactLoopAgent",
    "Reasoning",
    "Record",
    "Session",
    "SessionHeader",
    "SessionInfo",
    "Source",
    "Steer",
    "SurfaceProjector",
    "Text",
    "Tool",
    "ToolAborted",
    "ToolCall",
    "TurnResult",
    "TurnlogError",
    "Usage",
    "ask_on_terminal",
    "assistant_message",
    "open_model",
    "open_store",
    "register_event_type",
    "sync",
    "tool",
    "tool_message",
    "user_message",
]


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        msg = f"module 'turnlog' has no attribute {name!r}"
        raise AttributeError(msg)
    module = import_module(_LAZY[name])
    value = globals()[name] = (
        module if module.__name__ == f"turnlog.{name}" else getattr(module, name)
    )
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
