"""Who owns a session, in words: the refusals of those who do not."""

from __future__ import annotations

from datetime import UTC, datetime

from turnlog.errors import SessionInUse, StaleWriter
from turnlog.stores.port import Owner


def describe(owner: Owner | None) -> str:
    """The owner in words, with the time since when."""
    if owner is None:
        return "another process"
    since = datetime.fromtimestamp(owner.since / 1000, UTC)
    return f"{owner} since {since:%Y-%m-%d %H:%M:%S} UTC"


def in_use(session_id: str, owner: Owner | None) -> SessionInUse:
    """The refusal that names who owns the session."""
    return SessionInUse(f"session {session_id!r} is in use by {describe(owner)}", owner=owner)


def taken_over(session_id: str, owner: Owner | None) -> StaleWriter:
    """The refusal that names who owns now what was once the caller's."""
    by = "another writer" if owner is None else describe(owner)
    return StaleWriter(f"session {session_id!r} was taken over by {by}", owner=owner)
