"""Searching a file. Before it is asked, its index is brought up to date, by whoever may write.

Where nobody may write, or the file's index is broken, what it lacks goes into an index of this
handle's own, in a temporary file that SQLite removes; an answer joins both.
"""

from __future__ import annotations

from threading import Lock
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

import apsw

from turnlog.stores.sql.hits import Judge, answered
from turnlog.stores.sql.lineage import Part
from turnlog.stores.sql.steps import run
from turnlog.stores.sqlite import fulltext
from turnlog.stores.sqlite.driver import connect
from turnlog.stores.sqlite.fulltext import Prepared
from turnlog.stores.sqlite.messages import Messages
from turnlog.stores.sqlite.salvage import scan
from turnlog.stores.sqlite.schema import MAX_SESSIONS, SEQ_BITS, SEQ_MASK

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from turnlog.stores.searching import Hit, Search, Shadows
    from turnlog.stores.sqlite.connection import Database
    from turnlog.stores.sqlite.driver import Connection
    from turnlog.stores.sqlite.reading import Reader

STEP = 500
"""Messages that are indexed in one transaction: some 20 ms."""
STEP_BYTES = 1 << 20
"""Bytes of messages after which a transaction takes no more of them."""

_SESSIONS = """
    SELECT no, boundary, next_seq FROM sessions NOT INDEXED WHERE no BETWEEN ? AND ? ORDER BY no
"""
_BROKEN = (apsw.CorruptError, apsw.SQLError)


class Searching:
    """What one handle searches. Every method is to be called in a worker thread.

    Args:
        database: where.
        reader: of the same handle.
        title_of: gives the title of a session, by its id.
    """

    def __init__(self, database: Database, reader: Reader, title_of: Callable[[str], str]) -> None:
        self._database = database
        self._reader = reader
        self._title_of = title_of
        self._whole: WeakKeyDictionary[Connection, int] = WeakKeyDictionary()
        self._broken = False  # the file's index could not be used
        self._remade = False  # and was made anew, which is tried once
        self._own: Connection | None = None
        self._guard = Lock()  # of using it

    def close(self) -> None:
        """Forget the index of one's own."""
        with self._guard:
            own, self._own = self._own, None
            self._whole.clear()
            self._broken = self._remade = False
        if own is not None:
            own.close()

    # -- filling -------------------------------------------------------------------------------

    def was_used(self) -> bool:
        """Whether anyone ever searched the file, so that its index is worth keeping up to date."""
        with self._database.reading() as db:
            return fulltext.exists(db) and not self._broken

    def fill(self, only: int | None = None) -> bool:
        """Index some of what lacks; whether more may lack. Not to be called by two at a time.

        Args:
            only: the number of the session that grew; None looks at all, if anyone wrote.
        """
        with self._database.reading() as db:
            version = int(db.pragma("data_version"))
            if only is None and self._whole.get(db) == version:
                return False
            known = self._known(db)
            if known and next(_lacking(db, known, only), None) is None:
                if only is None:
                    self._whole[db] = version
                return False
            if self._database.read_only or (self._broken and self._remade):
                return self._fill_own(db, known)
            usable = not self._broken and fulltext.exists(db)
            indexed = fulltext.upto(db) if usable else {}
            prepared = self._prepared(db, [indexed], only)
        try:
            with self._database.writing() as db:
                if self._broken or not fulltext.exists(db):
                    self._remade, self._broken = self._broken, False
                    fulltext.make(db)
                fulltext.add(db, prepared)
        except _BROKEN:
            self._give_up()
        return True

    def _give_up(self) -> None:
        """Use the file's index no more, unless it can be made anew."""
        self._broken = True
        self._whole.clear()

    def _known(self, db: Connection) -> list[dict[int, int]]:
        """How far the sessions are indexed, in each index that can be used."""
        known: list[dict[int, int]] = []
        if not self._broken and fulltext.exists(db):
            known.append(fulltext.upto(db))
        with self._guard:
            if self._own is not None:
                known.append(fulltext.upto(self._own))
        return known

    def _fill_own(self, db: Connection, known: Sequence[dict[int, int]]) -> bool:
        with self._guard:
            if self._own is None:
                self._own = connect("", apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE)
                fulltext.make(self._own)
            prepared = self._prepared(db, known, None)
            mine = fulltext.upto(self._own)
            self._own.execute("BEGIN")
            try:
                fulltext.add(
                    self._own, [one._replace(before=mine.get(one.no, 0)) for one in prepared]
                )
                self._own.execute("COMMIT")
            except BaseException:
                self._own.execute("ROLLBACK")
                raise
            return True

    def _prepared(
        self, db: Connection, known: Sequence[dict[int, int]], only: int | None
    ) -> list[Prepared]:
        """So many messages that lack, as the index takes them."""
        room, space = STEP, STEP_BYTES
        prepared: list[Prepared] = []
        for part in _lacking(db, known, only):
            before = max((upto.get(part.key, 0) for upto in known), default=0)
            messages = Messages.of(db, self._reader, part.key)
            if messages is None:  # who opens the session is told
                prepared.append(fulltext.prepare(part.key, (), before, part.stop))
                continue
            events, upto = messages.next(db, part, room, space)
            prepared.append(fulltext.prepare(part.key, events, before, upto))
            room -= len(events)
            space -= sum(len(event.raw) for event in events)
            if upto < part.stop or room <= 0 or space <= 0:
                break
        return prepared

    # -- asking --------------------------------------------------------------------------------

    def search(self, wanted: Search) -> list[Hit] | None:
        """The hits of what is indexed, best first; None if the index broke: fill, and try again.

        Raises:
            NoSuchSession: the one to search in does not exist.
        """
        with self._database.reading() as db, self._guard:
            indexes = [] if self._broken or not fulltext.exists(db) else [db]
            indexes += [] if self._own is None else [self._own]
            try:
                return _Answer(db, self._reader, self._title_of, indexes, wanted).hits()
            except _BROKEN:
                if not indexes or indexes[0] is not db:
                    raise
                self._give_up()
                return None


