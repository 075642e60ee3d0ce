"""The MySQL store, on MariaDB, when its server, its line or its clock misbehaves."""

from __future__ import annotations

from typing import Any

import pytest

from tests.servers.mariadb import PASSWORD, Server, server
from tests.unit.stores.server_suite import ServerTests
from turnlog.stores.mysql.driver import MySqlDriver
from turnlog.stores.mysql.urls import options_of
from turnlog.stores.server.store import ServerStore
from turnlog.stores.server.urls import shown

pytestmark = pytest.mark.anyio

_INDEXES = """
    SELECT CONCAT(index_name, ' of ', table_name), column_name FROM information_schema.statistics
    WHERE table_schema = DATABASE() AND index_type <> 'FULLTEXT' ORDER BY 1, seq_in_index
"""
_TABLES = "SELECT table_name FROM information_schema.tables WHERE table_schema = DATABASE()"


def store_at(url: str, **options: Any) -> ServerStore:
    """A new handle, with options of the store's."""
    return ServerStore(MySqlDriver(options_of(url, shown(url)), shown(url)), **options)


class MariaDbPlace:
    """A database of its own."""

    def __init__(self, on: Server) -> None:
        self._on = on
        self.database = on.new_database()
        self.port = on.port

    def store(self, *, port: int | None = None, **options: Any) -> ServerStore:
        """A new handle."""
        return store_at(self.url(port=port), **options)

    def url(self, *, word: str | None = None, port: int | None = None) -> str:
        """Its URL."""
        return self._on.tcp_url(self.database, word=PASSWORD if word is None else word, port=port)

    def sql(self, statement: str) -> list[str]:
        """Run a statement in the database."""
        return [str(row[0]) for row in self._on.sql(statement, database=self.database)]

    def indexes(self) -> dict[str, list[str]]:
        """Of the catalog."""
        found: dict[str, list[str]] = {}
        for name, column in self._on.sql(_INDEXES, database=self.database):
            found.setdefault(name, []).append(column)
        return found

    def tables(self) -> set[str]:
        """Of the catalog."""
        return set(self.sql(_TABLES))

    def stop(self) -> None:
        """Kill the server, as a crash does."""
        self._on.stop()

    def start(self) -> None:
        """Start it again."""
        self._on.start()


@pytest.fixture
def place() -> MariaDbPlace:
    """An empty database."""
    return MariaDbPlace(server())


class TestMariaDb(ServerTests):
    """What every server store does, on MariaDB."""
