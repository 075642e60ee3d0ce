"""The PostgreSQL store passes the suite that every store passes."""

from __future__ import annotations

from pathlib import Path
from typing import cast

from tests.servers import postgres
from turnlog.stores.port import SessionEventStore
from turnlog.stores.postgres import open_postgres
from turnlog.stores.server.store import ServerStore
from turnlog.testing import Factory, StoreConformance, StoreDifferential


class TestPostgres(StoreConformance, StoreDifferential):
    """`postgresql://…`."""

    def factory(self, folder: Path) -> Factory:
        """Handles on one schema of the tests' server."""
        url = _server_url(folder)
        return lambda: open_postgres(url, "turn")

    async def kill(self, handle: SessionEventStore) -> None:
        """Cut its connections; then let time pass until its leases have run out."""
        store = cast("ServerStore", handle)
        await store.abandon()
        schema = store.url.rpartition("search_path=")[2]
        statement = f"UPDATE {schema}.sessions SET lease_until = 1"  # noqa: S608 - ours
        postgres.server().sql(statement)

    async def spoil(self, folder: Path, session_id: str) -> None:
        """Overwrite the session's header with noise."""
        key = session_id.encode("utf-8", "surrogatepass").hex()
        statement = rf"UPDATE {_schema(folder)}.sessions SET header = '\xff00' WHERE id = '\x{key}'"  # noqa: S608
        postgres.server().sql(statement)


_schemas: dict[Path, str] = {}


def _schema(folder: Path) -> str:
    if folder not in _schemas:
        _schemas[folder] = postgres.server().new_schema()
    return _schemas[folder]


def _server_url(folder: Path) -> str:
    return postgres.server().url(_schema(folder))
