"""Events that nobody here knows, and known ones of another shape."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.faults.scenes import agent, assert_accepted, assert_lawful, texts
from tests.unit.stores.test_sqlite_store import as_nobody
from turnlog import Session, open_store
from turnlog.stores.sqlite import schema
from turnlog.testing.builders import Author

PLUGIN = """
import sys
import anyio
from turnlog import open_store, register_event_type

async def main(url):
    kind = register_event_type("guard/scanned")
    async with open_store(url) as store:
        async with store.session("s") as session:
            session.add_user("before")
            session.append(kind, {"verdict": "clean"})
            session.add_user("after")
        await store.fork("s", at=1, new_id="fork")

anyio.run(main, sys.argv[1])
"""


def log(count: int) -> list[dict[str, Any]]:
    """A log of that many messages in wire form."""
    session = Session.create("s")
    for i in range(count):
        session.add_user(f"message {i}")
    return [event.to_dict() for event in session.events]


def with_plugin(url: str) -> None:
    """Let a process that has the plugin write session "s", and fork it."""
    subprocess.run([sys.executable, "-c", PLUGIN, url], check=True)


async def stored(folder: Path, events: list[dict[str, Any]]) -> str:
    """A store whose session "s" has these events, as some other version wrote them."""
    async with open_store(f"jsonl:{folder}") as store, store.session("s"):
        pass
    (path,) = (folder / "s").glob("*.jsonl")
    with path.open("a") as file:
        file.writelines(json.dumps(event) + "\n" for event in events)
    return f"jsonl:{folder}"


@pytest.mark.parametrize("mark", [{}, {"ignorable": True}], ids=["unmarked", "ignorable"])
async def test_a_kind_that_nobody_knows_is_kept_and_skipped(
    tmp_path: Path, mark: dict[str, bool]
) -> None:
    """At seq 381 it bricks nothing, is given back as it was, and is reported unless marked."""
    events = log(500)
    events[381] = {"type": "x/unknown", "seq": 381, "time": 5, "data": {"deep": [1, None]}, **mark}
    async with (
        open_store(await stored(tmp_path, events)) as store,
        store.session("s") as session,
    ):
        assert session.damage == ()
        assert session.event_at(381).to_dict() == events[381]
        assert session.unknown_types == ({} if mark else {"x/unknown": 1})
        assert len(texts(session)) == 499
        assert (await agent(["on"]).run(session, "go on")).text == "on"
        assert_lawful(session)


async def test_a_session_and_its_fork_open_without_the_plugin_that_wrote_into_them(
    tmp_path: Path,
) -> None:
    """A plugin's own kind is no obstacle where the plugin is not installed."""
    url = f"jsonl:{tmp_path}"
    with_plugin(url)
    async with open_store(url) as store:
        for session_id, said in (("s", ["before", "after"]), ("fork", ["before"])):
            async with store.session(session_id) as session:
                assert session.unknown_types == {"guard/scanned": 1}
                assert session.event_at(1).data == {"verdict": "clean"}
                assert texts(session) == said
                await agent(["on"]).run(session, "go on")
                assert_lawful(session)


async def test_a_few_foreign_kinds_among_many_events_hide_none(tmp_path: Path) -> None:
    """A child wrote ten events of its own kind into its parent's log: all others load."""
    events = log(2_000)
    for seq in range(100, 2_000, 190):
        events[seq] = {"type": "child/progress", "seq": seq, "time": 5, "data": seq}
    async with open_store(await stored(tmp_path, events)) as store:
        session = await store.read("s")
        assert session.damage == ()
        assert session.unknown_types == {"child/progress": 10}
        assert len(texts(session)) == 1_990
        (info,) = [info async for info in store.sessions()]
        assert (info.events, info.title, info.health) == (2_000, "message 0", "ok")


async def test_fields_that_a_newer_version_added_are_kept(tmp_path: Path) -> None:
    """Unknown keys of envelopes, payloads, messages and blocks of a newer version stay."""
    events = log(3)
    events[1]["newEnvelopeKey"] = 1
    events[1]["data"]["newKey"] = {"a": [1]}
    events[1]["data"]["content"][0]["newBlockKey"] = None
    events[2]["data"]["content"].append({"type": "hologram", "rays": 7})
    async with (
        open_store(await stored(tmp_path, events)) as store,
        store.session("s") as session,
    ):
        assert [event.to_dict() for event in session.events] == events
        assert len(texts(session)) == 3
        assert_accepted(session)


@pytest.mark.parametrize("data", [{}, None, [], "text", {"turn": "one"}])
async def test_a_core_event_of_an_older_shape_costs_itself_only(tmp_path: Path, data: Any) -> None:
    """Whatever stands where fields are expected now, no kind of event makes a log unreadable."""
    events = log(40)
    kinds = [
        "turn/start",
        "step/start",
        "request/header",
        "assistant/chunk",
        "tool/call",
        "approval/asked",
        "compaction/start",
        "compaction/summary",
        "compaction/end",
        "session/title",
    ]
    for seq, kind in enumerate(kinds, 10):
        events[seq] = {"type": kind, "seq": seq, "time": 5, "data": data}
    async with open_store(await stored(tmp_path, events)) as store:
        session = await store.read("s")
        assert len(session) == 40
        assert session.damage == ()
        assert [event.to_dict() for event in session.events] == events
        assert len(texts(session)) == 30
        assert len(session.nodes()) >= 30
        assert session.usage().own.total.answers == 0
        (info,) = [info async for info in store.sessions()]
        assert info.events == 40


async def test_a_compaction_of_another_version_still_compacts(tmp_path: Path) -> None:
    """Its records have fields that we do not know and lack ours: the surface is what it made it."""
    author = Author(Session.create("s"))
    for i in range(4):
        author.user(f"message {i}")
    author.compact(0, 2, "the old summary")
    expected = texts(author.session)
    events = [event.to_dict() for event in author.session.events]
    for event in events:
        if event["type"].startswith("compaction/"):
            event["data"] = {"id": "old", "tokensRemoved": -12, "kept": [0]}
    async with (
        open_store(await stored(tmp_path, events)) as store,
        store.session("s") as session,
    ):
        assert texts(session) == expected == ["the old summary", "message 3"]
        assert session.damage == ()
        await agent(["on"]).run(session, "go on")
        assert_accepted(session)


# -- the schema of an SQLite file --------------------------------------------------------------


async def test_an_older_schema_is_read_as_it_is_where_nothing_can_be_written(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A later turnlog shows what a read-only file of an older version holds, as it is."""
    with as_nobody() as folder:
        url = f"sqlite:{folder / 'sessions.db'}"
        async with open_store(url) as store, store.session("s") as session:
            session.add_user("old")
        before = (folder / "sessions.db").read_bytes()
        monkeypatch.setattr(schema, "VERSION", schema.VERSION + 1)
        (folder / "sessions.db").chmod(0o444)
        folder.chmod(0o555)
        if os.getuid() == 0:
            os.seteuid(65534)
        async with open_store(url) as store:
            assert texts(await store.read("s")) == ["old"]
            assert [info.title async for info in store.sessions()] == ["old"]
        assert (folder / "sessions.db").read_bytes() == before
