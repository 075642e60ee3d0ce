"""The inboxes of all sessions: commands in order of posting, each id of a session's once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from turnlog.commands import decode_command, encode_command
from turnlog.stores.port import Queued
from turnlog.stores.sql.heads import read_id, stored_id
from turnlog.stores.sql.kinds import kind_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from turnlog.commands import Command
    from turnlog.stores.sqlite.driver import Connection
    from turnlog.stores.sqlite.ownership import Handles

_POST = """
    INSERT INTO inbox (session, id, prompt, command) VALUES (?, ?, ?, ?)
    ON CONFLICT (session, id) DO NOTHING
"""
_WAITING = """
    SELECT position, command FROM inbox WHERE session = ? AND command IS NOT NULL ORDER BY position
"""
_ACCEPT = "UPDATE inbox SET command = NULL WHERE session = ? AND position = ?"
_PENDING = """
    SELECT sessions.id, sessions.owner FROM inbox JOIN sessions ON sessions.no = inbox.session
    WHERE command IS NOT NULL AND prompt BETWEEN 1 AND ? GROUP BY session ORDER BY min(position)
"""


def post(db: Connection, no: int, command: Command) -> bool:
    """Queue a command; False when the session was sent its id before."""
    values = (no, stored_id(command.id), kind_of(command), encode_command(command))
    db.execute(_POST, values)
    return bool(db.changes())


def waiting(db: Connection, no: int) -> list[Queued]:
    """The commands that wait; those of a newer turnlog stay where they are, for it."""
    queued: list[Queued] = []
    for position, raw in db.execute(_WAITING, (no,)).fetchall():
        try:
            queued.append(Queued(position, decode_command(raw)))
        except ValueError:
            continue
    return queued


def accept(db: Connection, no: int, positions: Sequence[int]) -> None:
    """Take commands out; their ids stay known."""
    db.executemany(_ACCEPT, ((no, position) for position in positions))


def pending(db: Connection, most: int, handles: Handles | None) -> list[str]:
    """The sessions whose inbox holds a prompt, the longest waiting first.

    Args:
        db: for reading.
        most: see `kinds`.
        handles: if given, sessions are left out that one of them has.
    """
    rows = db.execute(_PENDING, (most,)).fetchall()
    if handles is not None:
        held = handles.living(owner for _, owner in rows)
        rows = [row for row in rows if row[1] not in held]
    return [read_id(raw) for raw, _ in rows]
