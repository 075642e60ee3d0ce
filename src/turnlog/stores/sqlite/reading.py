"""Reading: a session's row, and its events by range or by seq, also those of its ancestors."""

# ruff: noqa: S608 - queries of constants
from __future__ import annotations

from operator import attrgetter, lt
from typing import TYPE_CHECKING, NamedTuple

from turnlog.stores.port import Record, Stored
from turnlog.stores.sql.chunks import from_chunks
from turnlog.stores.sql.heads import read_header, stored_id, unknown
from turnlog.stores.sql.holes import Lost, holes
from turnlog.stores.sql.lineage import Lineage, Part, pages, stretches, wanted, without_chunks
from turnlog.stores.sql.packing import UNREADABLE as UNREADABLE_ROW
from turnlog.stores.sql.packing import BadRow, unpack_whole
from turnlog.stores.sql.rows import from_row, from_rows
from turnlog.stores.sql.steps import run
from turnlog.stores.sqlite.driver import integers
from turnlog.stores.sqlite.salvage import UNREADABLE, salvage, scan
from turnlog.stores.sqlite.schema import MAX_SESSIONS, SEQ_BITS, SEQ_MASK

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from turnlog.events import AnyEvent
    from turnlog.stores.sqlite.driver import Connection

PAGE = 20_000
"""Seqs that are read in one go."""

_ROW = "type, time, data, surface_op, source_event_seqs, ignorable, extra, sum"
_EVENTS = f"SELECT id & {SEQ_MASK}, {_ROW} FROM events WHERE id BETWEEN ? AND ? ORDER BY id"
_ONE = f"SELECT id & {SEQ_MASK}, {_ROW} FROM events WHERE id = ?"
_MANY = (
    f"SELECT id & {SEQ_MASK}, {_ROW} FROM carray(?) wanted CROSS JOIN events "
    "ON events.id = wanted.value"
)
_RUN = "last, message, data, sum"
_CHUNKS = tuple(  # for each table of runs: what finds the one that covers an id, and all
    (
        f"SELECT max(id) FROM {table} WHERE id BETWEEN ? AND ?",
        f"SELECT id & {SEQ_MASK}, {_RUN} FROM {table} WHERE id BETWEEN ? AND ? ORDER BY id",
    )
    for table in ("chunks", "streams")
)
_BY_ID = (  # of salvage
    f"SELECT id, {_ROW} FROM events WHERE id BETWEEN ? AND ? ORDER BY id",
    f"SELECT id, {_RUN} FROM chunks WHERE id BETWEEN ? AND ? ORDER BY id",
    f"SELECT id, {_RUN} FROM streams WHERE id BETWEEN ? AND ? ORDER BY id",
)
_ANY = " UNION ALL ".join(
    f"SELECT 1 FROM carray(?1) wanted CROSS JOIN {table} ON {table}.id = wanted.value"
    for table in ("events", "chunks", "streams")
)
_FOLLOWING = tuple(
    f"SELECT min(id) FROM {table} WHERE id BETWEEN ? AND ?"
    for table in ("events", "chunks", "streams")
)
_LONG_GAP = 1 << 22
_PROBES = 4096  # more ids than a page has rows
_PARENT = "SELECT parent, boundary FROM sessions WHERE no = ?"
_SESSION = "SELECT no, header, sum, next_seq FROM sessions WHERE id = ?"
_seq = attrgetter("seq")


class Head(NamedTuple):
    """A session's row, as far as reading needs it."""

    no: int
    header: bytes
    sum: int
    next_seq: int


