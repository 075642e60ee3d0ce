"""Importing from the command line: homes, conflicts, growth, damage, interruptions."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest

from tests.e2e.command import done, read, turnlog, write
from tests.unit.interop.dsh_files import event, header, line, lines, saved
from turnlog.content import user_message
from turnlog.errors import AdmissionError, DamagedSession, SessionInUse, StoreError
from turnlog.events import AnyEvent
from turnlog.interop.dsh import open_dsh
from turnlog.interop.from_dsh import FromDsh
from turnlog.session import Session
from turnlog.stores import open_store
from turnlog.stores.live import StoredSession

TEXT = [{"type": "text", "text": "hi"}]


@pytest.fixture
def url(tmp_path: Path) -> str:
    """A store of its own."""
    return f"jsonl:{tmp_path / 'store'}"


def folder(path: Path) -> Path:
    """The folder, made."""
    path.mkdir(parents=True, exist_ok=True)
    return path


def session(path: Path, *events: dict[str, Any], **more: Any) -> Path:
    """A session file of DeepSeek Harness."""
    return saved(folder(path), lines(header(**more), *events))


def user(seq: int, text: str = "hi") -> dict[str, Any]:
    """A prompt."""
    message = {"role": "user", "id": f"m{seq}", "source": {"kind": "user"}}
    data = {**message, "content": [{"type": "text", "text": text}]}
    return {"type": "user/message", "seq": seq, "time": seq, "data": data, "surfaceOp": "append"}


def imported(url: str, *words: object) -> dict[str, Any]:
    """What importing one session reported."""
    (value,) = turnlog("import", *words, "--store", url, "--json").values
    return value


def types(session: Session) -> list[str]:
    """The types of its events."""
    return [event.type for event in session.events]


# -- homes and conflicts -----------------------------------------------------------------------


def test_a_home_with_a_bad_file(tmp_path: Path, url: str) -> None:
    """One bad file is reported in one line, the others are imported, and the status is 1."""
    home = tmp_path / "home"
    session(home / "a", event(0), id="a")
    saved(folder(home / "b"), b"no session\n")
    session(home / "c", event(0), id="c")
    result = turnlog("import", home, "--store", url)
    assert result.status == 1
    assert result.out.splitlines() == [
        "imported a (1 event, dsh/v0)",
        "imported c (1 event, dsh/v0)",
    ]
    assert len(result.err.splitlines()) == 1
    assert "expected a DeepSeek Harness session header" in result.err
    assert {value["id"] for value in done("ls", "--store", url, "--json").values} == {"a", "c"}


def test_json_gives_a_line_for_each_session(tmp_path: Path, url: str) -> None:
    """With --json each session is one object, the bad one too."""
    session(tmp_path / "home" / "a", event(0), id="a")
    saved(folder(tmp_path / "home" / "b"), b"{}\n")
    result = turnlog("import", tmp_path / "home", "--store", url, "--json")
    assert (result.status, result.err) == (1, "")
    good, bad = result.values
    assert (good["id"], good["done"], good["events"], good["format"]) == (
        "a",
        "imported",
        1,
        "dsh/v0",
    )
    assert "error" in bad


def test_progress_on_a_terminal(tmp_path: Path, url: str) -> None:
    """On a terminal, how far the import is stands on standard error; elsewhere nothing does."""
    path = session(tmp_path, *map(user, range(20)))
    result = turnlog("import", path, "--store", url, tty=True)
    assert (result.status, result.out) == (0, "imported s-1 (20 events, dsh/v0)\n")
    assert "events read" in result.err


def test_nothing_to_import(tmp_path: Path, url: str) -> None:
    """A path that does not exist, or a folder without sessions, is one line and status 1."""
    for path in (tmp_path / "missing", folder(tmp_path / "empty")):
        result = turnlog("import", path, "--store", url)
        assert (result.status, result.out) == (1, "")
        assert len(result.err.splitlines()) == 1


def test_identical_is_left_alone(tmp_path: Path, url: str) -> None:
    """The same file again changes nothing, also after native events."""
    path = session(tmp_path, user(0), user(1))
    assert imported(url, path)["done"] == "imported"
    before = read(url, "s-1").header, list(read(url, "s-1").events)
    assert imported(url, path)["done"] == "identical"
    assert (read(url, "s-1").header, list(read(url, "s-1").events)) == before
    write(url, "s-1", lambda s: s.add_user("native"))
    assert imported(url, path)["done"] == "identical"


def test_what_a_store_gave_out_is_identical(tmp_path: Path, url: str) -> None:
    """A session that began here is at home: its export is known, also when it went on since."""

    async def talk() -> None:
        async with open_store(url) as store, store.session("home") as here:
            here.add_user("hello")
            here.add_assistant("hello!")

    anyio.run(talk)
    path = tmp_path / "home.jsonl"
    assert turnlog("export", "home", "--store", url, "--output", path).status == 0
    assert imported(url, path)["done"] == "identical"
    write(url, "home", lambda s: s.add_user("and more"))
    assert imported(url, path)["done"] == "identical"
    other = tmp_path / "other.jsonl"
    other.write_bytes(path.read_bytes().replace(b"hello!", b"good-bye"))
    assert turnlog("import", other, "--store", url).status == 1


def test_a_longer_source_extends(tmp_path: Path, url: str) -> None:
    """A source that has grown extends the session and its seed, while nothing is native."""
    imported(url, session(tmp_path, user(0), user(1)))
    path = session(tmp_path, user(0), user(1), user(2), event(3))
    assert imported(url, path)["done"] == "extended"
    session_now = read(url, "s-1")
    assert (session_now.header.seed_length, session_now.header.source_length) == (4, 4)
    assert types(session_now) == ["user/message"] * 3 + ["acme/note"]
    assert done("verify", "--all", "--store", url).status == 0
    assert imported(url, path)["done"] == "identical"


def test_a_longer_source_after_native_events(tmp_path: Path, url: str) -> None:
    """Once something native was appended, a longer source is a conflict and changes nothing."""
    imported(url, session(tmp_path, user(0)))
    write(url, "s-1", lambda s: s.add_user("native"))
    before = types(read(url, "s-1"))
    result = turnlog("import", session(tmp_path, user(0), user(1)), "--store", url)
    assert result.status == 1
    assert "--on-conflict rename or skip" in result.err
    assert types(read(url, "s-1")) == before


@pytest.mark.parametrize(
    "other", [[user(0, "other")], [user(0)], [user(0), user(1, "other"), user(2)]]
)
def test_conflicts(tmp_path: Path, url: str, other: list[dict[str, Any]]) -> None:
    """Another history under the same id is refused, skipped or renamed, as the caller says."""
    imported(url, session(tmp_path, user(0), user(1)))
    path = session(tmp_path, *other)
    assert "error" in imported(url, path)
    assert imported(url, path, "--on-conflict", "skip")["done"] == "skipped"
    assert types(read(url, "s-1")) == ["user/message"] * 2
    first = imported(url, path, "--on-conflict", "rename")
    assert (first["id"], first["done"]) == ("s-1-2", "imported")
    again = imported(url, path, "--on-conflict", "rename")
    assert (again["id"], again["done"]) == ("s-1-2", "identical")
    assert len(done("ls", "--store", url, "--json").values) == 2


def test_another_generation_is_a_conflict(tmp_path: Path, url: str) -> None:
    """The same events in another format are not the same session."""
    imported(url, session(tmp_path, user(0)))
    assert "error" in imported(url, session(tmp_path, user(0), version=3))


def test_as_names_one_session(tmp_path: Path, url: str) -> None:
    """--as gives the one session its id; for several it is misuse."""
    assert imported(url, session(tmp_path / "a", user(0)), "--as", "../mine")["id"] == "../mine"
    assert read(url, "../mine").header.source == json.loads(line(header()))
    session(tmp_path / "b", user(0))
    result = turnlog("import", tmp_path / "a", tmp_path / "b", "--as", "x", "--store", url)
    assert result.status == 2


def test_a_renamed_import_reads_the_same(tmp_path: Path, url: str) -> None:
    """Ids that a message lacks are made from the source's id, whatever the session's id is."""
    message = {"role": "user", "content": TEXT, "source": {"kind": "user"}}
    path = session(tmp_path, {**user(0), "data": message})
    imported(url, path)
    imported(url, path, "--as", "other")
    assert list(read(url, "s-1").derive_messages()) == list(read(url, "other").derive_messages())


# -- verbatim ----------------------------------------------------------------------------------


def test_renamed_types_keep_the_sources_own(tmp_path: Path, url: str) -> None:
    """Types that the program renamed have their later name, and are read by their own."""
    steering = {"turn": 1, "content": TEXT, "source": {"kind": "user"}}
    path = session(
        tmp_path, {**user(0), "type": "steering/message", "data": steering}, acme={"a": 1}
    )
    imported(url, path)
    (value,) = done("events", "s-1", "--store", url).values
    assert (value["type"], value["sourceType"], value["data"]) == (
        "user/message",
        "steering/message",
        steering,
    )
    (message,) = read(url, "s-1").derive_messages()
    assert (message.role, message.text, message.id) == ("user", "hi", "legacy-message:s-1:0")


def test_header_of_an_import(tmp_path: Path, url: str) -> None:
    """The header has the source's id, time, folder, parent and length, and its header verbatim."""
    wire = header(3, createdAt=7, cwd="/somewhere", parentSession="p", delegationDepth=0, x=[1])
    saved(tmp_path, lines(wire, user(0)))
    imported(url, tmp_path / "session.jsonl")
    found = read(url, "s-1").header
    assert (found.id, found.created_at, found.cwd, found.parent_session) == (
        "s-1",
        7,
        "/somewhere",
        "p",
    )
    assert (found.seed_length, found.source_length, found.source_format) == (1, 1, "dsh/v3")
    assert found.source == wire


