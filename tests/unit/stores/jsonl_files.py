"""JSONL sessions made byte by byte, and how they are read and written on."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from turnlog import jsontext
from turnlog.codec import encode_event, encode_lines
from turnlog.events import AnyEvent
from turnlog.stores.jsonl.frames import pack
from turnlog.stores.jsonl.names import folder_name
from turnlog.stores.jsonl.ownership import take
from turnlog.stores.jsonl.scan import Scan, scan
from turnlog.stores.jsonl.tenure import Tenure
from turnlog.stores.port import Batch, Claim, Owner
from turnlog.testing.conformance.samples import FIRST, header, notes

HEADER = jsontext.encode(header("a").to_dict()) + b"\n"


def line(event: AnyEvent) -> bytes:
    """One event as a line."""
    return encode_event(event) + b"\n"


def lines(events: Sequence[AnyEvent]) -> list[bytes]:
    """Each event as a line."""
    return [line(event) for event in events]


def saved(root: Path, content: bytes, *, packed: bool = False, token: int = 1) -> Path:
    """A session "a" whose segment holds the content, as it is; returns the session's folder."""
    folder = root / folder_name("a")
    folder.mkdir(exist_ok=True)
    (folder / f"{token}.jsonl{'.zst' if packed else ''}").write_bytes(content)
    return folder


def plain(root: Path, *records: bytes) -> Path:
    """A session whose plain segment has these bytes after its header."""
    return saved(root, HEADER + b"".join(records))


def framed(root: Path, *batches: bytes) -> Path:
    """A session whose packed segment has a frame for its header and each of these."""
    return saved(root, b"".join(map(pack, (HEADER, *batches))), packed=True)


def batch(events: Sequence[AnyEvent]) -> bytes:
    """Events as the store writes them."""
    return encode_lines(events)


def owning(
    folder: Path, owner: Owner = FIRST, *, steal: bool = False, patience: float = 10.0
) -> Tenure:
    """The session's one writer."""
    segment, lock = take(folder, "a", owner, steal=steal, packed=False)
    return Tenure(folder, "a", owner, segment, lock, durable=False, patience=patience)


def commit(tenure: Tenure, events: Sequence[AnyEvent]) -> None:
    """Store a batch, or raise why it was not."""
    tenure.commit(Batch(Claim("a", tenure.segment.token, tenure), events), None)


def written_on(folder: Path, count: int = 2) -> Scan:
    """The session after a new owner appended `count` events where it ends."""
    tenure = owning(folder)
    try:
        commit(tenure, notes(scan(folder, "a").mark.next_seq, count, "later"))
    finally:
        tenure.release()
    return scan(folder, "a")


def seqs(found: Scan) -> list[int]:
    """The seqs of what was read."""
    return [event.seq for event in found.events]


def lost(found: Scan) -> list[tuple[int | None, int | None]]:
    """The ranges of seqs of the damage."""
    return [(damage.first_seq, damage.last_seq) for damage in found.damage]


def spans(found: Scan) -> list[tuple[int | None, int | None]]:
    """Offset and length of the damage."""
    return [(damage.offset, damage.length) for damage in found.damage]
