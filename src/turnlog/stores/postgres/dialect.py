"""How PostgreSQL says it."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Sequence

    from turnlog.stores.server.dialect import Kind, Table
    from turnlog.stores.server.driver import Connection

TYPES: dict[Kind, str] = {"key": "bytea", "int": "bigint", "bytes": "bytea", "text": "text"}
_MIGRATING = 0x746C6F67  # the number of an advisory lock: "tlog"


class PostgresDialect:
    """The words of PostgreSQL 12 or later, and of what speaks like it."""

    name: str = "PostgreSQL"
    now: str = "(extract(epoch FROM clock_timestamp()) * 1000000)::bigint"
    tables: str = "SELECT tablename FROM pg_catalog.pg_tables WHERE schemaname = current_schema()"

    def create(self, table: Table) -> list[str]:
        """The statement that makes a table unless it is there."""
        columns = [
            f"{column.name} {TYPES[column.kind]}" + ("" if column.null else " NOT NULL")
            for column in table.columns
        ]
        columns.append(f"PRIMARY KEY ({', '.join(table.key)})")
        # Room for new versions of a row on its own page: no index has to follow them then.
        room = " WITH (fillfactor = 50)" if table.grows else ""
        return [f"CREATE TABLE IF NOT EXISTS {table.name} ({', '.join(columns)}){room}"]

    def add(self, table: Table) -> str:
        """Insert one row unless its key is there."""
        return f"{_insert(table)} ON CONFLICT DO NOTHING"

    def put(self, table: Table) -> str:
        """Insert one row, or put it in the place of the one with its key."""
        others = (column.name for column in table.columns if column.name not in table.key)
        changes = ", ".join(f"{name} = excluded.{name}" for name in others)
        return f"{_insert(table)} ON CONFLICT ({', '.join(table.key)}) DO UPDATE SET {changes}"

    def among(self, column: str, kind: Kind, values: Sequence[Any]) -> tuple[str, tuple[Any, ...]]:
        """One parameter, whatever the number of values: the statement is prepared once."""
        return f"{column} = ANY(?::{TYPES[kind]}[])", (list(values),)

    def renew(
        self, keys: Sequence[bytes], holder: bytes, lease: int
    ) -> tuple[str, tuple[Any, ...]]:
        """Prolong leases; what is locked is being committed to, which prolongs it, too."""
        statement = f"""
            UPDATE sessions SET lease_until = {self.now} + ? WHERE session IN (
                SELECT session FROM sessions WHERE session = ANY(?::bytea[]) AND holder = ?
                ORDER BY session FOR UPDATE SKIP LOCKED
            )
        """  # noqa: S608 - constants
        return statement, (lease, list(keys), holder)

    @asynccontextmanager
    async def migrating(self, db: Connection) -> AsyncGenerator[None]:
        """A transaction that holds an advisory lock."""
        await db.begin()
        try:
            await db.execute("SELECT pg_advisory_xact_lock(?)", _MIGRATING)
            yield
            await db.commit()
        except BaseException:
            if db.alive:
                await db.rollback()
            raise


def _insert(table: Table) -> str:
    return f"INSERT INTO {table.name} ({table.names}) VALUES ({table.marks})"  # noqa: S608
