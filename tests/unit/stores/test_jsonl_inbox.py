"""The inbox file: torn, garbled and newer lines, and what is done with them."""

from __future__ import annotations

from pathlib import Path

import pytest

from turnlog.commands import Cancel, Prompt, Steer
from turnlog.errors import StoreError
from turnlog.stores.jsonl import JsonlStore
from turnlog.stores.jsonl import inbox as inbox_module
from turnlog.stores.jsonl.inbox import Inboxes
from turnlog.stores.locks import holding


def texts(folder: Path) -> list[str]:
    """The texts of the prompts that wait, as another process reads them."""
    queued = Inboxes(durable=False).waiting(folder).queued
    return [one.command.text for one in queued if isinstance(one.command, Prompt)]


def test_an_inbox_cut_anywhere_keeps_what_was_complete(tmp_path: Path) -> None:
    """Wherever the file was cut, complete posts are there, and the next post is too."""
    inboxes = Inboxes(durable=False)
    for i in range(3):
        assert inboxes.post(tmp_path, Prompt(f"{i}", id=f"{i}"))
    content = (tmp_path / "inbox.jsonl").read_bytes()
    for cut in range(len(content) + 1):
        (tmp_path / "inbox.jsonl").write_bytes(content[:cut])
        complete = content[:cut].count(b"\n")
        assert texts(tmp_path) == [f"{i}" for i in range(complete)]
        assert Inboxes(durable=False).post(tmp_path, Prompt("next", id="n"))
        assert texts(tmp_path) == [*(f"{i}" for i in range(complete)), "next"]


def test_lines_that_cannot_be_read_are_stepped_over(tmp_path: Path) -> None:
    """Garbage and commands of a newer turnlog stay in the file and are not carried out."""
    inboxes = Inboxes(durable=True)
    inboxes.post(tmp_path, Prompt("first", id="1"))
    newer = b'{"post":1,"at":5,"command":{"type":"teleport","id":"2"}}\n'
    with (tmp_path / "inbox.jsonl").open("ab") as file:
        file.write(b"\xff\0garbage\n{}\n[]\n\n" + newer + b'{"done":7}\n{"done":[[]]}\n')
    assert inboxes.post(tmp_path, Prompt("last", id="3"))
    assert texts(tmp_path) == ["first", "last"]
    assert not inboxes.post(tmp_path, Prompt("again", id="2"))
    assert newer in (tmp_path / "inbox.jsonl").read_bytes()
    positions = [queued.position for queued in inboxes.waiting(tmp_path).queued]
    assert positions == [0, 2]


def test_a_handle_sees_what_another_posted(tmp_path: Path) -> None:
    """What was read before does not hide what other processes posted or took."""
    one, other = Inboxes(durable=False), Inboxes(durable=False)
    for i in range(5):
        assert one.post(tmp_path, Steer(f"{i}", id=f"{i}"))
        assert len(other.waiting(tmp_path).queued) == 1
        other.accept(tmp_path, [i])
        assert one.waiting(tmp_path).queued == []
        assert not other.post(tmp_path, Cancel(id=f"{i}"))


def test_an_inbox_that_stays_locked_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A post behind a process that never lets go fails, and says what it waited for."""
    monkeypatch.setattr(inbox_module, "_PATIENCE", 0.0)
    inboxes = Inboxes(durable=False)
    with (
        holding(tmp_path / "inbox.lock", 0.0, "test"),
        pytest.raises(StoreError, match=r"inbox\.lock"),
    ):
        inboxes.post(tmp_path, Prompt("x", id="1"))
    assert inboxes.post(tmp_path, Prompt("x", id="1"))


async def test_only_a_session_has_an_inbox(tmp_path: Path) -> None:
    """A folder without a session is not pending, whatever lies in it."""
    (tmp_path / "b").mkdir()
    store = JsonlStore(tmp_path)
    await store.open()
    assert await store.pending() == []
    await store.close()