class Reader:
    """Reads sessions of one file; remembers what never changes of them.

    Args:
        url: for messages.
    """

    def __init__(self, url: str) -> None:
        self._url = url
        self._lineage: Lineage[int] = Lineage()

    def head(self, db: Connection, session_id: str) -> Head:
        """The session's row.

        Raises:
            NoSuchSession: there is none.
        """
        key = stored_id(session_id)
        try:
            row = db.execute(_SESSION, (key,)).fetchone()
        except UNREADABLE:  # an index page went bad; what it leads to need not
            query = "SELECT no, id, header, sum, next_seq FROM sessions NOT INDEXED "
            query += "WHERE no BETWEEN ? AND ? ORDER BY no"
            lost: list[Lost] = []
            rows = scan(db, query, 1, MAX_SESSIONS, lost)
            row = next(((no, *rest) for no, found, *rest in rows if found == key), None)
            if row is None and lost:
                raise  # it may be there
        if row is None:
            raise unknown(session_id, self._url)
        return Head(*row)

    # -- events --------------------------------------------------------------------------------

    def load(self, db: Connection, session_id: str) -> Stored:
        """The whole session."""
        head = self.head(db, session_id)
        header = read_header(head.header, head.sum)
        lost: list[Lost] = []
        events = self._range(db, head.no, 0, head.next_seq, lost)
        if len(events) == head.next_seq:
            return Stored(header, events)
        return Stored(
            header, events, holes(events, head.next_seq, lost, place=f"session {head.no}")
        )

    def read(
        self,
        db: Connection,
        session_id: str,
        start: int,
        stop: int | None,
        *,
        chunks: bool = True,
    ) -> list[AnyEvent]:
        """The events with `start <= seq < stop`, as far as they can be read."""
        head = self.head(db, session_id)
        start, stop = max(start, 0), min(head.next_seq if stop is None else stop, head.next_seq)
        return self._range(db, head.no, start, stop, [], chunks=chunks)

    def _range(
        self,
        db: Connection,
        no: int,
        start: int,
        stop: int,
        lost: list[Lost],
        *,
        chunks: bool = True,
    ) -> list[AnyEvent]:
        """The events of a range, from every ancestor its own."""

        def page(asked: tuple[Part[int], Part[int]]) -> tuple[list[AnyEvent], int]:
            own, rest = asked
            found = _own(db, own, lost, chunks=chunks)
            return found, own.stop if found else _next(db, rest)

        return run(pages(self.parts(db, no, start, stop), PAGE), page)

    def parts(self, db: Connection, no: int, start: int, stop: int) -> list[Part[int]]:
        """Which session's rows hold which part of a range, in ascending order."""

        def parent(no: int) -> tuple[int | None, int] | None:
            return db.execute(_PARENT, (no,)).fetchone()

        return run(self._lineage.parts(no, start, stop), parent)

    def read_seqs(self, db: Connection, session_id: str, seqs: Iterable[int]) -> list[AnyEvent]:
        """The events with these seqs, as far as they can be read, in order of seq."""
        head = self.head(db, session_id)
        asked = wanted(seqs, head.next_seq)
        events: list[AnyEvent] = []
        if asked:
            for part in self.parts(db, head.no, asked[0], asked[-1] + 1):
                mine = [seq for seq in asked if part.start <= seq < part.stop]
                events += _own_seqs(db, part.key, mine)
        return events

    # -- derived -------------------------------------------------------------------------------

    def record(self, db: Connection, session_id: str) -> Record | None:
        """The last opening record; None where there is none, or it cannot be read."""
        head = self.head(db, session_id)
        try:
            query = "SELECT seq, data FROM records WHERE session = ?"
            row = db.execute(query, (head.no,)).fetchone()
            return None if row is None else Record(row[0], unpack_whole(row[1]))
        except (*UNREADABLE, *UNREADABLE_ROW):
            return None


# -- one session's own rows --------------------------------------------------------------------


class Rows:
    """What rows of one session lean on."""

    def __init__(self, db: Connection, no: int) -> None:
        self._db = db
        self._no = no
        self._payloads: dict[int, bytes] = {}

    def blob(self, key: bytes) -> bytes:
        """A long string, as it is stored.

        Raises:
            KeyError: it is not there.
        """
        row = self._db.execute("SELECT data FROM blobs WHERE hash = ?", (key,)).fetchone()
        if row is None:
            raise KeyError(key)
        return row[0]

    def payload_of(self, seq: int) -> bytes:
        """The payload of an event of the session.

        Raises:
            BadRow: it is not there, or not what was written.
        """
        payload = self._payloads.get(seq)
        if payload is None:
            row = self._db.execute(_ONE, (self._no << SEQ_BITS | seq,)).fetchone()
            if row is None:
                raise BadRow(f"event {seq}, on which chunks lean, is missing", seq)
            payload = from_row(row, self.blob).raw
            self._payloads = {seq: payload}  # the runs that lean on one follow on each other
        return payload


