"""One owner a session: resuming, taking over, and every way in which these can meet."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.unit.stores.jsonl_files import HEADER, commit, lines, owning, plain, saved, seqs
from turnlog.errors import SessionInUse, StaleWriter, WriteFailed
from turnlog.stores.jsonl.names import lock_path
from turnlog.stores.jsonl.ownership import acquire
from turnlog.stores.jsonl.scan import scan
from turnlog.stores.jsonl.tenure import Tenure
from turnlog.stores.locks import Lock, locked, owner_of
from turnlog.stores.port import Owner
from turnlog.testing.conformance.samples import FIRST, NOON, SECOND, assert_same, event, notes


def test_resuming_continues_the_segment(tmp_path: Path) -> None:
    """When the owner before is gone, the next one goes on in the same file."""
    folder = plain(tmp_path, *lines(notes(0, 2)))
    for start in (2, 3, 4):
        tenure = owning(folder)
        assert tenure.segment.token == 1
        commit(tenure, notes(start, 1))
        tenure.release()
    assert_same(scan(folder, "a").events, notes(0, 5))


def test_stealing_from_nobody_is_resuming(tmp_path: Path) -> None:
    """A steal with no live owner takes the free segment."""
    folder = plain(tmp_path)
    assert owning(folder, steal=True).segment.token == 1


def test_a_takeover_records_how_far_the_segment_goes(tmp_path: Path) -> None:
    """The new segment's first line names token, bytes that count, and its owner."""
    folder = plain(tmp_path, *lines(notes(0, 2)))
    first = owning(folder)
    size = (folder / "1.jsonl").stat().st_size
    with (folder / "1.jsonl").open("ab") as file:
        file.write(b"half a rec")
    second = owning(folder, SECOND, steal=True)
    assert second.segment.token == 2
    assert (folder / "2.jsonl").read_bytes() == (
        b'{"segment":2,"after":{"token":1,"bytes":%d},'
        b'"owner":{"pid":5353,"host":"second.example","since":1700000000001}}\n' % size
    )
    first.release()


def test_the_refusal_names_the_owner(tmp_path: Path) -> None:
    """Whoever is refused is told process, host and since when."""
    folder = plain(tmp_path)
    tenure = owning(folder)
    with pytest.raises(SessionInUse, match=r"4242 on first\.example since 2023-11-14") as refusal:
        owning(folder, SECOND)
    assert refusal.value.owner == Owner(4242, "first.example", NOON, 1)
    tenure.release()
    owning(folder, SECOND)


def test_what_a_robbed_owner_writes_is_never_read(tmp_path: Path) -> None:
    """A write that was on its way during a takeover is refused, kept aside, and read by nobody."""
    folder = plain(tmp_path)
    robbed = owning(folder)
    commit(robbed, notes(0, 2))
    thief = owning(folder, SECOND, steal=True)
    with pytest.raises(StaleWriter, match=r"second\.example") as refusal:
        commit(robbed, notes(2, 2, "late"))
    assert isinstance(refusal.value.owner, Owner)
    assert refusal.value.owner.pid == SECOND.pid
    with (folder / "1.jsonl").open("ab") as file:  # as a process does that was stopped in write()
        file.write(b"".join(lines(notes(2, 2, "late"))))
    commit(thief, notes(2, 1, "thief"))
    assert_same(scan(folder, "a").events, [*notes(0, 2), *notes(2, 1, "thief")])
    assert scan(folder, "a").damage == []


class Interrupted(Tenure):
    """An owner to whom something happens between its write and its look for a takeover."""

    happens: Callable[[], object] | None = None

    def _settle_rest(self) -> int | None:
        if self._unsettled is not None and self.happens is not None:
            happens, self.happens = self.happens, None
            happens()
        return super()._settle_rest()


def interrupted(folder: Path, *, patience: float = 10.0) -> Interrupted:
    """The session's owner, to be interrupted."""
    plain_tenure = owning(folder)
    lock = plain_tenure._lock  # noqa: SLF001 # pyright: ignore[reportPrivateUsage]
    return Interrupted(
        folder, "a", FIRST, plain_tenure.segment, lock, durable=False, patience=patience
    )


