"""The SQLite store passes the suite that every store passes."""

from __future__ import annotations

from pathlib import Path

from apsw import SQLITE_OPEN_READWRITE

from turnlog.stores.sqlite import SqliteStore
from turnlog.stores.sqlite.driver import connect
from turnlog.testing import Factory, StoreConformance, StoreDifferential

FILE = "sessions.db"


class TestSqlite(StoreConformance, StoreDifferential):
    """`sqlite:FILE`."""

    def factory(self, folder: Path) -> Factory:
        """Handles on one file."""
        return lambda: SqliteStore(folder / FILE)

    async def spoil(self, folder: Path, session_id: str) -> None:
        """Overwrite the session's header with noise."""
        db = connect(str(folder / FILE), SQLITE_OPEN_READWRITE)
        key = session_id.encode("utf-8", "surrogatepass")
        db.execute("UPDATE sessions SET header = x'ff006e6f697365' WHERE id = ?", (key,))
        db.close()
