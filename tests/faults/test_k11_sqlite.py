"""One SQLite file that many use: writers at once, long readers, locks, files that are replaced."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from secrets import token_hex

import anyio
import apsw
import pytest

from tests.faults.scenes import agent, assert_lawful, texts
from tests.unit.stores.medium import Disk
from turnlog import open_store
from turnlog.errors import StoreError, WriteFailed
from turnlog.stores.sqlite.driver import connect
from turnlog.stores.store import Store

FILE = "sessions.db"
WAL = 2_000 * 4_120
"""Bytes of a WAL that is moved into the file in time."""


@pytest.fixture
def disk() -> Iterator[Disk]:
    """What every SQLite file lies on."""
    found = Disk()
    yield found
    found.unregister()


async def test_three_writers_of_one_file_wait_their_turn(tmp_path: Path) -> None:
    """Three handles, each with a session, flush a hundred times each: none fails, none is lost."""

    async def write(name: str) -> None:
        url = f"sqlite:{tmp_path / FILE}"
        async with open_store(url) as store, store.session(name) as session:
            for i in range(100):
                session.add_user(f"{name} {i}")
                await session.flush()

    async with anyio.create_task_group() as tasks:
        for name in "abc":
            tasks.start_soon(write, name)
    async with open_store(f"sqlite:{tmp_path / FILE}") as store:
        for name in "abc":
            assert texts(await store.read(name)) == [f"{name} {i}" for i in range(100)]


async def test_readers_do_not_let_the_wal_grow(tmp_path: Path) -> None:
    """Viewers that are open all the time, read and follow: the WAL stays within its bound."""
    url, sizes = f"sqlite:{tmp_path / FILE}", list[int]()
    async with open_store(url) as viewer, open_store(url) as store, store.session("s") as session:
        await session.flush()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(follow, viewer, 10_000)
            for i in range(10_000):
                session.append("session/title", {"title": token_hex(600), "messageSeqs": []})
                if i % 50 == 49:
                    await session.flush()
                    assert len(await viewer.backend.read("s", i - 49)) == 50
                    sizes.append((tmp_path / f"{FILE}-wal").stat().st_size)
    assert (tmp_path / FILE).stat().st_size > WAL // 2
    assert max(sizes) < 2 * WAL


async def follow(store: Store, count: int) -> None:
    """Follow a session for so many events, none left out."""
    seq = -1
    async for event in store.tail("s", after=-1):
        assert event.seq == seq + 1
        seq += 1
        if seq == count - 1:
            return


async def test_a_lock_while_a_session_is_made_loses_and_doubles_nothing(
    tmp_path: Path, disk: Disk
) -> None:
    """Making a session in a locked file fails by name; made later, five turns are there once."""
    url = f"sqlite:{tmp_path / FILE}"
    async with open_store(url) as store:
        db = connect(str(tmp_path / FILE), apsw.SQLITE_OPEN_READWRITE)
        db.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreError, match="holds the file's lock"):
            async with store.session("s"):
                pass
        assert not await store.backend.exists("s")
        db.execute("ROLLBACK")
        runner = agent(*[["fine"]] * 5)
        async with store.session("s", create="only") as session:
            for turn in range(5):
                await runner.run(session, f"turn {turn}")
            db.execute("BEGIN IMMEDIATE")
            session.add_user("last")
            with pytest.raises(WriteFailed, match="holds the file's lock"):
                await session.flush()
            db.execute("ROLLBACK")
            db.close()
        found = await store.read("s")
        asked = [text for text in texts(found) if text != "fine"]
        assert asked == [*(f"turn {turn}" for turn in range(5)), "last"]
        assert list(found.events) == list(session.events)
        assert_lawful(found)
    assert disk.slept > 0


async def test_a_file_replaced_under_a_live_store_is_written_to_no_more(tmp_path: Path) -> None:
    """Neither the file that was put there nor the one that is gone gets what comes after."""
    path, url = tmp_path / FILE, f"sqlite:{tmp_path / FILE}"
    async with open_store(url) as store, store.session("s") as session:
        session.add_user("old")
    async with open_store(f"sqlite:{tmp_path / 'other.db'}") as store, store.session("s") as other:
        other.add_user("new")
    before = (tmp_path / "other.db").read_bytes()
    left: list[StoreError] = []
    saved = tmp_path / "saved.jsonl"
    try:
        async with open_store(url) as store, store.session("s") as session:
            (tmp_path / "other.db").replace(path)
            session.add_user("more")
            with pytest.raises(StoreError, match="replaced or removed"):
                await session.flush()
            await session.detach(saved)
    except StoreError as error:
        left.append(error)
    assert len(left) == 1
    assert b"more" in saved.read_bytes()
    assert path.read_bytes() == before
    for ending in ("-wal", "-shm"):  # of the file that is gone
        path.with_name(FILE + ending).unlink(missing_ok=True)
    async with open_store(url) as store:
        assert texts(await store.read("s")) == ["new"]
