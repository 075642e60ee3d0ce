"""The listing: lines out of the table of sessions, which every commit keeps current.

A line whose commit could not tell (`InfoFold.follow`) is stale; it is made again of the whole log
when someone lists, and kept.
"""

# ruff: noqa: S608 - queries of constants
from __future__ import annotations

from array import array
from typing import TYPE_CHECKING, Any, NamedTuple

import apsw

from turnlog import jsontext
from turnlog.errors import AdmissionError, StoreError, TurnlogError
from turnlog.log import SessionLog
from turnlog.stores.info import InfoFold
from turnlog.stores.loading import unfinished
from turnlog.stores.port import SessionInfo
from turnlog.stores.sql.heads import line_of, read_header, read_id, stored_id, unknown, unreadable
from turnlog.stores.sqlite.driver import integers
from turnlog.stores.sqlite.reading import Reader
from turnlog.stores.sqlite.salvage import UNREADABLE, scan
from turnlog.stores.sqlite.schema import MAX_SESSIONS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from turnlog.events import AnyEvent, SessionHeader
    from turnlog.log import Damage
    from turnlog.stores.sqlite.connection import Database
    from turnlog.stores.sqlite.driver import Connection

PAGE = 100
"""Sessions that are read at once."""
LOG_PAGE = 5_000
"""Seqs of a log that are read at once."""

_COLUMNS = "no, id, header, sum, next_seq, last_activity, bytes, stale, info"
_ORDER = "SELECT no FROM sessions ORDER BY last_activity DESC, id"
_MANY = f"SELECT {_COLUMNS} FROM carray(?) wanted CROSS JOIN sessions ON sessions.no = wanted.value"
_ONE = f"SELECT {_COLUMNS} FROM sessions WHERE id = ?"
_STALE = f"SELECT {_COLUMNS} FROM sessions WHERE stale"
_EVERY = f"SELECT {_COLUMNS} FROM sessions NOT INDEXED WHERE no BETWEEN ? AND ? ORDER BY no"
_FORGET = "UPDATE sessions SET stale = 1, info = NULL WHERE no = ?"
_KEEP = """
    UPDATE sessions SET info = ?, last_activity = ?, stale = 0
    WHERE no = ? AND next_seq = ? AND sum = ?
"""


