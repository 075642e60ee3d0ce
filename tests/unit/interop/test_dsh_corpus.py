"""Sessions that the program itself wrote, against what an independent reader found in them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import zstandard

from turnlog.interop.dsh import SourceEvent, discover, open_dsh, upcast, upcast_type

SESSIONS = [
    *(f"v0/{name}" for name in ("chat", "tools", "cancel", "compaction", "fork-parent")),
    *(f"v0/{name}" for name in ("fork-child", "crash-before", "crash-after")),
    *(f"v0-zstd/{name}" for name in ("tools", "chat")),
    *(f"v3/{name}" for name in ("chat", "tools", "compaction", "crash-before")),
    *(f"v4/{name}" for name in ("chat", "tools", "cancel", "compaction", "crash-before")),
]
MESSAGES = {"user/message", "assistant/message", "tool/result", "system/message"}


@pytest.fixture(scope="module")
def facts(corpus: Path) -> dict[str, Any]:
    """What is known of each file."""
    return json.loads((corpus / "dsh" / "facts.json").read_bytes())


class Fold:
    """A surface and some counts, as plain as can be."""

    def __init__(self, version: int, session: str) -> None:
        self.version, self.session = version, session
        self.count = self.replaces = self.human = self.calls = 0
        self.surface: list[int] = []
        self.ends: list[str] = []
        self.messages: dict[int, Any] = {}

    def add(self, event: SourceEvent) -> None:
        """Take in one event."""
        assert event.seq == self.count
        self.count += 1
        kind, raw = upcast_type(event.type), json.loads(event.data)
        data = upcast(self.version, event.type, raw, session=self.session, seq=event.seq)
        if event.surface_op == "append":
            self.surface.append(event.seq)
            self.human += kind == "user/message" and data["source"]["kind"] == "user"
        elif event.surface_op is not None:
            start, end = map(self.surface.index, event.surface_op)
            self.surface[start : end + 1] = [event.seq]
            self.replaces += 1
        if kind in MESSAGES:
            self.messages[event.seq] = data if kind == "user/message" else data["message"]
        elif kind == "turn/end":
            self.ends.append(data["reason"]["kind"])
        self.calls += kind == "tool/call"

    def digest(self) -> str:
        """SHA-256 of the text that the model saw."""
        digest = hashlib.sha256()
        for seq in self.surface:
            digest.update("\n".join(pieces(self.messages[seq])).encode() + b"\0")
        return digest.hexdigest()


def pieces(message: dict[str, Any]) -> Iterator[str]:
    """The text and the calls of a message in our shape: no wrapper around a tool's content."""
    for block in message["content"]:
        if block["type"] == "text":
            yield block["text"]
        elif block["type"] == "tool-call":
            yield f"CALL {block['name']} {block['arguments']}"


def test_every_file_is_tested(facts: dict[str, Any]) -> None:
    """The list of sessions above is the corpus."""
    assert set(SESSIONS) == set(facts)


@pytest.mark.parametrize("name", SESSIONS)
def test_facts(corpus: Path, facts: dict[str, Any], name: str) -> None:
    """Each file gives the events, surface, prompts, ends, calls and model text of its facts."""
    source = open_dsh(corpus / "dsh" / name)
    fold = Fold(source.version, source.id)
    for event in source.events():
        fold.add(event)
    assert (source.damage, source.torn) == ([], None)
    assert source.source_format == f"dsh/v{facts[name]['version']}"
    assert {
        "version": source.version,
        "id": source.id,
        "events": fold.count,
        "surface": len(fold.surface),
        "replaces": fold.replaces,
        "surface_seqs": fold.surface,
        "human_prompts": fold.human,
        "model_text_sha256": fold.digest(),
        "turn_ends": fold.ends,
        "tool_calls": fold.calls,
    } == facts[name]


@pytest.mark.parametrize("name", SESSIONS)
def test_verbatim(corpus: Path, name: str) -> None:
    """The data of an event that was not packed is the text that stands in the file."""
    (path,) = (corpus / "dsh" / name).iterdir()
    content = path.read_bytes()
    if path.suffix == ".zstd":
        decoder = zstandard.ZstdDecompressor()
        content = decoder.stream_reader(content, read_across_frames=True).read()
    header, *rows = content.splitlines()
    source = open_dsh(path)
    assert source.header == json.loads(header)
    events = {event.seq: event for event in source.events()}
    for row in rows:
        record = json.loads(row)
        if "seq" in record:
            event = events[record["seq"]]
            assert b'"data":' + event.data in row
            assert json.loads(event.data) == record["data"]
            assert (event.type, event.time) == (record["type"], record["time"])


@pytest.mark.parametrize("name", SESSIONS)
def test_upcast_shapes(corpus: Path, name: str) -> None:
    """Upcast messages have id, role, content, source; results are lifted; input is untouched."""
    source = open_dsh(corpus / "dsh" / name)
    for event in source.events():
        raw = json.loads(event.data)
        data = upcast(source.version, event.type, raw, session=source.id, seq=event.seq)
        assert raw == json.loads(event.data)
        if event.type not in MESSAGES:
            assert data == raw
            continue
        message = data if event.type == "user/message" else data["message"]
        assert {"id", "role", "content", "source"} <= message.keys()
        assert message["source"]["kind"] != "plugin"
        if event.type == "tool/result":
            assert message["role"] == "tool"
            assert message["toolCallId"] == message["source"]["callId"]
            assert isinstance(message["isError"], bool)
            assert all(block["type"] != "tool-result" for block in message["content"])


def test_zstd_and_plain_give_equal_events(corpus: Path) -> None:
    """One session, stored plain and in frames, has the same events but for ids and times."""
    plain = open_dsh(corpus / "dsh" / "v0" / "tools").events()
    packed = open_dsh(corpus / "dsh" / "v0-zstd" / "tools").events()
    both = zip(plain, packed, strict=True)
    assert all((a.seq, a.type, a.surface_op) == (b.seq, b.type, b.surface_op) for a, b in both)


def test_the_corpus_is_a_tree(corpus: Path) -> None:
    """A folder of folders of sessions is found whole, in order of path."""
    found = list(discover(corpus))
    assert [item.error for item in found] == [None] * len(SESSIONS)
    assert [item.path for item in found] == sorted(item.path for item in found)
