"""Events as rows, and back: the form that all SQL stores share.

A row of `events` is one event. Its `data` and `extra` are stored bytes (see `packing`); its `type`
is the event's, or a JSON string in ASCII when a column of text might not keep it; `surface_op` is
"append" or the JSON of a replace, `source_event_seqs` the JSON of `codec.pack_seqs`. Chunk events
share rows, see `chunks`. Every row has a `sum`, the CRC-32 of all its other columns.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from struct import Struct
from typing import Any, NamedTuple
from zlib import crc32

import msgspec

from turnlog import jsontext
from turnlog.codec import pack_seqs, unpack_seqs
from turnlog.events import CORE_TYPES, EVENT_TYPES, AnyEvent, Event
from turnlog.jsontext import is_object
from turnlog.log import make_event
from turnlog.stores.sql.blobs import LONG, pack_long, unpack_long
from turnlog.stores.sql.checking import check_json
from turnlog.stores.sql.chunks import CHUNK, ChunkRow, is_packable, pack_chunks
from turnlog.stores.sql.packing import (
    CUT,
    JSON,
    MAGIC,
    PACKED,
    UNREADABLE,
    WIDE,
    BadRow,
    Coder,
    borrow,
    give_back,
    pack,
    unpack_bytes,
)


class EventRow(NamedTuple):
    """One event; `ignorable` is 1 or None."""

    seq: int
    type: str
    time: int
    data: bytes
    surface_op: str | None
    source_event_seqs: str | None
    ignorable: int | None
    extra: bytes | None
    sum: int


class Rows(NamedTuple):
    """The rows of a batch of events; `blobs` are by their hash."""

    events: list[EventRow]
    chunks: list[ChunkRow]
    blobs: dict[bytes, bytes]


def to_rows(events: Sequence[AnyEvent]) -> Rows:
    """Events in ascending order of seq as rows."""
    rows = Rows([], [], {})
    chunks: list[AnyEvent] = []
    zstd = borrow()
    try:
        for event in events:
            if event.type == CHUNK and is_packable(event):
                chunks.append(event)
            else:
                rows.events.append(_row(event, rows.blobs, zstd.compress))
        rows.chunks.extend(pack_chunks(chunks, zstd.compress))
    finally:
        give_back(zstd)
    return rows


def _row(event: AnyEvent, blobs: dict[bytes, bytes], compress: Coder) -> EventRow:
    name = event.type
    if name not in CORE_TYPES:  # also one that is registered: its name may have anything in it
        name = _stored_name(name)
    op: Any = event.surface_op
    cited, extra = None, None
    if op is not None and op != "append":
        op = jsontext.encode(op).decode()
    if event.source_event_seqs is not None:
        cited = jsontext.encode(pack_seqs(event.source_event_seqs)).decode()
    if event.extra:
        extra = _stored(jsontext.encode(event.extra), blobs, compress)
    data = _stored(event.raw, blobs, compress)
    ignorable = 1 if event.ignorable else None
    total = row_sum(event.seq, name, event.time, data, op, cited, ignorable, extra)
    return EventRow(event.seq, name, event.time, data, op, cited, ignorable, extra, total)


def _stored(raw: bytes, blobs: dict[bytes, bytes], compress: Coder) -> bytes:
    return pack(raw, compress) if len(raw) <= LONG else pack_long(raw, blobs, compress)


@lru_cache(256)  # there are few kinds of events
def _stored_name(name: str) -> str:
    """A type as text of any database keeps it."""
    plain = name.isascii() and name.isprintable() and not name.startswith('"')
    return name if plain else json.dumps(name)


_numbers = Struct("<qq").pack


def row_sum(
    seq: int,
    name: str,
    time: int,
    data: bytes,
    op: str | None,
    cited: str | None,
    ignorable: int | None,
    extra: bytes | None,
) -> int:
    """What `EventRow.sum` must be, of its other columns in their order."""
    usual = _USUAL.get((name, op)) if cited is None and ignorable is None else None
    start = _start(name, op, cited, ignorable) if usual is None else usual[0]
    total = crc32(data, crc32(_numbers(seq, time), start))
    return total if extra is None else crc32(extra, total)


def _start(
    name: str, op: str | None, cited: str | None = None, ignorable: int | None = None
) -> int:
    return crc32(f"{name} {op} {cited} {ignorable}".encode())


# Of the usual rows: what their sum starts with, and how their payload is read.
_USUAL = {
    (name, op): (_start(name, op), kind.read)
    for name, kind in CORE_TYPES.items()
    for op in (None, "append")
}
_cited = msgspec.json.Decoder(list[int | list[int]]).decode
_AT_ONCE = 128  # rows that are checked together; more of them would leave the processor's cache


def from_row(row: tuple[Any, ...], blob: Callable[[bytes], bytes]) -> AnyEvent:
    """The event of an `EventRow`; `blob` gives the stored bytes of a hash, or a LookupError.

    Raises:
        BadRow: the row is not what was written.
    """
    zstd = borrow()
    try:
        event = _event(row, blob, zstd.decompress)
        check_json((event.raw,))
    except UNREADABLE as error:
        seq = row[0] if row and type(row[0]) is int else None
        reason = str(error).partition("\n")[0]
        raise BadRow(f"event {seq}: {reason}", seq) from error
    finally:
        give_back(zstd)
    return event


def from_rows(rows: Iterable[tuple[Any, ...]], blob: Callable[[bytes], bytes]) -> list[AnyEvent]:
    """The events of many rows: as `from_row` of each, at little more than half the cost.

    Raises:
        BadRow: of the first row that is not what was written; `BadRow.seq` says which.
    """
    rows = list(rows)
    events: list[AnyEvent] = []
    zstd = borrow()
    try:
        for start in range(0, len(rows), _AT_ONCE):
            found = _usual_events(rows[start : start + _AT_ONCE], blob, zstd.decompress)
            check_json([event.raw for event in found])
            events += found
    except (*UNREADABLE, IndexError):
        return [from_row(row, blob) for row in rows]
    finally:
        give_back(zstd)
    return events


def _usual_events(
    rows: list[tuple[Any, ...]], blob: Callable[[bytes], bytes], decompress: Coder
) -> list[AnyEvent]:
    """As `_event` of each, which the usual rows need not call."""
    events: list[AnyEvent] = []
    usual, packed = _USUAL, PACKED[0]
    for row in rows:
        seq, name, time, data, op, cited, ignorable, extra, total = row
        found = usual.get((name, op))
        form = data[0]
        if (
            found is None
            or ignorable is not None
            or extra is not None
            or form < packed
            or (form == packed and data[1] >= WIDE)
            or packed < form < JSON
            or seq < 0
        ):
            events.append(_event(row, blob, decompress))
            continue
        start, read = found
        if cited is not None:
            start = _start(name, op, cited)
        if crc32(data, crc32(_numbers(seq, time), start)) != total:
            raise BadRow("its sum is wrong")
        raw = decompress(MAGIC + data[1:]) if form == packed else data
        seqs = None
        if cited is not None:
            seqs = unpack_seqs(_cited(cited), seq)
            if type(seqs) is not range:
                if len(seqs) > 1:
                    events.append(make_event(name, seq, time, raw, op, seqs, reading=read))
                    continue
                seqs = tuple(seqs)
        events.append(Event(name, seq, time, raw, op, seqs, False, None, read))
    return events


def _event(row: tuple[Any, ...], blob: Callable[[bytes], bytes], decompress: Coder) -> AnyEvent:
    seq, name, time, data, op, cited, ignorable, extra, total = row
    if row_sum(seq, name, time, data, op, cited, ignorable, extra) != total:
        raise BadRow("its sum is wrong")
    if type(seq) is not int or type(time) is not int or type(name) is not str or seq < 0:
        raise BadRow("its columns are of other types than expected")
    raw = _payload(data, blob, decompress)
    kind = EVENT_TYPES.get(name)
    if kind is None and name.startswith('"'):
        name = json.loads(name)
        kind = EVENT_TYPES.get(name)
    if not name:
        raise BadRow("expected a type, it is empty")
    reading = jsontext.decode if kind is None else kind.read
    if ignorable is not None and ignorable != 1:
        raise BadRow(f"expected ignorable to be 1 or nothing, got {ignorable!r}")
    if (op is None or op == "append") and cited is None and extra is None:
        return Event(name, seq, time, raw, op, None, ignorable == 1, None, reading)
    if op is not None and op != "append":
        op = jsontext.decode(op.encode())
    if cited is not None:
        cited = unpack_seqs(_cited(cited), seq)
    if extra is not None:
        extra = _extra(_payload(extra, blob, decompress))
    return make_event(
        name, seq, time, raw, op, cited, ignorable=ignorable == 1, extra=extra, reading=reading
    )


def _payload(stored: bytes, blob: Callable[[bytes], bytes], decompress: Coder) -> bytes:
    if stored[:1] >= _FIRST_OF_JSON:
        return stored
    if stored.startswith(CUT):
        return unpack_long(stored, blob, decompress)
    return unpack_bytes(stored, decompress)


_FIRST_OF_JSON = bytes([JSON])
_ENVELOPE = frozenset({"type", "seq", "time", "data", "sourceEventSeqs", "surfaceOp", "ignorable"})


def _extra(raw: bytes) -> dict[str, Any]:
    check_json((raw,))
    extra = jsontext.decode(raw)
    if not is_object(extra) or not _ENVELOPE.isdisjoint(extra):
        raise BadRow("expected envelope keys of others in extra")
    return extra
