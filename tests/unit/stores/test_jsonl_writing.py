"""Writing at the end of a segment: faults of the medium, retries, what is refused."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.unit.stores.jsonl_files import (
    HEADER,
    batch,
    commit,
    lines,
    lost,
    owning,
    plain,
    seqs,
)
from turnlog.errors import StaleWriter, StoreError, WriteFailed
from turnlog.events import AnyEvent
from turnlog.stores.jsonl import JsonlStore, files
from turnlog.stores.jsonl import lines as reading
from turnlog.stores.jsonl.ownership import take
from turnlog.stores.jsonl.scan import scan
from turnlog.stores.jsonl.tenure import Tenure
from turnlog.stores.port import Batch, Claim, Durability
from turnlog.testing.conformance.samples import FIRST, assert_same, chunk, event, header, notes


def fsyncing(folder: Path) -> Tenure:
    """The session's one writer, with an fsync after each write."""
    segment, lock = take(folder, "a", FIRST, steal=False, packed=False)
    return Tenure(folder, "a", FIRST, segment, lock, durable=True)


class Faults:
    """The system's calls that change files; the chosen one, by number, fails or is cut short."""

    NAMES = ("write", "fsync", "ftruncate")

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.fail: Callable[[int, str], bool] = lambda _number, _name: False
        self.count = 0
        self.short = 0
        for name in self.NAMES:
            monkeypatch.setattr(os, name, self._failing(name, getattr(os, name)))

    def _failing(self, name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(fd: int, *args: Any) -> Any:
            number, self.count = self.count, self.count + 1
            if not self.fail(number, name):
                return real(fd, *args)
            if name == "write" and self.short:
                real(fd, bytes(args[0])[: self.short])
            raise OSError(errno.ENOSPC, "No space left on device")

        return call


def failure(tenure: Tenure, events: Sequence[AnyEvent]) -> WriteFailed | None:
    """Why the batch was not stored, if it was not."""
    try:
        commit(tenure, events)
    except WriteFailed as error:
        return error
    return None


@pytest.mark.parametrize("short", [0, 1, 50, 10_000])
def test_every_call_may_fail_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, short: int
) -> None:
    """Whichever write, fsync or cut fails: that commit says so, a retry stores each event once."""
    faults = Faults(monkeypatch)
    faults.short = short
    number = 0
    reached = True
    while reached:
        faults.fail = lambda _number, _name: False
        root = tmp_path / str(number)
        root.mkdir()
        folder = plain(root, *lines(notes(0, 2)), b"torn")
        tenure = fsyncing(folder)
        faults.count = 0
        faults.fail = lambda n, _name, failing=number: n == failing
        failed = 0
        for start in (2, 5):
            events = notes(start, 3)
            error = failure(tenure, events)
            if error is not None:
                assert "No space left" in str(error)
                failed += 1
                found = scan(folder, "a")
                assert seqs(found)[:start] == list(range(start))
                assert found.damage == []
                commit(tenure, [*events, event(start + 3, "more")])  # a retry may bring more
                commit(tenure, notes(start + 4, 1))
                break
        reached = faults.count > number
        assert failed == reached
        tenure.release()
        found = scan(folder, "a")
        assert found.damage == []
        assert seqs(found) == list(range(len(found.events)))
        assert len(found.events) >= 7
        assert {path.read_bytes() for path in folder.glob("torn-*")} == {b"torn"}, number
        number += 1
    assert number > 8


def test_a_broken_medium_keeps_what_was_acknowledged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While everything fails nothing is acknowledged; when it works again nothing is missing."""
    faults = Faults(monkeypatch)
    faults.short = 30
    folder = plain(tmp_path, *lines(notes(0, 2)))
    tenure = fsyncing(folder)
    commit(tenure, notes(2, 2))
    faults.fail = lambda _number, _name: True
    for _ in range(3):
        with pytest.raises(WriteFailed):
            commit(tenure, notes(4, 2))
        assert seqs(scan(folder, "a"))[:4] == [0, 1, 2, 3]
    faults.fail = lambda _number, _name: False
    commit(tenure, notes(4, 2))
    tenure.release()
    found = scan(folder, "a")
    assert_same(found.events, notes(0, 6))
    assert (found.damage, found.torn) == ([], None)


def test_a_failed_fsync_is_not_believed_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a failed fsync the batch is taken back, and written anew by the retry."""
    faults = Faults(monkeypatch)
    folder = plain(tmp_path)
    tenure = fsyncing(folder)
    faults.fail = lambda _number, name: name == "fsync"
    with pytest.raises(WriteFailed):
        commit(tenure, notes(0, 2))
    assert (folder / "1.jsonl").read_bytes() == HEADER
    faults.fail = lambda _number, _name: False
    commit(tenure, notes(0, 2))
    assert_same(scan(folder, "a").events, notes(0, 2))


