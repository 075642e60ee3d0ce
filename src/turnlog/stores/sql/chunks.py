"""Runs of `assistant/chunk` events in one row.

What is packed is the msgpack of [time of the first, gaps, groups, text]: a group [head, tail,
lengths] is that many chunks whose bytes begin with `head` and end with `tail`; what each has
between the two follows on each other in `text`. No byte is interpreted, so every chunk comes back
as it was. With the message that the chunks became as the dictionary, `text` is one reference to it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate, pairwise
from typing import NamedTuple
from zlib import crc32

import msgspec
import zstandard

from turnlog import jsontext
from turnlog.events import EVENT_TYPES, AnyEvent, Event
from turnlog.stores.sql.checking import check_json
from turnlog.stores.sql.dictionary import V1
from turnlog.stores.sql.packing import (
    PACKED_BY_MESSAGE,
    UNPACKED_MAX,
    BadRow,
    Zstd,
    borrow,
    give_back,
    pack_bytes,
    unpack_bytes,
)

CHUNK = "assistant/chunk"
MAX_RUN = 4096
"""Chunks in one row."""
MAX_RUN_BYTES = 4 << 20
"""The payloads of one row, before they are packed."""
MAX_CHUNK = 1 << 20
"""A longer chunk has a row of its own among the events."""
MAX_MESSAGE = 4 << 20
"""A longer message is no dictionary: every reading of its chunks would have to load it."""
_FAR = 1 << 60  # milliseconds between two chunks: beyond it a gap may not fit into 64 bits

_VALUE = re.compile(rb'"(?:text|argumentsDelta)":"((?:[^"\\]|\\.)*+)"', re.DOTALL)
_Packed = tuple[int, list[int], list[tuple[bytes, bytes, list[int]]], bytes]
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(_Packed).decode


class ChunkRow(NamedTuple):
    """A packed run of the chunk events `first` … `last`, none missing.

    `message` is the seq of the event whose payload is needed to unpack it, or None. `sum` is of
    the other columns, and of that payload.
    """

    first: int
    last: int
    message: int | None
    data: bytes
    sum: int


def is_packable(event: AnyEvent) -> bool:
    """Whether the event goes into a `ChunkRow`: a chunk of moderate size with a bare envelope."""
    return (
        event.type == CHUNK
        and len(event.raw) <= MAX_CHUNK
        and event.surface_op is None
        and event.source_event_seqs is None
        and not event.ignorable
        and not event.extra
    )


def pack_chunks(chunks: Sequence[AnyEvent], zstd: Zstd) -> list[ChunkRow]:
    """Packable events in ascending order as rows."""
    return [_row(run, _packed(run), None, b"", zstd) for run in _runs(chunks)]


def repack(chunks: Sequence[AnyEvent], message: AnyEvent) -> list[ChunkRow] | None:
    """The chunk events of a finished attempt as rows that lean on the message it became.

    Chunks that `to_rows` puts among the events are passed over: they stay where they are.

    Returns:
        The rows to put in the place of all rows that hold these chunks; where the message does
        not help they lean on nothing. None when none of the chunks is packable.
    """
    runs = list(_runs([event for event in chunks if is_packable(event)]))
    if not runs:
        return None
    usual = borrow()
    try:
        if len(message.raw) > MAX_MESSAGE:
            return [_row(run, _packed(run), None, b"", usual) for run in runs]
        leaning = Zstd(V1 + message.raw)
        rows: list[ChunkRow] = []
        for run in runs:
            packed = _packed(run)
            plain = _row(run, packed, None, b"", usual)
            row = _row(run, packed, message.seq, message.raw, leaning)
            rows.append(row if len(row.data) < len(plain.data) else plain)
        return rows
    finally:
        give_back(usual)


def from_chunks(
    row: tuple[int, int, int | None, bytes, int], payload_of: Callable[[int], bytes]
) -> list[AnyEvent]:
    """The events of a `ChunkRow`; `payload_of` gives the payload of the message it leans on.

    Raises:
        BadRow: it is not what was written. What `payload_of` raises passes through.
    """
    first, last, message, data, total = row
    payload = b"" if message is None else payload_of(message)
    usual = borrow()
    try:
        if _sum(first, last, message, data, payload) != total:
            raise BadRow("its sum is wrong")
        if message is None:
            packed = unpack_bytes(data, usual)
        else:
            packed = unpack_bytes(data, Zstd(V1 + payload), PACKED_BY_MESSAGE)
        return _events(first, last, _decode(packed))
    except (ValueError, TypeError, OverflowError, zstandard.ZstdError) as error:
        reason = str(error).partition("\n")[0]
        raise BadRow(f"chunks {first} to {last}: {reason}", first) from error
    finally:
        give_back(usual)


def _runs(chunks: Sequence[AnyEvent]) -> Iterator[Sequence[AnyEvent]]:
    """Stretches without a gap that are small enough for one row."""
    start = size = 0
    for i, event in enumerate(chunks):
        if i > start:
            before = chunks[i - 1]
            if (
                event.seq != before.seq + 1
                or i - start >= MAX_RUN
                or size + len(event.raw) > MAX_RUN_BYTES
                or not -_FAR < event.time - before.time < _FAR
            ):
                yield chunks[start:i]
                start, size = i, 0
        size += len(event.raw)
    if chunks:
        yield chunks[start:]


def _packed(run: Sequence[AnyEvent]) -> bytes:
    gaps = [b.time - a.time for a, b in pairwise(run)]
    groups: list[tuple[bytes, bytes, list[int]]] = []
    values: list[bytes] = []
    lengths: list[int] = []
    head, tail, shared = b"", b"", 0
    for event in run:
        raw = event.raw
        size = len(raw) - shared
        if not groups or size < 0 or not raw.startswith(head) or not raw.endswith(tail):
            head, tail = _ends(raw)
            shared, lengths = len(head) + len(tail), []
            groups.append((head, tail, lengths))
            size = len(raw) - shared
        lengths.append(size)
        values.append(raw[len(head) : len(head) + size])
    return _encode((run[0].time, gaps, groups, b"".join(values)))


def _ends(raw: bytes) -> tuple[bytes, bytes]:
    """What a delta's bytes have before and after its text; all of any other chunk, and nothing."""
    found = _VALUE.search(raw)
    return (raw, b"") if found is None else (raw[: found.start(1)], raw[found.end(1) :])