def test_a_write_that_the_takeover_counted_is_acknowledged(tmp_path: Path) -> None:
    """An owner robbed right after its write settles by the recorded bytes: it is stored."""
    folder = plain(tmp_path)
    robbed = interrupted(folder)
    thieves: list[Tenure] = []
    robbed.happens = lambda: thieves.append(owning(folder, SECOND, steal=True))
    commit(robbed, notes(0, 2))
    with pytest.raises(StaleWriter):
        commit(robbed, notes(2, 1))
    commit(thieves[0], notes(2, 1, "thief"))
    assert_same(scan(folder, "a").events, [*notes(0, 2), *notes(2, 1, "thief")])


def test_a_write_that_the_takeover_did_not_see_is_refused(tmp_path: Path) -> None:
    """An owner whose write came after the bytes were recorded is told that nothing is stored."""
    folder = plain(tmp_path)
    robbed = interrupted(folder)
    commit(robbed, notes(0, 1))
    size = (folder / "1.jsonl").stat().st_size
    first_line = b'{"segment":2,"after":{"token":1,"bytes":%d}}\n' % size
    robbed.happens = lambda: saved(tmp_path, first_line, token=2)
    with pytest.raises(StaleWriter):
        commit(robbed, notes(1, 2))
    with pytest.raises(StaleWriter):
        commit(robbed, notes(1, 2))
    assert_same(scan(folder, "a").events, notes(0, 1))


def test_a_takeover_that_died_never_happened(tmp_path: Path) -> None:
    """An owner that meets the file of a dead takeover removes it and goes on."""
    for content in (b"", b'{"segment":2,"after":{"tok', bytes(100)):
        folder = plain(tmp_path)
        owner = owning(folder)
        saved(tmp_path, content, token=2)
        commit(owner, notes(0, 2))
        assert not (folder / "2.jsonl").exists()
        saved(tmp_path, content, token=2)
        with pytest.raises(SessionInUse, match="4242"):
            owning(folder, SECOND)
        saved(tmp_path, content, token=2)
        thief = owning(folder, SECOND, steal=True)
        assert thief.segment.token == 2
        commit(thief, notes(2, 1))
        owner.release()
        thief.release()
        assert_same(scan(folder, "a").events, notes(0, 3))
        (folder / "2.jsonl").unlink()


def test_a_takeover_that_died_after_a_write_is_settled(tmp_path: Path) -> None:
    """A dead takeover that appears behind a write does not hinder its acknowledgement."""
    folder = plain(tmp_path)
    owner = interrupted(folder)
    owner.happens = lambda: saved(tmp_path, b"", token=2)
    commit(owner, notes(0, 2))
    commit(owner, notes(2, 1))
    assert_same(scan(folder, "a").events, notes(0, 3))


def test_a_takeover_that_hangs_leaves_the_write_open(tmp_path: Path) -> None:
    """While a takeover neither ends nor dies an owner cannot tell; a retry stores nothing twice."""
    folder = plain(tmp_path)
    owner = interrupted(folder, patience=0.0)
    hanging: list[Lock | None] = []

    def hang() -> None:
        saved(tmp_path, b"", token=2)
        hanging.append(acquire(folder, 2, SECOND))

    owner.happens = hang
    for _ in range(2):
        with pytest.raises(WriteFailed, match=r"takeover by process 5353 on second\.example"):
            commit(owner, notes(0, 2))
    assert hanging[0] is not None
    hanging[0].release()
    commit(owner, notes(0, 5))  # the retry brings what was appended meanwhile
    assert_same(scan(folder, "a").events, notes(0, 5))
    commit(owner, notes(5, 1))


