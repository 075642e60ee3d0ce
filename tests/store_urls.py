"""The stores that tests run on, by the URL that a user would give."""

from __future__ import annotations

from pathlib import Path

from turnlog.stores.memory import MemoryStorage

#: Name -> URL; `{folder}` is an empty folder of the test.
STORES = {
    "memory": "memory:{folder}",
    "jsonl": "jsonl:{folder}/jsonl",
    "jsonl-zstd": "jsonl:{folder}/zstd?compress=zstd",
    "sqlite": "sqlite:{folder}/sessions.db",
}
DURABLE = [name for name in STORES if name != "memory"]


def url_of(name: str, folder: Path) -> str:
    """The URL of a store of a test's own; the same one for the same folder."""
    return STORES[name].format(folder=folder)


def forget(folder: Path) -> None:
    """Give up what `memory:` kept for the folder."""
    MemoryStorage.named.pop(str(folder), None)
