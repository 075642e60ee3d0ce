"""The JSONL store passes the suite that every store passes, plain and compressed."""

from __future__ import annotations

from pathlib import Path

from turnlog.stores.jsonl import JsonlStore
from turnlog.testing import Factory, StoreConformance, StoreDifferential


class TestJsonl(StoreConformance, StoreDifferential):
    """`jsonl:DIR`."""

    compress = False

    def factory(self, folder: Path) -> Factory:
        """Handles on one folder."""
        return lambda: JsonlStore(folder, durability="turn", compress=self.compress)


class TestJsonlZstd(TestJsonl):
    """`jsonl:DIR?compress=zstd`."""

    compress = True
