"""An empty database, or schema of one, for each test, on the servers of the tests' own."""

from __future__ import annotations

from typing import Any

from tests.servers import mariadb, postgres
from tests.servers.wire import MySqlWire, PostgresWire
from turnlog.stores.mysql.driver import MySqlDriver
from turnlog.stores.mysql.urls import options_of
from turnlog.stores.postgres.driver import PostgresDriver
from turnlog.stores.server.store import ServerStore
from turnlog.stores.server.urls import shown

_POSTGRES_INDEXES = """
    SELECT i.relname || ' of ' || t.relname || ':' || string_agg(a.attname, ',' ORDER BY k.place)
    FROM pg_index x JOIN pg_class i ON i.oid = x.indexrelid JOIN pg_class t ON t.oid = x.indrelid
    JOIN pg_am m ON m.oid = i.relam, unnest(x.indkey) WITH ORDINALITY AS k (number, place)
    JOIN pg_attribute a ON a.attnum = k.number
    WHERE a.attrelid = x.indrelid AND m.amname <> 'gin' AND t.relnamespace = '{}'::regnamespace
    GROUP BY i.relname, t.relname
"""


_MARIADB_INDEXES = """
    SELECT CONCAT(index_name, ' of ', table_name), column_name FROM information_schema.statistics
    WHERE table_schema = DATABASE() AND index_type <> 'FULLTEXT' ORDER BY 1, seq_in_index
"""
_MARIADB_TABLES = "SELECT table_name FROM information_schema.tables WHERE table_schema = DATABASE()"


class PostgresPlace:
    """A schema of its own."""

    wire = PostgresWire

    def __init__(self, on: postgres.Server) -> None:
        self._on = on
        self.schema = on.new_schema()
        self.port = on.port

    def driver(self, *, port: int | None = None) -> PostgresDriver:
        """A driver, to be used without a store."""
        url = self.url(port=port)
        return PostgresDriver(url, shown(url))

    def store(self, *, port: int | None = None, **options: Any) -> ServerStore:
        """A new handle."""
        return ServerStore(self.driver(port=port), **options)

    def url(self, *, word: str | None = None, port: int | None = None) -> str:
        """Its URL."""
        return self._on.tcp_url(
            self.schema, word=postgres.PASSWORD if word is None else word, port=port
        )

    def sql(self, statement: str) -> list[str]:
        """Run a statement in the schema."""
        return self._on.sql(f"SET search_path = {self.schema}", statement)

    def indexes(self) -> dict[str, list[str]]:
        """Of the catalog."""
        found = (line.partition(":") for line in self.sql(_POSTGRES_INDEXES.format(self.schema)))
        return {name: columns.split(",") for name, _, columns in found}

    def tables(self) -> set[str]:
        """Of the catalog."""
        return set(self.sql("SELECT tablename FROM pg_tables WHERE schemaname = current_schema()"))

    def stop(self) -> None:
        """Kill the server, as a crash does."""
        self._on.stop()

    def start(self) -> None:
        """Start it again."""
        self._on.start()


def driver_of(url: str) -> MySqlDriver:
    """What connects to a URL."""
    return MySqlDriver(options_of(url, shown(url)), shown(url))


def store_at(url: str, **options: Any) -> ServerStore:
    """A new handle, with options of the store's."""
    return ServerStore(driver_of(url), **options)


class MariaDbPlace:
    """A database of its own."""

    wire = MySqlWire

    def __init__(self, on: mariadb.Server) -> None:
        self._on = on
        self.database = on.new_database()
        self.port = on.port

    def driver(self, *, port: int | None = None) -> MySqlDriver:
        """A driver, to be used without a store."""
        return driver_of(self.url(port=port))

    def store(self, *, port: int | None = None, **options: Any) -> ServerStore:
        """A new handle."""
        return ServerStore(self.driver(port=port), **options)

    def url(self, *, word: str | None = None, port: int | None = None) -> str:
        """Its URL."""
        return self._on.tcp_url(
            self.database, word=mariadb.PASSWORD if word is None else word, port=port
        )

    def sql(self, statement: str) -> list[str]:
        """Run a statement in the database."""
        return [str(row[0]) for row in self._on.sql(statement, database=self.database)]

    def indexes(self) -> dict[str, list[str]]:
        """Of the catalog."""
        found: dict[str, list[str]] = {}
        for name, column in self._on.sql(_MARIADB_INDEXES, database=self.database):
            found.setdefault(name, []).append(column)
        return found

    def tables(self) -> set[str]:
        """Of the catalog."""
        return set(self.sql(_MARIADB_TABLES))

    def stop(self) -> None:
        """Kill the server, as a crash does."""
        self._on.stop()

    def start(self) -> None:
        """Start it again."""
        self._on.start()


def empty_place(server: str) -> PostgresPlace | MariaDbPlace:
    """A place of one's own on a server of that name in `tests.store_urls`."""
    if server == "postgresql":
        return PostgresPlace(postgres.server())
    return MariaDbPlace(mariadb.server())
