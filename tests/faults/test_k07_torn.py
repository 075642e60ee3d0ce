"""Records that are torn, missing, mangled or not durable yet, and side data that is gone."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.faults.scenes import agent, assert_accepted, texts
from turnlog import AdmissionError, Session, open_store
from turnlog.errors import DamagedSession, WriteFailed
from turnlog.stores.live import StoredSession

Lines = list[bytes]


async def filled(folder: Path, messages: int) -> Path:
    """A session "s" of that many messages, each citing the one before; returns its file."""
    async with open_store(f"jsonl:{folder}") as store, store.session("s") as session:
        for i in range(messages):
            message = {
                "id": f"m{i}",
                "role": "user",
                "content": [{"type": "text", "text": f"message {i}"}],
                "source": {"kind": "user"},
            }
            cited = [i - 1] if i else None
            session.append("user/message", message, surface_op="append", source_event_seqs=cited)
    (path,) = (folder / "s").glob("*.jsonl")
    return path


def changed(path: Path, change: Callable[[Lines], object]) -> None:
    """Rewrite the file, its lines after the header changed."""
    header, *records = path.read_bytes().splitlines(keepends=True)
    change(records)
    path.write_bytes(header + b"".join(records))


def rewritten(record: bytes, **fields: Any) -> bytes:
    """A record with other fields; None takes one away."""
    value = json.loads(record) | fields
    return json.dumps({k: v for k, v in value.items() if v is not None}).encode() + b"\n"


async def read(folder: Path) -> StoredSession:
    """The session as a reader finds it."""
    async with open_store(f"jsonl:{folder}") as store:
        return await store.read("s")


async def test_links_to_records_that_were_never_written_hide_no_message(tmp_path: Path) -> None:
    """Every fifth record is gone, the next one cites it: each of the others is there in order."""
    path = await filled(tmp_path, 40)
    changed(path, lambda records: records.__delitem__(slice(0, 40, 5)))
    session = await read(tmp_path)
    assert texts(session) == [f"message {i}" for i in range(40) if i % 5]
    assert [damage.first_seq for damage in session.damage] == list(range(0, 40, 5))
    assert_accepted(session)


async def test_a_message_of_the_wrong_shape_is_refused_and_hides_nothing(tmp_path: Path) -> None:
    """One spread into numbered characters cannot be appended; in a file it costs itself only."""
    spread = {str(i): char for i, char in enumerate("message")}
    with pytest.raises(AdmissionError):
        Session.create("s").append("user/message", spread, surface_op="append")
    path = await filled(tmp_path, 10)
    changed(path, lambda records: records.append(rewritten(records.pop(), data=spread)))
    async with open_store(f"jsonl:{tmp_path}") as store, store.session("s") as session:
        assert texts(session) == [f"message {i}" for i in range(9)]
        assert session.events[9].data == spread
        session.add_user("more")
        assert texts(session)[-1] == "more"
        assert_accepted(session)


async def test_a_cycle_of_links_costs_the_record_that_closes_it(tmp_path: Path) -> None:
    """Event 10 cites event 12: it is reported, and everything else is loaded by its seq."""
    path = await filled(tmp_path, 20)

    def tie(records: Lines) -> None:
        records[10] = rewritten(records[10], sourceEventSeqs=[12])

    changed(path, tie)
    session = await read(tmp_path)
    assert texts(session) == [f"message {i}" for i in range(20) if i != 10]
    assert [(d.first_seq, d.last_seq) for d in session.damage] == [(10, 10)]
    assert "12" in session.damage[0].reason
    assert_accepted(session)


async def test_a_record_without_its_ordinal_costs_itself(tmp_path: Path) -> None:
    """The ordinal is the log's to give; a last record that lacks it is set apart and reported."""
    path = await filled(tmp_path, 10)
    changed(path, lambda records: records.append(rewritten(records.pop(), seq=None)))
    session = await read(tmp_path)
    assert texts(session) == [f"message {i}" for i in range(9)]
    assert len(session.damage) == 1
    async with open_store(f"jsonl:{tmp_path}") as store, store.session("s") as session:
        with pytest.raises(DamagedSession):
            session.add_user("more")
        session.acknowledge_damage()
        session.add_user("more")
        assert texts(session)[-1] == "more"


async def test_a_missing_record_is_a_gap_and_no_end(tmp_path: Path) -> None:
    """Record 552 of 600 is gone: the session opens, and the gap is named."""
    path = await filled(tmp_path, 600)
    changed(path, lambda records: records.pop(552))
    session = await read(tmp_path)
    assert len(session) == 599
    assert [(d.first_seq, d.last_seq) for d in session.damage] == [(552, 552)]
    assert texts(session)[552] == "message 553"


async def test_a_failed_flush_keeps_its_batch_and_covers_what_came_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The medium fails once while more is appended: the next flush stores all of it, once."""
    real = os.write
    failing: list[StoredSession] = []

    def write(fd: int, data: Any) -> int:
        if failing:
            failing.pop().add_user("while flushing")
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(fd, data)

    async with open_store(f"jsonl:{tmp_path}") as store, store.session("s") as session:
        session.add_user("before")
        await session.flush()
        monkeypatch.setattr(os, "write", write)
        session.add_user("batch")
        failing.append(session)
        with pytest.raises(WriteFailed, match="No space left"):
            await session.flush()
        assert session.durable_seq == 1
        session.add_user("after")
        await session.flush()
        assert session.durable_seq == 4
        stored = await store.read("s")
        assert texts(stored) == ["before", "batch", "while flushing", "after"]


async def test_what_a_flush_acknowledged_survives_a_power_cut(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With every byte and name that no fsync covered gone, the acknowledged events are there."""
    synced: dict[int, int] = {}
    real = os.fsync

    def fsync(fd: int) -> None:
        real(fd)
        synced[os.fstat(fd).st_ino] = os.fstat(fd).st_size

    monkeypatch.setattr(os, "fsync", fsync)
    store_folder = tmp_path / "store"
    async with open_store(f"jsonl:{store_folder}") as store, store.session("s") as session:
        await agent(["fine"]).run(session, "hi")
        acknowledged = list(session.events)
        session.add_user("never acknowledged")
        power_cut(store_folder, tmp_path / "after", synced)
    survived = await read(tmp_path / "after")
    assert list(survived.events)[: len(acknowledged)] == acknowledged
    assert survived.damage == ()


def power_cut(folder: Path, target: Path, synced: dict[int, int]) -> None:
    """Copy what would be left of a folder: names in folders, and bytes, that were fsynced."""
    target.mkdir()
    if folder.stat().st_ino not in synced:
        return
    for path in folder.iterdir():
        if path.is_dir():
            power_cut(path, target / path.name, synced)
        elif path.stat().st_ino in synced:
            (target / path.name).write_bytes(path.read_bytes()[: synced[path.stat().st_ino]])


async def test_a_session_is_listed_and_resumed_without_any_side_data(tmp_path: Path) -> None:
    """Only the log itself is left: the list has the session, and its id opens it."""
    await filled(tmp_path, 5)
    for path in (tmp_path / "s").iterdir():
        if path.suffix != ".jsonl":
            path.unlink()
    async with open_store(f"jsonl:{tmp_path}") as store:
        listed = [info async for info in store.sessions()]
        assert [(i.id, i.title, i.messages) for i in listed] == [("s", "message 0", 5)]
        async with store.session("s", create=False) as session:
            assert len(session) == 5