@pytest.mark.parametrize("durability", ["event", "turn", "none"])
async def test_one_write_and_one_fsync_a_batch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, durability: Durability
) -> None:
    """A commit costs each session one write, and one fsync unless durability is "none"."""
    store = JsonlStore(tmp_path, durability=durability)
    await store.open()
    claims: list[Claim] = []
    for session_id in ("a", "b", "c"):
        await store.create(header(session_id))
        claims.append(await store.claim(session_id, FIRST))
    made: list[str] = []
    for name in ("write", "fsync"):
        real = getattr(os, name)

        def call(*args: Any, real: Any = real, name: str = name) -> Any:
            made.append(name)
            return real(*args)

        monkeypatch.setattr(os, name, call)
    for start in (0, 100):
        made.clear()
        results = await store.commit([Batch(claim, notes(start, 100)) for claim in claims])
        assert results == [None] * 3
        assert made.count("write") == 3
        assert made.count("fsync") == (0 if durability == "none" else 3)
    monkeypatch.undo()
    await store.close()


def test_a_file_that_was_replaced_is_not_written_to(tmp_path: Path) -> None:
    """An owner whose file was replaced or removed says so, rather than writing into nothing."""
    folder = plain(tmp_path)
    tenure = owning(folder)
    commit(tenure, notes(0, 1))
    path = folder / "1.jsonl"
    content = path.read_bytes()
    path.unlink()
    with pytest.raises(WriteFailed, match="removed or replaced"):
        commit(tenure, notes(1, 1))
    path.write_bytes(content)
    with pytest.raises(WriteFailed, match="removed or replaced"):
        commit(tenure, notes(1, 1))


def test_a_file_that_others_wrote_to_is_left_alone(tmp_path: Path) -> None:
    """Bytes that someone wrote without owning the session are not overwritten."""
    folder = plain(tmp_path)
    tenure = owning(folder)
    commit(tenure, notes(0, 1))
    with (folder / "1.jsonl").open("ab") as file:
        file.write(b"hello\n")
    with pytest.raises(WriteFailed, match="something else wrote"):
        commit(tenure, notes(1, 1))
    assert (folder / "1.jsonl").read_bytes().endswith(b"hello\n")


def test_resuming_appends(tmp_path: Path) -> None:
    """A new owner leaves every byte that was there, and writes behind it."""
    folder = plain(tmp_path, *lines(notes(0, 3)))
    before = (folder / "1.jsonl").read_bytes()
    tenure = owning(folder)
    commit(tenure, notes(3, 1))
    assert (folder / "1.jsonl").read_bytes() == before + batch(notes(3, 1))
    assert [path.name for path in folder.iterdir()] == ["1.jsonl", "1.lock"] or len(
        list(folder.iterdir())
    ) == 2


def test_a_claim_given_back_stores_nothing(tmp_path: Path) -> None:
    """After its release a tenure refuses, whatever it is asked."""
    folder = plain(tmp_path)
    tenure = owning(folder)
    tenure.release()
    tenure.release()
    for call in (lambda: commit(tenure, notes(0, 1)), lambda: tenure.reseed(header("a"), None)):
        with pytest.raises(StaleWriter):
            call()


def test_line_feeds_between_tokens_become_blanks(tmp_path: Path) -> None:
    """A payload whose JSON spans lines is stored on one, with the same value."""
    folder = plain(tmp_path)
    tenure = owning(folder)
    raw = b'{\n "a": [\n1,\n"b\\n"\n]}'
    commit(tenure, [event(0, raw=raw), event(1, raw=raw, extra={"k": 1})])
    first, second = scan(folder, "a").events
    assert first.data == second.data == {"a": [1, "b\n"]}
    assert first.raw == raw.replace(b"\n", b" ")


