"""Owners that live, die and sleep; writes that fail, and what is said of them."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from subprocess import PIPE, Popen

import apsw
import pytest

from tests.unit.stores.sqlite_files import FILE, connected, opened, write
from turnlog.errors import (
    ForkedProcess,
    SessionInUse,
    StaleWriter,
    StoreError,
    WriteFailed,
)
from turnlog.stores.port import Batch
from turnlog.stores.sqlite import SqliteStore
from turnlog.stores.sqlite.driver import connect
from turnlog.stores.sqlite.failures import failure
from turnlog.stores.sqlite.ownership import Handles
from turnlog.testing.conformance.base import commit
from turnlog.testing.conformance.samples import FIRST, SECOND, assert_same, chunk, header, notes

pytestmark = pytest.mark.anyio

OTHER = """
import sys
from pathlib import Path
import anyio
from turnlog.stores.port import Batch
from turnlog.stores.sqlite import SqliteStore
from turnlog.testing.conformance.samples import FIRST, notes

async def main():
    store = SqliteStore(Path(sys.argv[1]))
    await store.open()
    claim = await store.claim("a", FIRST)
    seq = await store.next_seq("a")
    print("claimed", flush=True)
    for _ in sys.stdin:
        (error,) = await store.commit([Batch(claim, notes(seq, 2, "other"))])
        print(type(error).__name__, error, flush=True)
        seq += 2

anyio.run(main)
"""


class OtherProcess:
    """A process that owns session "a" and writes two notes for each line it is sent."""

    def __init__(self, folder: Path) -> None:
        command = [sys.executable, "-c", OTHER, str(folder / FILE)]
        self._process = Popen(command, stdin=PIPE, stdout=PIPE, text=True)
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._in, self._out = self._process.stdin, self._process.stdout
        assert self._out.readline() == "claimed\n"

    def write(self) -> None:
        """Let it write."""
        self._in.write("\n")
        self._in.flush()

    def answer(self) -> str:
        """What came of it."""
        return self._out.readline()

    def send(self, number: int) -> None:
        """Send it a signal."""
        self._process.send_signal(number)

    def kill(self) -> None:
        """End it at once."""
        self._process.kill()
        self._process.wait()
        self._in.close()
        self._out.close()


# -- owners ------------------------------------------------------------------------------------


async def test_an_owner_in_another_process_is_named_until_it_dies(tmp_path: Path) -> None:
    """Another process's session is refused with its name, and free the moment it is killed."""
    await write(tmp_path, "a")
    other = OtherProcess(tmp_path)
    try:
        async with opened(tmp_path) as store:
            with pytest.raises(SessionInUse, match=r"process 4242 on first\.example since 2023-"):
                await store.claim("a", SECOND)
            other.write()
            assert other.answer() == "NoneType None\n"
            other.kill()
            claim = await store.claim("a", SECOND)
            await commit(store, claim, notes(2, 1))
            assert_same((await store.load("a")).events, [*notes(0, 2, "other"), *notes(2, 1)])
    finally:
        other.kill()


@pytest.mark.skipif(sys.platform == "win32", reason="no such signals there")
async def test_a_sleeping_owner_that_was_robbed_stores_nothing(tmp_path: Path) -> None:
    """An owner that was stopped, robbed and woken is refused and told by whom."""
    await write(tmp_path, "a")
    other = OtherProcess(tmp_path)
    try:
        async with opened(tmp_path) as store:
            other.send(signal.SIGSTOP)
            other.write()
            claim = await store.claim("a", SECOND, steal=True)
            await commit(store, claim, notes(0, 2))
            other.send(signal.SIGCONT)
            refused = other.answer()
            assert refused.startswith("StaleWriter")
            assert "process 5353 on second.example since" in refused
            await commit(store, claim, notes(2, 1))
            assert_same((await store.load("a")).events, notes(0, 3))
    finally:
        other.kill()


async def test_the_locks_of_the_dead_are_swept(tmp_path: Path) -> None:
    """The file that a killed process leaves among the locks goes with the next claim."""
    await write(tmp_path, "a")
    for _ in range(2):
        OtherProcess(tmp_path).kill()
    assert len(locks(tmp_path)) == 1
    async with opened(tmp_path) as store:
        await store.claim("a", SECOND)
        assert len(locks(tmp_path)) == 1
    assert locks(tmp_path) == []


def locks(folder: Path) -> list[Path]:
    """The files of handles."""
    return list((folder / f"{FILE}-owners").iterdir())


