"""What is particular to the SQLite store: one file, forks by reference, packed runs, records."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory

import anyio
import pytest

from tests.unit.stores.sqlite_files import FILE, connected, opened, write
from turnlog.commands import Prompt
from turnlog.errors import (
    InvalidStoreUrl,
    NoSuchSession,
    SessionExists,
    StoreError,
    UnsupportedVersion,
    WriteFailed,
)
from turnlog.events import AnyEvent, Replace
from turnlog.stores import open_store
from turnlog.stores.port import Batch, Record
from turnlog.stores.sqlite import SqliteStore
from turnlog.stores.sqlite.schema import APPLICATION, SEQ_MASK, STEPS, VERSION, migrate
from turnlog.testing.conformance.base import commit
from turnlog.testing.conformance.samples import (
    FIRST,
    NOON,
    answer,
    assert_same,
    chunk,
    conversation,
    event,
    header,
    notes,
    prompt,
)

pytestmark = pytest.mark.anyio

STREAM = [chunk(i, f"word {i * i} ") for i in range(60)]
TOLD = "".join(f"word {i * i} " for i in range(60))


# -- the URL -----------------------------------------------------------------------------------


@pytest.mark.parametrize("url", ["sqlite:", "sqlite::memory:", "sqlite:a.db?mode=x"])
def test_what_names_no_file_is_refused(url: str) -> None:
    """A URL without a file, one in memory and one with options are refused, each with a hint."""
    with pytest.raises(InvalidStoreUrl, match=r"sqlite:\./|memory:|mode"):
        open_store(url)


@pytest.mark.parametrize("name", ["q?b.db", "q?", "a\0b.db", "~nobody-at-all/a.db", "\udcff.db"])
@pytest.mark.parametrize("scheme", ["sqlite", "jsonl"])
def test_a_name_that_cannot_be_opened_is_refused_at_once(
    scheme: str, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A name with a ?, a NUL, an unknown user or no UTF-8 in it makes no file of another name."""
    monkeypatch.chdir(tmp_path)
    if (scheme, name) != ("jsonl", "\udcff.db"):  # any bytes name a folder
        with pytest.raises(InvalidStoreUrl):
            open_store(f"{scheme}:{name}")
    assert not list(tmp_path.iterdir())


async def test_a_url_opens_the_file(tmp_path: Path) -> None:
    """`sqlite:FILE` opens that file, whose folder is made when it is not there."""
    path = tmp_path / "new" / FILE
    async with open_store(f"sqlite:{path}") as store, store.session("a") as session:
        session.add_user("Hello")
    assert path.is_file()
    assert store.url == f"sqlite:{path}"


# -- the file ----------------------------------------------------------------------------------


def modes(folder: Path) -> dict[str, int]:
    """What is below a folder, with its permissions."""
    return {path.name: stat.S_IMODE(path.stat().st_mode) for path in folder.rglob("*")}


@pytest.mark.skipif(sys.platform == "win32", reason="no such modes there")
async def test_files_are_private(tmp_path: Path) -> None:
    """The file, what SQLite puts beside it and the locks can be read by their user alone."""
    async with opened(tmp_path) as store:
        await store.create(header("a"))
        await store.claim("a", FIRST)
        found = modes(tmp_path)
    beside = {FILE, f"{FILE}-wal", f"{FILE}-shm", f"{FILE}-owners"}
    assert beside < set(found)
    assert len(found) == len(beside) + 1
    assert {name: mode for name, mode in found.items() if mode & 0o077} == {}


async def test_nothing_is_left_beside_a_closed_file(tmp_path: Path) -> None:
    """The last handle that closes leaves the file alone with an empty folder of locks."""
    await write(tmp_path, "a", notes(0, 3))
    assert sorted(modes(tmp_path)) == [FILE, f"{FILE}-owners"]


async def test_a_file_that_was_replaced_is_noticed(tmp_path: Path) -> None:
    """After the file was replaced or removed, an open handle reads no more, and writes fail."""
    await write(tmp_path, "a", notes(0, 1))
    async with opened(tmp_path) as store:
        claim = await store.claim("a", FIRST)
        (tmp_path / FILE).rename(tmp_path / "away.db")
        for _ in range(2):
            with pytest.raises(WriteFailed, match="replaced or removed"):
                await store.commit([Batch(claim, notes(1, 1))])
            with pytest.raises(StoreError, match="open it again"):
                await store.load("a")
            (tmp_path / FILE).write_bytes((tmp_path / "away.db").read_bytes())
        (tmp_path / "away.db").replace(tmp_path / FILE)
        await commit(store, claim, notes(1, 1))