@pytest.mark.parametrize(
    "more", [{"createdAt": "x"}, {"createdAt": -1}, {"cwd": 3, "parentSession": []}]
)
def test_a_header_with_wrong_fields(tmp_path: Path, url: str, more: dict[str, Any]) -> None:
    """A foreign header whose fields are not what they should be is kept, and not believed."""
    imported(url, session(tmp_path, user(0), **more))
    assert read(url, "s-1").header.cwd is None
    assert (read(url, "s-1").header.source or {}).items() >= more.items()


# -- opening an import -------------------------------------------------------------------------


OPEN_TURN = [{"type": "turn/start", "seq": 0, "time": 0, "data": {"turn": 1}}, user(1)]


def test_opening_appends_nothing(tmp_path: Path, url: str) -> None:
    """An import that is opened for writing and closed is what it was, its open turn too."""
    imported(url, session(tmp_path, *OPEN_TURN))
    write(url, "s-1", lambda _: None)
    assert types(read(url, "s-1")) == ["turn/start", "user/message"]
    notes = done("verify", "s-1", "--store", url, "--json").values
    assert "open-turn" in [note["rule"] for note in notes]


def test_the_first_native_event_ends_the_seed(tmp_path: Path, url: str) -> None:
    """Before the first native event come the end of the seed and repair's closers, once."""
    imported(url, session(tmp_path, *OPEN_TURN))

    def act(session: StoredSession) -> None:
        session.add_user("native")
        session.add_user("again")

    write(url, "s-1", act)
    native = ["session/end-seed", "turn/end", "user/message", "user/message"]
    assert types(read(url, "s-1"))[2:] == native
    assert done("verify", "s-1", "--store", url).status == 0


