"""Real processes on one SQLite file: killed, stopped, woken, many at once."""

from __future__ import annotations

import os
import random
import signal
from collections.abc import Sequence
from pathlib import Path
from shutil import copyfile

import apsw
import pytest

from tests.crash.children import Children, spin
from tests.crash.store_child import LATER
from turnlog.errors import SessionInUse
from turnlog.events import AnyEvent
from turnlog.stores.port import Batch
from turnlog.stores.sqlite import SqliteStore
from turnlog.stores.sqlite.driver import connect
from turnlog.stores.sqlite.schema import VERSION
from turnlog.testing.conformance.base import commit
from turnlog.testing.conformance.samples import FIRST, SECOND, header, prompt

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
LONG = pytest.mark.long
EVENTS = 2_000
ACKS = {f"ack {i}" for i in range(8)}


def some(few: int, many: int) -> Sequence[object]:
    """A few times in every run, many times in the long one."""
    return [few, pytest.param(many, marks=LONG)]


def said(event: AnyEvent) -> str:
    """The text of a message."""
    assert event.message is not None
    return event.message.text


async def checked(path: Path) -> list[str]:
    """The texts of session "a": dense and undamaged, each message where its writer put it."""
    store = SqliteStore(path)
    await store.open()
    found = await store.load("a")
    await store.close()
    assert list(found.damage) == []
    assert [event.seq for event in found.events] == list(range(len(found.events)))
    texts = [said(event) for event in found.events]
    assert all(text.split()[1] == str(seq) for seq, text in enumerate(texts))
    return texts


def sound(path: Path) -> None:
    """SQLite finds nothing wrong with the file."""
    db = connect(str(path), apsw.SQLITE_OPEN_READWRITE)
    assert db.pragma("integrity_check") == "ok"
    db.close()


@pytest.mark.parametrize("what", ["append", "move"])
@pytest.mark.parametrize("kills", some(20, 400))
async def test_a_killed_writer_loses_nothing_it_acknowledged(
    tmp_path: Path, what: str, kills: int
) -> None:
    """Killed while it commits, or moves the WAL into the file: what was acknowledged is there."""
    moments = random.Random(what)  # noqa: S311 - not for secrets
    path = tmp_path / "s.db"
    acknowledged = 0
    with Children() as children:
        for life in range(kills):
            pid = children.start(f"{what} life{life} sqlite:{path}")
            for _ in range(moments.randrange(4)):
                acknowledged = int(children.hear().split()[2])
            spin(moments.randrange(200_000))
            os.kill(pid, signal.SIGKILL)
            for line in children.gone():
                acknowledged = int(line.split()[2])
            if acknowledged:
                assert len(await checked(path)) >= acknowledged
    assert acknowledged > kills
    sound(path)


@pytest.mark.parametrize("kills", some(12, 300))
async def test_a_killed_migration_is_done_or_not_begun(tmp_path: Path, kills: int) -> None:
    """Killed at any moment of a migration the file has the old version or the new, and all else."""
    moments = random.Random(kills)  # noqa: S311 - not for secrets
    original, path = tmp_path / "original.db", tmp_path / "s.db"
    store = SqliteStore(original)
    await store.open()
    await store.create(header("a"))
    claim = await store.claim("a", FIRST)
    await commit(store, claim, [prompt(i, f"x {i} {'y' * 200}") for i in range(EVENTS)])
    await store.close()
    found: list[int] = []
    longest = 500_000
    with Children() as children:
        for life in range(kills):
            copyfile(original, path)
            pid = children.start(f"migrate life{life} sqlite:{path}")
            spin(moments.randrange(longest))
            os.kill(pid, signal.SIGKILL)
            acknowledged = bool(children.gone())
            found.append(version_of(path))
            assert found[-1] == len(LATER) or not acknowledged
            for ending in ("", "-wal", "-shm"):
                path.with_name(path.name + ending).unlink(missing_ok=True)
            longest = longest // 2 if found[-1] == len(LATER) else longest * 2
    assert set(found) == {VERSION, len(LATER)}


def version_of(path: Path) -> int:
    """The version of a file that is wholly of that version, with all its events."""
    sound(path)
    db = connect(str(path), apsw.SQLITE_OPEN_READWRITE)
    version = int(db.pragma("user_version"))
    names = {name for (name,) in db.execute("SELECT name FROM sqlite_schema").fetchall()}
    columns = {row[1] for row in db.execute("PRAGMA table_info(events)").fetchall()}
    count = db.execute("SELECT count(*) FROM events").fetchone()
    db.close()
    later = version == len(LATER)
    assert later or version == VERSION
    assert {"moods" in names, "by_mood" in names, "mood" in columns} == {later}
    assert count == (EVENTS,)
    return version


