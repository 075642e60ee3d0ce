"""What an SQLite file meets: locks, power cuts, cancels, disks that cannot be read, lost files."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import anyio
import pytest
from anyio import from_thread

from tests.unit.stores.medium import Disk
from tests.unit.stores.sqlite_files import FILE, connected, opened, write
from tests.unit.stores.test_failing_medium import TURN, made, stored
from turnlog import open_store
from turnlog.errors import NoSuchSession, StoreError, WriteFailed
from turnlog.stores.loading import build_log
from turnlog.stores.sqlite import connection
from turnlog.testing.conformance.samples import FIRST, assert_same, event, header, notes

pytestmark = pytest.mark.anyio


@pytest.fixture
def disk() -> Iterator[Disk]:
    """What every SQLite file lies on."""
    found = Disk()
    yield found
    found.unregister()


def url_of(folder: Path) -> str:
    """The URL of the folder's store."""
    return f"sqlite:{folder / FILE}"


# -- locks -------------------------------------------------------------------------------------


async def test_a_locked_file_is_waited_for(tmp_path: Path, disk: Disk) -> None:
    """While another connection writes a flush waits, and it succeeds once that is done."""
    await made(url_of(tmp_path))
    async with open_store(url_of(tmp_path)) as store, store.session("s") as session:
        with connected(tmp_path) as other:
            other.execute("BEGIN IMMEDIATE")
            other.execute("INSERT INTO blobs VALUES (x'00', x'01')")
            naps: list[float] = []

            def nap() -> None:
                naps.append(disk.slept)
                if len(naps) == 5:
                    other.execute("COMMIT")

            disk.on_sleep = nap
            session.add_user("patience")
            await session.flush()
            assert len(naps) == 5
            assert 0 < disk.slept < connection.PATIENCE
        assert_same(await stored(url_of(tmp_path)), session.events)


async def test_a_file_that_stays_locked_fails_within_its_time(tmp_path: Path, disk: Disk) -> None:
    """A lock that is never given up: the flush fails by name after ten seconds, nothing is lost."""
    await made(url_of(tmp_path))
    async with open_store(url_of(tmp_path)) as store, store.session("s") as session:
        with connected(tmp_path) as other:
            other.execute("BEGIN IMMEDIATE")
            session.add_user("patience")
            with pytest.raises(WriteFailed, match=r"holds the file's lock.*SQLITE_BUSY"):
                await session.flush()
            assert connection.PATIENCE - 1 < disk.slept <= connection.PATIENCE
            assert len(await stored(url_of(tmp_path))) == 12
            other.execute("ROLLBACK")
        await session.flush()
        assert_same(await stored(url_of(tmp_path)), session.events)


# -- a commit that is not known ----------------------------------------------------------------


