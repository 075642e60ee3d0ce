"""Listings: a sidecar that saves reading, is never trusted, and may be anything or nothing."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.unit.stores.jsonl_files import (
    HEADER,
    commit,
    framed,
    line,
    lines,
    owning,
    plain,
    saved,
)
from turnlog import jsontext
from turnlog.errors import InvalidHeader, StoreError
from turnlog.stores.jsonl import JsonlStore
from turnlog.stores.jsonl.listing import info_of, keep_info
from turnlog.stores.jsonl.names import folder_name
from turnlog.stores.port import SessionInfo
from turnlog.testing.conformance.samples import FIRST, event, header, notes, prompt

TALK = [prompt(0, "Hello"), event(1, {"turn": 1}, type_name="turn/start"), prompt(2, "More")]


def listed(folder: Path) -> SessionInfo:
    """The session's line."""
    info = info_of(folder)
    assert info is not None
    return info


def test_a_log_is_listed_without_a_sidecar(tmp_path: Path) -> None:
    """Without `info.json` the log itself is read, and a small one leaves no file behind."""
    folder = plain(tmp_path, *lines(TALK))
    info = listed(folder)
    assert (info.id, info.title, info.events, info.messages) == ("a", "Hello", 3, 2)
    assert (info.health, info.bytes) == ("open", (folder / "1.jsonl").stat().st_size)
    assert sorted(path.name for path in folder.iterdir()) == ["1.jsonl"]


def test_a_sidecar_saves_reading(tmp_path: Path) -> None:
    """While the segment is as it was, what `info.json` says is believed."""
    folder = plain(tmp_path, *lines(TALK))
    keep_info(folder)
    before = listed(folder)
    kept = json.loads((folder / "info.json").read_bytes())
    kept["state"]["title"] = "From the sidecar"
    (folder / "info.json").write_text(json.dumps(kept))
    assert listed(folder).title == "From the sidecar"
    os.utime(folder / "1.jsonl")
    assert listed(folder) == before


@pytest.mark.parametrize("packed", [False, True])
def test_only_what_was_added_is_read(tmp_path: Path, packed: bool) -> None:  # noqa: FBT001
    """When the log has grown the line is what reading all of it gives."""
    more = [event(3, {"turn": 1, "reason": {"kind": "completed"}}, type_name="turn/end")]
    more += [prompt(4, "Last", time=FIRST.since + 999)]
    make = framed if packed else plain
    folder = make(tmp_path, b"".join(lines(TALK)))
    keep_info(folder)
    make(tmp_path, b"".join(lines(TALK)), b"".join(lines(more)))
    grown = listed(folder)
    (folder / "info.json").unlink()
    assert grown == listed(folder)
    assert (grown.events, grown.health, grown.last_activity) == (5, "ok", FIRST.since + 999)


CHANGES: list[Callable[[dict[str, Any]], object]] = [
    lambda kept: kept.update(version=99),
    lambda kept: kept.update(token=2),
    lambda kept: kept.update(end=-1),
    lambda kept: kept.update(end=10**9),
    lambda kept: kept.update(end=kept["end"] - 7, size=kept["size"] - 7, changed=0),
    lambda kept: kept.update(header={}),
    lambda kept: kept["header"].update(id="b"),
    lambda kept: kept["header"].update(version=99),
    lambda kept: kept["state"].update(nextSeq="many"),
    lambda kept: kept["state"].clear(),
    lambda kept: kept.clear(),
]


@pytest.mark.parametrize("change", CHANGES)
def test_a_wrong_sidecar_does_no_harm(
    tmp_path: Path, change: Callable[[dict[str, Any]], object]
) -> None:
    """A sidecar of another version, session, shape or place is read over."""
    folder = plain(tmp_path, *lines(TALK))
    expected = listed(folder)
    keep_info(folder)
    kept = json.loads((folder / "info.json").read_bytes())
    change(kept)
    (folder / "info.json").write_text(json.dumps(kept))
    assert listed(folder) == expected


@pytest.mark.parametrize("content", [b"", b"\0" * 100, b"[]", b'{"version":1', b"\xff\xfe"])
def test_a_garbled_sidecar_does_no_harm(tmp_path: Path, content: bytes) -> None:
    """Whatever bytes `info.json` holds, the line is the log's."""
    folder = plain(tmp_path, *lines(TALK))
    expected = listed(folder)
    (folder / "info.json").write_bytes(content)
    assert listed(folder) == expected
    keep_info(folder)
    assert json.loads((folder / "info.json").read_bytes())["version"] == 2


def test_a_damaged_session_is_listed_with_its_problem(tmp_path: Path) -> None:
    """Damage is named until it is acknowledged, with a sidecar and without."""
    folder = plain(tmp_path, *lines(TALK[:1]), b"garbage\n", *lines(TALK[2:]))
    for _ in range(2):
        info = listed(folder)
        assert info.health == "damaged"
        assert "no record" in (info.problem or "")
        assert (info.events, info.damage) == (2, 1)
        keep_info(folder)
    tenure = owning(folder)
    lost = {"firstSeq": 1, "lastSeq": 1, "reason": "x"}
    accepted = event(3, {"ranges": [lost]}, type_name="session/damage-acknowledged")
    commit(tenure, [accepted])
    tenure.release()
    assert listed(folder).health == "ok"