@pytest.mark.parametrize("stops", some(6, 100))
async def test_a_stopped_owner_that_wakes_hurts_nothing(tmp_path: Path, stops: int) -> None:
    """An owner is stopped anywhere, robbed and woken: it is told, nothing is lost or doubled."""
    moments = random.Random(stops)  # noqa: S311 - not for secrets
    path = tmp_path / "s.db"
    texts: list[str] = []
    with Children() as children:
        for life in range(stops):
            store = SqliteStore(path)
            await store.open()
            pid = children.start(f"append life{life} sqlite:{path}")
            for _ in range(1 + moments.randrange(3)):
                assert children.hear().startswith("ack")
            spin(moments.randrange(200_000))
            stopped(path, pid)
            with pytest.raises(SessionInUse, match=f"process {pid} "):
                await store.claim("a", SECOND)
            claim = await store.claim("a", SECOND, steal=True)
            seq = await store.next_seq("a")
            mine = [prompt(seq, f"thief{life} {seq}"), prompt(seq + 1, f"thief{life} {seq + 1}")]
            assert await store.commit([Batch(claim, mine[:1])]) == [None]
            os.kill(pid, signal.SIGCONT)
            assert any(SECOND.host in line for line in children.gone() if "stale" in line)
            assert await store.commit([Batch(claim, mine[1:])]) == [None]
            await store.release(claim)
            await store.close()
            texts = await checked(path)
            assert texts[seq:] == [said(event) for event in mine]
        for line in children.lines:
            if line.startswith("ack"):
                _, name, upto = line.split()
                assert texts[int(upto) - 1] == f"{name} {int(upto) - 1}"
    sound(path)


def stopped(path: Path, pid: int) -> None:
    """Stop a process anywhere but inside its transaction, where it would keep all others out."""
    status = Path(f"/proc/{pid}/stat")
    db = connect(str(path), apsw.SQLITE_OPEN_READWRITE)
    while True:
        os.kill(pid, signal.SIGSTOP)
        while status.exists() and status.read_text().rpartition(")")[2].split()[0] != "T":
            spin(1_000)
        try:
            db.execute("BEGIN IMMEDIATE")
        except (apsw.BusyError, apsw.ProtocolError):  # it holds the lock, or one of the WAL's
            os.kill(pid, signal.SIGCONT)
        else:
            db.execute("ROLLBACK")
            db.close()
            return


@pytest.mark.parametrize("rounds", some(20, 200))
async def test_eight_processes_open_a_new_file_at_once(tmp_path: Path, rounds: int) -> None:
    """Each makes a session of its own in the file that all make, round by round."""
    with Children() as children:
        for number in range(rounds):
            path = tmp_path / str(number) / "s.db"
            for i in range(8):
                children.ask(f"own {i} sqlite:{path}")
            said_all = children.gone()
            assert {line for line in said_all if line.startswith("ack")} == ACKS, said_all
            store = SqliteStore(path)
            await store.open()
            for i in range(8):
                assert [said(e) for e in (await store.load(f"own-{i}")).events] == [str(i)]
            await store.close()
            assert {entry.name for entry in path.parent.iterdir()} == {"s.db", "s.db-owners"}


@pytest.mark.parametrize("rounds", some(1, 50))
async def test_eight_processes_take_turns_in_one_session(tmp_path: Path, rounds: int) -> None:
    """Each gets its turn in the session that all share, in a file that all make."""
    with Children() as children:
        for number in range(rounds):
            path = tmp_path / str(number) / "s.db"
            for i in range(8):
                children.ask(f"share {i} sqlite:{path}")
            said_all = children.gone()
            assert {line for line in said_all if line.startswith("ack")} == ACKS, said_all
            assert sum(line.startswith("shared") for line in said_all) == 8
            assert sum(line.startswith("second") for line in said_all) == 7
            store = SqliteStore(path)
            await store.open()
            found = await store.load("shared")
            await store.close()
            assert list(found.damage) == []
            assert [event.seq for event in found.events] == list(range(8))
            assert sorted(map(said, found.events)) == [str(i) for i in range(8)]


async def test_many_processes_post_at_once(tmp_path: Path) -> None:
    """Commands that processes post at the same time are all there, once each, each in order."""
    path = tmp_path / "s.db"
    store = SqliteStore(path)
    await store.open()
    await store.create(header("a"))
    with Children() as children:
        for i in range(4):
            children.ask(f"post {i} sqlite:{path}")
        assert len([line for line in children.gone() if line.startswith("ack")]) == 4
    queued = await store.inbox("a")
    ids = [one.command.id for one in queued]
    assert len(set(ids)) == len(ids) == 125
    for i in range(4):
        ours = [command_id for command_id in ids if command_id.startswith(f"{i}-")]
        assert ours == [f"{i}-{n}" for n in range(25)]
    await store.close()
