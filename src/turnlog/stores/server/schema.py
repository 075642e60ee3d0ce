"""The tables of a database: what they hold, how they are made, and how they grew.

A session's key is the first half of the SHA-256 of its id. Every primary key begins with it, and
there is no other index: rows of a session lie together, on one machine of a cluster. Blobs are kept
under the key of the session at the root of a family of forks, which share them.
"""

from __future__ import annotations

from hashlib import sha256
from typing import TYPE_CHECKING, TypeAlias

from turnlog.errors import StoreError, UnsupportedVersion
from turnlog.stores.server.dialect import Column, Table
from turnlog.stores.server.driver import Fault, Trouble
from turnlog.stores.upkeep import Migration

if TYPE_CHECKING:
    from collections.abc import Sequence

    from turnlog.stores.server.dialect import Dialect
    from turnlog.stores.server.driver import Connection

KEY_SIZE = 16


def key_of(stored_id: bytes) -> bytes:
    """The key of what has this id: of a session, or of a command within one."""
    return sha256(stored_id).digest()[:KEY_SIZE]


META = Table("turnlog_meta", (Column("session", "key"), Column("version", "int")), ("session",))
"""One row, whose key is that of no session."""
NO_SESSION = bytes(KEY_SIZE)

SESSIONS = Table(  # numbers first: a listing finds them in every row without reading what is before
    "sessions",
    (
        Column("last_activity", "int"),
        Column("stale", "int"),  # whether `info` is to be made again
        Column("boundary", "int"),  # events before it are the parent's
        Column("next_seq", "int"),
        Column("token", "int"),
        Column("lease_until", "int"),  # microseconds on the server's clock
        Column("bytes", "int"),
        Column("sum", "int"),  # of the header, CRC-32
        Column("session", "key"),
        Column("id", "bytes"),  # UTF-8 with surrogates passed, so that any two ids differ
        Column("header", "bytes"),  # JSON
        Column("root", "key"),  # of the family of forks: itself, where there is no parent
        Column("parent", "key", null=True),
        Column("holder", "key", null=True),  # the handle that claimed it last, or made it
        Column("owner", "bytes", null=True),  # JSON, for people
        Column("info", "bytes", null=True),  # the state of the listing's line, JSON
    ),
    ("session",),
    grows=True,
)
EVENTS = Table(
    "events",
    (
        Column("session", "key"),
        Column("seq", "int"),
        Column("type", "text"),
        Column("time", "int"),
        Column("data", "bytes"),
        Column("surface_op", "text", null=True),
        Column("source_event_seqs", "text", null=True),
        Column("ignorable", "int", null=True),
        Column("extra", "bytes", null=True),
        Column("sum", "int"),
    ),
    ("session", "seq"),
)
CHUNKS = Table(
    "chunks",
    (
        Column("session", "key"),
        Column("first", "int"),
        Column("last", "int"),
        Column("message", "int", null=True),  # whose payload is the dictionary
        Column("data", "bytes"),
        Column("sum", "int"),
    ),
    ("session", "first"),
)
BLOBS = Table(
    "blobs",
    (Column("session", "key"), Column("hash", "key"), Column("data", "bytes")),
    ("session", "hash"),
)
RECORDS = Table(
    "records",
    (Column("session", "key"), Column("seq", "int"), Column("data", "bytes")),
    ("session",),
)
INBOX = Table(  # only what waits
    "inbox",
    (
        Column("session", "key"),
        Column("position", "int"),
        Column("command_key", "key"),
        Column("prompt", "int"),
        Column("command", "bytes"),
    ),
    ("session", "position"),
)
POSTED = Table(  # the ids of all commands that were ever posted
    "posted", (Column("session", "key"), Column("command_key", "key")), ("session", "command_key")
)