def test_a_handle_is_told_from_nonsense(tmp_path: Path) -> None:
    """Only a handle whose lock is held lives: no other name does, and none leads elsewhere."""
    mine, theirs = Handles(tmp_path / "owners"), Handles(tmp_path / "owners")
    name = mine.own(FIRST)
    assert mine.own(SECOND) == name
    assert theirs.lives(name)
    assert mine.lives(name)
    for other in ("", "x", "../owners/" + name, name + "x"):
        assert not theirs.lives(other)
    mine.release()
    mine.release()
    assert not theirs.lives(name)


async def test_an_owner_that_cannot_be_read_is_no_owner(tmp_path: Path) -> None:
    """Nonsense in the place of the owner's name keeps nobody from claiming."""
    await write(tmp_path, "a")
    for nonsense in (b"\xff", b"[]", b'{"handle":"../../x","owner":{}}', b'{"handle":7}'):
        async with opened(tmp_path) as store:
            with connected(tmp_path) as db:
                db.execute("UPDATE sessions SET owner = ?", (nonsense,))
            await store.claim("a", FIRST)


def exit_code(child: int) -> int:
    """How a child ended."""
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork there")
async def test_a_forked_process_is_refused(tmp_path: Path) -> None:
    """In a child made by fork every call is refused, and closing leaves the parent's alone."""
    await write(tmp_path, "a")
    async with opened(tmp_path) as store:
        claim = await store.claim("a", FIRST)
        database = store._database  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]
        child = os.fork()
        if child == 0:
            code = 1
            try:
                with database.reading():
                    pass
            except ForkedProcess:
                database.close()
                code = 0
            finally:
                os._exit(code)
        assert exit_code(child) == 0
        async with opened(tmp_path) as other:
            with pytest.raises(SessionInUse):
                await other.claim("a", SECOND)
        await commit(store, claim, notes(0, 1))


# -- failures ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (apsw.BusyError("x"), "another process holds the file's lock"),
        (apsw.LockedError("x"), "another process holds the file's lock"),
        (apsw.FullError("x"), "the disk is full"),
        (apsw.IOError("x"), "I/O error"),
        (apsw.ReadOnlyError("x"), "read-only"),
        (apsw.CantOpenError("x"), "cannot be opened"),
        (apsw.PermissionsError("x"), "permission denied"),
        (apsw.NotADBError("x"), "no SQLite database"),
        (apsw.CorruptError("x"), "damaged"),
        (apsw.NoMemError("x"), "out of memory"),
        (apsw.SQLError("near x"), "not those of a store"),
        (apsw.RangeError("of some kind"), "of some kind"),
        (PermissionError(13, "Permission denied"), "Permission denied"),
    ],
)
def test_a_drivers_error_is_said_in_one_line(error: apsw.Error | OSError, said: str) -> None:
    """Every error of the driver becomes one of ours that says where and what, in one line."""
    found = failure(error, "sqlite:x", WriteFailed)
    assert type(found) is WriteFailed
    assert str(found).startswith("sqlite:x: ")
    assert said in str(found)
    assert "\n" not in str(found)


def test_an_error_names_its_code() -> None:
    """The code that SQLite gives is named, for whoever looks it up."""
    db = connect(":memory:", apsw.SQLITE_OPEN_READWRITE)
    with pytest.raises(apsw.SQLError) as raised:
        db.execute("no statement")
    assert str(failure(raised.value, "x")).endswith("(SQLITE_ERROR)")


async def test_a_locked_file_fails_visibly_and_work_goes_on(tmp_path: Path) -> None:
    """While another process holds the file, each write fails by name; later it succeeds."""
    await write(tmp_path, "a", notes(0, 1))
    store = SqliteStore(tmp_path / FILE, patience=0.05)
    await store.open()
    try:
        claim = await store.claim("a", FIRST)
        with connected(tmp_path) as db:
            db.execute("BEGIN IMMEDIATE")
            (error,) = await store.commit([Batch(claim, notes(1, 1))])
            assert type(error) is WriteFailed
            assert "'a'" in str(error)
            assert "SQLITE_BUSY" in str(error)
            with pytest.raises(StoreError, match="holds the file's lock"):
                await store.create(header("b"))
            with pytest.raises(WriteFailed):
                await store.reseed(claim, header("a"))
            assert_same((await store.load("a")).events, notes(0, 1))
            db.execute("ROLLBACK")
        assert list(await store.commit([Batch(claim, notes(1, 1))])) == [None]
        assert not await store.exists("b")
        await store.release(claim)
        with pytest.raises(StaleWriter):
            await commit(store, claim, notes(2, 1))
    finally:
        await store.close()


