"""The stores that tests run on, by the URL that a user would give."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from tests.servers import mariadb, postgres
from turnlog.stores.memory import MemoryStorage

#: Name -> URL; `{folder}` is an empty folder of the test.
STORES = {
    "memory": "memory:{folder}",
    "jsonl": "jsonl:{folder}/jsonl",
    "jsonl-zstd": "jsonl:{folder}/zstd?compress=zstd",
    "sqlite": "sqlite:{folder}/sessions.db",
}
DURABLE = [name for name in STORES if name != "memory"]
SERVERS = ["postgresql", "mysql"]
"""Stores on servers of the tests' own, on which a test takes longer."""


def url_of(name: str, folder: Path) -> str:
    """The URL of a store of a test's own; the same one for the same folder."""
    return _on_server(name, folder) if name in SERVERS else STORES[name].format(folder=folder)


@cache
def _on_server(name: str, folder: Path) -> str:
    del folder  # which has a database, or schema, of its own
    if name == "postgresql":
        return postgres.server().url(postgres.server().new_schema())
    return mariadb.server().url(mariadb.server().new_database())


def forget(folder: Path) -> None:
    """Give up what `memory:` kept for the folder."""
    MemoryStorage.named.pop(str(folder), None)