WORDS = Table(  # of messages: derived
    "search_words",
    (
        Column("session", "key"),
        Column("seq", "int"),
        Column("time", "int"),
        Column("length", "int"),  # how many terms there are
        Column("words", "terms"),
    ),
    ("session", "seq"),
)
SHADOWS = Table(  # replacements, which take the nodes from start to stop from the model's view
    "search_shadows",
    (
        Column("session", "key"),
        Column("seq", "int"),
        Column("start", "int"),
        Column("stop", "int"),
    ),
    ("session", "seq"),
)
UPTO = Table(
    "search_upto",
    (
        Column("session", "key"),
        Column("seq", "int"),  # before which everything of the session is in the index
        Column("messages", "int"),  # how many rows it has in `search_words`
        Column("time", "int"),  # of the last of them
    ),
    ("session",),
    grows=True,
)

Step: TypeAlias = "Sequence[Table]"
STEPS: Sequence[Step] = (
    (META, SESSIONS, EVENTS, CHUNKS, BLOBS, RECORDS, INBOX, POSTED, WORDS, SHADOWS, UPTO),
)
"""Step i makes version i + 1 of version i; an empty database has version 0."""

VERSION = len(STEPS)


def statements_of(dialect: Dialect, steps: Sequence[Step]) -> list[str]:
    """What makes the tables of some steps."""
    return [text for step in steps for table in step for text in dialect.create(table)]


def _versioned(dialect: Dialect, version: int) -> str:
    """What says that the tables are of a version."""
    put = dialect.put(META)
    for value in (dialect.literal(NO_SESSION), str(version)):
        put = put.replace("?", value, 1)
    return put


async def version_of(db: Connection, dialect: Dialect, url: str) -> int:
    """The version of the tables, 0 where there are none.

    Raises:
        UnsupportedVersion: they are of a newer turnlog.
        StoreError: they are something else's.
        Fault: they cannot be read.
    """
    names = {row[0] for row in await db.fetch(dialect.tables)}
    version = 0
    if META.name in names:
        rows = await db.fetch(f"SELECT version FROM {META.name}")  # noqa: S608 - a constant
        version = int(rows[0][0]) if rows else 0
    elif SESSIONS.name in names or EVENTS.name in names:
        msg = f"{url}: it holds tables {SESSIONS.name} or {EVENTS.name} that are not turnlog's"
        raise StoreError(f"{msg}: choose another database or schema")
    if version > VERSION:
        msg = (
            f"{url}: the store has schema version {version}, and this turnlog knows up to "
            f"{VERSION}: install a newer turnlog"
        )
        raise UnsupportedVersion(msg)
    return version


async def plan(db: Connection, dialect: Dialect, url: str) -> Migration:
    """What `migrate` would do, to the last statement; changes nothing.

    Raises:
        StoreError: this database cannot hold a store.
        UnsupportedVersion, StoreError, Fault: see `version_of`.
    """
    version = await version_of(db, dialect, url)
    if version == VERSION:
        return Migration(version, VERSION, [])
    if version == 0 and (unfit := await dialect.unfit(db)):
        msg = f"{url}: {unfit}"
        raise StoreError(msg)
    statements = [*statements_of(dialect, STEPS[version:]), _versioned(dialect, VERSION)]
    return Migration(version, VERSION, statements)


async def migrate(db: Connection, dialect: Dialect, url: str) -> Migration:
    """Bring the tables to the newest version; many may try at once. Returns what was done.

    Where a database cannot undo such statements, what was interrupted is done again: each makes
    only what is not there, and the version is written last.

    Raises:
        UnsupportedVersion, StoreError, Fault: see `plan`.
        StoreError: they are to be made, and this user may not do so.
    """
    planned = await plan(db, dialect, url)
    if planned.before == planned.after:
        return planned
    try:
        async with dialect.migrating(db):
            planned = await plan(db, dialect, url)
            for statement in planned.statements:
                await db.execute(statement)
    except Fault as fault:
        if fault.trouble not in (Trouble.REFUSED, Trouble.READ_ONLY):
            raise
        missing = "its tables are missing or of an older turnlog, and this user may not make them"
        msg = f"{url}: {missing}: run turnlog migrate as one who may ({fault})"
        raise StoreError(msg) from fault
    return planned
