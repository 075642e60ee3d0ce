"""The reference reader of docs/log-format.md reads what the engine wrote."""

from __future__ import annotations

import importlib.util
import json
import re
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.architecture.rules import ROOT
from turnlog import jsontext
from turnlog.codec import encode_lines
from turnlog.content import Text
from turnlog.events import SessionHeader
from turnlog.interop.exporting import to_jsonl
from turnlog.session import Session
from turnlog.stores.adopting import this_process
from turnlog.stores.jsonl import JsonlStore
from turnlog.stores.jsonl.names import folder_name
from turnlog.stores.port import Batch, Stored
from turnlog.testing.builders import Author, new_session
from turnlog.testing.strategies import histories

READER = ROOT / "docs" / "log_format_reader.py"
PAGE = (ROOT / "docs" / "log-format.md").read_text(encoding="utf-8")


def _load_reader() -> Any:
    spec = importlib.util.spec_from_file_location("log_format_reader", READER)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.read


read = _load_reader()


def same(ours: Any, theirs: Any) -> None:
    """Both are the same JSON: numbers by their kind, objects whatever the order of their keys."""
    assert json.dumps(ours, sort_keys=True) == json.dumps(theirs, sort_keys=True)


def test_the_reader_is_short_and_stands_alone() -> None:
    """At most 60 lines of plain Python, none of which imports turnlog."""
    source = READER.read_text(encoding="utf-8")
    assert len(source.splitlines()) <= 60
    assert not re.search(r"import turnlog|from turnlog", source)
    code = "import sys; sys.modules['turnlog'] = None; import runpy; runpy.run_path(sys.argv[1])"
    subprocess.run([sys.executable, "-c", code, READER], check=True)


def test_the_page_shows_the_reader() -> None:
    """The page holds the reader's source, word for word."""
    assert f"```py\n{READER.read_text(encoding='utf-8')}```" in PAGE


# -- folders -----------------------------------------------------------------------------------


async def _store(
    folder: Path, session: Session, cuts: list[tuple[int, bool]], *, packed: bool
) -> Stored:
    """Write a session in batches, some of them by an owner that takes over; load it again."""
    stores = [JsonlStore(folder, durability="none", compress=packed)]
    await stores[0].open()
    await stores[0].create(session.header)
    claim = await stores[0].claim(session.id, this_process())
    events, at = list(session.events), 0
    for cut, steal in [*sorted(cuts), (len(events), False)]:
        if at < cut:
            assert await stores[-1].commit([Batch(claim, events[at:cut])]) == [None]
            at = cut
        if steal:
            before = len(list((folder / folder_name(session.id)).glob("*.jsonl*")))
            stores.append(JsonlStore(folder, durability="none", compress=packed))
            await stores[-1].open()
            claim = await stores[-1].claim(session.id, this_process(), steal=True)
            _write_after_the_takeover(folder / folder_name(session.id), before, session)
    stored = await stores[-1].load(session.id)
    for store in stores:
        await store.close()
    return stored


def _write_after_the_takeover(folder: Path, token: int, session: Session) -> None:
    """What an owner that was stopped may still write to its segment: nobody reads it."""
    event = Session.create("late").append("session/title", {"title": "too late"})
    line = encode_lines([event]).replace(b'"seq":0', b'"seq":%d' % (session.next_seq + 5))
    plain = folder / f"{token}.jsonl"
    if plain.exists():
        with plain.open("ab") as file:
            file.write(line)


@given(
    histories(),
    st.lists(st.tuples(st.integers(0, 60), st.booleans()), max_size=4),
    st.booleans(),
)
def test_the_reader_agrees_on_any_session(
    session: Session,
    cuts: list[tuple[int, bool]],
    packed: bool,  # noqa: FBT001
) -> None:
    """On chunks, forks, unknown types, takeovers, plain or compressed, both readers agree."""
    cuts = [(min(cut, len(session)), steal) for cut, steal in cuts]
    with TemporaryDirectory() as root:
        stored = anyio.run(lambda: _store(Path(root), session, cuts, packed=packed))
        header, events = read(Path(root) / folder_name(session.id))
    assert not stored.damage
    same(header, stored.header.to_dict())
    same(events, [event.to_dict() for event in stored.events])
    same(events, [event.to_dict() for event in session.events])
    assert Session.from_events(header, events).derive_messages() == session.derive_messages()