def test_a_refused_first_event_leaves_the_seed(tmp_path: Path, url: str) -> None:
    """A first native event that breaks a rule changes nothing: the seed is not ended."""
    imported(url, session(tmp_path, *OPEN_TURN))

    def act(session: StoredSession) -> None:
        with pytest.raises(AdmissionError):
            session.append("user/message", {"no": "message"}, surface_op="append")
        assert session.next_seq == 2

    write(url, "s-1", act)
    assert types(read(url, "s-1")) == ["turn/start", "user/message"]


def test_repair_of_an_import_says_what_it_appended(tmp_path: Path, url: str) -> None:
    """`repair` closes an imported open turn and says how; on a whole import it does nothing."""
    imported(url, session(tmp_path / "open", *OPEN_TURN))
    result = done("repair", "s-1", "--store", url)
    assert result.out.splitlines() == [
        "appended 2 session/end-seed",
        "appended 3 turn/end (interrupted)",
    ]
    imported(url, session(tmp_path / "whole", user(0), id="whole"))
    assert done("repair", "whole", "--store", url, "--json").values == []
    assert types(read(url, "whole")) == ["user/message"]


def test_a_suspended_import_is_closed_by_the_first_native_event(tmp_path: Path, url: str) -> None:
    """An approval that was pending in the source authorises nothing here: its call is closed."""
    call = {"type": "tool-call", "id": "c", "name": "t", "arguments": "{}"}
    answer = {"id": "a", "role": "assistant", "content": [call], "source": {"kind": "model"}}
    asked = {"id": "q", "toolName": "t", "callId": "c"}
    imported(
        url,
        session(
            tmp_path,
            OPEN_TURN[0],
            {**event(1, "step/start"), "data": {"turn": 1, "step": 1}},
            {
                **event(2, "assistant/message"),
                "data": {"turn": 1, "step": 1, "message": answer},
                "surfaceOp": "append",
            },
            {**event(3, "approval/asked"), "data": asked},
            version=4,
        ),
    )
    write(url, "s-1", lambda s: s.add_user("native"))
    added = read(url, "s-1").events[4:]
    kinds = ["session/end-seed", "tool/result", "step/end", "turn/end", "user/message"]
    assert [event.type for event in added] == kinds
    assert added[1].data.error.code == "TOOL_NOT_STARTED"