def test_a_hanging_takeover_is_overtaken(tmp_path: Path) -> None:
    """A second takeover goes past one that is stuck, which then counts for nothing."""
    folder = plain(tmp_path, *lines(notes(0, 1)))
    first = owning(folder)
    stuck = acquire(folder, 2, FIRST)
    assert stuck is not None
    third = owning(folder, SECOND, steal=True)
    assert third.segment.token == 3
    commit(third, notes(1, 1))
    late = b'{"segment":2,"after":{"token":1,"bytes":%d}}\n' % len(HEADER)
    saved(tmp_path, late + b"".join(lines(notes(0, 9, "late"))), token=2)
    with pytest.raises(StaleWriter):
        commit(first, notes(1, 1))
    assert_same(scan(folder, "a").events, notes(0, 2))


def test_a_takeover_waits_for_a_write(tmp_path: Path) -> None:
    """A takeover looks how far a segment goes only when no write is under way in it."""
    folder = plain(tmp_path, *lines(notes(0, 1)))
    owner = owning(folder)
    taken: list[Tenure] = []
    thief = threading.Thread(target=lambda: taken.append(owning(folder, SECOND, steal=True)))
    path = folder / "2.jsonl"
    with (
        (folder / "1.jsonl").open("ab", buffering=0) as file,
        locked(file.fileno(), 1.0) as got,
    ):
        assert got
        thief.start()
        while not path.exists():
            pass
        assert not any(path.stat().st_size for _ in range(20_000))
        file.write(b"".join(lines(notes(1, 2))))
    thief.join()
    commit(taken[0], notes(3, 1))
    assert_same(scan(folder, "a").events, notes(0, 4))
    owner.release()


def test_stale_locks_block_nobody(tmp_path: Path) -> None:
    """A lock's file that a dead process left, whatever it says, is no lock."""
    folder = plain(tmp_path)
    for content in (b"", b"garbage", b'{"pid":1,"host":"x","since":0}'):
        lock_path(folder, 1).write_bytes(content)
        owning(folder).release()
    lock_path(folder, 1).write_bytes(b'{"pid":"x"}')
    assert owner_of(lock_path(folder, 1)) is None


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
def test_a_forked_child_neither_writes_nor_holds_the_lock(tmp_path: Path) -> None:
    """A child made by fork() is no owner, and does not keep its dead parent's session."""
    folder = plain(tmp_path)
    tenure = owning(folder)
    commit(tenure, notes(0, 1))
    ready, go = os.pipe(), os.pipe()
    child = os.fork()
    if child == 0:
        try:
            commit(tenure, notes(1, 1))
            os.write(ready[1], b"wrote")
        except StaleWriter:
            os.write(ready[1], b"stale")
        os.read(go[0], 1)
        os._exit(0)
    assert os.read(ready[0], 5) == b"stale"
    commit(tenure, notes(1, 1))
    tenure.release()
    owning(folder, SECOND).release()
    os.write(go[1], b"x")
    os.waitpid(child, 0)
    for fd in (*ready, *go):
        os.close(fd)


@pytest.mark.parametrize("writers", [2, 5])
def test_thieves_that_race_lose_nothing(tmp_path: Path, writers: int) -> None:
    """Threads that steal from each other while all write: each acknowledged event is there once."""
    folder = plain(tmp_path)
    acknowledged: list[tuple[int, str]] = []
    failures: list[BaseException] = []

    def run(name: str) -> None:
        try:
            for tenure_number in range(12):
                tenure = owning(folder, FIRST, steal=True)
                try:
                    seq = scan(folder, "a").mark.next_seq
                    for i in range(4):
                        said = f"{name}.{tenure_number}.{i}"
                        commit(tenure, [event(seq, said), event(seq + 1, said)])
                        acknowledged.append((seq, said))
                        seq += 2
                except StaleWriter:
                    continue
                finally:
                    tenure.release()
        except BaseException as error:  # noqa: BLE001 - reported by the test
            failures.append(error)

    threads = [threading.Thread(target=run, args=(f"w{i}",)) for i in range(writers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    found = scan(folder, "a")
    assert found.damage == []
    assert seqs(found) == list(range(len(found.events)))
    stored = {one.seq: one.data for one in found.events}
    assert acknowledged
    for seq, said in acknowledged:
        assert stored[seq] == stored[seq + 1] == said
    assert len(stored) == 2 * len(acknowledged)