def test_a_record_that_could_not_be_read_back_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A line beyond what readers hold is never written."""
    monkeypatch.setattr(reading, "LINE_MAX", 2000)
    folder = plain(tmp_path)
    tenure = owning(folder)
    with pytest.raises(StoreError, match="at most 2000"):
        commit(tenure, [event(0, "x" * 3000)])
    commit(tenure, [event(i, "x" * 900) for i in range(4)])
    assert seqs(scan(folder, "a")) == [0, 1, 2, 3]


def test_runs_of_chunks_take_a_line(tmp_path: Path) -> None:
    """Chunks that follow on each other share a line in the file."""
    folder = plain(tmp_path)
    tenure = owning(folder)
    events = [chunk(i, f"{i}") for i in range(100)]
    commit(tenure, events)
    assert (folder / "1.jsonl").read_bytes().count(b"\n") == 2
    assert_same(scan(folder, "a").events, events)


async def test_a_damaged_log_is_written_on(tmp_path: Path) -> None:
    """Through the store, too, the next write after damage leaves every byte where it was."""
    folder = plain(tmp_path, *lines(notes(0, 2)), b"garbage\n", *lines(notes(3, 1)))
    before = (folder / "1.jsonl").read_bytes()
    store = JsonlStore(tmp_path, durability="none")
    await store.open()
    claim = await store.claim("a", FIRST)
    stored = await store.load("a")
    assert [one.seq for one in stored.events] == [0, 1, 3]
    assert await store.next_seq("a") == 4
    assert await store.commit([Batch(claim, notes(4, 1))]) == [None]
    await store.close()
    assert (folder / "1.jsonl").read_bytes().startswith(before)
    found = scan(folder, "a")
    assert (seqs(found), lost(found)) == ([0, 1, 3, 4], [(2, 2)])


# -- files -------------------------------------------------------------------------------------


@pytest.mark.parametrize("compress", [False, True])
async def test_files_are_private(tmp_path: Path, compress: bool) -> None:  # noqa: FBT001
    """Every folder and file of a store is its user's alone."""
    root = tmp_path / "deep" / "store"
    store = JsonlStore(root, compress=compress)
    await store.open()
    await store.create(header("a"))
    claim = await store.claim("a", FIRST)
    await store.claim("a", FIRST, steal=True)
    await store.commit([Batch(claim, notes(0, 1))])
    await store.accept(claim, [1])
    await store.close()
    modes = {path.name: path.stat().st_mode & 0o777 for path in root.rglob("*")}
    ending = ".jsonl.zst" if compress else ".jsonl"
    assert {"a", f"1{ending}", f"2{ending}", "1.lock", "inbox.jsonl", "info.json"} <= set(modes)
    assert modes.pop("a") == root.stat().st_mode & 0o777 == 0o700
    assert set(modes.values()) == {0o600}


def test_a_rename_is_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A rename that another program's lock refuses twice succeeds at the third try."""
    failing_renames(monkeypatch, 2)
    pauses: list[float] = []
    source, target = tmp_path / "new", tmp_path / "old"
    source.write_text("new")
    target.write_text("old")
    files.replace(source, target, pause=pauses.append)
    assert target.read_text() == "new"
    assert len(pauses) == 2


def test_a_rename_is_not_tried_for_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A rename that is always refused fails after some tries and leaves the old file."""
    failing_renames(monkeypatch, 1000)
    pauses: list[float] = []
    target = tmp_path / "old"
    target.write_text("old")
    with pytest.raises(PermissionError):
        files.publish(target, b"new", durable=False, pause=pauses.append)
    assert target.read_text() == "old"
    assert 2 < len(pauses) < 20
    assert sum(pauses) < 2


def failing_renames(monkeypatch: pytest.MonkeyPatch, times: int) -> None:
    """Let the system refuse the next renames."""
    real = os.replace
    left = [times]

    def call(source: Any, target: Any) -> None:
        if left[0]:
            left[0] -= 1
            raise PermissionError(errno.EPERM, "held by a scanner")
        real(source, target)

    monkeypatch.setattr(os, "replace", call)


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    """A segment that is a symbolic link is not read or written through."""
    outside = tmp_path / "outside"
    outside.write_bytes(HEADER)
    folder = tmp_path / "a"
    folder.mkdir()
    (folder / "1.jsonl").symlink_to(outside)
    with pytest.raises(OSError, match="symbolic links"):
        scan(folder, "a")