# -- damage ------------------------------------------------------------------------------------


def damaged(tmp_path: Path, *records: bytes) -> Path:
    """A session file with these lines after its header."""
    return saved(tmp_path, line(header()) + b"".join(records))


def test_a_gap_survives_storage(tmp_path: Path, url: str) -> None:
    """Events that the source lost are a gap here, between the same seqs, with the reason."""
    broken = b'{"type":"user/message","seq":1,"ti\n'
    path = damaged(tmp_path, line(user(0)), broken, line(user(2)), line(user(3)))
    assert imported(url, path)["damage"] == 1
    found = read(url, "s-1")
    assert [event.seq for event in found.events] == [0, 2, 3]
    (lost,) = found.damage
    assert (lost.first_seq, lost.last_seq, lost.offset, lost.length) == (
        1,
        1,
        len(line(header()) + line(user(0))),
        len(broken) - 1,
    )
    assert lost.place == str(path)
    damage = found.header.source_damage
    assert damage is not None
    (kept,) = damage
    assert base64.b64decode(kept["bytes"]) == broken[:-1]
    assert imported(url, path)["done"] == "identical"


def test_a_damaged_import_is_read_only_until_accepted(tmp_path: Path, url: str) -> None:
    """Damage refuses writing by name; `repair --accept-damage` allows it, and is itself logged."""
    imported(url, damaged(tmp_path, line(user(0)), b"garbage\n", line(user(2))))

    def refused(session: StoredSession) -> None:
        with pytest.raises(DamagedSession):
            session.add_user("native")

    write(url, "s-1", refused)
    result = turnlog("repair", "s-1", "--store", url)
    assert (result.status, result.out) == (1, "")
    assert "--accept-damage" in result.err
    (info,) = done("ls", "--store", url, "--json").values
    assert info["health"] == "damaged"
    assert turnlog("verify", "s-1", "--store", url).status == 1
    result = done("repair", "s-1", "--accept-damage", "--store", url)
    assert "session/damage-acknowledged" in result.out
    write(url, "s-1", lambda s: s.add_user("native"))
    assert types(read(url, "s-1"))[2:] == [
        "session/end-seed",
        "session/damage-acknowledged",
        "user/message",
    ]
    assert [event.seq for event in read(url, "s-1").events] == [0, 2, 3, 4, 5]
    (info,) = done("ls", "--store", url, "--json").values
    assert info.get("health", "ok") == "ok"


