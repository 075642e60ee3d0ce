"""What is stored as rows is what is read: every field, every byte, and never something else."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from turnlog import Session
from turnlog.events import AnyEvent, Event, Replace
from turnlog.log import make_event
from turnlog.stores.sql import (
    BadRow,
    EventRow,
    Rows,
    from_chunks,
    from_row,
    from_rows,
    repack,
    to_rows,
)
from turnlog.stores.sql.chunks import ChunkRow
from turnlog.stores.sql.numbers import pack_numbers, unpack_numbers
from turnlog.testing.strategies import JSON, TEXTS, histories, mangled


def fields(event: AnyEvent) -> list[Any]:
    """All that an event is, its payload as bytes."""
    cited = event.source_event_seqs
    return [
        event.type,
        event.seq,
        event.time,
        event.raw,
        event.surface_op,
        None if cited is None else list(cited),
        event.ignorable,
        event.extra,
        event.data,
    ]


def no_message(seq: int) -> bytes:
    """No message is there."""
    raise LookupError(seq)


def read(rows: Rows) -> list[list[Any]]:
    """The fields of the events of rows, in order."""
    events = from_rows(rows.events, rows.blobs.__getitem__)
    for row in rows.chunks:
        events += from_chunks(row, no_message)
    return [fields(event) for event in sorted(events, key=lambda event: event.seq)]


def shown(events: Sequence[AnyEvent]) -> list[list[Any]]:
    """The fields of events."""
    return [fields(event) for event in events]


# Strings that are blobs, cut at their quotes or not: with escapes at their ends, and inside.
LONG = st.sampled_from(
    ["a" * 33_000, '"' * 17_000, "\\" * 33_000, 'b\\"' * 12_000, "\u00e9" * 20_000]
)


@st.composite
def spellings(draw: st.DrawFn, values: st.SearchStrategy[Any] = JSON) -> bytes:
    """JSON as anyone may write it: with blanks, escaped or not."""
    value = draw(values)
    indent = draw(st.sampled_from([None, 1, "\t"]))
    separators = draw(st.sampled_from([(",", ":"), (" , ", " : ")]))
    ascii_only = draw(st.booleans())
    text = json.dumps(value, indent=indent, separators=separators, ensure_ascii=ascii_only)
    try:
        raw = text.encode()
    except UnicodeEncodeError:
        raw = json.dumps(value).encode()
    return draw(st.sampled_from([b"", b" ", b"\r\n"])) + raw


SEQS = st.integers(0, 2**36 - 1)
TIMES = st.integers(-(2**63), 2**63 - 1)
TYPES = st.sampled_from(["user/message", "assistant/chunk", "turn/start", "acme/x", '"', "a\0"])
OPS = st.none() | st.just("append") | st.builds(Replace, st.integers(0, 99), st.integers(0, 99))
KEYS = st.sampled_from(["cacheHint", "", "\ud800"])


@st.composite
def events(draw: st.DrawFn) -> AnyEvent:
    """An event of any fields, legal in no log."""
    payload = JSON | st.lists(LONG | TEXTS, max_size=4)
    return make_event(
        draw(TYPES | TEXTS.filter(bool)),
        draw(SEQS),
        draw(TIMES),
        draw(spellings(payload)),
        draw(OPS),
        draw(st.none() | st.lists(st.integers(0, 50), unique=True)),
        ignorable=draw(st.booleans()),
        extra=draw(st.none() | st.dictionaries(KEYS, JSON, min_size=1, max_size=2)),
    )


@st.composite
def runs(draw: st.DrawFn) -> list[AnyEvent]:
    """Chunks that follow on each other or do not, alike or not, at any time."""
    heads = st.sampled_from(
        [
            '{"turn":1,"step":1,"chunk":{"type":"text-delta","index":0,"text":%s}}',
            '{"turn":1,"step":1,"chunk":{"type":"text-delta","index":0,"text":%s},"attempt":2}',
            '{"turn":9,"chunk":{"type":"tool-call-delta","argumentsDelta":%s,"index":1},"step":1}',
            '{"turn":1,"step":1,"chunk":{"type":"finish","reason":{"kind":"stop","why":%s}}}',
            "%s",
        ]
    )
    chunks: list[AnyEvent] = []
    seq, time = draw(SEQS), draw(TIMES)
    for _ in range(draw(st.integers(1, 12))):
        raw = draw(heads) % draw(spellings(TEXTS)).decode()
        chunks.append(make_event("assistant/chunk", seq, time, raw.encode()))
        seq += draw(st.sampled_from([1, 1, 1, 2]))
        time = draw(TIMES | st.integers(0, 50).map(lambda gap, t=time: min(t + gap, 2**63 - 1)))
    return chunks


@given(histories() | mangled())
def test_sessions(session: Session) -> None:
    """The events of any session come back equal, payloads verbatim."""
    assert read(to_rows(session.events)) == shown(session.events)


@given(st.lists(events(), max_size=3, unique_by=lambda event: event.seq))
def test_any_event(found: list[AnyEvent]) -> None:
    """An event of any fields and any spelling comes back equal, alone and among others."""
    rows = to_rows(found)
    assert read(rows) == shown(sorted(found, key=lambda event: event.seq))
    alone = [from_row(row, rows.blobs.__getitem__) for row in rows.events]
    assert shown(alone) == shown(from_rows(rows.events, rows.blobs.__getitem__))


@given(runs())
def test_any_run(chunks: list[AnyEvent]) -> None:
    """Chunks come back equal however unlike each other they are."""
    rows = to_rows(chunks)
    assert read(rows) == shown(chunks)
    assert not rows.events


@given(runs(), spellings())
def test_leaning_runs(chunks: list[AnyEvent], payload: bytes) -> None:
    """Chunks that lean on a message come back equal, whatever the message says."""
    said = b'{"said":[%s,%s]}' % (payload, b",".join(event.raw for event in chunks))
    message: AnyEvent = Event("assistant/message", chunks[-1].seq + 1, 0, said, "append")
    rows = repack(chunks, message)
    found = [event for row in rows for event in from_chunks(row, {message.seq: said}.__getitem__)]
    assert shown(found) == shown(chunks)


NUMBERS = st.integers(0, 60) | st.integers(-(2**62), 2**62)


@given(st.lists(NUMBERS, max_size=40))
def test_numbers(values: list[int]) -> None:
    """Numbers of any size come back in order."""
    assert unpack_numbers(pack_numbers(values), len(values)) == values


@given(st.integers(), st.integers(), st.lists(st.integers(), max_size=3), st.binary(max_size=9))
def test_hostile_numbers(low: int, base: int, beyond: list[int], digits: bytes) -> None:
    """What no one packed is refused, or is as many numbers as were asked for."""
    try:
        assert len(unpack_numbers((low, base, beyond, digits), 3)) == 3
    except ValueError:
        return


# -- a byte that is not what it was --------------------------------------------------------------


@st.composite
def flipped(draw: st.DrawFn, row: tuple[Any, ...]) -> tuple[Any, ...]:
    """The row with one byte of one column changed."""
    at = draw(st.sampled_from([i for i, value in enumerate(row) if value not in (None, b"")]))
    return (*row[:at], draw(_other(row[at])), *row[at + 1 :])


@st.composite
def _other(draw: st.DrawFn, value: Any) -> Any:
    if isinstance(value, int):
        return value ^ draw(st.integers(1, 255)) << draw(st.sampled_from(range(0, 56, 8)))
    raw = bytearray(value.encode() if isinstance(value, str) else value)
    raw[draw(st.integers(0, len(raw) - 1))] ^= draw(st.integers(1, 255))
    return raw.decode(errors="replace") if isinstance(value, str) else bytes(raw)


@given(st.data(), events())
def test_a_flipped_byte_of_an_event(data: st.DataObject, event: AnyEvent) -> None:
    """A row of which one byte is another is refused, alone and among others, with its seq."""
    rows = to_rows([event])
    assume(rows.events)
    row = EventRow(*data.draw(flipped(rows.events[0])))
    with pytest.raises(BadRow) as alone:
        from_row(row, rows.blobs.__getitem__)
    with pytest.raises(BadRow) as among:
        from_rows([*rows.events, row], rows.blobs.__getitem__)
    assert alone.value.seq == among.value.seq == row.seq
    assert str(alone.value) == str(among.value)
    assert "\n" not in str(alone.value)


@given(st.data(), runs())
def test_a_flipped_byte_of_a_run(data: st.DataObject, chunks: list[AnyEvent]) -> None:
    """A run of which one byte is another is refused."""
    row = ChunkRow(*data.draw(flipped(to_rows(chunks).chunks[0])))
    with pytest.raises(BadRow):
        from_chunks(row, no_message)


@given(st.data(), runs())
def test_a_flipped_byte_of_the_message(data: st.DataObject, chunks: list[AnyEvent]) -> None:
    """A run whose message is not what it was is refused."""
    said = b"[%s]" % b",".join(event.raw for event in chunks)
    rows = repack(chunks, Event("assistant/message", chunks[-1].seq + 1, 0, said, "append"))
    other = data.draw(_other(said))
    for row in rows:
        if row.message is not None:
            with pytest.raises(BadRow, match="sum"):
                from_chunks(row, lambda _: other)


@given(st.data(), st.lists(LONG, min_size=1, max_size=2).map(json.dumps))
def test_a_flipped_byte_of_a_blob(data: st.DataObject, payload: str) -> None:
    """A payload of which a blob is not what it was is refused, or is the same."""
    event: AnyEvent = Event("acme/x", 5, 0, payload.encode())
    rows = to_rows([event])
    key = data.draw(st.sampled_from(sorted(rows.blobs)))
    blobs = {**rows.blobs, key: data.draw(_other(rows.blobs[key]))}
    try:
        found = from_row(rows.events[0], blobs.__getitem__)
    except BadRow:
        return
    assert fields(found) == fields(event)