async def test_bad_folders_hide_no_session(tmp_path: Path) -> None:
    """Garbled, foreign, empty and newer folders leave the other sessions in the listing."""
    saved(tmp_path, HEADER + b"".join(lines(TALK)))
    for name, content in {
        "garbled": b"\xff\xff\n",
        "cut": b'{"format"',
        "newer": HEADER.replace(b'"version":0', b'"version":7').replace(b'"a"', b'"newer"'),
        "copied": HEADER,
        "%zz": b"x\n",
        "%ff": b"x\n",
    }.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "1.jsonl").write_bytes(content)
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").write_text("no session")
    store = JsonlStore(tmp_path)
    await store.open()
    infos = {info.id: info async for info in store.sessions()}
    assert infos["a"].health == "open"
    bad = {session_id: info.problem for session_id, info in infos.items() if session_id != "a"}
    assert set(bad) == {"garbled", "cut", "newer", "copied", "%zz", "%ff"}
    assert {infos[session_id].health for session_id in bad} == {"unreadable"}
    assert all(problem and "\n" not in problem for problem in bad.values())
    assert "7" in (bad["newer"] or "")
    assert await store.pending() == []
    await store.close()


async def test_releasing_leaves_a_sidecar(tmp_path: Path) -> None:
    """After a session was given back its listing reads no log."""
    long = "漢" * 200 + "\ud800"
    store = JsonlStore(tmp_path, durability="none")
    await store.open()
    await store.create(header(long))
    claim = await store.claim(long, FIRST)
    tenure = claim.handle
    commit(tenure, TALK)
    await store.release(claim)
    folder = tmp_path / folder_name(long)
    kept = jsontext.decode((folder / "info.json").read_bytes())
    assert kept["end"] == (folder / "1.jsonl").stat().st_size
    (info,) = [info async for info in store.sessions()]
    assert (info.id, info.events) == (long, 3)
    await store.close()


async def test_long_sessions_are_kept_by_whoever_reads_them(tmp_path: Path) -> None:
    """A listing that had to read much writes down what it found."""
    folder = plain(tmp_path, line(event(0, "x" * 100_000)))
    store = JsonlStore(tmp_path)
    await store.open()
    assert [info.events async for info in store.sessions()] == [1]
    assert (folder / "info.json").exists()
    await store.close()


async def test_a_header_that_grew_is_listed(tmp_path: Path) -> None:
    """After `reseed` the listing shows the new header, with the events counted on."""
    store = JsonlStore(tmp_path, durability="none")
    await store.open()
    await store.create(header("a", source_format="x/1", seed_length=3, source_length=3))
    claim = await store.claim("a", FIRST)
    commit(claim.handle, notes(0, 3))
    await store.release(claim)
    claim = await store.claim("a", FIRST)
    await store.reseed(claim, header("a", source_format="x/2", seed_length=3, source_length=3))
    assert [info.source_format async for info in store.sessions()] == ["x/2"]
    assert [info.events async for info in store.sessions()] == [3]
    await store.close()


def test_an_event_that_breaks_a_rule_is_listed_as_damage(tmp_path: Path) -> None:
    """The listing agrees with what opening finds, also of what was added behind a sidecar."""
    unplaced = event(3, prompt(3, "x").data, type_name="user/message")
    folder = plain(tmp_path, *lines(TALK), line(unplaced))
    info = listed(folder)
    assert (info.health, info.events, info.messages, info.damage) == ("damaged", 3, 2, 1)
    assert "breaks a rule" in (info.problem or "")
    plain(tmp_path, *lines(TALK))
    keep_info(folder)
    assert listed(folder).health == "open"
    plain(tmp_path, *lines(TALK), line(unplaced))
    assert listed(folder) == info


def test_a_replacement_behind_a_sidecar(tmp_path: Path) -> None:
    """A replacement of what was listed before is no damage."""
    folder = plain(tmp_path, *lines(TALK))
    keep_info(folder)
    summary = prompt(3, "sum", op={"op": "replace", "start": 0, "end": 2}, cited=[0, 2])
    plain(tmp_path, *lines(TALK), line(summary))
    info = listed(folder)
    assert (info.health, info.events, info.messages) == ("open", 4, 2)


def test_a_session_whose_log_is_gone_is_listed(tmp_path: Path) -> None:
    """Where only locks and sidecars are left, the listing says so; a lock of 0 alone is nothing."""
    folder = plain(tmp_path, *lines(TALK))
    keep_info(folder)
    (folder / "1.lock").touch()
    (folder / "1.jsonl").unlink()
    info = listed(folder)
    assert (info.id, info.health) == ("a", "unreadable")
    assert "its log is gone" in (info.problem or "")
    for path in folder.iterdir():
        path.unlink()
    (folder / "0.lock").touch()
    assert info_of(folder) is None


async def test_one_session_s_line(tmp_path: Path) -> None:
    """`info` is the session's line of the listing."""
    saved(tmp_path, HEADER + b"".join(lines(TALK)))
    store = JsonlStore(tmp_path)
    await store.open()
    assert [await store.info("a")] == [info async for info in store.sessions()]
    await store.close()


async def test_a_header_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    """The error of a bad header names the session and the file that holds it."""
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "1.jsonl").write_bytes(b"\xff\xff\n")
    store = JsonlStore(tmp_path)
    await store.open()
    with pytest.raises(InvalidHeader, match=r"session 'a': its header in a/1\.jsonl"):
        await store.load("a")
    await store.close()


async def test_a_file_is_no_store(tmp_path: Path) -> None:
    """A file where the store's folder should be is said to be one."""
    (tmp_path / "file").touch()
    with pytest.raises(StoreError, match="expected a folder"):
        await JsonlStore(tmp_path / "file").open()