def test_lost_records_at_the_end(tmp_path: Path, url: str) -> None:
    """Unreadable records at the end count: native events go on behind them."""
    imported(url, damaged(tmp_path, line(user(0)), b"garbage\n", b"more\n"))
    assert read(url, "s-1").next_seq == 3
    done("repair", "s-1", "--accept-damage", "--store", url)
    write(url, "s-1", lambda s: s.add_user("native"))
    found = read(url, "s-1")
    assert [event.seq for event in found.events] == [0, 3, 4, 5]
    assert types(found)[1:] == ["session/end-seed", "session/damage-acknowledged", "user/message"]
    done("fork", "s-1", "--as", "child", "--store", url)
    assert [e.seq for e in read(url, "child").events][:4] == [0, 3, 4, 5]
    write(url, "child", lambda s: s.add_user("native"))


def test_garbage_between_events_that_follow(tmp_path: Path, url: str) -> None:
    """Garbage that cost no event is damage too, and no gap."""
    imported(url, damaged(tmp_path, line(user(0)), b"\0\0\0\n", line(user(1))))
    found = read(url, "s-1")
    assert [event.seq for event in found.events] == [0, 1]
    assert [damage.first_seq for damage in found.damage] == [None]


def test_a_torn_tail_is_no_damage(tmp_path: Path, url: str) -> None:
    """Bytes after the last newline are what a crash leaves: they are noted and left out."""
    path = damaged(tmp_path, line(user(0)), line(user(1))[:-9])
    report = imported(url, path)
    assert (report["events"], "damage" in report) == (1, False)
    assert "torn tail" in report["notes"][0]


def test_a_record_that_may_not_be_an_event(tmp_path: Path, url: str) -> None:
    """A record with a payload that no log may hold is damage, and its bytes are kept."""
    deep = b'{"type":"acme/x","seq":1,"time":1,"data":' + b"[" * 600 + b"]" * 600 + b"}\n"
    imported(url, damaged(tmp_path, line(user(0)), deep, line(user(2))))
    found = read(url, "s-1")
    assert [event.seq for event in found.events] == [0, 2]
    assert "512 levels" in found.damage[0].reason


# -- interruptions -----------------------------------------------------------------------------


class Interrupted(Exception):
    """What stops an import in the middle."""


class Stopping:
    """Events that stop after some."""

    def __init__(self, events: FromDsh, after: int) -> None:
        self._events, self._after = events, after

    def __iter__(self) -> Iterator[AnyEvent]:
        for count, item in enumerate(self._events):
            if count == self._after:
                raise Interrupted
            yield item