def _own(
    db: Connection, part: Part[int], lost: list[Lost], *, chunks: bool = True
) -> list[AnyEvent]:
    """The events of a part, as far as they can be read; adds to `lost`."""
    no, start, stop = part
    try:
        events = _own_range(db, part, chunks=chunks)
        if not chunks or not _hidden(db, part, events):
            return events
    except (BadRow, *UNREADABLE):
        pass  # what is wrong is found again
    rows = Rows(db, no)
    found, missed = salvage(db, _BY_ID, no, (start, stop), rows.blob, rows.payload_of)
    lost += missed
    return found if chunks else without_chunks(found)


def _next(db: Connection, part: Part[int]) -> int:
    """Where rows of a part go on: behind a gap that is too long to be looked through."""
    no, start, stop = part
    if stop - start < _LONG_GAP:
        return start
    base = no << SEQ_BITS
    ids = (base + start, base + stop - 1)
    try:
        found = [db.execute(query, ids).fetchone()[0] for query in _FOLLOWING]
    except UNREADABLE:
        return start
    after = min([stop, *(first - base for first in found if first is not None)])
    return after if after - start >= _LONG_GAP else start


def _hidden(db: Connection, part: Part[int], events: list[AnyEvent]) -> bool:
    """Whether there are rows in what looks like gaps: a page in a wrong place ends a scan early."""
    no, start, stop = part
    if len(events) == stop - start:
        return False
    base, expected = no << SEQ_BITS, start
    for seq in [*(event.seq for event in events), stop]:
        if seq > expected:
            ids = range(base + expected, base + min(seq, expected + _PROBES))
            if db.execute(_ANY, (integers(ids),)).fetchone() is not None:
                return True
        expected = seq + 1
    return False


def _own_range(db: Connection, part: Part[int], *, chunks: bool) -> list[AnyEvent]:
    """The events of a part.

    Raises:
        BadRow: a row is not what was written.
        apsw.Error, UnicodeDecodeError: a page cannot be read.
    """
    no, start, stop = part
    base = no << SEQ_BITS
    rows = Rows(db, no)
    events = from_rows(db.execute(_EVENTS, (base + start, base + stop - 1)).fetchall(), rows.blob)
    if not chunks:
        return _ascending(without_chunks(events))
    if len(events) == stop - start:
        return _ascending(events)
    for covering, runs in _CHUNKS:
        (first,) = db.execute(covering, (base, base + start)).fetchone()
        low = base + start if first is None else first
        packed: list[AnyEvent] = []
        for row in db.execute(runs, (low, base + stop - 1)).fetchall():
            if row[1] >= start:
                packed += from_chunks(row, rows.payload_of)
        if packed and (packed[0].seq < start or packed[-1].seq >= stop):
            packed = [event for event in packed if start <= event.seq < stop]
        events += packed
    events.sort(key=_seq)
    return _ascending(events)


def _ascending(events: list[AnyEvent]) -> list[AnyEvent]:
    """The events, each once.

    Raises:
        BadRow: a page is in a wrong place, and its rows come twice or out of order.
    """
    seqs = [event.seq for event in events]
    if all(map(lt, seqs, seqs[1:])):
        return events
    raise BadRow("rows come twice or out of order")


def _own_seqs(db: Connection, no: int, seqs: Sequence[int]) -> list[AnyEvent]:
    """Those of the events that the session's own rows hold, and that can be read."""
    if not seqs:
        return []
    base = no << SEQ_BITS
    try:
        found = db.execute(_MANY, (integers(base + seq for seq in seqs),)).fetchall()
        events = from_rows(found, Rows(db, no).blob)
    except (BadRow, *UNREADABLE):
        events = []
    if len(events) == len(seqs):
        return events
    for part in list(stretches(seqs, events, no)):
        events += _own(db, part, [])
    return sorted(events, key=_seq)
