"""How MySQL and MariaDB say it."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from turnlog.stores.server.driver import Fault, Trouble

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Sequence

    from turnlog.stores.server.dialect import Kind, Table
    from turnlog.stores.server.driver import Connection

_TEXT = "LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin"
TYPES: dict[Kind, str] = {"key": "BINARY(16)", "int": "BIGINT", "bytes": "LONGBLOB", "text": _TEXT}
_MIGRATING = "CONCAT('turnlog ', SHA1(DATABASE()))"  # a lock of the server's, not of the database's
_PATIENCE = 50  # seconds; less than a statement may take


class MySqlDialect:
    """The words of MySQL 8, of MariaDB 10.3 or later, and of what speaks like them."""

    name: str = "MySQL"
    # SYSDATE, unlike NOW, is the time at which it is asked; the session's time zone is UTC.
    now: str = "TIMESTAMPDIFF(MICROSECOND, '1970-01-01', SYSDATE(6))"
    tables: str = "SELECT table_name FROM information_schema.tables WHERE table_schema = DATABASE()"

    def create(self, table: Table) -> list[str]:
        """The statement that makes a table unless it is there."""
        columns = [
            f"{column.name} {TYPES[column.kind]}" + ("" if column.null else " NOT NULL")
            for column in table.columns
        ]
        columns.append(f"PRIMARY KEY ({', '.join(table.key)})")
        options = "ENGINE=InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin"
        return [f"CREATE TABLE IF NOT EXISTS {table.name} ({', '.join(columns)}) {options}"]

    def add(self, table: Table) -> str:
        """Insert one row unless its key is there. INSERT IGNORE would ignore more than that."""
        key = table.key[0]
        return f"{_insert(table)} ON DUPLICATE KEY UPDATE {key} = {table.name}.{key}"

    def put(self, table: Table) -> str:
        """Insert one row, or put it in the place of the one with its key."""
        return f"REPLACE INTO {table.name} ({table.names}) VALUES ({table.marks})"  # noqa: S608

    def among(self, column: str, kind: Kind, values: Sequence[Any]) -> tuple[str, tuple[Any, ...]]:
        """A list of the values."""
        del kind
        return f"{column} IN ({', '.join('?' * len(values))})", tuple(values)

    def renew(
        self, keys: Sequence[bytes], holder: bytes, lease: int
    ) -> tuple[str, tuple[Any, ...]]:
        """Prolong leases, in the order of the keys."""
        condition, values = self.among("session", "key", keys)
        statement = f"""
            UPDATE sessions SET lease_until = {self.now} + ? WHERE {condition} AND holder = ?
            ORDER BY session
        """  # noqa: S608 - constants
        return statement, (lease, *values, holder)

    @asynccontextmanager
    async def migrating(self, db: Connection) -> AsyncGenerator[None]:
        """Hold a lock of the server's; it goes with the connection, too."""
        ((got,),) = await db.fetch(f"SELECT GET_LOCK({_MIGRATING}, {_PATIENCE})")
        if got != 1:
            raise Fault(Trouble.BUSY, "another process makes the tables, and is not done")
        try:
            yield
        finally:
            if db.alive:
                await db.fetch(f"SELECT RELEASE_LOCK({_MIGRATING})")


def _insert(table: Table) -> str:
    return f"INSERT INTO {table.name} ({table.names}) VALUES ({table.marks})"  # noqa: S608
