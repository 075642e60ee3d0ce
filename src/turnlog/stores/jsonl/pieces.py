"""Pieces of a segment, and what can be had of a line that is no record.

Records that were glued together on one line are read where it is certain where each begins.
"""

from __future__ import annotations

import json
import re
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

from turnlog.codec import decode_line
from turnlog.errors import AdmissionError, why_unreadable

if TYPE_CHECKING:
    from collections.abc import Iterator

    from turnlog.events import AnyEvent, SessionHeader

_MENDABLE = 8 << 20  # longest line in which glued records are looked for
_GLUED_MAX = 64
_RECORD = re.compile(
    rb'\{"(?:type":"(?:[^"\\]|\\.){0,500}"|run":"assistant/chunk"),"seq":[0-9]{1,19},"time":'
)
_scan_json = json.JSONDecoder().raw_decode


class Piece(NamedTuple):
    """A stretch of a segment.

    Attributes:
        place: the segment, for a person.
        offset, length: its bytes; of a packed segment, those of its frame.
        events: what it holds; None when it could not be read.
        fault: why not, or what is odd about it.
        records: how many records were lost here.
        header: a header that takes the place of the one before.
    """

    place: str
    offset: int
    length: int
    events: list[AnyEvent] | None
    fault: str = ""
    records: int = 0
    header: SessionHeader | None = None


def piece_of(
    place: str,
    offset: int,
    at: int,
    length: int,
    frame: int | None,
    events: list[AnyEvent] | None,
    fault: str = "",
    records: int = 0,
) -> Piece:
    """A piece of the lines from `offset` on; what was packed is known by its frame only."""
    if frame is None:
        return Piece(place, offset + at, length, events, fault, records)
    return Piece(place, offset, frame, events, fault, records)


def is_text(line: bytes) -> bool:
    """Whether it is UTF-8."""
    try:
        line.decode()
    except UnicodeDecodeError:
        return False
    return True


def mend(
    line: bytes, place: str, offset: int, at: int, frame: int | None, error: Exception
) -> Iterator[Piece]:
    """What can be had of a line that cannot be read as it is."""
    read = list(_records_in(line))
    if not read:
        fault = f"no record: {why_unreadable(error)}"[:200]
        yield piece_of(place, offset, at, len(line) + 1, frame, None, fault, 1)
        return
    done = 0
    for start, end, events in [*read, (len(line), len(line), None)]:
        if start > done:
            padding = not line[done:start].strip(b"\0")
            fault = "NUL bytes" if padding else "a part of a record"
            where = (place, offset, at + done, start - done, frame)
            yield piece_of(*where, None, fault, 0 if padding else 1)
        if events is not None:
            yield piece_of(place, offset, at + start, end - start, frame, events)
        done = end
    if len(read) > 1 and sum(end - start for start, end, _ in read) == len(line):
        fault = f"{len(read)} records on one line; they were read"
        yield piece_of(place, offset, at, len(line) + 1, frame, None, fault)


def _records_in(line: bytes) -> Iterator[tuple[int, int, list[AnyEvent]]]:
    """Start, end and events of the records on a line, where that is beyond doubt.

    A record begins as ours do, is whole, and is followed by the end of the line, another record,
    or NUL bytes: an object inside a damaged record is not taken for one.
    """
    if len(line) > _MENDABLE:
        return
    text = line.decode("latin-1")  # a character a byte: JSON's structure is ASCII
    starts = [match.start() for match in islice(_RECORD.finditer(line), _GLUED_MAX)]
    at = 0
    for start in starts:
        if start < at:
            continue
        try:
            _, end = _scan_json(text, start)
            if end != len(line) and end not in starts and line[end] != 0:
                continue
            record = line[start:end]
            if not is_text(record):
                continue
            events = decode_line(record)
        except (AdmissionError, ValueError, RecursionError):
            continue  # not whole: its bytes belong to the damage
        yield start, end, events
        at = end
