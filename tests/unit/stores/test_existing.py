"""`open_store(url, create=False)`: a mistyped name is an error, and leaves nothing behind."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.servers import mariadb, postgres
from turnlog import sync
from turnlog.errors import InvalidStoreUrl, StoreError
from turnlog.stores import open_store

pytestmark = pytest.mark.anyio

LOCAL = ["jsonl:{0}/typo/dir", "sqlite:{0}/typo/dir/s.db"]


async def make(url: str) -> None:
    """Make a store with one session."""
    async with open_store(url) as store, store.session("s") as session:
        session.add_user("hi")


async def names(url: str) -> list[str]:
    """The sessions of a store that must be there."""
    async with open_store(url, create=False) as store:
        return [info.id async for info in store.sessions()]


@pytest.mark.parametrize("place", LOCAL)
async def test_what_is_not_there_is_not_made(place: str, tmp_path: Path) -> None:
    """No file, and no folder above it; once it is there, it opens."""
    url = place.format(tmp_path)
    with pytest.raises(StoreError, match=r"no store at .*: create=True makes it"):
        await names(url)
    assert os.listdir(tmp_path) == []  # noqa: PTH208 - in the event loop
    await make(url)
    assert await names(url) == ["s"]


@pytest.mark.parametrize("place", LOCAL)
def test_synchronous_code_can_ask_for_it_too(place: str, tmp_path: Path) -> None:
    """With the same error."""
    url = place.format(tmp_path)
    with pytest.raises(StoreError, match="no store at"), sync.open_store(url, create=False):
        pass
    assert list(tmp_path.iterdir()) == []
    with sync.open_store(url) as store, store.session("s") as session:
        session.add_user("hi")
    with sync.open_store(url, create=False) as store:
        assert [info.id for info in store.sessions()] == ["s"]


async def test_an_empty_file_is_no_store(tmp_path: Path) -> None:
    """It would become one by being opened, and stays empty."""
    (tmp_path / "s.db").touch()
    with pytest.raises(StoreError, match="no store at"):
        await names(f"sqlite:{tmp_path}/s.db")
    assert (tmp_path / "s.db").stat().st_size == 0


@pytest.mark.parametrize("place", LOCAL)
async def test_where_nobody_can_look_it_is_not_said_to_be_missing(
    place: str, tmp_path: Path
) -> None:
    """A file in the place of a folder is named with what the system says."""
    (tmp_path / "typo").write_text("a file")
    with pytest.raises(StoreError, match="Not a directory"):
        await names(place.format(tmp_path))


async def test_no_tables_are_made_on_postgresql() -> None:
    """A schema without tables is no store; a store with tables opens."""
    server = postgres.server()
    schema = server.new_schema()
    with pytest.raises(StoreError, match="no store at") as caught:
        await names(server.tcp_url(schema))
    assert postgres.PASSWORD not in str(caught.value)
    query = f"SELECT tablename FROM pg_tables WHERE schemaname = '{schema}'"  # noqa: S608
    assert server.sql(query) == []
    await make(server.url(schema))
    assert await names(server.url(schema)) == ["s"]


async def test_no_tables_are_made_on_mariadb() -> None:
    """A database without tables is no store; a store with tables opens."""
    server = mariadb.server()
    url = server.url(server.new_database())
    with pytest.raises(StoreError, match="no store at"):
        await names(url)
    await make(url)
    assert await names(url) == ["s"]


async def test_a_store_in_memory_is_always_made() -> None:
    """There is nothing to look for: that is misuse."""
    with pytest.raises(InvalidStoreUrl, match="no create=False"):
        open_store("memory:", create=False)
