"""The inboxes of all sessions: commands in order of posting, each id of a session's once.

The table holds what waits; the ids of all that was ever posted are in a table beside it. The
position of a command is when it was posted, in microseconds on the server's clock, or one more than
that of the one before it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from turnlog.commands import decode_command, encode_command
from turnlog.stores.port import Queued
from turnlog.stores.server.driver import Fault, Trouble
from turnlog.stores.server.schema import POSTED, key_of
from turnlog.stores.sql.heads import read_id, stored_id
from turnlog.stores.sql.kinds import kind_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from turnlog.commands import Command
    from turnlog.stores.server.dialect import Dialect
    from turnlog.stores.server.pool import Pool
    from turnlog.stores.server.reading import Reader

_TRIES = 20  # of finding a position that nobody else takes at the same moment
_THERE = "SELECT command FROM inbox WHERE session = ? AND command_key = ?"
_WAITING = "SELECT position, command FROM inbox WHERE session = ? ORDER BY position"
_ACCEPT = "DELETE FROM inbox WHERE session = ? AND "
_PENDING = """
    SELECT sessions.id FROM (
        SELECT session, min(position) AS since FROM inbox
        WHERE prompt BETWEEN 1 AND ? GROUP BY session
    ) waiting JOIN sessions ON sessions.session = waiting.session
"""
_IN_ORDER = " ORDER BY waiting.since"


class Inbox:
    """All inboxes, as one handle sees them.

    Args:
        pool: of connections that write.
        dialect: the database's.
        reader: of the same handle.
    """

    def __init__(self, pool: Pool, dialect: Dialect, reader: Reader) -> None:
        self._pool = pool
        self._dialect = dialect
        self._reader = reader
        now = dialect.now
        self._free = f"{_PENDING} WHERE holder IS NULL OR lease_until <= {now} {_IN_ORDER}"
        self._last = f"""
            SELECT {now}, coalesce((SELECT max(position) FROM inbox WHERE session = ?), 0) + 1
        """  # noqa: S608 - a constant
        self._post = """
            INSERT INTO inbox (session, position, command_key, prompt, command)
            VALUES (?, ?, ?, ?, ?)
        """

    async def post(self, session_id: str, command: Command) -> bool:
        """Queue a command; False when the session was sent its id before."""
        tried = False

        async def work() -> bool:
            nonlocal tried
            again, tried = tried, True
            for _ in range(_TRIES):
                try:
                    return await self._posted(session_id, command, again=again)
                except Fault as fault:
                    if fault.trouble is not Trouble.TAKEN:
                        raise
            raise Fault(Trouble.BUSY, "too many post to the session at the same moment")

        return await self._pool.patiently(work)

    async def _posted(self, session_id: str, command: Command, *, again: bool) -> bool:
        raw = encode_command(command)
        name = key_of(stored_id(command.id))
        async with self._pool.transaction() as db:
            key = (await self._reader.head(db, session_id)).key
            if not await db.execute(self._dialect.add(POSTED), key, name):
                if not again:
                    return False
                rows = await db.fetch(_THERE, key, name)  # was it us, and the answer was lost?
                return bool(rows) and rows[0][0] == raw
            ((now, least),) = await db.fetch(self._last, key)
            position = max(now, least)
            await db.execute(self._post, key, position, name, kind_of(command), raw)
            return True

    async def waiting(self, session_id: str) -> list[Queued]:
        """The commands that wait; those of a newer turnlog stay where they are, for it."""

        async def work() -> list[Queued]:
            async with self._pool.connection() as db:
                key = (await self._reader.head(db, session_id)).key
                rows = await db.fetch(_WAITING, key)
            queued: list[Queued] = []
            for position, raw in rows:
                try:
                    queued.append(Queued(position, decode_command(raw)))
                except ValueError:
                    continue
            return queued

        return await self._pool.patiently(work)

    async def accept(self, key: bytes, positions: Sequence[int]) -> None:
        """Take commands out; their ids stay known."""
        if not positions:
            return
        condition, values = self._dialect.among("position", "int", positions)

        async def work() -> None:
            async with self._pool.connection() as db:
                await db.execute(_ACCEPT + condition, key, *values)

        await self._pool.patiently(work)

    async def pending(self, most: int, *, only_free: bool) -> list[str]:
        """Sessions whose inbox holds a prompt, the longest waiting first.

        Args:
            most: see `kinds`.
            only_free: without those that have an owner whose lease has not run out.
        """
        query = self._free if only_free else _PENDING + _IN_ORDER

        async def work() -> list[str]:
            async with self._pool.connection() as db:
                return [read_id(row[0]) for row in await db.fetch(query, most)]

        return await self._pool.patiently(work)
