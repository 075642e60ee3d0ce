"""The conformance suite of stores: what every backend must do, as tests.

A backend's test file is a few lines:

    class TestMyStore(StoreConformance, StoreDifferential):
        def factory(self, folder: Path) -> Factory:
            return lambda: MyStore(folder / "store.db")

Each call of the factory makes a new handle on the same storage, which makes two writers, reopening
and dying processes expressible. What a backend cannot express it declares, with the reason, in
`cannot`; such a test is skipped. Override `kill` and `spoil` where a backend can do better than
the default.
"""

from __future__ import annotations

from turnlog.testing.conformance.base import Factory, Handles
from turnlog.testing.conformance.commits import CommitTests
from turnlog.testing.conformance.contents import ContentTests
from turnlog.testing.conformance.differential import StoreDifferential
from turnlog.testing.conformance.facade import FacadeTests
from turnlog.testing.conformance.inbox import InboxTests
from turnlog.testing.conformance.lifecycle import LifecycleTests
from turnlog.testing.conformance.long import LongTests
from turnlog.testing.conformance.looking import LookingTests
from turnlog.testing.conformance.ownership import OwnershipTests
from turnlog.testing.conformance.reading import ReadingTests
from turnlog.testing.conformance.searching import SearchTests
from turnlog.testing.conformance.seeds import SeedTests

__all__ = ["Factory", "Handles", "StoreConformance", "StoreDifferential"]


class StoreConformance(
    LifecycleTests,
    ContentTests,
    CommitTests,
    OwnershipTests,
    ReadingTests,
    SeedTests,
    InboxTests,
    FacadeTests,
    LongTests,
    LookingTests,
    SearchTests,
):
    """Every rule of the store port, as pytest tests; subclass it and give a `factory`."""
