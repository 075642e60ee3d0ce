"""What the tests of the MySQL store share."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager

from tests.servers.mariadb import server
from turnlog.stores.mysql import open_mysql
from turnlog.stores.mysql.driver import MySqlConnection, MySqlDriver
from turnlog.stores.mysql.urls import options_of
from turnlog.stores.server.schema import migrate
from turnlog.stores.server.store import ServerStore


@asynccontextmanager
async def opened(url: str) -> AsyncGenerator[ServerStore]:
    """A store for the time of a `with`."""
    store = open_mysql(url, "turn")
    await store.open()
    try:
        yield store
    finally:
        await store.close()


@asynccontextmanager
async def connected(url: str, *, tables: bool = True) -> AsyncGenerator[MySqlConnection]:
    """A connection for the time of a `with`, to a database with the store's tables."""
    driver = MySqlDriver(options_of(url, url), url)
    db = await driver.connect()
    try:
        if tables:
            await migrate(db, driver.dialect, url)
        yield db
    finally:
        await db.close()


@contextmanager
def setting(**variables: str) -> Generator[None]:
    """Global variables of the server's for the time of a `with`; new connections see them."""
    names = list(variables)
    ((*before,),) = server().sql(f"SELECT {', '.join(f'@@GLOBAL.{name}' for name in names)}")
    server().sql(*(f"SET GLOBAL {name} = {value}" for name, value in variables.items()))
    try:
        yield
    finally:
        values = [repr(value) if isinstance(value, str) else value for value in before]
        server().sql(
            *(f"SET GLOBAL {name} = {value}" for name, value in zip(names, values, strict=True))
        )
