"""The schema of a store's file: what its tables hold, how it is made, and how it grew.

A row of a session's log has the id `no << 36 | seq`, so that one b-tree holds every session's
events in order. `docs/architecture.md` says which module writes which table.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from turnlog.errors import StoreError, UnsupportedVersion

if TYPE_CHECKING:
    from collections.abc import Sequence

    from turnlog.stores.sqlite.driver import Connection


APPLICATION = 0x746C6F67
"""`application_id`: "tlog"."""

SEQ_BITS = 36
SEQ_MASK = (1 << SEQ_BITS) - 1
MAX_SESSIONS = 1 << (63 - SEQ_BITS)

STEPS: Sequence[Sequence[str]] = (
    (
        # id: UTF-8 with surrogates passed, so that any two ids differ. header: JSON, sum its crc32.
        # parent, boundary: of a fork: what comes before that seq is the parent's.
        # owner: JSON, of the last claim. info: the state of the listing's line, unless it is stale.
        """
        CREATE TABLE sessions (
            no INTEGER PRIMARY KEY,
            id BLOB NOT NULL UNIQUE,
            header BLOB NOT NULL,
            sum INTEGER NOT NULL,
            parent INTEGER,
            boundary INTEGER NOT NULL DEFAULT 0,
            next_seq INTEGER NOT NULL DEFAULT 0,
            token INTEGER NOT NULL DEFAULT 0,
            owner BLOB,
            last_activity INTEGER NOT NULL,
            bytes INTEGER NOT NULL DEFAULT 0,
            stale INTEGER NOT NULL DEFAULT 0,
            info BLOB
        )
        """,
        "CREATE INDEX by_activity ON sessions (last_activity DESC, id)",
        "CREATE INDEX stale_lines ON sessions (no) WHERE stale",
        # One row an event, chunks aside; `sum` is over what is stored.
        f"""
        CREATE TABLE events (
            id INTEGER PRIMARY KEY,
            session INTEGER GENERATED ALWAYS AS (id >> {SEQ_BITS}) VIRTUAL,
            seq INTEGER GENERATED ALWAYS AS (id & {SEQ_MASK}) VIRTUAL,
            type TEXT NOT NULL,
            time INTEGER NOT NULL,
            data BLOB NOT NULL,
            surface_op TEXT,
            source_event_seqs TEXT,
            ignorable INTEGER,
            extra BLOB,
            sum INTEGER NOT NULL
        )
        """,
        # Runs of assistant/chunk events; the id has the first seq. message: whose payload is the
        # dictionary that the run is packed with. `streams` has those of attempts that were running
        # when they were stored. Where one became a message they go, and all of it comes into
        # `chunks`, to which rows are only added: so its pages are full.
        *(
            f"""
            CREATE TABLE {table} (
                id INTEGER PRIMARY KEY,
                session INTEGER GENERATED ALWAYS AS (id >> {SEQ_BITS}) VIRTUAL,
                first INTEGER GENERATED ALWAYS AS (id & {SEQ_MASK}) VIRTUAL,
                last INTEGER NOT NULL,
                message INTEGER,
                data BLOB NOT NULL,
                sum INTEGER NOT NULL
            )
            """
            for table in ("chunks", "streams")
        ),
        # Long strings out of payloads, once a store.
        "CREATE TABLE blobs (hash BLOB PRIMARY KEY, data BLOB NOT NULL) WITHOUT ROWID",
        # The last opening record of a session, packed: derived. Apart from `sessions`, whose rows
        # are written at each commit.
        """
        CREATE TABLE records (
            session INTEGER PRIMARY KEY, seq INTEGER NOT NULL, data BLOB NOT NULL
        )
        """,
        # Commands; one that was accepted keeps its id, and gives up its content.
        """
        CREATE TABLE inbox (
            position INTEGER PRIMARY KEY,
            session INTEGER NOT NULL,
            id BLOB NOT NULL,
            prompt INTEGER NOT NULL,
            command BLOB,
            UNIQUE (session, id)
        )
        """,
        "CREATE INDEX waiting ON inbox (session, position) WHERE command IS NOT NULL",
    ),
)
"""Step i makes version i + 1 of version i, in one transaction; a new file has version 0."""

VERSION = len(STEPS)


def version_of(db: Connection, url: str) -> int:
    """The file's version, 0 if it is new.

    Raises:
        UnsupportedVersion: it is newer than this turnlog.
        StoreError: the file is something else's.
    """
    used = _tables(db)  # first: others may be making them, and then what follows says so
    application, version = int(db.pragma("application_id")), int(db.pragma("user_version"))
    if application != APPLICATION and (version or application or used):
        msg = f"{url}: an SQLite database that is no store of turnlog's: choose another file"
        raise StoreError(msg)
    if version > VERSION:
        msg = (
            f"{url}: the store has schema version {version}, and this turnlog knows up to "
            f"{VERSION}: install a newer turnlog"
        )
        raise UnsupportedVersion(msg)
    return version


def _tables(db: Connection) -> bool:
    return bool(db.execute("SELECT count(*) FROM sqlite_schema").fetchone()[0])


def statements(version: int, steps: Sequence[Sequence[str]] = STEPS) -> list[str]:
    """What brings a file from a version to the newest, with what says that it is done."""
    if version == len(steps):
        return []
    made = [statement for step in steps[version:] for statement in step]
    said = (f"PRAGMA application_id = {APPLICATION}", f"PRAGMA user_version = {len(steps)}")
    return [*made, *said]


def migrate(db: Connection, url: str, steps: Sequence[Sequence[str]] = STEPS) -> None:
    """Bring the file to the newest version, all of it or nothing; many may try at once.

    Raises:
        UnsupportedVersion, StoreError: see `version_of`.
        apsw.Error: it failed, and the file is what it was.
    """
    if version_of(db, url) == len(steps):
        return
    db.execute("BEGIN IMMEDIATE")
    try:
        for statement in statements(version_of(db, url), steps):
            db.execute(statement)
        db.execute("COMMIT")
    except BaseException:
        if db.in_transaction:
            db.execute("ROLLBACK")
        raise