def _row(
    run: Sequence[AnyEvent], packed: bytes, message: int | None, payload: bytes, zstd: Zstd
) -> ChunkRow:
    first, last = run[0].seq, run[-1].seq
    if message is None:
        data = pack_bytes(packed, zstd)
    else:
        data = pack_bytes(packed, zstd, PACKED_BY_MESSAGE)
    return ChunkRow(first, last, message, data, _sum(first, last, message, data, payload))


def _sum(first: int, last: int, message: int | None, data: bytes, payload: bytes) -> int:
    return crc32(payload, crc32(data, crc32(f"{first} {last} {message}".encode())))


def _events(first: int, last: int, packed: _Packed) -> list[AnyEvent]:
    time, gaps, groups, text = packed
    times = list(accumulate(gaps, initial=time))
    if len(times) != last - first + 1 or first < 0:
        raise BadRow(f"{len(times)} times for the chunks {first} to {last}")
    if min(times) < jsontext.INT_MIN or max(times) > jsontext.INT_MAX:
        raise BadRow("times that are no epoch milliseconds")
    raws: list[bytes] = []
    at, size = 0, 0
    for head, tail, lengths in groups:
        if min(lengths, default=0) < 0:
            raise BadRow("a value of less than no bytes")
        size += (len(head) + len(tail)) * len(lengths) + sum(lengths)
        if size > UNPACKED_MAX:
            raise BadRow(f"it unpacks to {size} bytes, expected at most {UNPACKED_MAX}")
        for length in lengths:
            raws.append(head + text[at : at + length] + tail)
            at += length
    if at != len(text) or len(raws) != len(times):
        raise BadRow(f"{len(raws)} values of {at} bytes, expected {len(times)} of {len(text)}")
    check_json(raws)
    kind = EVENT_TYPES.get(CHUNK)
    reading = jsontext.decode if kind is None else kind.read
    return [
        Event(CHUNK, seq, when, raw, None, None, False, None, reading)
        for seq, when, raw in zip(range(first, last + 1), times, raws, strict=True)
    ]
