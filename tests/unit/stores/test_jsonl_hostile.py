"""Stores that somebody made to hang or to exhaust whoever reads them."""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.unit.stores.jsonl_files import (
    HEADER,
    commit,
    framed,
    line,
    owning,
    plain,
    saved,
    seqs,
    spans,
)
from turnlog import open_store
from turnlog.codec import decode_line
from turnlog.commands import Prompt
from turnlog.errors import StoreError, TurnlogError
from turnlog.stores.jsonl import inbox as inbox_module
from turnlog.stores.jsonl import lines as reading
from turnlog.stores.jsonl.inbox import Inboxes
from turnlog.stores.jsonl.reader import Reader
from turnlog.stores.jsonl.scan import Mark, Scan, scan, scan_on
from turnlog.stores.store import Store
from turnlog.testing.conformance.samples import FIRST, header, notes


@pytest.mark.parametrize("junk", [b"\n", b"\n \n", b"x\n", b"{\n", b"\0\n\n"])
@pytest.mark.parametrize("make", [plain, framed])
def test_lines_that_are_no_records_cost_no_exception_each(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, make: Callable[..., Path], junk: bytes
) -> None:
    """A megabyte of short lines is stepped over without looking for records in them."""
    asked: list[bytes] = []

    def decode(one: bytes) -> object:
        asked.append(one)
        return decode_line(one)

    monkeypatch.setattr(reading, "decode_line", decode)
    first, last = map(line, notes(0, 2, "kept"))
    count = (1 << 20) // len(junk)
    found = scan(make(tmp_path, first + junk * count + last), "a")
    assert len(asked) <= 4
    assert seqs(found)[0] == 0
    assert bool(found.damage) == bool(junk.strip())
    assert len(found.damage) <= 8  # one for each block that is read


def test_junk_lines_next_to_each_other_are_one_stretch(tmp_path: Path) -> None:
    """Empty lines between lines of junk belong to the stretch, those around it do not."""
    first, last = map(line, [notes(0, 1)[0], notes(3, 1)[0]])
    found = scan(plain(tmp_path, first, b"\n", b"x\n\n\0\0\ny\n", b"\n", last), "a")
    assert seqs(found) == [0, 3]
    ((offset, length),) = spans(found)
    content = (tmp_path / "a/1.jsonl").read_bytes()
    assert offset is not None
    assert content[offset:].startswith(b"x\n")
    assert length == len(b"x\n\n\0\0\ny\n")


# -- what is no regular file -------------------------------------------------------------------


def _pipe(path: Path) -> None:
    os.mkfifo(path)


def _folder(path: Path) -> None:
    path.mkdir()


def _link(path: Path) -> None:
    path.symlink_to(path.parent.parent / "elsewhere")


@asynccontextmanager
async def two_sessions(root: Path) -> AsyncGenerator[Store]:
    """A store of "bad" and "good", each with one prompt in its inbox."""
    async with open_store(f"jsonl:{root}") as store:
        for name in ("bad", "good"):
            await store.backend.create(header(name))
            await store.inbox(name).post(Prompt("go", id=name))
        yield store


@pytest.mark.skipif(sys.platform == "win32", reason="there are no named pipes")
@pytest.mark.parametrize("name", ["1.jsonl", "info.json", "info.json.new", "inbox.jsonl", "1.lock"])
@pytest.mark.parametrize("make", [_pipe, _folder, _link])
async def test_what_is_no_file_is_refused_and_hides_nothing(
    tmp_path: Path, make: Callable[[Path], None], name: str
) -> None:
    """A pipe, a folder or a link in a file's place hangs nobody, and costs no other session."""
    async with two_sessions(tmp_path) as store:
        path = tmp_path / "bad" / name
        path.unlink(missing_ok=True)
        make(path)
        infos = {info.id: info async for info in store.sessions()}
        assert sorted(infos) == ["bad", "good"]
        assert infos["good"].problem is None
        assert "good" in await store.pending()
        if name == "1.jsonl":
            assert infos["bad"].health == "unreadable"
            with pytest.raises(TurnlogError):
                await store.read("bad")
        elif name == "inbox.jsonl":
            assert "inbox.jsonl" in str(infos["bad"].problem)
            assert await store.pending() == ["good"]
            with pytest.raises(StoreError):
                await store.inbox("bad").post(Prompt("more"))
        elif name == "1.lock":
            with pytest.raises(StoreError):
                await store.backend.claim("bad", FIRST)
        else:
            async with store.session("bad") as session:
                session.add_user("as if nothing were")
            assert infos["bad"].problem is None


