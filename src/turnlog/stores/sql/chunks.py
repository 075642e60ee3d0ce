"""Runs of `assistant/chunk` events in one row.

A run is taken apart into groups that share all bytes but one stretch in the middle, the value: the
msgpack of [time of the first, gaps, counts, lengths, packed], with the counts of chunks in the
groups and the lengths of the values. Packed are the words, the heads and tails of the groups:

    shared, 0, head 1, 0, tail 1, 0, head 2, …, 0, tail n, 0, values

where every head begins with `shared`. No byte is interpreted, so every chunk comes back as it was.
With the message that the chunks became as the dictionary, the values are one reference to it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate, islice, pairwise
from typing import Annotated, NamedTuple
from zlib import crc32

import msgspec

from turnlog import jsontext
from turnlog.events import EVENT_TYPES, AnyEvent, Event
from turnlog.stores.sql.checking import check_json
from turnlog.stores.sql.dictionary import V1
from turnlog.stores.sql.numbers import Numbers, pack_numbers, unpack_numbers
from turnlog.stores.sql.packing import (
    PACKED,
    PACKED_BY_MESSAGE,
    UNPACKED_MAX,
    UNREADABLE,
    BadRow,
    Coder,
    borrow,
    compressor,
    decompressor,
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
_LEVEL = 6  # finds more in the message, at no cost beside that of making it a dictionary
_WORTH = 7 / 8  # what leaning on a message must save: without it the row is read without another
_SURELY = 3  # a row of less than that part of its words helps: on their own they are longer
_AT_ONCE = 16  # chunks that are compared together
_FAR = 1 << 60  # milliseconds between two chunks: beyond it a gap may not fit into 64 bits

_Count = Annotated[int, msgspec.Meta(ge=1, le=MAX_RUN)]
_TYPE = b'"chunk":{"type":"'
_VALUE = re.compile(rb'"(?:text|argumentsDelta)":"((?:[^"\\]|\\.)*+)"', re.DOTALL)
_Told = tuple[int, Numbers, list[_Count], Numbers]
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(tuple[int, Numbers, list[_Count], Numbers, bytes]).decode


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
        and b"\0" not in event.raw  # as in no JSON
        and len(event.raw) <= MAX_CHUNK
        and event.surface_op is None
        and event.source_event_seqs is None
        and not event.ignorable
        and not event.extra
    )


def pack_chunks(chunks: Sequence[AnyEvent], compress: Coder) -> list[ChunkRow]:
    """Packable events in ascending order as rows."""
    return [_row(run, _parts(run), compress) for run in _runs(chunks)]


def repack(chunks: Sequence[AnyEvent], message: AnyEvent) -> list[ChunkRow]:
    """The packable events of a finished attempt as rows that lean on the message it became.

    Returns:
        The rows to put in the place of all rows that hold these chunks; where the message does
        not help they lean on nothing.
    """
    runs = list(_runs(chunks))
    if not runs:
        return []
    usual = borrow()
    try:
        if len(message.raw) > MAX_MESSAGE:
            return [_row(run, _parts(run), usual.compress) for run in runs]
        leaning = compressor(V1 + message.raw, _LEVEL)
        rows: list[ChunkRow] = []
        for run in runs:
            parts = _parts(run)
            row = _row(run, parts, leaning, message.seq, message.raw)
            if len(row.data) * _SURELY > len(parts[1]):
                plain = _row(run, parts, usual.compress)
                if len(row.data) >= len(plain.data) * _WORTH:
                    row = plain
            rows.append(row)
        return rows
    finally:
        give_back(usual)


def from_chunks(
    row: tuple[int, int, int | None, bytes, int], payload_of: Callable[[int], bytes]
) -> list[AnyEvent]:
    """The events of a `ChunkRow`.

    Args:
        row: it.
        payload_of: gives the payload of the event with a seq, or a LookupError.

    Raises:
        BadRow: it is not what was written, or the message that it leans on is missing.
    """
    first, last, message, data, total = row
    try:
        payload = b"" if message is None else payload_of(message)
    except LookupError:
        reason = f"chunks {first} to {last}: event {message}, which they became, is missing"
        raise BadRow(reason, first) from None
    usual = borrow()
    try:
        if run_sum(first, last, message, data, payload) != total:
            raise BadRow("its sum is wrong")
        time, gaps, counts, lengths, packed = _decode(data)
        if first < 0 or not counts or sum(counts) != last - first + 1 or last - first >= MAX_RUN:
            raise BadRow(f"it holds {sum(counts)} chunks")
        if message is None:
            words = unpack_bytes(packed, usual.decompress)
        else:
            words = unpack_bytes(packed, decompressor(V1 + payload), PACKED_BY_MESSAGE)
        return _events(first, (time, gaps, counts, lengths), words)
    except UNREADABLE as error:
        reason = str(error).partition("\n")[0]
        raise BadRow(f"chunks {first} to {last}: {reason}", first) from error
    finally:
        give_back(usual)


def _runs(chunks: Sequence[AnyEvent]) -> Iterator[Sequence[AnyEvent]]:
    """Stretches without a gap that are small enough for one row."""
    if not chunks:
        return
    times = [event.time for event in chunks]
    if (
        chunks[-1].seq - chunks[0].seq == len(chunks) - 1 < MAX_RUN
        and max(times) - min(times) < _FAR
        and sum([len(event.raw) for event in chunks]) <= MAX_RUN_BYTES
    ):
        yield chunks  # as it usually is
        return
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
    yield chunks[start:]


def _parts(run: Sequence[AnyEvent]) -> tuple[_Told, bytes]:
    raws = [event.raw for event in run]
    head, tail = _ends(raws[0])
    heads, tails, counts = [head], [tail], [0]
    values: list[bytes] = []
    for start in range(0, len(raws), _AT_ONCE):
        some = raws[start : start + _AT_ONCE]
        found = _values(some, head, tail)
        if found is not None:
            counts[-1] += len(found)
            values += found
            continue
        for raw in some:
            both = len(head) + len(tail)
            if len(raw) < both or not raw.startswith(head) or not raw.endswith(tail):
                head, tail = _ends(raw)
                both = len(head) + len(tail)
                heads.append(head)
                tails.append(tail)
                counts.append(0)
            counts[-1] += 1
            values.append(raw[len(head) : len(raw) - len(tail)])
    shared = _shared(heads)
    words: list[bytes] = [shared]
    for head, tail in zip(heads, tails, strict=True):
        words += (head[len(shared) :], tail)
    words.append(b"".join(values))
    gaps = pack_numbers([b.time - a.time for a, b in pairwise(run)])
    lengths = pack_numbers(list(map(len, values)))
    return (run[0].time, gaps, counts, lengths), b"\0".join(words)


def _values(raws: Sequence[bytes], head: bytes, tail: bytes) -> list[bytes] | None:
    """What each has between the two; None unless all begin and end so."""
    first, both = len(head), len(head) + len(tail)
    if min(map(len, raws)) < both:
        return None
    values = [raw[first : len(raw) - len(tail)] for raw in raws]
    whole = head + (tail + head).join(values) + tail
    return values if whole == b"".join(raws) else None


def _shared(heads: list[bytes]) -> bytes:
    """What all heads begin with, as far as the type of the chunk."""
    before, found, _ = heads[0].partition(_TYPE)
    shared = before + found
    return shared if found and all(head.startswith(shared) for head in heads) else b""


def _ends(raw: bytes) -> tuple[bytes, bytes]:
    """What a delta's bytes have before and after its text; all of any other chunk, and nothing."""
    found = _VALUE.search(raw)
    return (raw, b"") if found is None else (raw[: found.start(1)], raw[found.end(1) :])