@contextmanager
def as_nobody() -> Generator[Path]:
    """A folder, and no right to write to it once it is made read-only."""
    with TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        try:
            yield folder
        finally:
            if sys.platform != "win32" and os.getuid() == 0:
                os.seteuid(0)
            folder.chmod(0o700)


@pytest.mark.skipif(sys.platform == "win32", reason="no such modes there")
async def test_a_read_only_file_opens(anyio_backend_name: str) -> None:
    """A file and folder that cannot be written are read; a write says what to do."""
    del anyio_backend_name
    with as_nobody() as folder:
        await write(folder, "a", conversation())
        (folder / FILE).chmod(0o444)
        folder.chmod(0o555)
        if os.getuid() == 0:
            os.seteuid(65534)
        async with opened(folder) as store:
            assert_same((await store.load("a")).events, conversation())
            assert [info.id async for info in store.sessions()] == ["a"]
            assert await store.inbox("a") == []
            await store.wait("a", 99, 0.0)
            with pytest.raises(StoreError, match="make the file and its folder writable"):
                await store.claim("a", FIRST)
        assert sorted(modes(folder)) == [FILE, f"{FILE}-owners"]


async def test_space_that_was_freed_is_given_back(tmp_path: Path) -> None:
    """A file of which most was deleted gets shorter with each session that is given back."""
    await write(tmp_path, "a", [event(0, os.urandom(12_000_000).hex())])
    with connected(tmp_path) as db:
        db.execute("DELETE FROM blobs")
    before = (tmp_path / FILE).stat().st_size
    for _ in range(2):
        async with opened(tmp_path) as store:
            await store.release(await store.claim("a", FIRST))
    assert 0 < (tmp_path / FILE).stat().st_size < before // 2


# -- versions ----------------------------------------------------------------------------------


async def test_a_newer_schema_is_refused(tmp_path: Path) -> None:
    """A file of a newer schema is refused; both versions are named."""
    await write(tmp_path, "a", notes(0, 1))
    with connected(tmp_path) as db:
        db.pragma("user_version", VERSION + 1)
    with pytest.raises(UnsupportedVersion, match=rf"version {VERSION + 1}.*up to {VERSION}"):
        async with opened(tmp_path):
            pass


def test_a_migration_is_all_or_nothing(tmp_path: Path) -> None:
    """A migration that fails at any of its statements leaves the file as it was."""
    steps = [[*statements, "no statement"] for statements in STEPS]
    for upto in range(len(STEPS[0])):
        broken = [[*STEPS[0][:upto], "no statement", *STEPS[0][upto:]], *steps[1:]]
        with connected(tmp_path) as db:
            with pytest.raises(Exception, match="syntax error"):
                migrate(db, "sqlite:x", broken)
            assert db.execute("SELECT count(*) FROM sqlite_schema").fetchall() == [(0,)]
            assert int(db.pragma("user_version")) == 0
            assert not db.in_transaction


def test_a_migration_goes_on_from_the_version_that_is_there(tmp_path: Path) -> None:
    """Only the steps that a file lacks are taken, and what it held stays."""
    more = [*STEPS, ("ALTER TABLE sessions ADD COLUMN mood TEXT",)]
    with connected(tmp_path) as db:
        migrate(db, "sqlite:x")
        assert int(db.pragma("user_version")) == VERSION
        assert int(db.pragma("application_id")) == APPLICATION
        db.execute("INSERT INTO blobs VALUES (x'00', x'01')")
        migrate(db, "sqlite:x", more)
        assert int(db.pragma("user_version")) == VERSION + 1
        assert db.execute("SELECT mood FROM sessions").fetchall() == []
        assert db.execute("SELECT * FROM blobs").fetchall() == [(b"\x00", b"\x01")]


# -- forks by reference ------------------------------------------------------------------------


