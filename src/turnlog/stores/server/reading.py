"""Reading: a session's row, and its events by range or by seq, also those of its ancestors."""

# ruff: noqa: S608 - queries of constants
from __future__ import annotations

from operator import attrgetter, itemgetter
from typing import TYPE_CHECKING, Any, NamedTuple

from turnlog.stores.port import Record, Stored
from turnlog.stores.server.decoding import Fetched, Row, decoded
from turnlog.stores.server.schema import CHUNKS, EVENTS, key_of
from turnlog.stores.sql.blobs import hashes_in
from turnlog.stores.sql.heads import read_header, stored_id, unknown
from turnlog.stores.sql.holes import Lost, holes
from turnlog.stores.sql.lineage import Lineage, Part, pages, stretches, wanted, without_chunks
from turnlog.stores.sql.steps import run_async

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from turnlog.events import AnyEvent
    from turnlog.stores.server.dialect import Dialect
    from turnlog.stores.server.driver import Connection

PAGE = 5_000
"""Seqs that are read in one go."""
_TOGETHER = 50  # sessions whose events one statement reads

_HEAD = """
    SELECT session, id, header, sum, root, parent, boundary, next_seq FROM sessions
    WHERE session = ?
"""
_PARENT = "SELECT parent, boundary FROM sessions WHERE session = ?"
_ROW = ", ".join(column.name for column in EVENTS.columns[1:])
_EVENTS = f"SELECT {_ROW} FROM events WHERE session = ? AND seq >= ? AND seq < ? ORDER BY seq"
_MESSAGES = f"""
    SELECT {_ROW} FROM events WHERE session = ? AND seq >= ? AND seq < ?
    AND surface_op IS NOT NULL ORDER BY seq LIMIT ?
"""
_MANY = f"SELECT {_ROW} FROM events WHERE session = ? AND "
_SCATTERED = f"SELECT session, {_ROW} FROM events WHERE "
_RUN = ", ".join(column.name for column in CHUNKS.columns[1:])
_CHUNKS = f"""
    SELECT {_RUN} FROM chunks WHERE session = ? AND first < ? AND first >= coalesce(
        (SELECT max(first) FROM chunks WHERE session = ? AND first <= ?), 0
    ) ORDER BY first
"""
_BLOBS = "SELECT hash, data FROM blobs WHERE session = ? AND "
_RECORD = "SELECT seq, data FROM records WHERE session = ?"
_NEXT = """
    SELECT min(seq) FROM events WHERE session = ? AND seq >= ? AND seq < ?
    UNION ALL SELECT min(first) FROM chunks WHERE session = ? AND first >= ? AND first < ?
"""
_seq = attrgetter("seq")
_first = itemgetter(0)


class Head(NamedTuple):
    """A session's row, as far as reading needs it."""

    key: bytes
    id: bytes
    header: bytes
    sum: int
    root: bytes
    parent: bytes | None
    boundary: int
    next_seq: int