def _row(
    run: Sequence[AnyEvent],
    parts: tuple[_Told, bytes],
    compress: Coder,
    message: int | None = None,
    payload: bytes = b"",
) -> ChunkRow:
    first, last = run[0].seq, run[-1].seq
    told, words = parts
    packed = pack_bytes(words, compress, PACKED if message is None else PACKED_BY_MESSAGE)
    data = _encode((*told, packed))
    return ChunkRow(first, last, message, data, run_sum(first, last, message, data, payload))


def run_sum(first: int, last: int, message: int | None, data: bytes, payload: bytes) -> int:
    """What `ChunkRow.sum` must be; `payload` is the message's, or nothing."""
    return crc32(payload, crc32(data, crc32(f"{first} {last} {message}".encode())))


def _events(first: int, told: _Told, words: bytes) -> list[AnyEvent]:
    time, gaps, counts, lengths = told
    count = sum(counts)
    times = list(accumulate(unpack_numbers(gaps, count - 1), initial=time))
    if min(times) < jsontext.INT_MIN or max(times) > jsontext.INT_MAX:
        raise BadRow("times that are no epoch milliseconds")
    shared, *ends = words.split(b"\0", 2 * len(counts) + 1)
    sizes = unpack_numbers(lengths, count)
    if len(ends) != 2 * len(counts) + 1 or min(sizes) < 0 or sum(sizes) != len(ends[-1]):
        raise BadRow(f"its words are not those of {count} chunks")
    text, following = ends.pop(), iter(sizes)
    raws: list[bytes] = []
    at, room = 0, UNPACKED_MAX - len(text)
    for i, members in enumerate(counts):
        head, tail = shared + ends[2 * i], ends[2 * i + 1]
        room -= (len(head) + len(tail)) * members
        if room < 0:
            raise BadRow(f"it unpacks to more than {UNPACKED_MAX} bytes")
        for size in islice(following, members):
            raws.append(head + text[at : at + size] + tail)
            at += size
    check_json(raws)
    kind = EVENT_TYPES.get(CHUNK)
    reading = jsontext.decode if kind is None else kind.read
    return [
        Event(CHUNK, seq, when, raw, None, None, False, None, reading)
        for seq, (when, raw) in enumerate(zip(times, raws, strict=True), first)
    ]