@given(histories())
def test_the_reader_agrees_on_an_exported_file(session: Session) -> None:
    """An exported file reads as the session it was exported from."""
    with TemporaryDirectory() as root:
        path = Path(root) / "session.jsonl"
        path.write_bytes(b"".join(to_jsonl(session)))
        header, events = read(path)
    same(header, session.header.to_dict())
    same(events, [event.to_dict() for event in session.events])


def _told() -> Session:
    """A session with packed runs, a replacement and long provenance."""
    author = Author(new_session("told"))
    author.begin_turn()
    author.user("tell me of the sea")
    author.begin_step()
    author.request("be brief")
    said = [Text("It is wide, and it is deep. " * 3)]
    author.answer(said, author.stream(said))
    author.end_step()
    author.end_turn()
    author.compact(0, 1)
    return author.session


@pytest.mark.parametrize("packed", [False, True])
def test_the_reader_agrees_wherever_a_crash_cuts(tmp_path: Path, *, packed: bool) -> None:
    """A segment cut off at any byte has the same events for both readers."""
    session = _told()
    cuts = [(n, False) for n in range(4, len(session), 4)]

    async def reload() -> Stored:
        store = JsonlStore(tmp_path, durability="none")
        await store.open()
        stored = await store.load(session.id)
        await store.close()
        return stored

    anyio.run(lambda: _store(tmp_path, session, cuts, packed=packed))
    folder = tmp_path / folder_name(session.id)
    path = folder / ("1.jsonl.zst" if packed else "1.jsonl")
    whole = path.read_bytes()
    for size in range(len(whole) - 700, len(whole), 7):
        path.write_bytes(whole[:size])
        same(read(folder)[1], [event.to_dict() for event in anyio.run(reload).events])


def test_the_reader_steps_over_damage(tmp_path: Path) -> None:
    """Garbled lines are gaps in the seqs; what follows them is read."""
    path = tmp_path / "session.jsonl"
    header, *lines = b"".join(to_jsonl(_told())).splitlines(keepends=True)
    lines[1] = b'{"type":"user/mess\x00\xff\n'
    path.write_bytes(header + b"".join(lines))
    assert [event["seq"] for event in read(path)[1]][:3] == [0, 2, 3]


def test_the_reader_takes_the_last_header(tmp_path: Path) -> None:
    """A header that follows, as a growing import writes one, takes the first one's place."""
    first, second = SessionHeader("a", 1, seed_length=1), SessionHeader("a", 1, seed_length=2)
    path = tmp_path / "session.jsonl"
    path.write_bytes(b"".join(jsontext.encode(h.to_dict()) + b"\n" for h in (first, second)))
    assert read(path) == (second.to_dict(), [])


def test_another_version_is_not_read(tmp_path: Path) -> None:
    """What another version wrote is not taken for this one."""
    path = tmp_path / "session.jsonl"
    path.write_bytes(b'{"format":"turnlog","version":1,"id":"a","createdAt":1}\n')
    assert read(path) == ({}, [])


# -- the page ----------------------------------------------------------------------------------


def test_the_sessions_on_the_page_are_sessions(tmp_path: Path) -> None:
    """Each whole session that the page shows is read alike by both readers, and keeps every law."""
    shown = re.findall(r"```jsonl session\n(.*?)```", PAGE, re.DOTALL)
    assert shown
    for text in shown:
        path = tmp_path / "shown.jsonl"
        path.write_text(text, encoding="utf-8")
        header, events = read(path)
        session = Session.from_events(header, events)
        same(events, [event.to_dict() for event in session.events])
        assert b"".join(to_jsonl(session)).decode() == text


def test_the_folder_names_on_the_page_are_true() -> None:
    """The table of escaped ids is what the store does."""
    table = PAGE.partition("| id | folder |")[2].partition("\n\n")[0]
    rows = re.findall(r"^\| `(.+?)` \| `(.+?)`", table, re.MULTILINE)
    assert len(rows) >= 4
    assert {name: folder_name(name) for name, _ in rows} == dict(rows)