@pytest.mark.skipif(sys.platform == "win32", reason="links are for administrators there")
async def test_a_folder_that_is_a_link_is_no_session(tmp_path: Path) -> None:
    """A linked session's folder is neither listed nor opened, made or posted to."""
    root = tmp_path / "store"
    async with two_sessions(root) as store:
        (root / "bad").rename(tmp_path / "outside")
        (root / "bad").symlink_to(tmp_path / "outside")
        before = sorted(path.name for path in (tmp_path / "outside").iterdir())
        assert [info.id async for info in store.sessions()] == ["good"]
        assert await store.pending() == ["good"]
        with pytest.raises(StoreError, match="link"):
            await store.read("bad")
        with pytest.raises(StoreError, match="link"):
            async with store.session("bad"):
                pass
        with pytest.raises(StoreError, match="link"):
            await store.inbox("bad").post(Prompt("go"))
        assert sorted(path.name for path in (tmp_path / "outside").iterdir()) == before


# -- reading on --------------------------------------------------------------------------------


def test_an_inbox_is_read_on_not_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A post costs what is new, and what was accepted is not held."""
    read: list[int] = []
    read_at = inbox_module.read_at

    def counting(fd: int, offset: int, count: int) -> bytes:
        read.append(count)
        return read_at(fd, offset, count)

    monkeypatch.setattr(inbox_module, "read_at", counting)
    one, other = Inboxes(durable=False), Inboxes(durable=False)
    for i in range(300):
        assert one.post(tmp_path, Prompt("x" * 500, id=f"{i}"))
        assert [queued.position for queued in other.waiting(tmp_path).queued] == [i]
        other.accept(tmp_path, [i])
    assert max(read) < 2048
    assert not one.post(tmp_path, Prompt("again", id="7"))
    assert one.waiting(tmp_path).queued == []


def test_an_inbox_that_was_replaced_is_read_from_its_beginning(tmp_path: Path) -> None:
    """Another file of that name, or other bytes in the same one, are not taken for more of it."""
    inboxes = Inboxes(durable=False)
    for i in range(5):
        inboxes.post(tmp_path, Prompt(f"old {i}", id=f"{i}"))
    for times in (1, 9):
        (tmp_path / "inbox.jsonl").write_bytes(b"")
        fresh = Inboxes(durable=False)
        for i in range(times):
            fresh.post(tmp_path, Prompt(f"new {i}", id=f"{times}-{i}"))
        assert inboxes.waiting(tmp_path) == fresh.waiting(tmp_path)
    (tmp_path / "inbox.jsonl").unlink()
    assert inboxes.waiting(tmp_path).queued == []


def test_who_follows_is_given_what_is_new(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A follower reads on from where it was, however far others in the process have come."""
    whole: list[str] = []

    def counting(folder: Path, session_id: str | None) -> Scan:
        whole.append(folder.name)
        return scan(folder, session_id)

    begun: list[int] = []

    def counting_on(mark: Mark) -> Scan | None:
        begun.append(mark.next_seq)
        return scan_on(mark)

    monkeypatch.setattr("turnlog.stores.jsonl.reader.scan", counting)
    monkeypatch.setattr("turnlog.stores.jsonl.reader.scan_on", counting_on)
    tenure = owning(saved(tmp_path, HEADER))
    reader = Reader(tmp_path)
    after, slow = 0, 0
    try:
        for i in range(60):
            commit(tenure, notes(i, 1))
            assert reader.next_seq("a") == i + 1
            assert [event.seq for event in reader.read("a", after, None)] == [i]
            after = i + 1
            if i % 20 == 19:
                assert len(reader.read("a", slow, None)) == i + 1 - slow
                slow = i + 1
    finally:
        tenure.release()
    assert len(whole) <= 3
    assert sum(begun) > 60 * 59
