"""`postgresql:` and `postgres:` URLs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from turnlog.stores.postgres.driver import PostgresDriver
from turnlog.stores.server.store import ServerStore
from turnlog.stores.server.urls import shown

if TYPE_CHECKING:
    from turnlog.stores.port import Durability


def open_postgres(url: str, durability: Durability) -> ServerStore:
    """The store in a database of a PostgreSQL server; nothing is connected yet.

    Args:
        url: `postgresql://USER:PASSWORD@HOST:PORT/DATABASE?…`, with the options that libpq has
            (`sslmode`, `sslrootcert`, `host` for a socket's folder …); others are settings of the
            session, such as `search_path`.
        durability: with "none" a commit does not wait for the server's disk.

    Raises:
        InvalidStoreUrl: it cannot be read, or asks for what cannot be had.
    """
    driver = PostgresDriver(url, shown(url), durable=durability != "none")
    return ServerStore(driver, durability=durability)
