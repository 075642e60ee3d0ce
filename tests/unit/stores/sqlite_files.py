"""SQLite stores that tests look into, and damage, behind the store's back."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Generator, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import apsw

from turnlog.events import AnyEvent
from turnlog.stores.port import Stored
from turnlog.stores.sqlite import SqliteStore
from turnlog.stores.sqlite.driver import Connection, connect
from turnlog.testing.conformance.base import commit
from turnlog.testing.conformance.samples import FIRST, header

FILE = "sessions.db"


@asynccontextmanager
async def opened(folder: Path) -> AsyncGenerator[SqliteStore]:
    """A new handle on the folder's store."""
    store = SqliteStore(folder / FILE)
    await store.open()
    try:
        yield store
    finally:
        await store.close()


async def write(folder: Path, session_id: str, *batches: Sequence[AnyEvent]) -> None:
    """Create a session with these events, a commit each."""
    async with opened(folder) as store:
        await store.create(header(session_id))
        claim = await store.claim(session_id, FIRST)
        for events in batches:
            await commit(store, claim, events)


@contextmanager
def connected(folder: Path) -> Generator[Connection]:
    """A connection of the test's own."""
    flags = apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE
    db = connect(str(folder / FILE), flags)
    try:
        yield db
    finally:
        db.close()


def page_of(folder: Path, table: str, row: int) -> tuple[int, list[int]]:
    """The leaf page that holds a row, from 1, and the ids of all rows on it."""
    with connected(folder) as db:
        db.pragma("wal_checkpoint", "TRUNCATE")
        query = "SELECT pageno FROM dbstat WHERE name = ? AND pagetype = 'leaf' ORDER BY pageno"
        pages = [page for (page,) in db.execute(query, (table,)).fetchall()]
        rows = db.execute(f"SELECT id FROM {table} ORDER BY id").fetchall()  # noqa: S608
        ids = [one for (one,) in rows]
        counts = dict(
            db.execute("SELECT pageno, ncell FROM dbstat WHERE name = ?", (table,)).fetchall()
        )
    at = 0
    for page in pages:  # rows were added in order, and so were pages
        here = ids[at : at + counts[page]]
        if row in here:
            return page, here
        at += counts[page]
    raise LookupError(row)


def lost(stored: Stored) -> list[tuple[int | None, int | None]]:
    """The ranges of the damage."""
    return [(damage.first_seq, damage.last_seq) for damage in stored.damage]