async def test_a_commit_that_is_told_as_failed_is_found_done(
    tmp_path: Path, disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After an error behind a COMMIT that went through, the retry stores nothing twice."""
    await made(url_of(tmp_path))
    monkeypatch.setattr(connection, "_CHECKPOINT", 1)
    async with open_store(url_of(tmp_path)) as store, store.session("s") as session:
        for act in TURN:
            act(session)
            acknowledged = session.durable_seq
            disk.fail("io", 1, 99)
            disk.concerns = lambda _name, file: file == FILE  # the WAL works; moving it does not
            with pytest.raises(WriteFailed):
                await session.flush()
            disk.work()
            assert session.durable_seq == acknowledged
            assert_same(await stored(url_of(tmp_path)), session.events)
            await session.flush()
            assert session.durable_seq == session.next_seq
        session.add_user("more")
    assert_same(await stored(url_of(tmp_path)), session.events)


# -- cancelled ---------------------------------------------------------------------------------


async def test_a_flush_cancelled_at_any_write_leaves_all_or_nothing(
    tmp_path: Path, disk: Disk
) -> None:
    """Cancelled at each of its writes in turn, a flush is done or can be done again, never half."""
    await made(url_of(tmp_path))
    async with open_store(url_of(tmp_path)) as store, store.session("s") as session:
        number, calls = 0, 1
        while number < calls:
            number += 1
            calls = 0
            before = session.durable_seq
            for act in TURN:
                act(session)
            with anyio.CancelScope() as scope:

                def count(
                    name: str, _file: str, at: int = number, scope: anyio.CancelScope = scope
                ) -> None:
                    nonlocal calls
                    calls += name != "read"
                    if calls == at:
                        from_thread.run_sync(scope.cancel)

                disk.on_call = count
                await session.flush()
            found = await stored(url_of(tmp_path))
            assert len(found) in (before, session.next_seq)
            assert_same(found, session.events[: len(found)])
            await session.flush()
            disk.on_call = lambda _name, _file: None
            assert session.durable_seq == session.next_seq
        assert number > 10
    assert_same(await stored(url_of(tmp_path)), session.events)


# -- power cuts --------------------------------------------------------------------------------


async def test_what_a_flush_acknowledged_survives_a_power_cut(
    tmp_path: Path, disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With every byte that no fsync covered gone, the acknowledged events are there, undamaged."""
    monkeypatch.setattr(connection, "_CHECKPOINT", 20)  # so that some commits move the WAL
    folder = tmp_path / "store"
    async with open_store(url_of(folder)) as store, store.session("s") as session:
        for cut in range(20):
            for act in TURN:
                act(session)
                await session.flush()
            session.add_user("never acknowledged")
            disk.power_cut(folder, tmp_path / str(cut))
            survived = await stored(url_of(tmp_path / str(cut)))
            assert len(survived) >= session.durable_seq
            assert_same(survived, session.events[: len(survived)])
            async with open_store(url_of(tmp_path / str(cut))) as after, after.session("s") as own:
                own.add_user("on")


async def test_a_power_cut_at_any_write_costs_nothing_acknowledged(
    tmp_path: Path, disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Cut at each write, sync and removal, those of moving and closing the WAL included."""
    monkeypatch.setattr(connection, "_CHECKPOINT", 1)
    folder = tmp_path / "store"
    await made(url_of(folder))
    acknowledged: list[int] = []

    def cut(name: str, _file: str) -> None:
        if name != "read":
            disk.power_cut(folder, tmp_path / str(len(acknowledged)))
            acknowledged.append(session.durable_seq)

    async with open_store(url_of(folder)) as store:
        async with store.session("s") as session:
            disk.on_call = cut
            for act in TURN:
                act(session)
                await session.flush()
        events = list(session.events)
    disk.on_call = lambda _name, _file: None
    assert len(acknowledged) > 60
    for number, seq in enumerate(acknowledged):
        survived = await stored(url_of(tmp_path / str(number)))
        assert len(survived) >= seq
        assert_same(survived, events[: len(survived)])


# -- what cannot be read -----------------------------------------------------------------------


@pytest.mark.parametrize("broken", [False, True], ids=["once", "for good"])
async def test_a_page_that_cannot_be_read_is_never_nothing(
    tmp_path: Path,
    disk: Disk,
    broken: bool,  # noqa: FBT001 - a parameter
) -> None:
    """Whichever read fails: what lacks is an error or told as damage, no session is unknown."""
    events = [event(i, {"n": i, "text": f"{i} {i * i} " * 60}) for i in range(60)]
    for session_id in ("a", "b"):
        await write(tmp_path, session_id, events)
    number, hits = 0, 1
    while hits:
        number += 1
        disk.fail("read", number, 1 << 60 if broken else None)
        try:
            async with opened(tmp_path) as store:
                assert await store.exists("b")
                found = await store.load("b")
                assert_same(found.events, [events[e.seq] for e in found.events])
                log = build_log(found)
                there = {e.seq for e in found.events}
                assert all(log.is_lost(seq) or seq in there for seq in range(60))
                assert {info.id async for info in store.sessions()} == {"a", "b"}
        except NoSuchSession:
            pytest.fail(f"read {number} made a session unknown")
        except StoreError:
            assert disk.hits
        hits = disk.hits
        disk.work()
        async with opened(tmp_path) as store:
            assert_same((await store.load("b")).events, events)
            await store.claim("b", FIRST)
    assert number > 8


async def test_a_file_that_became_empty_is_not_a_new_store(tmp_path: Path) -> None:
    """A file of no bytes that once held sessions is refused, not filled anew."""
    await write(tmp_path, "a", notes(0, 3))
    (tmp_path / FILE).write_bytes(b"")
    with pytest.raises(StoreError, match="empty"):
        async with opened(tmp_path):
            pass
    assert (tmp_path / FILE).read_bytes() == b""


async def test_a_file_that_was_removed_makes_room_for_a_new_one(tmp_path: Path) -> None:
    """Who removes the file gets a new store, whatever lies beside it."""
    await write(tmp_path, "a", notes(0, 3))
    (tmp_path / f"{FILE}-owners" / "dead.lock").touch()
    (tmp_path / FILE).unlink()
    await write(tmp_path, "b", notes(0, 3))
    async with opened(tmp_path) as store:
        assert [info.id async for info in store.sessions()] == ["b"]


@pytest.mark.parametrize("noise", [b"\0", b"\xff", b"A"])
async def test_a_file_whose_beginning_is_noise_is_no_new_store(
    tmp_path: Path, noise: bytes
) -> None:
    """Whatever stands where the first page was, nothing is taken for an empty store."""
    await write(tmp_path, "a", notes(0, 3))
    whole = (tmp_path / FILE).read_bytes()
    for start, stop in ((0, 16), (0, 100), (0, 4096), (100, 4096), (0, len(whole))):
        content = whole[:start] + noise * (stop - start) + whole[stop:]
        (tmp_path / FILE).write_bytes(content)
        with pytest.raises(StoreError):
            async with opened(tmp_path) as store:
                await store.load("a")
        with pytest.raises(StoreError):
            async with opened(tmp_path) as store:
                await store.create(header("b"))
        assert (tmp_path / FILE).read_bytes() == content


# -- files that cannot be made -----------------------------------------------------------------


async def test_without_a_wal_nothing_is_written(tmp_path: Path, disk: Disk) -> None:
    """Where the WAL cannot be made, opening says so by name; once it can, work goes on."""
    await made(url_of(tmp_path))
    disk.refuse = ("-wal",)
    with pytest.raises(StoreError, match=r"cannot be opened.*SQLITE_CANTOPEN"):
        async with open_store(url_of(tmp_path)):
            pass
    disk.refuse = ()
    async with open_store(url_of(tmp_path)) as store, store.session("s") as session:
        session.add_user("more")
    assert len(await stored(url_of(tmp_path))) == 13


async def test_a_wal_that_was_removed_under_a_live_store_is_noticed(tmp_path: Path) -> None:
    """Nobody writes on into a WAL that is no longer there for others; what waits can be saved."""
    await made(url_of(tmp_path))
    session = None
    with suppress(StoreError):  # leaving says it once more
        async with open_store(url_of(tmp_path)) as store, store.session("s") as session:
            session.add_user("before")
            await session.flush()
            for ending in ("-wal", "-shm"):
                (tmp_path / f"{FILE}{ending}").unlink()
            assert len(await stored(url_of(tmp_path))) == 12
            session.add_user("after")
            with pytest.raises(StoreError, match="open it again"):
                await session.flush()
            with pytest.raises(StoreError, match="open it again"):
                await store.read("s")
            saved = await session.detach(tmp_path / "saved.jsonl")
            assert b"after" in saved.read_bytes()
    assert session is not None
    found = await stored(url_of(tmp_path))
    assert_same(found, session.events[: len(found)])
    assert len(found) >= 12