def _lacking(
    db: Connection, known: Sequence[dict[int, int]], only: int | None
) -> Iterator[Part[int]]:
    """What of each session is in no index."""
    first, last = (1, MAX_SESSIONS) if only is None else (only, only)
    for no, boundary, next_seq in scan(db, _SESSIONS, first, last, []):
        start = max([boundary, *(upto.get(no, 0) for upto in known)])
        if start < next_seq:
            yield Part(no, start, next_seq)


class _Answer:
    """One search in indexes that are up to date."""

    def __init__(
        self,
        db: Connection,
        reader: Reader,
        title_of: Callable[[str], str],
        indexes: Sequence[Connection],
        wanted: Search,
    ) -> None:
        self._db = db
        self._reader = reader
        self._title_of = title_of
        self._indexes = indexes
        self._wanted = wanted
        self._judge = Judge(wanted)
        self._parts = None if wanted.session is None else self._lineage(wanted.session)
        self._messages: dict[int, Messages | None] = {}
        self._shadows: dict[int, Shadows] = {}
        self._titles: dict[str, str] = {}

    def _lineage(self, session_id: str) -> list[Part[int]]:
        """Where the events of a session are: its own, and what it inherited."""
        head = self._reader.head(self._db, session_id)
        return self._reader.parts(self._db, head.no, 0, head.next_seq)

    def hits(self) -> list[Hit]:
        """The hits that are wanted."""

        def look(most: int) -> tuple[list[tuple[int, float]], list[Hit]]:
            ranked = self._ranked(most)
            return ranked, [hit for each in ranked if (hit := self._hit(*each)) is not None]

        return run(answered(self._wanted), look)

    def _ranked(self, most: int) -> list[tuple[int, float]]:
        found = [
            hit
            for index in self._indexes
            for hit in fulltext.ask(index, self._wanted, self._parts, most)
        ]
        return sorted(found, key=lambda hit: (-hit[1], -hit[0]))[:most]

    def _hit(self, event_id: int, score: float) -> Hit | None:
        """The hit; None where it is not wanted, cannot be read or says something else by now."""
        no, seq = event_id >> SEQ_BITS, event_id & SEQ_MASK
        if no not in self._messages:
            self._messages[no] = Messages.of(self._db, self._reader, no)
        messages = self._messages[no]
        event = None if messages is None else messages.one(self._db, seq)
        fit = self._judge.fit(event, self._shadows_of(no))
        if messages is None or fit is None:
            return None
        session_id = self._wanted.session or messages.session_id
        if session_id not in self._titles:
            self._titles[session_id] = self._title_of(session_id)
        return self._judge.hit((session_id, self._titles[session_id]), fit, score)

    def _shadows_of(self, no: int) -> Shadows:
        parts = self._parts
        key = -1 if parts is not None else no
        if key not in self._shadows:
            own = [Part(no, 0, SEQ_MASK + 1)]
            self._shadows[key] = fulltext.shadows_in(self._indexes, own if parts is None else parts)
        return self._shadows[key]