async def test_a_session_that_could_not_be_given_back_is_free(tmp_path: Path) -> None:
    """Where giving back failed, this handle can claim it again, and gives it back for others."""
    for session_id in "ab":
        await write(tmp_path, session_id)
    store = SqliteStore(tmp_path / FILE, patience=0.05)
    await store.open()
    try:
        first, second = await store.claim("a", FIRST), await store.claim("b", FIRST)
        with connected(tmp_path) as db:
            db.execute("BEGIN IMMEDIATE")
            for claim in (first, second):
                with pytest.raises(StoreError, match="holds the file's lock"):
                    await store.release(claim)
            db.execute("ROLLBACK")
        (refused,) = await store.commit([Batch(first, notes(0, 1))])
        assert isinstance(refused, StaleWriter)
        again = await store.claim("a", SECOND)
        await commit(store, again, notes(0, 1))
        with pytest.raises(SessionInUse):
            await store.claim("a", SECOND)
        async with opened(tmp_path) as other:
            for session_id in "ab":
                with pytest.raises(SessionInUse):
                    await other.claim(session_id, FIRST)
            await store.release(first)
            await other.claim("b", FIRST)
            with pytest.raises(SessionInUse):
                await other.claim("a", FIRST)
    finally:
        await store.close()


async def test_an_unknown_commit_is_settled_by_what_is_stored(tmp_path: Path) -> None:
    """A batch whose commit failed, and is there all the same, is done; another one is refused."""
    batch = [*notes(0, 2), *[chunk(2 + i, f"{i}") for i in range(5)]]
    await write(tmp_path, "a", batch)
    async with opened(tmp_path) as store:
        claim = await store.claim("a", FIRST)
        (refused,) = await store.commit([Batch(claim, batch)])
        assert isinstance(refused, StaleWriter)
        claim.handle.unsettled = True  # as after a COMMIT whose answer never came
        for others in (notes(0, 7), batch[:-1]):
            (refused,) = await store.commit([Batch(claim, others)])
            assert isinstance(refused, StaleWriter)
        assert list(await store.commit([Batch(claim, batch)])) == [None]
        await commit(store, claim, notes(7, 1))
        (refused,) = await store.commit([Batch(claim, notes(7, 1))])
        assert isinstance(refused, StaleWriter)
        assert_same((await store.load("a")).events, [*batch, *notes(7, 1)])


async def test_a_row_that_is_there_already_hurts_no_other_session(tmp_path: Path) -> None:
    """A batch that the file cannot take fails alone; the others of its commit are stored."""
    for session_id in "abc":
        await write(tmp_path, session_id)
    async with opened(tmp_path) as store:
        claims = [await store.claim(session_id, FIRST) for session_id in "abc"]
        with connected(tmp_path) as db:  # a row that no `next_seq` knows of
            db.execute(
                "INSERT INTO events (id, type, time, data, sum) VALUES (2 << 36 | 1, 'x', 0, '', 0)"
            )
        batches = [Batch(claim, notes(0, 3)) for claim in claims]
        first, second, third = await store.commit(batches)
        assert (first, third) == (None, None)
        assert type(second) is WriteFailed
        assert await store.next_seq("b") == 0
        for session_id in "ac":
            assert_same((await store.load(session_id)).events, notes(0, 3))


def commits(folder: Path) -> int:
    """How many transactions the WAL holds since it was begun anew."""
    wal = (folder / f"{FILE}-wal").read_bytes()
    frames = [wal[at : at + 24] for at in range(32, len(wal), 24 + 4096)]
    return sum(frame[8:16] == wal[16:24] and any(frame[4:8]) for frame in frames)


async def test_one_commit_is_one_transaction(tmp_path: Path) -> None:
    """However many sessions are due, one transaction stores their batches."""
    async with opened(tmp_path) as store:
        batches: list[Batch] = []
        for n in range(30):
            await store.create(header(f"s{n}"))
            claim = await store.claim(f"s{n}", FIRST)
            batches.append(Batch(claim, notes(0, 5)))
        before = commits(tmp_path)
        assert before >= 60
        assert set(await store.commit(batches)) == {None}
        assert commits(tmp_path) == before + 1