class Row(NamedTuple):
    """A session's row, as far as the listing needs it."""

    no: int
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
        database: where.
        reader: of the same handle.
    """

    def __init__(self, database: Database, reader: Reader) -> None:
        self._database = database
        self._reader = reader

    def refresh(self) -> dict[bytes, SessionInfo]:
        """Make stale lines again; returns those that could not be kept."""
        with self._database.reading() as db:
            try:
                stale = [Row(*row) for row in db.execute(_STALE).fetchall()]
            except UNREADABLE:
                return {}
        found: dict[bytes, SessionInfo] = {}
        for row in stale:
            info, kept = self._remade(row)
            if not kept:
                found[row.id] = info
        return found

    def order(self) -> Sequence[int] | None:
        """The numbers of all sessions, the last active first; None where a page went bad.

        Whatever is written while one lists, each session is listed once.
        """
        with self._database.reading() as db:
            try:
                return array("q", (no for (no,) in db.execute(_ORDER)))
            except UNREADABLE:
                return None

    def lines(
        self, numbers: Sequence[int], remade: Mapping[bytes, SessionInfo]
    ) -> list[SessionInfo]:
        """The lines of some sessions, in their order.

        Args:
            numbers: the sessions'; as many as a page has, or fewer.
            remade: lines to show in the place of those that are kept.

        Raises:
            apsw.Error: a page went bad.
        """
        place = {no: at for at, no in enumerate(numbers)}
        with self._database.reading() as db:
            rows = [Row(*row) for row in db.execute(_MANY, (integers(numbers),)).fetchall()]
        rows.sort(key=lambda row: place[row.no])
        return [remade.get(row.id) or row.line for row in rows]

    def pages(self, remade: Mapping[bytes, SessionInfo]) -> Iterator[list[SessionInfo]]:
        """All lines, the last active first, a page at a time.

        Args:
            remade: lines to show in the place of those that are kept.
        """
        order = self.order()
        shown = 0
        while order is not None and shown < len(order):
            numbers = order[shown : shown + PAGE]
            try:
                lines = self.lines(numbers, remade)
            except UNREADABLE:
                break
            shown += len(numbers)
            yield lines
        if order is None or shown < len(order):
            with self._database.reading() as db:
                rows = _salvaged(db, () if order is None else order[:shown])
            yield [remade.get(row.id) or row.line for row in rows]

    def info(self, session_id: str) -> SessionInfo:
        """One session's line.

        Raises:
            NoSuchSession: there is none.
        """
        with self._database.reading() as db:
            row = db.execute(_ONE, (stored_id(session_id),)).fetchone()
        if row is None:
            raise unknown(session_id, self._database.url)
        found = Row(*row)
        return self._remade(found)[0] if found.stale else found.line

    def suspect(self, session_id: str) -> None:
        """Have the line of a session made again in which damage was met, unless it says so.

        Raises:
            StoreError, apsw.Error: the file cannot be written to.
        """
        with self._database.reading() as db:
            found = db.execute(_ONE, (stored_id(session_id),)).fetchone()
        row = None if found is None else Row(*found)
        if row is not None and not row.stale and not row.line.damage:
            with self._database.writing() as db:
                db.execute(_FORGET, (row.no,))

    def _remade(self, row: Row) -> tuple[SessionInfo, bool]:
        """The line of a session whose log has to be read; and whether it was kept."""
        session_id = read_id(row.id)
        try:
            with self._database.reading() as db:
                known = _followed(db, self._reader, session_id, row)
                fold = known or InfoFold.of(*self._whole(db, session_id))
        except TurnlogError as error:
            return unreadable(row.id, row.last_activity, row.bytes, error), False
        fold.next_seq = row.next_seq
        state = fold.state()
        kept = False
        if not self._database.read_only:
            values = (jsontext.encode(state), state["lastActivity"], row.no, row.next_seq, row.sum)
            try:
                with self._database.writing() as db:
                    db.execute(_KEEP, values)
                    kept = bool(db.changes())
            except (apsw.Error, OSError, StoreError):
                kept = False  # it is derived: whoever lists next makes it again
        return fold.info(size=row.bytes), kept

    def _whole(
        self, db: Connection, session_id: str
    ) -> tuple[SessionHeader, Sequence[AnyEvent], Sequence[Damage]]:
        stored = self._reader.load(db, session_id)
        return stored.header, stored.events, stored.damage


def _followed(db: Connection, reader: Reader, session_id: str, row: Row) -> InfoFold | None:
    """The line, made of the last one that was kept and what follows, a page in memory at a time.

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
    try:
        for start in range(0, row.next_seq, LOG_PAGE):
            stop = min(start + LOG_PAGE, row.next_seq)
            middle = min(max(fold.next_seq, start), stop)
            for event in reader.read(db, session_id, start, middle, chunks=False):
                log.skip(event.seq)
                log.load(event)
            events = reader.read(db, session_id, middle, stop)
            if len(events) != stop - middle or not fold.follow(events, log):
                return None
            log = SessionLog(header, log.rebase())
    except AdmissionError:
        return None
    return fold


def _salvaged(db: Connection, but: Iterable[int]) -> list[Row]:
    """What is left of a listing when a page of the file went bad, but for some sessions."""
    known = frozenset(but)
    rows = [Row(*row) for row in scan(db, _EVERY, 1, MAX_SESSIONS, []) if row[0] not in known]
    return sorted(rows, key=lambda row: (-row.last_activity, row.id))
