"""The JSONL store passes the suite that every store passes, plain and compressed."""

from __future__ import annotations

from pathlib import Path

from turnlog.stores.jsonl import JsonlStore
from turnlog.stores.jsonl.names import folder_name
from turnlog.testing import Factory, StoreConformance, StoreDifferential


class TestJsonl(StoreConformance, StoreDifferential):
    """`jsonl:DIR`."""

    compress = False

    def factory(self, folder: Path) -> Factory:
        """Handles on one folder."""
        return lambda: JsonlStore(folder, durability="turn", compress=self.compress)

    async def spoil(self, folder: Path, session_id: str) -> None:
        """Overwrite the session's files with noise."""
        for path in (folder / folder_name(session_id)).glob("*.jsonl*"):
            path.write_bytes(b"\xff\x00noise" * 100)


class TestJsonlZstd(TestJsonl):
    """`jsonl:DIR?compress=zstd`."""

    compress = True
