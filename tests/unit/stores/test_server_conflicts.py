"""Deadlocks and serialisation failures, real ones, with a connection of the test's own."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import TypeVar

import anyio
import pytest

from tests.store_urls import SERVERS
from tests.unit.stores.server_places import MariaDbPlace, PostgresPlace, empty_place
from tests.unit.stores.server_suite import PATIENCE, begun, opened
from turnlog.errors import StoreError, WriteFailed
from turnlog.stores.mysql import driver as mysql
from turnlog.stores.port import Batch, Claim
from turnlog.stores.postgres import driver as postgres
from turnlog.stores.server.driver import Connection
from turnlog.stores.server.pool import PATIENCE as PATIENT
from turnlog.stores.server.schema import key_of
from turnlog.testing.conformance.base import commit
from turnlog.testing.conformance.samples import FIRST, assert_same, notes

T = TypeVar("T")
Place = PostgresPlace | MariaDbPlace

LOCK = "SELECT next_seq FROM sessions WHERE session = ? FOR UPDATE"
TOUCH = "UPDATE sessions SET bytes = bytes + 1 WHERE session = ?"
HEAVY = "INSERT INTO heavy SELECT seq FROM seq_1_to_1000"
POSTGRES_WAITS = "SELECT pid FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
MARIADB_WAITS = "SELECT 1 FROM information_schema.innodb_lock_waits"

pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("patience", [0.0, PATIENT])]


@pytest.fixture(params=SERVERS)
def place(request: pytest.FixtureRequest) -> Place:
    """An empty place of each server."""
    return empty_place(request.param)


@asynccontextmanager
async def beside(place: Place) -> AsyncGenerator[Connection]:
    """A connection of someone else's, in a transaction that no deadlock ends."""
    db = await place.driver().connect()
    try:
        if isinstance(place, PostgresPlace):
            await db.execute("SET deadlock_timeout = '60s'")  # who looks first is the one that ends
            await db.begin()
        else:
            await db.execute("CREATE TABLE heavy (n int) ENGINE = InnoDB")
            await db.begin()
            await db.execute(HEAVY)  # who did least is the one that ends
        yield db
    finally:
        await db.close()


async def until_it_waits(place: Place) -> None:
    """Until someone waits for a lock."""
    waits = POSTGRES_WAITS if isinstance(place, PostgresPlace) else MARIADB_WAITS
    db = await place.driver().connect()
    try:
        with anyio.fail_after(PATIENCE):
            while not await db.fetch(waits):  # noqa: ASYNC110 - it is the server that knows
                await anyio.sleep(0.15)  # InnoDB tells for 0.1 s what it told the last who asked
    finally:
        await db.close()


async def meanwhile(call: Callable[[], Awaitable[T]], act: Callable[[], Awaitable[object]]) -> T:
    """What the one returns, or raises, while the other is done."""
    got: list[T] = []
    failed: list[StoreError] = []

    async def run() -> None:
        try:
            got.append(await call())
        except StoreError as error:
            failed.append(error)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(run)
        await act()
    if failed:
        raise failed[0]
    return got[0]


def in_order(names: Sequence[str]) -> list[str]:
    """Sessions in the order in which a commit locks them."""
    return sorted(names, key=lambda name: key_of(name.encode()))


async def test_a_commit_that_ends_in_a_deadlock_is_done_again(
    place: Place, patience: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is stored by who is patient; else refused whole, by name, and stored when repeated."""
    # PostgreSQL looks for a deadlock once. Should that be too early, the lock is not had in time.
    monkeypatch.setattr(postgres, "SETTINGS", {**postgres.SETTINGS, "lock_timeout": "3s"})
    first, last = in_order("ab")
    async with opened(place.store(patience=patience)) as store, beside(place) as other:
        batches = [Batch(await begun(store, name), notes(2, 3)) for name in (first, last)]

        async def cross() -> None:
            await until_it_waits(place)
            await other.fetch(LOCK, key_of(first.encode()))  # which the store had: it gave way
            await other.commit()

        await other.fetch(LOCK, key_of(last.encode()))
        results = await meanwhile(lambda: store.commit(batches), cross)
        if not patience:
            for result in results:
                assert isinstance(result, WriteFailed)
                assert "another process holds what is needed: try again" in str(result)
            for name in (first, last):
                assert_same((await store.load(name)).events, notes(0, 2))
            results = await store.commit(batches)
        assert results == [None, None]
        for name in (first, last):
            assert_same((await store.load(name)).events, notes(0, 5))


async def test_what_cannot_be_serialised_is_done_again(
    place: Place, patience: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a server that isolates more than we ask for, to claim is repeated where it must be."""
    settings = {**postgres.SETTINGS, "default_transaction_isolation": "serializable"}
    monkeypatch.setattr(postgres, "SETTINGS", settings)
    isolated = mysql.SETTINGS.replace(b"READ COMMITTED", b"REPEATABLE READ")
    isolated = isolated.replace(b"sql_notes = 0", b"sql_notes = 0, innodb_snapshot_isolation = 1")
    monkeypatch.setattr(mysql, "SETTINGS", isolated)
    async with opened(place.store(patience=patience)) as store, beside(place) as other:
        await store.release(await begun(store))

        async def change() -> None:
            await until_it_waits(place)
            await other.commit()

        async def claim() -> Claim:
            return await meanwhile(lambda: store.claim("a", FIRST), change)

        await other.execute(TOUCH, key_of(b"a"))
        if patience:
            claimed = await claim()
        else:
            with pytest.raises(StoreError, match="another process holds what is needed: try again"):
                await claim()
            claimed = await store.claim("a", FIRST)
        await commit(store, claimed, notes(2, 3))
        assert_same((await store.load("a")).events, notes(0, 5))
