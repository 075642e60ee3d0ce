"""The messages of a file as a search reads them: few columns of few rows, and no stream."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

from turnlog.errors import InvalidHeader, UnsupportedVersion
from turnlog.stores.sql.heads import read_header, read_id
from turnlog.stores.sql.packing import BadRow
from turnlog.stores.sql.rows import from_row, from_rows
from turnlog.stores.sqlite.fulltext import ids_of
from turnlog.stores.sqlite.reading import Rows
from turnlog.stores.sqlite.salvage import UNREADABLE
from turnlog.stores.sqlite.schema import SEQ_BITS, SEQ_MASK
from turnlog.upcasts import reread

if TYPE_CHECKING:
    from turnlog.events import AnyEvent, SessionHeader
    from turnlog.stores.sql.lineage import Part
    from turnlog.stores.sqlite.driver import Connection
    from turnlog.stores.sqlite.reading import Reader

_ROW = f"id & {SEQ_MASK}, type, time, data, surface_op, source_event_seqs, ignorable, extra, sum"
_NEXT = f"""
    SELECT {_ROW} FROM events WHERE id BETWEEN ? AND ? AND surface_op IS NOT NULL
    ORDER BY id LIMIT ?
"""  # noqa: S608 - the columns are ours
_ONE = f"SELECT {_ROW} FROM events WHERE id = ?"  # noqa: S608
_AT_ONCE = 8  # rows that are read before their size is looked at
_HEADER = "SELECT id, header, sum FROM sessions WHERE no = ?"


class Messages:
    """The messages of one session's own rows, read as their source's format asks for.

    Attributes:
        no: the session's number.
        session_id: its id.
    """

    def __init__(self, reader: Reader, no: int, session_id: str, header: SessionHeader) -> None:
        self.no = no
        self.session_id = session_id
        self._reader = reader
        self._header = header

    @classmethod
    def of(cls, db: Connection, reader: Reader, no: int) -> Messages | None:
        """Those of a session; None where its row cannot be read."""
        try:
            row = db.execute(_HEADER, (no,)).fetchone()
            if row is None:
                return None
            header = read_header(row[1], row[2])
        except (InvalidHeader, UnsupportedVersion, *UNREADABLE):
            return None
        return cls(reader, no, read_id(row[0]), header)

    def next(
        self, db: Connection, part: Part[int], most: int, most_bytes: int
    ) -> tuple[list[AnyEvent], int]:
        """The first messages of a part, and the seq from where to go on.

        Args:
            db: where.
            part: see above.
            most: how many messages at most.
            most_bytes: the size of payloads after which no more are read.
        """
        try:
            events: list[AnyEvent] = []
            size = 0
            blob = Rows(db, self.no).blob
            rows = iter(db.execute(_NEXT, (*ids_of(part), most)))
            while size < most_bytes and (some := list(islice(rows, _AT_ONCE))):
                found = from_rows(some, blob)
                size += sum(len(event.raw) for event in found)
                events += found
            whole = len(events) < most and size < most_bytes
            upto = part.stop if whole else events[-1].seq + 1
        except (BadRow, *UNREADABLE):  # damage, around which there is a slow way
            upto = min(part.start + most, part.stop)
            found = self._reader.read(db, self.session_id, part.start, upto)
            events = [event for event in found if event.surface_op is not None]
        return [self._read(event) for event in events], upto

    def one(self, db: Connection, seq: int) -> AnyEvent | None:
        """A message; None where it cannot be read."""
        try:
            row = db.execute(_ONE, (self.no << SEQ_BITS | seq,)).fetchone()
            return None if row is None else self._read(from_row(row, Rows(db, self.no).blob))
        except (BadRow, *UNREADABLE):
            return None

    def _read(self, event: AnyEvent) -> AnyEvent:
        foreign = event.seq < (self._header.source_length or 0)
        return reread(self._header, event) if foreign else event
