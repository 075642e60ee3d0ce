"""The listing of a file: its statements; what they mean is in `sql.listing`."""

# ruff: noqa: S608 - queries of constants
from __future__ import annotations

from array import array
from typing import TYPE_CHECKING

import apsw

from turnlog.errors import StoreError, TurnlogError
from turnlog.stores.info import InfoFold
from turnlog.stores.sql.heads import read_id, stored_id, unknown
from turnlog.stores.sql.listing import COLUMNS, PAGE, Row, Wanted, followed, keep, kept
from turnlog.stores.sql.steps import run
from turnlog.stores.sqlite.driver import integers
from turnlog.stores.sqlite.salvage import UNREADABLE, scan
from turnlog.stores.sqlite.schema import MAX_SESSIONS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from turnlog.events import AnyEvent
    from turnlog.stores.port import SessionInfo
    from turnlog.stores.sqlite.connection import Database
    from turnlog.stores.sqlite.driver import Connection
    from turnlog.stores.sqlite.reading import Reader

_COLUMNS = f"no, {COLUMNS}"
_ORDER = "SELECT no FROM sessions ORDER BY last_activity DESC, id"
_MANY = f"SELECT {_COLUMNS} FROM carray(?) wanted CROSS JOIN sessions ON sessions.no = wanted.value"
_ONE = f"SELECT {_COLUMNS} FROM sessions WHERE id = ?"
_STALE = f"SELECT {_COLUMNS} FROM sessions WHERE stale"
_EVERY = f"SELECT {_COLUMNS} FROM sessions NOT INDEXED WHERE no BETWEEN ? AND ? ORDER BY no"
_KEEP = keep("no")
_FORGET = "UPDATE sessions SET stale = 1, info = NULL WHERE no = ?"


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
            info, is_kept = self._remade(row)
            if not is_kept:
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
        rows.sort(key=lambda row: place[row.key])
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
                db.execute(_FORGET, (row.key,))

    def _remade(self, row: Row[int]) -> tuple[SessionInfo, bool]:
        """The line of a session whose log has to be read; and whether it was kept."""
        try:
            with self._database.reading() as db:
                fold = self._read(db, row)
        except TurnlogError as error:
            return row.unreadable(error), False
        values = kept(row, fold)
        is_kept = False
        if not self._database.read_only:
            try:
                with self._database.writing() as db:
                    db.execute(_KEEP, values)
                    is_kept = bool(db.changes())
            except (apsw.Error, OSError, StoreError):
                is_kept = False  # it is derived: whoever lists next makes it again
        return fold.info(size=row.bytes), is_kept

    def _read(self, db: Connection, row: Row[int]) -> InfoFold:
        session_id = read_id(row.id)

        def read(wanted: Wanted) -> Sequence[AnyEvent]:
            start, stop, chunks = wanted
            return self._reader.read(db, session_id, start, stop, chunks=chunks)

        known = run(followed(row), read)
        if known is not None:
            return known
        stored = self._reader.load(db, session_id)
        return InfoFold.of(stored.header, stored.events, stored.damage)


def _salvaged(db: Connection, but: Iterable[int]) -> list[Row[int]]:
    """What is left of a listing when a page of the file went bad, but for some sessions."""
    known = frozenset(but)
    rows = [Row(*row) for row in scan(db, _EVERY, 1, MAX_SESSIONS, []) if row[0] not in known]
    return sorted(rows, key=lambda row: (-row.last_activity, row.id))
