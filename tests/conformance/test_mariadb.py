"""The MySQL store passes the suite that every store passes, on MariaDB."""

from __future__ import annotations

from pathlib import Path
from typing import cast

from tests.servers.mariadb import server
from turnlog.stores.mysql import open_mysql
from turnlog.stores.port import SessionEventStore
from turnlog.stores.server.store import ServerStore
from turnlog.testing import Factory, StoreConformance, StoreDifferential


class TestMariaDb(StoreConformance, StoreDifferential):
    """`mysql:` and `mariadb:`."""

    def factory(self, folder: Path) -> Factory:
        """Handles on one database."""
        url = server().url(_database(folder))
        return lambda: open_mysql(url, "turn")

    async def kill(self, handle: SessionEventStore) -> None:
        """Cut its connections; then let time pass until its leases have run out."""
        store = cast("ServerStore", handle)
        await store.abandon()
        database = store.url.partition("localhost/")[2].partition("?")[0]
        server().sql("UPDATE sessions SET lease_until = 1", database=database)

    async def spoil(self, folder: Path, session_id: str) -> None:
        """Overwrite the session's header with noise."""
        key = session_id.encode("utf-8", "surrogatepass").hex()
        server().sql(
            f"UPDATE sessions SET header = x'ff006e6f697365' WHERE id = x'{key}'",  # noqa: S608
            database=_database(folder),
        )


_databases: dict[Path, str] = {}


def _database(folder: Path) -> str:
    if folder not in _databases:
        _databases[folder] = server().new_database()
    return _databases[folder]
