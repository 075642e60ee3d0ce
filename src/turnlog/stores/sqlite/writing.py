"""Writing: claims, and batches of any number of sessions in one transaction."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from zlib import crc32

import apsw

from turnlog import jsontext
from turnlog.errors import (
    NoSuchSession,
    SessionExists,
    StaleWriter,
    StoreClosed,
    StoreError,
    TurnlogError,
    WriteFailed,
)
from turnlog.stores.info import InfoFold
from turnlog.stores.port import Batch, Claim
from turnlog.stores.sql.heads import line_after, read_header, stored_id
from turnlog.stores.sql.packing import pack_whole
from turnlog.stores.sql.runs import Attempt, Plan, plan
from turnlog.stores.sqlite.failures import failure
from turnlog.stores.sqlite.ownership import Handles, give_back, take, taken_over
from turnlog.stores.sqlite.reading import Reader
from turnlog.stores.sqlite.schema import MAX_SESSIONS, SEQ_BITS, SEQ_MASK

if TYPE_CHECKING:
    from collections.abc import Sequence

    from turnlog.events import SessionHeader
    from turnlog.stores.port import Owner
    from turnlog.stores.sqlite.connection import Database
    from turnlog.stores.sqlite.driver import Connection

_CREATE = """
    INSERT INTO sessions (id, header, sum, parent, boundary, next_seq, last_activity, stale, info)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (id) DO NOTHING RETURNING no
"""
_HELD = """
    SELECT token, next_seq, owner, header, sum, last_activity, stale, info
    FROM sessions WHERE no = ?
"""
_GROW = """
    UPDATE sessions SET next_seq = ?, last_activity = ?, bytes = bytes + ?, stale = ?, info = ?
    WHERE no = ?
"""
_ADD_EVENT = """
    INSERT INTO events
    (id, type, time, data, surface_op, source_event_seqs, ignorable, extra, sum)
    VALUES (? | ?, ?, ?, ?, ?, ?, ?, ?, ?)
