"""The listing: lines out of the table of sessions, which every commit keeps current.

A line whose commit could not tell (`InfoFold.follow`) is stale; it is made again when someone
lists, and kept.
"""

# ruff: noqa: S608 - queries of constants
from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from turnlog import jsontext
from turnlog.errors import AdmissionError, TurnlogError
from turnlog.log import SessionLog
from turnlog.stores.info import InfoFold
from turnlog.stores.loading import unfinished
from turnlog.stores.server.driver import Fault
from turnlog.stores.server.schema import key_of
from turnlog.stores.sql.heads import line_of, read_header, read_id, stored_id, unknown, unreadable

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from turnlog.stores.port import SessionInfo
    from turnlog.stores.server.dialect import Dialect
    from turnlog.stores.server.driver import Connection
    from turnlog.stores.server.pool import Pool
    from turnlog.stores.server.reading import Reader

PAGE = 100
"""Sessions that are read at once."""
LOG_PAGE = 5_000
"""Seqs of a log that are read at once."""

_COLUMNS = "session, id, header, sum, next_seq, last_activity, bytes, stale, info"
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
_KEEP = """
    UPDATE sessions SET info = ?, last_activity = ?, stale = 0
    WHERE session = ? AND next_seq = ? AND sum = ?
"""


class Row(NamedTuple):
    """A session's row, as far as the listing needs it."""

    key: bytes
    id: bytes
    header: bytes
    sum: int
    next_seq: int
    last_activity: int
    bytes: int
    stale: int
    info: bytes | None

    @property
    def line(self) -> SessionInfo:
        """What the row itself says."""
        return line_of(self.id, (self.header, self.sum), self.last_activity, self.bytes, self.info)


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

    async def _rows(self, query: str, *values: Any) -> list[Row]:
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
            info, kept = await self._remade(row)
            if not kept:
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

    async def _remade(self, row: Row) -> tuple[SessionInfo, bool]:
        """The line of a session whose log has to be read; and whether it was kept."""
        try:
            fold = await self._pool.patiently(lambda: self._read(row))
        except TurnlogError as error:
            return unreadable(row.id, row.last_activity, row.bytes, error), False
        fold.next_seq = row.next_seq
        state = fold.state()
        values = (jsontext.encode(state), state["lastActivity"], row.key, row.next_seq, row.sum)
        try:
            async with self._pool.connection() as db:
                kept = bool(await db.execute(_KEEP, *values))
        except Fault:
            kept = False  # it is derived: whoever lists next makes it again
        return fold.info(size=row.bytes), kept

    async def _read(self, row: Row) -> InfoFold:
        async with self._pool.connection() as db:
            known = await self._followed(db, row)
            if known is not None:
                return known
            stored = await self._reader.load(db, read_id(row.id))
            return InfoFold.of(stored.header, stored.events, stored.damage)

    async def _followed(self, db: Connection, row: Row) -> InfoFold | None:
        """The line, made of the last one that was kept and what follows, a page at a time.

        None where that cannot tell: there is damage, or an acknowledgement of damage.

        Raises:
            InvalidHeader, UnsupportedVersion: the header cannot be read.
        """
        header = read_header(row.header, row.sum)
        if header.source_damage or unfinished(header, row.next_seq) is not None:
            return None
        state: Any = None if row.info is None else jsontext.decode(row.info)
        if state is not None and state["damage"]:
            return None
        fold = InfoFold(header, state)
        log = SessionLog(header)
        read, session_id = self._reader.read, read_id(row.id)
        try:
            for start in range(0, row.next_seq, LOG_PAGE):
                stop = min(start + LOG_PAGE, row.next_seq)
                middle = min(max(fold.next_seq, start), stop)
                for event in await read(db, session_id, start, middle, chunks=False):
                    log.skip(event.seq)
                    log.load(event)
                events = await read(db, session_id, middle, stop)
                if len(events) != stop - middle or not fold.follow(events, log):
                    return None
                log = SessionLog(header, log.rebase())
        except AdmissionError:
            return None
        return fold
