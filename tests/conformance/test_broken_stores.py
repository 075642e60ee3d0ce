"""The conformance suite judges: each broken store fails exactly the test that names its fault."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import ClassVar

import anyio
import pytest
from hypothesis import Phase

from tests.conformance import broken_searches
from tests.conformance.broken import (
    FAULTS,
    Broken,
    KeepsSnapshots,
    OrdersCommandsById,
    SortsProvenance,
)
from turnlog.stores.port import SessionEventStore
from turnlog.testing import Factory, StoreConformance, StoreDifferential
from turnlog.testing.conformance.facade import FacadeTests
from turnlog.testing.conformance.long import LongTests


class _Judge(StoreConformance):
    """The suite over a store of `broken.py`, run by hand."""

    cannot: ClassVar = {"test_a_bad_session_hides_no_other": "nothing in memory can go bad"}
    patience = 5.0
    large = 1_200_000
    many = 1_500
    store: type[Broken] = Broken

    def factory(self, folder: Path) -> Factory:
        """Handles on one broken storage."""
        del folder
        return partial(self.store, self.store.storage())

    async def kill(self, handle: SessionEventStore) -> None:
        """Die as the store does."""
        assert isinstance(handle, Broken)
        await handle.die()

    def failures(self, folder: Path) -> dict[str, str]:
        """The tests that fail, with the reasons."""
        return anyio.run(self._failures, folder)

    async def _failures(self, folder: Path) -> dict[str, str]:
        failed: dict[str, str] = {}
        for name in sorted(names_of_tests()):
            try:
                async with self.opened(folder) as handles:
                    await getattr(self, name)(handles)
            except (KeyboardInterrupt, SystemExit):
                raise
            except BaseException as error:  # noqa: BLE001 - pytest.fail and groups are no Exceptions
                failed[name] = repr(error)[:300]
        return failed


class _Comparison(_Judge, StoreDifferential):
    """Broken stores beside the memory store."""

    phases = (Phase.generate,)
    examples = 1_000  # it ends at the first that tells the two apart


WHOLE = {name for name in dir(LongTests) if name.startswith("test_")}
"""Tests that write and read whole long sessions, in which any rule may matter."""

assert broken_searches.Searches not in FAULTS  # imported for what it enters into the table


def names_of_tests() -> set[str]:
    """The names of the suite's tests."""
    return {name for name in dir(_Judge) if name.startswith("test_")} - set(_Judge.cannot)


@pytest.mark.parametrize("store", FAULTS, ids=lambda store: store.__name__)
def test_a_broken_store_fails_its_test(store: type[Broken], tmp_path: Path) -> None:
    """A store with one fault fails the test that names it, and no other but of whole sessions."""
    judge = _Judge()
    judge.store = store
    failed = judge.failures(tmp_path)
    assert [name for name in failed if name not in WHOLE] == [FAULTS[store]], failed


def test_the_sound_store_fails_none(tmp_path: Path) -> None:
    """What all broken stores are made from passes."""
    assert _Judge().failures(tmp_path) == {}


@pytest.mark.parametrize(
    "store", [SortsProvenance, OrdersCommandsById, KeepsSnapshots], ids=lambda store: store.__name__
)
def test_random_scripts_find_faults_too(store: type[Broken], tmp_path: Path) -> None:
    """The comparison with the memory store notices a broken one."""
    judge = _Comparison()
    judge.store = store
    with pytest.raises(AssertionError):
        judge.test_it_equals_the_memory_store(tmp_path)


def test_every_rule_of_the_port_has_a_store_that_breaks_it() -> None:
    """Each test of the backend port is failed by some broken store."""
    facade = {name for name in dir(FacadeTests) if name.startswith("test_")}
    assert names_of_tests() - facade - WHOLE - set(FAULTS.values()) == set()


def test_an_excuse_names_a_test() -> None:
    """A backend cannot be excused from a test that does not exist."""
    with pytest.raises(TypeError, match="test_nothing"):
        type("Wrong", (StoreConformance,), {"cannot": {"test_nothing": "no reason"}})
