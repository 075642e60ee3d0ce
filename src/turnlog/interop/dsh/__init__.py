"""Reading sessions of DeepSeek Harness, format versions 0 to 4, plain or zstd.

`open_dsh` reads one session, `discover` finds all of a folder or home; `upcast` reads an event's
data in the shapes of this project. v0, v3 and v4 are tested against files the program wrote; v1 and
v2 are read by the rules of v0 and v3, which no real file has confirmed. Nothing in a file is
executed, fetched, or used as a path.
"""

from __future__ import annotations

from pathlib import Path

from turnlog.errors import ImportFailed
from turnlog.interop.dsh.frames import LIMITS, Limits, Span
from turnlog.interop.dsh.home import Found, discover
from turnlog.interop.dsh.records import Damage
from turnlog.interop.dsh.rows import SourceEvent
from turnlog.interop.dsh.source import DshSource
from turnlog.upcasts.dsh import upcast, upcast_type

__all__ = [
    "Damage",
    "DshSource",
    "Found",
    "Limits",
    "SourceEvent",
    "Span",
    "discover",
    "open_dsh",
    "upcast",
    "upcast_type",
]


def open_dsh(path: str | Path, limits: Limits = LIMITS) -> DshSource:
    """The one session at `path`: a session file, or a folder that holds one session.

    Raises:
        ImportFailed: unreadable, no session, a version other than 0 to 4, or more than one session.
    """
    path = Path(path)
    found = list(discover(path, limits))
    if len(found) != 1:
        raise ImportFailed(f"{path}: expected one DeepSeek Harness session, found {len(found)}")
    session, error = found[0].session, found[0].error
    if session is None:
        raise error or ImportFailed(f"{path}: no session")
    return session
