"""Small session files in the form in which DeepSeek Harness writes them, made byte by byte."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import zstandard

from turnlog.interop.dsh import DshSource, SourceEvent, open_dsh

Record = dict[str, Any]


def header(version: int = 0, **more: Any) -> Record:
    """A header line."""
    return {"type": "session", "version": version, "id": "s-1", "createdAt": 1, **more}


def event(seq: int, kind: str = "acme/note", data: Any = None, **more: Any) -> Record:
    """An event's line."""
    return {"type": kind, "seq": seq, "time": 1000 + seq, "data": {"n": seq, "x": data}, **more}


def line(record: Record) -> bytes:
    """A record as a line, with lone surrogates escaped."""
    return json.dumps(record, separators=(",", ":")).encode() + b"\n"


def lines(*records: Record) -> bytes:
    """Records as lines."""
    return b"".join(map(line, records))


def frame(content: bytes) -> bytes:
    """One zstd frame with a checksum."""
    return zstandard.ZstdCompressor(write_checksum=True).compress(content)


def frames(*batches: bytes) -> bytes:
    """One frame for each batch, one after the other."""
    return b"".join(map(frame, batches))


def saved(folder: Path, content: bytes, name: str = "session.jsonl") -> Path:
    """The content as a file."""
    path = folder / name
    path.write_bytes(content)
    return path


def opened(folder: Path, content: bytes) -> tuple[DshSource, list[SourceEvent]]:
    """The content as a session, read to its end."""
    source = open_dsh(saved(folder, content))
    return source, list(source.events())


def seqs(events: Iterable[SourceEvent]) -> list[int]:
    """The seqs of events."""
    return [event.seq for event in events]
