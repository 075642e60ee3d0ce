"""Real sessions, from the command line: imported, verified, equal to what is known of them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest

from tests.e2e.command import done, read, turnlog
from turnlog.content import Message, Text, ToolCall
from turnlog.events import AnyEvent, TurnEnd
from turnlog.stores import open_store

SESSIONS = [
    *(f"v0/{name}" for name in ("chat", "tools", "cancel", "compaction", "fork-parent")),
    *(f"v0/{name}" for name in ("fork-child", "crash-before", "crash-after")),
    *(f"v0-zstd/{name}" for name in ("tools", "chat")),
    *(f"v3/{name}" for name in ("chat", "tools", "compaction", "crash-before")),
    *(f"v4/{name}" for name in ("chat", "tools", "cancel", "compaction", "crash-before")),
]


@pytest.fixture(scope="module")
def facts(corpus: Path) -> dict[str, Any]:
    """What an independent reader found in each file."""
    return json.loads((corpus / "dsh" / "facts.json").read_bytes())


def imported(corpus: Path, name: str, folder: Path) -> tuple[str, str]:
    """A corpus session in a store of its own: the store's URL, and the session's id."""
    url = f"jsonl:{folder / 'store'}"
    (line,) = done("import", corpus / "dsh" / name, "--store", url, "--json").values
    assert line["done"] == "imported"
    assert "damage" not in line
    return url, line["id"]


def pieces(message: Message) -> Iterator[str]:
    """The text and the calls of a message."""
    for block in message.content:
        if isinstance(block, Text):
            yield block.text
        elif isinstance(block, ToolCall):
            yield f"CALL {block.name} {block.arguments}"


def test_every_file_is_tested(facts: dict[str, Any]) -> None:
    """The list of sessions above is the corpus."""
    assert set(SESSIONS) == set(facts)


@pytest.mark.parametrize("name", SESSIONS)
def test_facts(corpus: Path, facts: dict[str, Any], tmp_path: Path, name: str) -> None:
    """Each file imports, verifies without fault, and gives every fact through our session."""
    url, session_id = imported(corpus, name, tmp_path)
    findings = done("verify", session_id, "--store", url, "--json").values
    assert [finding for finding in findings if finding["level"] == "fault"] == []
    session = read(url, session_id)
    digest = hashlib.sha256()
    for message in session.derive_messages():
        digest.update("\n".join(pieces(message)).encode() + b"\0")
    ends = [event.data for event in session.events if event.type == "turn/end"]
    assert {
        "version": int((session.header.source_format or "").removeprefix("dsh/v")),
        "id": session.id,
        "events": len(session),
        "surface": len(session.surface),
        "replaces": session.surface.replace_generation,
        "surface_seqs": list(session.surface.seqs),
        "human_prompts": sum(m.role == "user" for m in session.extract_chat_messages()),
        "model_text_sha256": digest.hexdigest(),
        "turn_ends": [end.reason.kind for end in ends if isinstance(end, TurnEnd)],
        "tool_calls": sum(event.type == "tool/call" for event in session.events),
    } == facts[name]


@pytest.mark.parametrize("name", SESSIONS)
def test_export_and_import_again(corpus: Path, tmp_path: Path, name: str) -> None:
    """What is exported as JSONL imports into another store as the same events, and verifies."""
    url, session_id = imported(corpus, name, tmp_path)
    file = tmp_path / "session.jsonl"
    turnlog("export", session_id, "--store", url, "-o", file)
    other = f"jsonl:{tmp_path / 'other'}"
    (line,) = done("import", file, "--store", other, "--json").values
    assert line["done"] == "imported"
    assert done("verify", "--all", "--store", other).status == 0
    mine, theirs = read(url, session_id), read(other, session_id)
    assert list(mine.events) == list(theirs.events)
    assert list(mine.derive_messages()) == list(theirs.derive_messages())
    assert theirs.header.source == mine.header.source


def closers(events: list[AnyEvent]) -> list[tuple[object, ...]]:
    """What repair appended: kind, error code, why a turn ended, what is cited."""
    found: list[tuple[object, ...]] = []
    for event in events:
        error, reason = getattr(event.data, "error", None), getattr(event.data, "reason", None)
        cited = None if event.source_event_seqs is None else list(event.source_event_seqs)
        code, kind = getattr(error, "code", None), getattr(reason, "kind", None)
        found.append((event.type, code, kind, cited))
    return found


def test_closers_are_those_of_the_program(corpus: Path, tmp_path: Path) -> None:
    """The first native event on a crashed import brings the closers the program itself wrote."""
    url, session_id = imported(corpus, "v0/crash-before", tmp_path / "before")
    theirs = read(*imported(corpus, "v0/crash-after", tmp_path / "after"))

    async def work() -> list[AnyEvent]:
        async with open_store(url) as store, store.session(session_id) as session:
            assert session.next_seq == session.header.seed_length
            session.add_user("go on")
            return list(session.events)

    seed = read(url, session_id).next_seq
    mark, *added, prompt = anyio.run(work)[seed:]
    assert (mark.type, prompt.type) == ("session/end-seed", "user/message")
    end = next(e.seq for e in theirs.events if e.seq >= seed and e.type == "session/end-seed")
    assert closers(added) == closers(theirs.events[seed:end])
    assert [(kind, code) for kind, code, *_ in closers(added)] == [
        ("tool/result", "TOOL_OUTCOME_UNKNOWN"),
        ("tool/result", "TOOL_NOT_STARTED"),
        ("step/end", None),
        ("turn/end", None),
    ]