async def test_a_fork_reads_through_to_its_ancestors(tmp_path: Path) -> None:
    """A chain of forks, cut within runs of chunks too, reads as if each had copied its prefix."""
    await write(tmp_path, "a", [*notes(0, 2), *[chunk(2 + i, f"{i}") for i in range(8)]])
    async with opened(tmp_path) as store:
        expected = [e for e in (await store.load("a")).events if e.seq < 6]
        for child, parent, at in [("b", "a", 6), ("c", "b", 9), ("d", "c", 7), ("e", "d", 0)]:
            made = header(child, parent_session=parent, seed_length=at)
            assert await store.fork(made, parent, at)
            claim = await store.claim(child, FIRST)
            assert await store.next_seq(child) == at
            await commit(store, claim, notes(at, 4, child))
            expected = [*expected[:at], *notes(at, 4, child)]
            assert_same((await store.load(child)).events, expected)
            for start, stop in [(0, 3), (3, 8), (5, 7), (8, None), (at, at + 1)]:
                cut = [e for e in expected if start <= e.seq < (99 if stop is None else stop)]
                assert_same(await store.read(child, start, stop), cut)
            seqs = [0, 3, 5, 6, 8, 99]
            cut = [e for e in expected if e.seq in seqs]
            assert_same(await store.read_seqs(child, seqs), cut)
        assert len((await store.load("a")).events) == 10
        infos = {info.id: info async for info in store.sessions()}
        assert {i.id: i.events for i in infos.values()} == {
            "a": 10,
            "b": 10,
            "c": 13,
            "d": 11,
            "e": 4,
        }
    with connected(tmp_path) as db:
        rows = db.execute("SELECT session, count(*) FROM events GROUP BY 1").fetchall()
        assert rows == [(1, 2), (2, 4), (3, 4), (4, 4), (5, 4)]


async def test_a_fork_of_what_is_not_there_is_refused(tmp_path: Path) -> None:
    """A parent that nobody created, a boundary beyond its end, a taken id: nothing is created."""
    await write(tmp_path, "a", notes(0, 2))
    async with opened(tmp_path) as store:
        with pytest.raises(NoSuchSession, match="x"):
            await store.fork(header("b"), "x", 0)
        with pytest.raises(StoreError, match="ends before seq 2"):
            await store.fork(header("b"), "a", 3)
        with pytest.raises(SessionExists, match="a"):
            await store.fork(header("a"), "a", 1)
        assert [info.id async for info in store.sessions()] == ["a"]


async def test_a_long_string_is_stored_once(tmp_path: Path) -> None:
    """A long string that many events of many sessions hold takes its room once."""
    image = os.urandom(60_000).hex()
    size = 0
    for n in range(6):
        await write(tmp_path, f"s{n}", [event(i, {"n": n, "image": image}) for i in range(5)])
        if n == 0:
            size = (tmp_path / FILE).stat().st_size
    assert (tmp_path / FILE).stat().st_size < size + 60_000
    async with opened(tmp_path) as store:
        for n in range(6):
            expected = [event(i, {"n": n, "image": image}) for i in range(5)]
            assert_same((await store.load(f"s{n}")).events, expected)


# -- runs of chunks ----------------------------------------------------------------------------


def rows_of_chunks(folder: Path) -> list[tuple[int, int, int | None]]:
    """First, last and message of every row of chunks, those of `streams` among them."""
    query = "SELECT first, last, message FROM"
    with connected(folder) as db:
        return sorted(db.execute(f"{query} chunks UNION ALL {query} streams").fetchall())


@pytest.mark.parametrize("cuts", [[60], [10, 20, 60], [10, 61], [61], [1, 2, 3, 59, 60]])
async def test_a_finished_attempt_is_packed_again(tmp_path: Path, cuts: Sequence[int]) -> None:
    """However a stream came in batches, with its message stored it is one row that leans on it."""
    events: list[AnyEvent] = [*STREAM, answer(60, TOLD, cited=range(60)), *notes(61, 2)]
    bounds = [0, *cuts, len(events)]
    await write(tmp_path, "a", *[events[i:j] for i, j in pairwise(bounds)])
    assert rows_of_chunks(tmp_path) == [(0, 59, 60)]
    with connected(tmp_path) as db:
        assert db.execute("SELECT count(*) FROM streams").fetchall() == [(0,)]
    async with opened(tmp_path) as store:
        assert_same((await store.load("a")).events, events)
        (info,) = [info async for info in store.sessions()]
        assert (info.events, info.health) == (len(events), "ok")


