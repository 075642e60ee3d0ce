"""The MySQL store passes the suite that every store passes, on MariaDB."""

from __future__ import annotations

from pathlib import Path

from tests.servers.mariadb import server
from turnlog.stores.mysql.store import open_mysql
from turnlog.testing import Factory, StoreConformance, StoreDifferential

_DATABASE = "database"


def _database(folder: Path) -> str:
    """The name of the test's database, which a file in its folder holds."""
    known = folder / _DATABASE
    if not known.exists():
        known.write_text(server().new_database())
    return known.read_text()


class TestMariaDb(StoreConformance, StoreDifferential):
    """`mysql:` and `mariadb:`."""

    def factory(self, folder: Path) -> Factory:
        """Handles on one database."""
        return lambda: open_mysql(server().url(_database(folder)), "turn")

    async def spoil(self, folder: Path, session_id: str) -> None:
        """Overwrite the session's header with noise."""
        key = session_id.encode("utf-8", "surrogatepass").hex()
        server().sql(
            f"UPDATE sessions SET header = x'ff006e6f697365' WHERE id = x'{key}'",  # noqa: S608
            database=_database(folder),
        )
