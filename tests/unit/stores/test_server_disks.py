"""A database server whose disk is full."""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from shutil import chown
from typing import TypeAlias

import pytest
from anyio import to_thread

from tests.servers import mariadb, postgres
from tests.small_disk import SmallDisk, small_disk
from tests.store_urls import SERVERS
from turnlog import Prompt, open_store
from turnlog.errors import StoreError, WriteFailed
from turnlog.stores.live import StoredSession
from turnlog.stores.mysql.driver import MySqlDriver
from turnlog.stores.mysql.urls import options_of
from turnlog.stores.postgres.driver import PostgresDriver
from turnlog.stores.server.store import ServerStore
from turnlog.stores.store import Store
from turnlog.testing.conformance.samples import assert_same

Server: TypeAlias = postgres.Server | mariadb.Server

pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("server", SERVERS)]

FOR_TABLES, FOR_A_SERVER = 24, 300  # MiB
LEFT = 300_000  # bytes, of a disk that is nearly full
LEAST, MOST = 10, 10_000  # events that have room then


# -- disks -------------------------------------------------------------------------------------


def room(disk: SmallDisk, owner: str) -> Path:
    """A folder on the disk, for the user as whom a server runs."""
    folder = disk.folder / "room"
    folder.mkdir(mode=0o700)
    chown(folder, owner)
    return folder


@contextmanager
def tables_on(disk: SmallDisk, server: str) -> Generator[str]:
    """The URL of an empty store on a server that keeps only its tables on the disk."""
    if server == "postgresql":
        pg = postgres.server()
        schema = pg.new_schema()
        pg.sql(f"CREATE TABLESPACE on_{schema} LOCATION '{room(disk, pg.folder.owner())}'")
        try:
            yield f"{pg.url(schema)}&default_tablespace=on_{schema}"
        finally:
            pg.sql(f"DROP SCHEMA {schema} CASCADE", f"DROP TABLESPACE on_{schema}")
    else:
        maria = mariadb.server()
        database = maria.new_database()
        there = maria.folder / "data" / database
        (options,) = there.iterdir()
        options.unlink()
        there.rmdir()
        there.symlink_to(room(disk, maria.folder.owner()))
        try:
            yield maria.url(database)
        finally:
            maria.sql(f"DROP DATABASE {database}")


@contextmanager
def server_on(disk: SmallDisk, server: str) -> Generator[tuple[str, Server]]:
    """The URL of an empty store on a server that has nothing but the disk; and the server."""
    on = (postgres if server == "postgresql" else mariadb).private(disk.folder)
    try:
        if isinstance(on, postgres.Server):
            yield on.url(on.new_schema()), on
        else:
            yield on.url(on.new_database()), on
    finally:
        on.end()


@asynccontextmanager
async def impatient(url: str) -> AsyncGenerator[Store]:
    """A store at the URL that does not wait long for a server that is away."""
    if url.startswith("mysql:"):
        backend = ServerStore(MySqlDriver(options_of(url, url), url), patience=0.5)
    else:
        backend = ServerStore(PostgresDriver(url, url), patience=0.5)
    async with Store(backend) as store:
        yield store


# -- what happens ------------------------------------------------------------------------------


async def refused(call: Callable[[int], Awaitable[object]]) -> tuple[int, StoreError]:
    """Call it with 0, 1, 2 … until it fails: at which number, and why."""
    for number in range(MOST):
        try:
            await call(number)
        except StoreError as error:
            return number, error
    pytest.fail("the disk does not become full")


async def fill(session: StoredSession, size: int) -> StoreError:
    """Append messages of a size that cannot be compressed until one is not stored: why not."""

    async def append(number: int) -> None:
        del number
        session.add_user(os.urandom(size // 2).hex())
        await session.flush()

    _, error = await refused(append)
    assert isinstance(error, WriteFailed)
    return error


async def stored(url: str, session: StoredSession) -> int:
    """How many events a new handle reads: they are the first of the session's."""
    async with open_store(url) as store:
        found = await store.backend.load(session.id)
    assert list(found.damage) == []
    assert_same(found.events, session.events[: len(found.events)])
    return len(found.events)


async def test_tables_on_a_full_disk_take_nothing_and_lose_nothing(server: str) -> None:
    """A flush says that the disk is full, loses nothing, and succeeds once there is room."""
    with small_disk(FOR_TABLES) as disk, tables_on(disk, server) as url:
        async with open_store(url) as store, store.session("a") as session:
            disk.fill(LEFT)
            assert "the server's disk is full" in str(await fill(session, 3_000))
            acknowledged = session.durable_seq
            assert acknowledged == session.next_seq - 1 > LEAST
            with pytest.raises(WriteFailed, match="the server's disk is full"):
                await session.flush()
            assert await stored(url, session) == acknowledged
            disk.empty()
            await session.flush()
            assert await stored(url, session) == session.next_seq == acknowledged + 1
        async with open_store(url) as store, store.session("a") as again:
            assert list(again.events) == list(session.events)


async def test_a_full_disk_refuses_new_sessions_and_commands(server: str) -> None:
    """To create and to post fail with an error that says why, and are done once there is room."""
    with small_disk(FOR_TABLES) as disk, tables_on(disk, server) as url:
        async with open_store(url) as store:

            async def make(number: int) -> None:
                async with store.session(f"s{number}"):
                    pass

            async def post(number: int) -> None:
                await store.inbox("s0").post(Prompt(noise, id=f"p{number}"))

            noise = os.urandom(500).hex()
            await make(0)
            disk.fill()
            made, error = await refused(make)
            assert "the server's disk is full" in str(error)
            posted, error = await refused(post)
            assert "the server's disk is full" in str(error)
            disk.empty()
            await make(made)
            await post(posted)
            waiting = [queued.command.id for queued in await store.inbox("s0").waiting()]
            assert waiting == [f"p{i}" for i in range(posted + 1)]
            names = {info.id async for info in store.sessions()}
            assert names == {f"s{i}" for i in range(made + 1)}


@pytest.mark.long
async def test_a_server_without_any_room_loses_nothing(server: str) -> None:
    """Where all of a server is on the disk it may stop: once it is back, a flush succeeds."""
    with small_disk(FOR_A_SERVER) as disk, server_on(disk, server) as (url, on):
        async with impatient(url) as store, store.session("a") as session:
            disk.fill(LEFT)
            if isinstance(on, postgres.Server):
                on.sql("SELECT pg_switch_wal()")  # else the tables are the first that lack room
            error = await fill(session, 18_000)
            acknowledged = session.durable_seq
            assert acknowledged == session.next_seq - 1
            assert "went away" in str(error) or "disk is full" in str(error)
            disk.empty()
            await to_thread.run_sync(on.stop)
            await to_thread.run_sync(on.start)
            assert await stored(url, session) >= acknowledged
            await session.flush()
            assert await stored(url, session) == session.next_seq == acknowledged + 1
        async with open_store(url) as store, store.session("a") as again:
            assert list(again.events) == list(session.events)
