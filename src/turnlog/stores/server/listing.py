"""The listing of a server: its statements; what they mean is in `sql.listing`."""

# ruff: noqa: S608 - queries of constants
from __future__ import annotations

from typing import TYPE_CHECKING, Any

from turnlog.errors import TurnlogError
from turnlog.stores.info import InfoFold
from turnlog.stores.server.driver import Fault
from turnlog.stores.server.schema import key_of
from turnlog.stores.sql.heads import read_id, stored_id, unknown
from turnlog.stores.sql.listing import COLUMNS, PAGE, Row, Wanted, followed, keep, kept
from turnlog.stores.sql.steps import run_async

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from turnlog.events import AnyEvent
    from turnlog.stores.port import SessionInfo
    from turnlog.stores.server.dialect import Dialect
    from turnlog.stores.server.pool import Pool
    from turnlog.stores.server.reading import Reader

_COLUMNS = f"session, {COLUMNS}"
_BY_ACTIVITY = "ORDER BY last_activity DESC, session"
_ORDER = f"SELECT session FROM sessions {_BY_ACTIVITY}"
# Whether any line is stale comes with each row; what is wide is read of this page's rows only.
_FIRST = f"""
    SELECT (SELECT max(stale) FROM sessions), {_COLUMNS} FROM sessions
    JOIN (SELECT session AS listed FROM sessions {_BY_ACTIVITY} LIMIT {PAGE}) page
    ON session = listed {_BY_ACTIVITY}
"""
_MANY = f"SELECT {_COLUMNS} FROM sessions WHERE "
_ONE = f"SELECT {_COLUMNS} FROM sessions WHERE session = ?"
_STALE = f"SELECT {_COLUMNS} FROM sessions WHERE stale = 1"
_KEEP = keep("session")


class Listing:
    """Makes the lines of one handle's listings.

    Args:
        pool: of connections that read.
        dialect: the database's.
        reader: of the same handle.
        url: for messages.
    """

    def __init__(self, pool: Pool, dialect: Dialect, reader: Reader, url: str) -> None:
        self._pool = pool
        self._dialect = dialect
        self._reader = reader
        self._url = url

    async def _fetch(self, query: str, *values: Any) -> Sequence[Sequence[Any]]:
        async def work() -> Sequence[Sequence[Any]]:
            async with self._pool.connection() as db:
                return await db.fetch(query, *values)

        return await self._pool.patiently(work)

    async def _rows(self, query: str, *values: Any) -> list[Row[bytes]]:
        return [Row(*row) for row in await self._fetch(query, *values)]

    async def first(self) -> tuple[dict[bytes, SessionInfo], dict[bytes, SessionInfo]]:
        """The lines of the first page, in their order, by key; and what `lines` is to show.

        As long as no line is stale it takes one query.
        """
        rows = await self._fetch(_FIRST)
        remade: dict[bytes, SessionInfo] = {}
        if rows and rows[0][0]:
            remade = await self._refresh()
            rows = await self._fetch(_FIRST)
        page = (Row(*row) for _, *row in rows)
        return {row.key: remade.get(row.key) or row.line for row in page}, remade

    async def _refresh(self) -> dict[bytes, SessionInfo]:
        """Make stale lines again; returns those that could not be kept."""
        found: dict[bytes, SessionInfo] = {}
        for row in await self._rows(_STALE):
            info, is_kept = await self._remade(row)
            if not is_kept:
                found[row.key] = info
        return found

    async def order(self) -> list[bytes]:
        """The keys of all sessions, the last active first.

        Whatever is written while one lists, each session is listed once.
        """
        return [key for (key,) in await self._fetch(_ORDER)]

    async def lines(
        self, keys: Sequence[bytes], remade: Mapping[bytes, SessionInfo]
    ) -> list[SessionInfo]:
        """The lines of some sessions, in their order.

        Args:
            keys: the sessions'; as many as a page has, or fewer.
            remade: lines to show in the place of those that are kept.
        """
        condition, values = self._dialect.among("session", "key", keys)
        found = {row.key: row for row in await self._rows(_MANY + condition, *values)}
        rows = [found[key] for key in keys if key in found]
        return [remade.get(row.key) or row.line for row in rows]

    async def info(self, session_id: str) -> SessionInfo:
        """One session's line.

        Raises:
            NoSuchSession: there is none.
        """
        stored = stored_id(session_id)
        rows = await self._rows(_ONE, key_of(stored))
        if not rows or rows[0].id != stored:
            raise unknown(session_id, self._url)
        row = rows[0]
        return (await self._remade(row))[0] if row.stale else row.line

    async def _remade(self, row: Row[bytes]) -> tuple[SessionInfo, bool]:
        """The line of a session whose log has to be read; and whether it was kept."""
        try:
            fold = await self._pool.patiently(lambda: self._read(row))
        except TurnlogError as error:
            return row.unreadable(error), False
        values = kept(row, fold)
        try:
            async with self._pool.connection() as db:
                is_kept = bool(await db.execute(_KEEP, *values))
        except Fault:
            is_kept = False  # it is derived: whoever lists next makes it again
        return fold.info(size=row.bytes), is_kept

    async def _read(self, row: Row[bytes]) -> InfoFold:
        session_id = read_id(row.id)
        async with self._pool.connection() as db:

            async def read(wanted: Wanted) -> Sequence[AnyEvent]:
                start, stop, chunks = wanted
                return await self._reader.read(db, session_id, start, stop, chunks=chunks)

            known = await run_async(followed(row), read)
            if known is not None:
                return known
            stored = await self._reader.load(db, session_id)
            return InfoFold.of(stored.header, stored.events, stored.damage)