def interrupted(url: str, path: Path, after: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """An import that is stopped after so many events, which were committed one by one."""
    monkeypatch.setattr("turnlog.stores.adopting.BATCH", 1)
    incoming = FromDsh(open_dsh(path))

    async def work() -> None:
        async with open_store(url) as store:
            with pytest.raises(Interrupted):
                await store.adopt(incoming.header, Stopping(incoming, after))

    anyio.run(work)


@pytest.mark.parametrize("after", [0, 1, 2])
def test_an_interrupted_import_does_not_look_whole(
    tmp_path: Path, url: str, after: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was imported in part says so, refuses writing, and is completed by importing again."""
    path = session(tmp_path, user(0), user(1), user(2))
    interrupted(url, path, after, monkeypatch)
    (info,) = done("ls", "--store", url, "--json").values
    assert info["health"] == "damaged"
    assert f"interrupted at {after} of 3" in info["problem"]
    assert read(url, "s-1").next_seq == 3
    result = turnlog("verify", "s-1", "--store", url)
    assert result.status == 1

    def refused(session: StoredSession) -> None:
        with pytest.raises(StoreError):
            session.add_user("native")

    write(url, "s-1", refused)
    assert imported(url, path)["done"] == "imported"
    assert [event.seq for event in read(url, "s-1").events] == [0, 1, 2]
    assert done("verify", "s-1", "--store", url).status == 0


def test_an_interrupted_import_can_be_accepted(
    tmp_path: Path, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Accepting what is lacking goes on behind the seed; then a new import is a conflict."""
    path = session(tmp_path, user(0), user(1), user(2))
    interrupted(url, path, 1, monkeypatch)
    done("repair", "s-1", "--accept-damage", "--store", url)
    write(url, "s-1", lambda s: s.add_user("native"))
    assert [event.seq for event in read(url, "s-1").events] == [0, 3, 4, 5]
    assert "error" in imported(url, path)


def test_a_session_in_use_is_not_extended(tmp_path: Path, url: str) -> None:
    """A source that has grown does not extend a session that another writer owns."""
    imported(url, session(tmp_path, user(0)))
    incoming = FromDsh(open_dsh(session(tmp_path, user(0), user(1))))

    async def work() -> None:
        async with open_store(url) as first, open_store(url) as second, first.session("s-1"):
            with pytest.raises(SessionInUse):
                await second.adopt(incoming.header, incoming)

    anyio.run(work)
    assert len(read(url, "s-1")) == 1


# -- turnlog's own files -----------------------------------------------------------------------


def test_detached_sessions_come_back(tmp_path: Path, url: str) -> None:
    """What `detach` saved imports as a seed, which the first native event ends."""

    async def work() -> None:
        async with open_store(url) as store, store.session("s-1") as session:
            session.add_user("one")
            session.add_assistant("two")
            await session.detach(tmp_path / "saved.jsonl")

    anyio.run(work)
    other = f"jsonl:{tmp_path / 'other'}"
    report = imported(other, tmp_path / "saved.jsonl")
    assert (report["id"], report["events"], report["format"]) == ("s-1", 2, "turnlog/v0")
    assert list(read(other, "s-1").events) == list(read(url, "s-1").events)
    write(other, "s-1", lambda s: s.add_user("three"))
    assert types(read(other, "s-1"))[2:] == ["session/end-seed", "user/message"]
    assert imported(other, tmp_path / "saved.jsonl")["done"] == "identical"


def test_an_import_that_went_on_comes_back(tmp_path: Path, url: str) -> None:
    """An import with native events, exported and imported again, still reads its seed as it was."""
    legacy = {"content": TEXT, "source": {"kind": "user"}}
    imported(url, session(tmp_path, {**user(0), "data": legacy}))
    write(url, "s-1", lambda s: s.add_user("native"))
    turnlog("export", "s-1", "--store", url, "-o", tmp_path / "again.jsonl")
    other = f"jsonl:{tmp_path / 'other'}"
    assert imported(other, tmp_path / "again.jsonl")["format"] == "dsh/v0"
    assert list(read(other, "s-1").derive_messages()) == list(read(url, "s-1").derive_messages())
    header_now = read(other, "s-1").header
    assert (header_now.seed_length, header_now.source_length) == (3, 1)
    assert done("verify", "s-1", "--store", other).status == 0


def test_damaged_files_of_ours(tmp_path: Path, url: str) -> None:
    """A garbled line of an exported file is damage; the events after it are there."""
    imported(url, session(tmp_path, user(0), event(1), user(2), event(3)))
    turnlog("export", "s-1", "--store", url, "-o", tmp_path / "x.jsonl")
    rows = (tmp_path / "x.jsonl").read_bytes().splitlines(keepends=True)
    rows[2] = b'{"type":"acme\n'
    rows[4] = b"\xff\n"
    (tmp_path / "x.jsonl").write_bytes(b"".join([*rows, b'{"type":']))
    other = f"jsonl:{tmp_path / 'other'}"
    report = imported(other, tmp_path / "x.jsonl")
    assert (report["damage"], report["events"]) == (2, 2)
    assert "torn tail" in report["notes"][0]
    found = read(other, "s-1")
    assert [event.seq for event in found.events] == [0, 2]
    assert [(d.first_seq, d.last_seq) for d in found.damage] == [(1, 1), (3, 3)]


def test_a_folder_of_exported_files(tmp_path: Path, url: str) -> None:
    """A folder's exports are found; --from turnlog takes each JSONL file of it."""
    exports = folder(tmp_path / "exports")
    for name in "ab":
        imported(url, session(tmp_path, user(0), id=name))
        turnlog("export", name, "--store", url, "-o", exports / f"{name}.jsonl")
    other = f"jsonl:{tmp_path / 'other'}"
    lines_ = done("import", exports, "--from", "turnlog", "--store", other, "--json").values
    assert [value["id"] for value in lines_] == ["a", "b"]
    (exports / "notes.jsonl").write_text('{"some":"thing"}\n')
    lines_ = done("import", exports, "--store", other, "--json").values
    assert [value["done"] for value in lines_] == ["identical", "identical"]
    assert turnlog("import", exports, "--from", "turnlog", "--store", other).status == 1


def test_a_newer_file(tmp_path: Path, url: str) -> None:
    """A file of a newer format is refused by name."""
    path = tmp_path / "x.jsonl"
    path.write_text('{"format":"turnlog","version":9,"id":"x","createdAt":0}\n')
    result = turnlog("import", path, "--store", url)
    assert result.status == 1
    assert "newer turnlog" in result.err


@pytest.mark.parametrize(
    "message",
    [
        user_message("native"),
        {"id": "x", "role": "user", "content": TEXT, "source": {"kind": "user"}},
    ],
)
def test_any_form_of_a_first_native_event(tmp_path: Path, url: str, message: Any) -> None:
    """A first native event is taken in each form that any other is, a struct without id too."""
    imported(url, session(tmp_path, user(0)))
    write(url, "s-1", lambda s: s.append("user/message", message, surface_op="append"))
    assert types(read(url, "s-1"))[1:] == ["session/end-seed", "user/message"]
    assert done("verify", "s-1", "--store", url).status == 0


# -- what is lost, and what was accepted -------------------------------------------------------


def rows_of(url: str, session_id: str) -> list[bytes]:
    """The lines of a session's export."""
    return turnlog("export", session_id, "--store", url).out.encode().splitlines(keepends=True)


@pytest.mark.parametrize("what", ["missing", "breaks a rule"])
def test_what_is_wrong_with_an_export_is_said_everywhere(
    tmp_path: Path, url: str, what: str
) -> None:
    """A missing line, or an event that breaks a rule, is damage for import, ls, doctor, verify."""
    write(url, "a", lambda s: [s.add_user("one"), s.add_user("two"), s.add_user("three")])
    rows = rows_of(url, "a")
    if what == "missing":
        del rows[2]
    else:
        rows[2] = (
            rows[2].replace(b'"surfaceOp":"append",', b"").replace(b',"surfaceOp":"append"', b"")
        )
        assert b"surfaceOp" not in rows[2]
    (tmp_path / "x.jsonl").write_bytes(b"".join(rows))
    other = f"jsonl:{tmp_path / 'other'}"
    result = turnlog("import", tmp_path / "x.jsonl", "--store", other)
    assert (result.status, result.out) == (0, "imported a (2 events, turnlog/v0)\n")
    assert (
        f"a: 1 damaged stretch ({'records are ' if what == 'missing' else ''}{what}" in result.err
    )
    (info,) = done("ls", "--store", other, "--json").values
    assert (info["health"], info["events"], info["damage"]) == ("damaged", 2, 1)
    assert "1 of 1 damaged ('a')" in done("doctor", "--store", other).out
    assert turnlog("verify", "a", "--store", other).status == 1
    assert "1 damaged stretch" in turnlog("export", "a", "--store", other).err
    done("repair", "a", "--accept-damage", "--store", other)
    (info,) = done("ls", "--store", other, "--json").values
    assert (info["health"], info["damage"]) == ("ok", 0)
    (tmp_path / "y.jsonl").write_text(done("export", "a", "--store", other).out)
    third = f"jsonl:{tmp_path / 'third'}"
    assert done("import", tmp_path / "y.jsonl", "--store", third).out.startswith("imported a (")
    assert done("verify", "a", "--store", third).status == 0


# -- message lists -----------------------------------------------------------------------------

LIST = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "hello"}]