async def test_what_a_message_does_not_cite_is_left_alone(tmp_path: Path) -> None:
    """Runs of a failed attempt, and chunks that the message does not cite, stay as they were."""
    failed = {"turn": 1, "step": 1, "attempt": 1, "firstSeq": 0, "lastSeq": 4}
    failed["failure"] = {"message": "cut off", "code": "transport"}  # pyright: ignore[reportArgumentType]
    batches = [
        [chunk(i, f"lost {i} " * 5) for i in range(5)],
        [event(5, failed, type_name="assistant/attempt")],
        [chunk(6 + i, f"kept {i} " * 5) for i in range(5)],
        [chunk(11 + i, f"kept {i} " * 5) for i in range(5)],
        [answer(16, "".join(f"kept {i} " * 5 for i in range(5)), cited=[*range(7, 16)])],
        [answer(17, "".join(f"kept {i} " * 5 for i in range(5)), cited=[*range(6, 16)])],
    ]
    await write(tmp_path, "a", *batches)
    assert rows_of_chunks(tmp_path) == [(0, 4, None), (6, 10, None), (11, 15, 16)]
    async with opened(tmp_path) as store:
        assert_same((await store.load("a")).events, [e for batch in batches for e in batch])


async def test_the_room_of_a_long_stream_is_given_back(tmp_path: Path) -> None:
    """What a stream took before its message came is no longer in the file when it is closed."""
    told = [os.urandom(100_000).hex() for _ in range(5)]
    known = event(0, "".join(told))  # so that the message needs no room
    stream = [chunk(1 + i, text) for i, text in enumerate(told)]
    await write(tmp_path, "a", [known], stream, [answer(6, "".join(told), cited=range(1, 6))])
    with connected(tmp_path) as db:
        assert db.pragma("freelist_count") == 0
    assert (tmp_path / FILE).stat().st_size < 800_000


async def test_another_claim_knows_nothing_of_the_attempt(tmp_path: Path) -> None:
    """A message that is stored under another claim than its chunks leaves their rows alone."""
    await write(tmp_path, "a", STREAM)
    async with opened(tmp_path) as store:
        claim = await store.claim("a", FIRST)
        await commit(store, claim, [answer(60, TOLD, cited=range(60))])
        assert len((await store.load("a")).events) == 61
    assert rows_of_chunks(tmp_path) == [(0, 59, None)]


# -- records, bounds ---------------------------------------------------------------------------


async def test_the_last_record_is_kept(tmp_path: Path) -> None:
    """A record is stored with its batch, replaced by a later one, and gone with the header."""
    await write(tmp_path, "a")
    async with opened(tmp_path) as store, opened(tmp_path) as other:
        claim = await store.claim("a", FIRST)
        assert await store.record("a") is None
        assert list(await store.commit([Batch(claim, notes(0, 2), record=Record(2, b"one"))])) == [
            None
        ]
        await commit(store, claim, notes(2, 1))
        assert await other.record("a") == Record(2, b"one")
        assert list(await store.commit([Batch(claim, [], 3, Record(3, b"\x00two"))])) == [None]
        assert await other.record("a") == Record(3, b"\x00two")
        assert await other.next_seq("a") == 3
        (refused,) = await store.commit([Batch(claim, notes(9, 1), record=Record(9, b"three"))])
        assert refused is not None
        assert await other.record("a") == Record(3, b"\x00two")
        await store.reseed(claim, header("a", seed_length=3))
        assert await other.record("a") is None
        with pytest.raises(NoSuchSession):
            await store.record("b")


async def test_seqs_beyond_the_ids_are_refused(tmp_path: Path) -> None:
    """An event whose seq does not fit into a row's id is refused by name; nothing is stored."""
    await write(tmp_path, "a")
    async with opened(tmp_path) as store:
        claim = await store.claim("a", FIRST)
        (error,) = await store.commit([Batch(claim, notes(SEQ_MASK + 1, 1), after=0)])
        assert str(SEQ_MASK) in str(error)
        assert list(await store.commit([Batch(claim, notes(SEQ_MASK, 1), after=0)])) == [None]
        assert_same(await store.read("a", SEQ_MASK), notes(SEQ_MASK, 1))


# -- the listing -------------------------------------------------------------------------------


async def test_a_stale_line_is_made_again_and_kept(tmp_path: Path) -> None:
    """A replacement makes a line stale; listing makes it again of the whole log, once."""
    events = [prompt(0, "one"), prompt(1, "two"), prompt(2, "both", op=Replace(0, 1), cited=[0, 1])]
    await write(tmp_path, "a", events[:2], events[2:])
    with connected(tmp_path) as db:
        assert db.execute("SELECT stale FROM sessions").fetchall() == [(1,)]
    async with opened(tmp_path) as store:
        (info,) = [info async for info in store.sessions()]
        assert (info.events, info.messages, info.title, info.health) == (3, 2, "one", "ok")
        with connected(tmp_path) as db:
            assert db.execute("SELECT stale FROM sessions").fetchall() == [(0,)]
        claim = await store.claim("a", FIRST)
        await commit(store, claim, [prompt(3, "three")])
        assert (await store.info("a")).messages == 3
        with connected(tmp_path) as db:
            assert db.execute("SELECT stale FROM sessions").fetchall() == [(0,)]