"""
_ADD_CHUNKS = "INSERT INTO chunks (id, last, message, data, sum) VALUES (? | ?, ?, ?, ?, ?)"
_ADD_STREAM = "INSERT INTO streams (id, last, message, data, sum) VALUES (? | ?, ?, ?, ?, ?)"
_ADD_BLOB = "INSERT INTO blobs (hash, data) VALUES (?, ?) ON CONFLICT DO NOTHING"
_KEEP_RECORD = "INSERT OR REPLACE INTO records (session, seq, data) VALUES (?, ?, ?)"
_GUILTY = (apsw.ConstraintError, apsw.CorruptError, apsw.MismatchError, apsw.TooBigError)
_SPARE = 64  # free pages that a file may keep, to be used again
_AT_ONCE = 1000  # pages that are given back in one go
_OVERHEAD = 40  # bytes of a row besides its payload, roughly


class Tenure:
    """One claim of this handle's.

    Attributes:
        no: the session's number.
        attempt: the chunks of the attempt that is running.
        given_up: it was to be given back, which may have failed.
        unsettled: the last commit failed, and it is not known whether it was done all the same.
    """

    __slots__ = ("_header", "attempt", "given_up", "no", "session_id", "token", "unsettled")

    def __init__(self, no: int, session_id: str, token: int) -> None:
        self.no = no
        self.session_id = session_id
        self.token = token
        self.attempt = Attempt()
        self.given_up = False
        self.unsettled = False
        self._header: tuple[bytes, SessionHeader] | None = None

    def header(self, raw: bytes, total: int) -> SessionHeader:
        """The header as it is stored, read once.

        Raises:
            InvalidHeader, UnsupportedVersion: it cannot be read.
        """
        if self._header is None or self._header[0] != raw:
            self._header = (raw, read_header(raw, total))
        return self._header[1]


class Writing:
    """What one handle writes. Called in one worker thread at a time.

    Args:
        database: where.
        reader: of the same handle.
        handles: the locks of the handles on the file.
    """

    def __init__(self, database: Database, reader: Reader, handles: Handles) -> None:
        self._database = database
        self._reader = reader
        self._handles = handles
        self._tenures: set[Tenure] = set()

    # -- sessions ------------------------------------------------------------------------------

    def create(
        self, header: SessionHeader, parent_id: str | None = None, boundary: int = 0
    ) -> None:
        """Add a session; with a parent, one whose events before `boundary` are the parent's.

        Raises:
            SessionExists, NoSuchSession: the id is taken; there is no such parent.
            StoreError: its seed is longer than a session may be here.
        """
        _check_end(header.id, max(boundary, header.seed_length or 0))
        raw = jsontext.encode(header.to_dict())
        fold = InfoFold(header)
        info = jsontext.encode(fold.state())
        with self._database.writing() as db:
            parent = None
            if parent_id is not None:
                head = self._reader.head(db, parent_id)
                parent = head.no
                if not 0 <= boundary <= head.next_seq:
                    msg = f"session {parent_id!r} ends before seq {head.next_seq}, not {boundary}"
                    raise StoreError(msg)
            row = db.execute(
                _CREATE,
                (
                    stored_id(header.id),
                    raw,
                    crc32(raw),
                    parent,
                    boundary,
                    boundary,
                    header.created_at,
                    int(boundary > 0),
                    info,
                ),
            ).fetchone()
            if row is None:
                msg = f"session {header.id!r} exists already in {self._database.url}"
                raise SessionExists(msg)
            if row[0] >= MAX_SESSIONS:
                msg = f"{self._database.url}: it holds {MAX_SESSIONS - 1} sessions, and no more"
                raise StoreError(msg)

    def claim(self, session_id: str, owner: Owner, *, steal: bool) -> Claim:
        """Become the session's one writer; the claim's handle is a `Tenure`."""
        with self._database.writing() as db:
            no = self._reader.head(db, session_id).no
            query = "SELECT owner, token FROM sessions WHERE no = ?"
            held, last = db.execute(query, (no,)).fetchone()
            left = self._handles.is_own(held) and not self._holds(no, last)
            token = take(db, no, session_id, held, self._handles, owner, steal=steal or left)
        tenure = Tenure(no, session_id, token)
        self._tenures.add(tenure)
        return Claim(session_id, token, tenure)

    def _holds(self, no: int, token: int) -> bool:
        """Whether this handle has that claim; else it was lost between a COMMIT and its answer."""
        claims = ((one.no, one.token) for one in self._tenures if not one.given_up)
        return (no, token) in claims

    def release(self, claim: Claim) -> None:
        """Give a session back, unless the claim was lost; also those that it failed for before."""
        tenure = claim.handle
        if tenure in self._tenures:
            tenure.given_up = True
            due = {one for one in self._tenures if one.given_up}
            with self._database.writing() as db:
                for one in due:
                    give_back(db, one.no, one.token)
                _give_space_back(db)
            self._tenures -= due

    def release_all(self) -> None:
        """Give back what was claimed."""
        tenures, self._tenures = self._tenures, set()
        if tenures:
            with self._database.writing() as db:
                for tenure in tenures:
                    give_back(db, tenure.no, tenure.token)
                _give_space_back(db)

    def reseed(self, claim: Claim, header: SessionHeader) -> None:
        """Exchange the header; what was derived from the old one goes."""
        tenure = self._tenure_of(claim)
        _check_end(claim.session_id, header.seed_length or 0)
        raw = jsontext.encode(header.to_dict())
        try:
            with self._database.writing() as db:
                self._held(db, tenure)
                query = (
                    "UPDATE sessions SET header = ?, sum = ?, stale = 1, info = NULL WHERE no = ?"
                )
                db.execute(query, (raw, crc32(raw), tenure.no))
                db.execute("DELETE FROM records WHERE session = ?", (tenure.no,))
        except (apsw.Error, OSError) as error:
            raise failure(error, f"session {claim.session_id!r}", WriteFailed) from error

    def _tenure_of(self, claim: Claim) -> Tenure:
        tenure = claim.handle
        if tenure not in self._tenures or tenure.given_up:
            msg = f"session {claim.session_id!r}: the claim was given back"
            raise StaleWriter(msg)
        return tenure

    def _held(self, db: Connection, tenure: Tenure) -> tuple[Any, ...]:
        """The session's row, as long as the claim holds.

        Raises:
            StaleWriter: it does not.
        """
        row = db.execute(_HELD, (tenure.no,)).fetchone()
        if row is None:
            msg = f"no session {tenure.session_id!r} in {self._database.url}"
            raise NoSuchSession(msg)
        if row[0] != tenure.token:
            raise taken_over(tenure.session_id, row[2])
        return row

    # -- batches -------------------------------------------------------------------------------

    def commit(self, batches: Sequence[Batch]) -> list[StoreError | None]:
        """Store batches in one transaction; for each None, or why nothing of it was stored."""
        results: list[StoreError | None] = [None] * len(batches)
        due: list[tuple[int, Batch, Tenure, Plan]] = []
        for i, batch in enumerate(batches):
            try:
                tenure = self._tenure_of(batch.claim)
                _check_end(batch.claim.session_id, batch.next_seq)
                due.append((i, batch, tenure, plan(batch.events, tenure.attempt.runs)))
            except StoreError as error:
                results[i] = error
            except TurnlogError as error:
                results[i] = StoreError(str(error))
        self._store(due, results)
        return results

    def _store(
        self, due: list[tuple[int, Batch, Tenure, Plan]], results: list[StoreError | None]
    ) -> None:
        if not due:
            return
        done: list[tuple[Tenure, Plan]] = []
        try:
            with self._database.writing() as db:
                for i, batch, tenure, planned in due:
                    try:
                        if self._add(db, batch, tenure, planned):
                            done.append((tenure, planned))
                    except StoreError as error:  # it was refused before anything was written
                        results[i] = error
        except StoreClosed:
            raise
        except StoreError as error:  # nothing can be written: the file is not what it was
            raise WriteFailed(str(error)) from error
        except (apsw.Error, OSError) as error:
            if isinstance(error, _GUILTY) and len(due) > 1:
                for one in due:
                    results[one[0]] = None
                    self._store([one], results)
                return
            for i, _, tenure, _ in due:
                tenure.unsettled = True
                doing = f"session {tenure.session_id!r}"
                results[i] = results[i] or failure(error, doing, WriteFailed)
            return
        for tenure, planned in done:
            tenure.unsettled = False
            tenure.attempt.follow(planned)

    def _add(self, db: Connection, batch: Batch, tenure: Tenure, planned: Plan) -> bool:
        """Write a batch's rows; False if they are there already, since a commit went unnoticed.

        Raises:
            StaleWriter: token or seq is not the session's; nothing was written.
        """
        _, next_seq, _, header, total, *line = self._held(db, tenure)
        if next_seq != batch.expected_seq:
            if tenure.unsettled and self._is_there(db, batch, next_seq):
                return False
            msg = (
                f"session {tenure.session_id!r}: expected the log to end before seq "
                f"{batch.expected_seq}, it ends before {next_seq}"
            )
            raise StaleWriter(msg)
        no, base = tenure.no, tenure.no << SEQ_BITS
        events, _, blobs = planned.rows
        streamed = [run.row for run in planned.runs]
        size = -sum(len(row.data) + _OVERHEAD for row in planned.repacked)
        if planned.repacked:
            gone = ((base | row.first,) for row in planned.repacked)
            db.executemany("DELETE FROM streams WHERE id = ?", gone)
        if events:
            db.executemany(_ADD_EVENT, ((base, *row) for row in events))
            size += sum(len(row[3]) for row in events) + _OVERHEAD * len(events)
        for statement, runs in ((_ADD_CHUNKS, planned.settled), (_ADD_STREAM, streamed)):
            if runs:
                db.executemany(statement, ((base, *row) for row in runs))
                size += sum(len(row.data) + _OVERHEAD for row in runs)
        for key, data in blobs.items():
            db.execute(_ADD_BLOB, (key, data))
            size += len(data) if db.changes() else 0
        if batch.record is not None:
            db.execute(_KEEP_RECORD, (no, batch.record.seq, pack_whole(batch.record.data)))
        if batch.events:
            last_activity, stale, info = line_after(
                batch, lambda: tenure.header(header, total), *line
            )
            db.execute(_GROW, (batch.next_seq, last_activity, size, stale, info, no))
        return True

    def _is_there(self, db: Connection, batch: Batch, next_seq: int) -> bool:
        """Whether exactly these events are stored from the expected seq on."""
        if next_seq != batch.next_seq:
            return False
        session_id = batch.claim.session_id
        stored = self._reader.read(db, session_id, batch.expected_seq, next_seq)
        return [(e.seq, e.raw) for e in stored] == [(e.seq, e.raw) for e in batch.events] and all(
            mine == theirs for mine, theirs in zip(batch.events, stored, strict=True)
        )


def _give_space_back(db: Connection) -> None:
    """Shorten the file if many of its pages hold nothing; a part of them each time."""
    if int(db.pragma("freelist_count")) > _SPARE:
        db.execute(f"PRAGMA incremental_vacuum({_AT_ONCE})").fetchall()


def _check_end(session_id: str, next_seq: int) -> None:
    """Raise unless a session may be so long."""
    if next_seq - 1 > SEQ_MASK:
        msg = f"session {session_id!r}: expected seqs up to {SEQ_MASK}, got {next_seq - 1}"
        raise StoreError(msg)