def test_a_message_list(tmp_path: Path, url: str) -> None:
    """A list of messages in JSON is a session named like its file, the same one each time."""
    path = tmp_path / "trip.json"
    path.write_text(json.dumps(LIST, indent=1))
    report = imported(url, path)
    assert (report["id"], report["events"], report["format"]) == ("trip", 2, "openai/messages")
    assert imported(url, path)["done"] == "identical"
    assert [m.text for m in read(url, "trip").derive_messages()] == ["hi", "hello"]
    assert json.loads(done("export", "trip", "--to", "openai", "--store", url).out) == LIST
    write(url, "trip", lambda s: s.add_user("native"))
    assert done("verify", "trip", "--store", url).status == 0


def test_a_request_s_body(tmp_path: Path, url: str) -> None:
    """What export writes for Anthropic comes back, its system text first."""
    path = tmp_path / "body.json"
    path.write_text(json.dumps({"system": "Be brief.", "messages": LIST}))
    report = imported(url, path, "--from", "anthropic")
    assert report["format"] == "anthropic/messages"
    roles = [message.role for message in read(url, "body").derive_messages()]
    assert roles == ["system", "user", "assistant"]


def test_a_bad_message_list(tmp_path: Path, url: str) -> None:
    """A list that cannot be adopted says which message is wrong."""
    path = tmp_path / "bad.json"
    path.write_text('[{"role":"user","content":"hi"},7]')
    result = turnlog("import", path, "--store", url)
    assert (result.status, "message 1" in result.err) == (1, True)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"nothing here", '"nothing here"'),
        (b"nothing here\n", '"nothing here"'),
        (b"", "nothing"),
        (b"\x1f\x8b\x08abc", "gzip"),
        (b"\xff\xfe\n", "no text"),
        (b"\x28\xb5\x2f\xfdbroken", "no text"),
        (b'{"a":1}', "without messages"),
        (b"3", "without messages"),
    ],
)
@pytest.mark.parametrize("kind", ["auto", "turnlog", "dsh", "openai"])
def test_a_file_that_is_no_session(
    tmp_path: Path, url: str, content: bytes, said: str, kind: str
) -> None:
    """Any other file is one line that names it, shows how it begins and says what is taken."""
    path = tmp_path / "file"
    path.write_bytes(content)
    result = turnlog("import", path, "--from", kind, "--store", url)
    assert (result.status, result.out, len(result.err.splitlines())) == (1, "", 1)
    assert str(path) in result.err
    assert "message lists of OpenAI or Anthropic" in result.err
    leaks = ("b'", "codec", "Expecting")
    assert [leak for leak in leaks if leak in result.err] == []
    if kind == "auto":
        assert said in result.err
