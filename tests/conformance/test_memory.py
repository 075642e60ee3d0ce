"""The memory store passes the suite that every store passes."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import ClassVar

from turnlog.stores.memory import MemoryStorage, MemoryStore
from turnlog.testing import Factory, StoreConformance, StoreDifferential


class TestMemory(StoreConformance, StoreDifferential):
    """`memory:`."""

    cannot: ClassVar = {"test_a_bad_session_hides_no_other": "nothing in memory can go bad"}

    def factory(self, folder: Path) -> Factory:
        """Handles on one storage."""
        del folder
        return partial(MemoryStore, MemoryStorage())