async def test_pages_of_the_listing_follow_on_each_other(tmp_path: Path) -> None:
    """Many sessions, some last active at the same time, are listed in order, each once."""
    async with opened(tmp_path) as store:
        expected: list[tuple[int, str]] = []
        batches: list[Batch] = []
        for n in range(250):
            session_id = f"s{n * 7919 % 250:03}"
            await store.create(header(session_id))
            time = NOON + 10_000 + n // 60
            claim = await store.claim(session_id, FIRST)
            batches.append(Batch(claim, [event(0, {}, time=time)]))
            expected.append((-time, session_id))
        assert set(await store.commit(batches)) == {None}
        found = [(-info.last_activity, info.id) async for info in store.sessions()]
    assert found == sorted(expected)


# -- other handles -----------------------------------------------------------------------------


async def test_however_many_wait_each_is_woken(tmp_path: Path) -> None:
    """Many who wait for sessions are woken by another handle's commits, each for its own."""
    ids = [f"s{n}" for n in range(20)]
    for session_id in ids:
        await write(tmp_path, session_id)
    woken: list[str] = []
    async with opened(tmp_path) as reader, opened(tmp_path) as store:

        async def follow(session_id: str) -> None:
            await reader.wait(session_id, -1, 600)
            woken.append(session_id)

        with anyio.fail_after(60):
            async with anyio.create_task_group() as tasks:
                for session_id in ids:
                    tasks.start_soon(follow, session_id)
                await anyio.wait_all_tasks_blocked()
                for session_id in ids:
                    claim = await store.claim(session_id, FIRST)
                    await commit(store, claim, notes(0, 1))
                    while session_id not in woken:
                        await anyio.lowlevel.checkpoint()
                    assert woken[-1] == session_id
    assert woken == ids


async def test_who_stops_waiting_hands_the_looking_on(tmp_path: Path) -> None:
    """When the one who looks is cancelled, another who waits looks on."""
    await write(tmp_path, "a")
    async with opened(tmp_path) as reader, opened(tmp_path) as store:
        with anyio.fail_after(60):
            async with anyio.create_task_group() as tasks, anyio.create_task_group() as others:
                tasks.start_soon(reader.wait, "a", -1, 600)
                await anyio.wait_all_tasks_blocked()
                others.start_soon(reader.wait, "a", -1, 600)
                await anyio.wait_all_tasks_blocked()
                tasks.cancel_scope.cancel()
                await anyio.wait_all_tasks_blocked()
                await commit(store, await store.claim("a", FIRST), notes(0, 1))


async def test_a_command_keeps_its_id_only(tmp_path: Path) -> None:
    """Of a command that was accepted nothing but its id stays in the file."""
    await write(tmp_path, "a")
    async with opened(tmp_path) as store:
        await store.post("a", Prompt("my secret", id="x"))
        claim = await store.claim("a", FIRST)
        (queued,) = await store.inbox("a")
        await store.accept(claim, [queued.position])
        assert not await store.post("a", Prompt("again", id="x"))
    with connected(tmp_path) as db:
        assert db.execute("SELECT id, command FROM inbox").fetchall() == [(b"x", None)]


async def test_a_command_of_a_newer_version_waits_for_it(tmp_path: Path) -> None:
    """A command that this version cannot read is passed over, and stays."""
    await write(tmp_path, "a")
    async with opened(tmp_path) as store:
        await store.post("a", Prompt("one", id="1"))
        await store.post("a", Prompt("two", id="2"))
        with connected(tmp_path) as db:
            db.execute(
                "UPDATE inbox SET command = CAST('{\"type\":\"dance\"}' AS BLOB) WHERE id = x'31'"
            )
        assert [queued.command.id for queued in await store.inbox("a")] == ["2"]
        assert not await store.post("a", Prompt("one", id="1"))


def test_a_handle_says_its_url() -> None:
    """The URL is the path as it was given."""
    assert SqliteStore(Path("x/y.db")).url == "sqlite:x/y.db"