class Reader:
    """Reads sessions; remembers what never changes of them.

    Args:
        dialect: the database's.
        url: for messages.
    """

    def __init__(self, dialect: Dialect, url: str) -> None:
        self._dialect = dialect
        self._url = url
        self._lineage: Lineage[bytes] = Lineage()

    async def head(self, db: Connection, session_id: str) -> Head:
        """The session's row.

        Raises:
            NoSuchSession: there is none.
        """
        stored = stored_id(session_id)
        rows = await db.fetch(_HEAD, key_of(stored))
        if not rows or rows[0][1] != stored:
            raise unknown(session_id, self._url)
        head = Head(*rows[0])
        self._lineage.learn(head.key, head.parent, head.boundary)
        return head

    def knows(self, key: bytes) -> bool:
        """Whether a session with that key was read here before."""
        return self._lineage.knows(key)

    # -- events --------------------------------------------------------------------------------

    async def load(self, db: Connection, session_id: str) -> Stored:
        """The whole session."""
        head = await self.head(db, session_id)
        header = read_header(head.header, head.sum)
        lost: list[Lost] = []
        events = await self._range(db, head, 0, head.next_seq, lost)
        if len(events) == head.next_seq:
            return Stored(header, events)
        place = f"session {head.key.hex()}"
        return Stored(header, events, holes(events, head.next_seq, lost, place=place))

    async def read(
        self,
        db: Connection,
        session_id: str,
        start: int,
        stop: int | None,
        *,
        chunks: bool = True,
    ) -> list[AnyEvent]:
        """The events with `start <= seq < stop`, as far as they can be read."""
        head = await self.head(db, session_id)
        stop = head.next_seq if stop is None else min(stop, head.next_seq)
        return await self._range(db, head, max(start, 0), stop, [], chunks=chunks)

    async def _range(
        self,
        db: Connection,
        head: Head,
        start: int,
        stop: int,
        lost: list[Lost],
        *,
        chunks: bool = True,
    ) -> list[AnyEvent]:
        """The events of a range, from every ancestor its own."""

        async def page(asked: tuple[Part[bytes], Part[bytes]]) -> tuple[list[AnyEvent], int]:
            own, rest = asked
            found = await self._own(db, head.root, own, lost, chunks=chunks)
            return found, own.stop if found else await _next(db, rest)

        return await run_async(pages(await self.parts(db, head.key, start, stop), PAGE), page)

    async def parts(self, db: Connection, key: bytes, start: int, stop: int) -> list[Part[bytes]]:
        """Which session's rows hold which part of a range, in ascending order."""

        async def parent(key: bytes) -> tuple[bytes | None, int] | None:
            rows = await db.fetch(_PARENT, key)
            return (rows[0][0], rows[0][1]) if rows else None

        return await run_async(self._lineage.parts(key, start, stop), parent)

    async def read_seqs(
        self, db: Connection, session_id: str, seqs: Iterable[int]
    ) -> list[AnyEvent]:
        """The events with these seqs, as far as they can be read, in order of seq."""
        head = await self.head(db, session_id)
        asked = wanted(seqs, head.next_seq)
        events: list[AnyEvent] = []
        if asked:
            for part in await self.parts(db, head.key, asked[0], asked[-1] + 1):
                mine = [seq for seq in asked if part.start <= seq < part.stop]
                events += await self.own_seqs(db, head.root, part.key, mine)
        return events

    # -- one session's own rows ----------------------------------------------------------------

    async def _own(
        self, db: Connection, root: bytes, part: Part[bytes], lost: list[Lost], *, chunks: bool
    ) -> list[AnyEvent]:
        """The events that the session's own rows hold, as far as they can be read."""
        rows = await db.fetch(_EVENTS, *part)
        runs: Sequence[Row] = ()
        if chunks and len(rows) < part.stop - part.start:
            key, start, stop = part
            runs = [r for r in await db.fetch(_CHUNKS, key, stop, key, start) if r[1] >= start]
        fetched = await self._with_what_they_need(db, root, part, rows, runs)
        events = await decoded(fetched, lost)
        return events if chunks else without_chunks(events)

    async def _with_what_they_need(
        self,
        db: Connection,
        root: bytes,
        part: Part[bytes],
        rows: Sequence[Row],
        runs: Sequence[Row],
    ) -> Fetched:
        """The rows with the messages that chunks lean on, and with their blobs."""
        needed = {run[2] for run in runs if run[2] is not None}
        leaned_on = {row[0]: row for row in rows if row[0] in needed} if needed else {}
        missing = sorted(needed - leaned_on.keys())
        if missing:
            leaned_on |= {row[0]: row for row in await self._rows(db, part.key, missing)}
        hashes = {
            key
            for row in (*rows, *leaned_on.values())
            for stored in (row[3], row[7])
            for key in hashes_in(stored)
        }
        blobs: dict[bytes, bytes] = {}
        if hashes:
            condition, values = self._dialect.among("hash", "key", sorted(hashes))
            found = await db.fetch(_BLOBS + condition, root, *values)
            blobs = {key: data for key, data in found}  # noqa: C416 - rows are no tuples
        return Fetched(part.start, part.stop, rows, runs, blobs, leaned_on)

    async def _rows(self, db: Connection, key: bytes, seqs: Sequence[int]) -> Sequence[Row]:
        condition, values = self._dialect.among("seq", "int", seqs)
        return await db.fetch(f"{_MANY}{condition} ORDER BY seq", key, *values)

    async def own_seqs(
        self, db: Connection, root: bytes, key: bytes, seqs: Sequence[int]
    ) -> list[AnyEvent]:
        """Those of the events that the session's own rows hold, and that can be read."""
        if not seqs:
            return []
        return await self._found(db, root, key, seqs, await self._rows(db, key, seqs))

    async def scattered(
        self, db: Connection, asked: Mapping[bytes, tuple[bytes, Sequence[int]]]
    ) -> dict[bytes, list[AnyEvent]]:
        """As `own_seqs`, of many sessions, few events each: by key, from root and seqs."""
        found: dict[bytes, list[AnyEvent]] = {}
        every = list(asked.items())
        for start in range(0, len(every), _TOGETHER):
            some = every[start : start + _TOGETHER]
            rows: dict[bytes, list[Row]] = {key: [] for key, _ in some}
            said: list[str] = []
            bound: list[Any] = []
            for key, (_, seqs) in some:
                condition, values = self._dialect.among("seq", "int", seqs)
                said.append(f"session = ? AND {condition}")
                bound += [key, *values]
            for key, *row in await db.fetch(_SCATTERED + " OR ".join(said), *bound):
                rows[key].append(row)
            for key, (root, seqs) in some:
                own = sorted(rows[key], key=_first)
                found[key] = await self._found(db, root, key, seqs, own)
        return found

    async def _found(
        self, db: Connection, root: bytes, key: bytes, seqs: Sequence[int], rows: Sequence[Row]
    ) -> list[AnyEvent]:
        """The events of rows that were found by their seqs, and what had none."""
        whole = Part(key, seqs[0], seqs[-1] + 1)
        events = await decoded(await self._with_what_they_need(db, root, whole, rows, ()), [])
        if len(events) == len(seqs):
            return events
        for part in list(stretches(seqs, events, key)):
            events += await self._own(db, root, part, [], chunks=True)
        return sorted(events, key=_seq)

    async def messages(
        self, db: Connection, root: bytes, part: Part[bytes], most: int
    ) -> tuple[list[AnyEvent], int]:
        """The first messages of a session's own part, at most so many, and where to go on."""
        rows = await db.fetch(_MESSAGES, *part, most)
        upto = rows[-1][0] + 1 if len(rows) == most else part.stop
        return await decoded(await self._with_what_they_need(db, root, part, rows, ()), []), upto

    # -- derived -------------------------------------------------------------------------------

    async def record(self, db: Connection, session_id: str) -> Record | None:
        """The last opening record, if there is one."""
        head = await self.head(db, session_id)
        rows = await db.fetch(_RECORD, head.key)
        return Record(*rows[0]) if rows else None


async def _next(db: Connection, part: Part[bytes]) -> int:
    """Where rows of a part go on behind a gap of any length; its end if nowhere."""
    firsts = [first for (first,) in await db.fetch(_NEXT, *part, *part) if first is not None]
    return min([part.stop, *firsts])
