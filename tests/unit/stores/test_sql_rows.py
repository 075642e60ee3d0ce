"""Rows of SQL stores: how small they are, and what is refused when they are read."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
from random import Random
from typing import Any

import msgspec
import pytest
import zstandard

from turnlog import Session, jsontext
from turnlog.content import BlockEnd, BlockStart, Finish, FinishReason, Text, TextDelta
from turnlog.events import AnyEvent, Replace, register_event_type, unregister_event_type
from turnlog.log import make_event
from turnlog.stores.sql import (
    BadRow,
    ChunkRow,
    EventRow,
    from_chunks,
    from_row,
    from_rows,
    is_packable,
    repack,
    to_rows,
)
from turnlog.stores.sql.blobs import LONG, hash_of
from turnlog.stores.sql.chunks import MAX_CHUNK, MAX_MESSAGE, MAX_RUN, run_sum
from turnlog.stores.sql.dictionary import V1
from turnlog.stores.sql.packing import CUT, PACKED, UNPACKED_MAX
from turnlog.stores.sql.rows import row_sum
from turnlog.testing.builders import START, Author

Blobs = dict[bytes, bytes]
NO_BLOBS: Blobs = {}
DELTA = b'{"turn":1,"step":1,"chunk":{"type":"text-delta","index":0,"text":"%s"}}'


def event(raw: bytes, seq: int = 0, type: str = "acme/x", time: int = START) -> AnyEvent:
    """An event with this payload."""
    return make_event(type, seq, time, raw)


def chunk(raw: bytes, seq: int, time: int = START) -> AnyEvent:
    """A chunk with this payload."""
    return event(raw, seq, "assistant/chunk", time)


def deltas(count: int, first: int = 0) -> list[AnyEvent]:
    """Chunks that follow on each other."""
    return [chunk(DELTA % b"word ", first + i, START + 20 * i) for i in range(count)]


def row_of(data: bytes, **columns: Any) -> EventRow:
    """A row with this data, and a sum that is right."""
    fields: dict[str, Any] = dict.fromkeys(EventRow._fields) | {
        "seq": 7,
        "type": "acme/x",
        "time": START,
        "data": data,
        **columns,
    }
    del fields["sum"]
    return EventRow(**fields, sum=row_sum(*fields.values()))


def refusal(row: EventRow, blobs: Blobs = NO_BLOBS) -> str:
    """Why the row is refused, alone and among others."""
    with pytest.raises(BadRow) as alone:
        from_row(row, blobs.__getitem__)
    with pytest.raises(BadRow) as among:
        from_rows([row_of(b"1", seq=6), row], blobs.__getitem__)
    assert alone.value.seq == among.value.seq == row.seq
    assert str(alone.value) == str(among.value)
    return str(alone.value)


def frame(raw: bytes) -> bytes:
    """A payload as a frame that leans on the dictionary, under its prefix."""
    words = zstandard.ZstdCompressionDict(V1, dict_type=zstandard.DICT_TYPE_FULLDICT)
    packer = zstandard.ZstdCompressor(dict_data=words, write_dict_id=False)
    return PACKED + packer.compress(raw)[4:]


# -- what is kept --------------------------------------------------------------------------------


def test_the_dictionary_stays() -> None:
    """The dictionary is what it was when the first rows were written with it."""
    assert (
        sha256(V1).hexdigest() == "e9416a2936ef047c40f287780e342a8deb44134eec4d274e6c7fdb3a951efaa1"
    )


def test_rows_of_the_first_version_are_read() -> None:
    """Rows that were written by the first version are read for ever."""
    packed = bytes.fromhex(
        "01207365010023420669a441b98f3b1294580bdbe6aed79ff648dbd81e7b02f83c0b05fc950c19761ce8a0"
        "1ef4f64b25201f"
    )
    assert from_row(row_of(packed), NO_BLOBS.__getitem__).raw == FIRST_MESSAGE
    chunks = bytes.fromhex(
        "95cf0000018bcfe5680094140190c400910394020590c40146c412022054650000000370007f1c454ebae5a90a"
    )
    row = ChunkRow(3, 5, 6, chunks, run_sum(3, 5, 6, chunks, FIRST_MESSAGE))
    assert [e.raw for e in from_chunks(row, {6: FIRST_MESSAGE}.__getitem__)] == [
        DELTA % said for said in (b"Ho", b"w do I", b" lea")
    ]


FIRST_MESSAGE = (
    b'{"id":"019abc","role":"user","content":[{"type":"text","text":"How do I learn to cook?"}],'
    b'"source":{"kind":"user"}}'
)


def test_an_envelope_comes_back() -> None:
    """Each field of an envelope has its column, and comes back."""
    given = make_event(
        "user/message",
        9,
        -5,
        b"{}",
        Replace(3, 4),
        [1, 2, 3, 7],
        ignorable=True,
        extra={"hint": [1.5, "\ud800"]},
    )
    (row,) = to_rows([given]).events
    assert row[:7] == (
        9,
        "user/message",
        -5,
        b"{}",
        '{"op":"replace","start":3,"end":4}',
        "[[1,3],7]",
        1,
    )
    found = from_row(row, NO_BLOBS.__getitem__)
    assert found == given
    assert found.extra == {"hint": [1.5, "\ud800"]}
    assert found.source_event_seqs == (1, 2, 3, 7)


class Noted(msgspec.Struct):
    """A payload of an application's."""

    n: int


@pytest.mark.parametrize("registered", [False, True])
@pytest.mark.parametrize("name", ["a/\0b", "a/\ud83d", '"a/"', "a/größe", " a/x\ny\n", "acme/x "])
def test_types_that_text_columns_would_not_keep(name: str, *, registered: bool) -> None:
    """A type of any characters is stored as printable ASCII, also one that is registered."""
    if registered:
        register_event_type(name, Noted)
    try:
        (row,) = to_rows([event(b'{"n":1}', type=name)]).events
        assert row.type.isascii()
        assert row.type.isprintable()
        found = from_row(row, NO_BLOBS.__getitem__)
        assert found.type == name
        assert found.data == (Noted(1) if registered else {"n": 1})
        assert from_rows([row, row], NO_BLOBS.__getitem__) == [found, found]
    finally:
        unregister_event_type(name)
    assert from_row(row, NO_BLOBS.__getitem__).data == {"n": 1}


def test_a_payload_at_its_limit() -> None:
    """A payload of 64 MiB comes back, alone in a blob or all of small strings."""
    for raw in (
        b'"%s"' % (b"a" * (jsontext.MAX_BYTES - 2)),
        b"[%s0]" % (b'"a\\"",' * ((jsontext.MAX_BYTES - 3) // 7)),
    ):
        rows = to_rows([event(raw)])
        assert from_rows(rows.events, rows.blobs.__getitem__)[0].raw == raw


def test_a_long_string_is_stored_once() -> None:
    """A string over 32 KiB is one blob, in whichever payloads it stands."""
    words = Random(1)  # noqa: S311 - the same every time
    long = "".join(words.choice('ab"\\\n\u00e9') for _ in range(LONG))
    session = Session.create("s")
    session.add_user([Text("short"), Text(long)])
    session.add_assistant([Text(long), Text(long)])
    rows = to_rows(session.events)
    inner = jsontext.encode(long)[1:-1]
    assert list(rows.blobs) == [hash_of(inner)]
    assert all(row.data.startswith(CUT) and len(row.data) < 250 for row in rows.events)
    assert from_rows(rows.events, rows.blobs.__getitem__) == list(session.events)


def test_a_string_of_32_kib_is_no_blob() -> None:
    """A string of 32 KiB stays in its payload, one that is a byte longer does not."""
    for size, blobs in ((LONG, 0), (LONG + 1, 1)):
        assert len(to_rows([event(b'["","%s"]' % (b"a" * size))]).blobs) == blobs


def test_short_payloads_stay_as_they_are() -> None:
    """What would not become smaller is stored as the JSON that it is."""
    incompressible = b'"%s"' % Random(2).randbytes(100).hex().encode()  # noqa: S311 - the same every time
    for raw in (b"{}", b'{"turn":1,"step":1}', b"0"):
        assert to_rows([event(raw)]).events[0].data == raw
    assert len(to_rows([event(incompressible)]).events[0].data) < len(incompressible)


def test_threads_do_not_disturb_each_other() -> None:
    """Rows that are made and read in several threads are the same."""
    author = Author()
    for i in range(40):
        author.user(f"message {i} " * i)
    events = list(author.session.events)
    expected = to_rows(events)

    def work(_: int) -> bool:
        rows = to_rows(events)
        return rows == expected and from_rows(rows.events, rows.blobs.__getitem__) == events

    with ThreadPoolExecutor(4) as threads:
        assert all(threads.map(work, range(40)))


# -- runs ----------------------------------------------------------------------------------------


def answer(seed: int) -> tuple[list[AnyEvent], AnyEvent]:
    """The chunks of an answer of 400 characters, 5 to 40 ms apart, and the message."""
    dice = Random(seed)  # noqa: S311 - the same every time
    words = ["".join(dice.choices("etaoinshrdlu", k=dice.randint(2, 9))) for _ in range(500)]
    text = " ".join(dice.choices(words, k=99))[:400]
    author = Author()
    author.begin_turn()
    author.begin_step()
    seqs = [author.chunk(BlockStart(0, "text")).seq]
    at = 0
    while at < len(text):
        size = dice.randint(1, 8)
        seqs.append(author.chunk(TextDelta(0, text[at : at + size])).seq)
        at += size
    seqs.append(author.chunk(BlockEnd(0, Text(text))).seq)
    seqs.append(author.chunk(Finish(FinishReason("stop"))).seq)
    message = author.answer([Text(text)], seqs)
    time = START
    chunks: list[AnyEvent] = []
    for found in author.session.events[seqs[0] : seqs[-1] + 1]:
        time += dice.randint(5, 40)
        chunks.append(make_event(found.type, found.seq, time, found.raw))
    return chunks, message


def test_chunks_cost_little_beside_their_message() -> None:
    """Chunks of a finished answer take less than 15 % of three messages of 515 bytes."""
    for seed in range(10):
        chunks, message = answer(seed)
        rows = repack(chunks, message)
        assert rows is not None
        (row,) = rows
        assert row[:3] == (chunks[0].seq, chunks[-1].seq, message.seq)
        columns = 32  # bytes: the other columns, and what the row itself takes
        assert len(row.data) + columns < 0.15 * 3 * 515
        assert from_chunks(row, {message.seq: message.raw}.__getitem__) == chunks


def test_unfinished_runs_are_packed() -> None:
    """Chunks as they are stored ten at a time take a fifth of their payloads."""
    chunks, _ = answer(1)
    batches = [chunks[i : i + 10] for i in range(0, len(chunks), 10)]
    rows = [row for batch in batches for row in to_rows(batch).chunks]
    assert len(rows) == len(batches)
    assert sum(len(row.data) for row in rows) < sum(len(c.raw) for c in chunks) / 5


def test_a_run_ends_at_a_missing_seq_and_at_its_limit() -> None:
    """A row holds chunks without a gap between their seqs, and at most 4096."""
    rows = to_rows([*deltas(2), *deltas(MAX_RUN + 1, 5)]).chunks
    assert [row[:2] for row in rows] == [(0, 1), (5, MAX_RUN + 4), (MAX_RUN + 5, MAX_RUN + 5)]


def test_times_that_are_too_far_apart() -> None:
    """Times at both ends of 64 bits come back, in rows of their own."""
    chunks = [
        chunk(DELTA % b"", i, time)
        for i, time in enumerate([jsontext.INT_MIN, jsontext.INT_MAX, 0, jsontext.INT_MIN])
    ]
    rows = to_rows(chunks).chunks
    assert [e for row in rows for e in from_chunks(row, NO_MESSAGE)] == chunks


def NO_MESSAGE(seq: int) -> bytes:  # noqa: N802 - stands where a table of messages would
    """No message is there."""
    raise LookupError(seq)


@pytest.mark.parametrize(
    "other",
    [
        make_event("assistant/chunk", 1, 0, DELTA % b"", ignorable=True),
        make_event("assistant/chunk", 1, 0, DELTA % b"", extra={"a": 1}),
        make_event("assistant/chunk", 1, 0, DELTA % b"", "append"),
        make_event("assistant/chunk", 1, 0, DELTA % b"", None, [0]),
        make_event("assistant/chunk", 1, 0, DELTA % (b"a" * MAX_CHUNK)),
    ],
    ids=["ignorable", "extra", "surface-op", "provenance", "large"],
)
def test_chunks_that_are_stored_as_events(other: AnyEvent) -> None:
    """A chunk with more in its envelope, or of more than 1 MiB, has a row among the events."""
    rows = to_rows([*deltas(1), other, *deltas(1, 2)])
    assert [row.seq for row in rows.events] == [1]
    assert [row[:2] for row in rows.chunks] == [(0, 0), (2, 2)]
    assert from_rows(rows.events, rows.blobs.__getitem__) == [other]
    again = repack([*deltas(1), *deltas(1, 2)], event(b"[]", 3))
    assert [row[:2] for row in again] == [(0, 0), (2, 2)]
    assert not is_packable(other)
    assert repack([], event(b"[]", 3)) == []


def test_a_run_leans_on_nothing_that_does_not_help() -> None:
    """Chunks whose message says something else, or is huge, can be read without it."""
    for said in (b'{"message":"else"}', b'"%s"' % (b"word " * (MAX_MESSAGE // 5))):
        (row,) = repack(deltas(1), event(said, 9))
        assert row.message is None
        assert from_chunks(row, NO_MESSAGE) == deltas(1)


def test_a_run_whose_message_is_missing() -> None:
    """Without the message that they became chunks are refused, with the message's seq."""
    chunks, message = answer(3)
    (row,) = repack(chunks, message)
    with pytest.raises(BadRow, match=f"event {message.seq}, which they became") as caught:
        from_chunks(row, NO_MESSAGE)
    assert caught.value.seq == chunks[0].seq


# -- what is refused -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("raw", "why"),
    [
        (b"", "no such form"),
        (b"{", "property name"),
        (b"1 2", "Extra data"),
        (b'"\xff"', "decode byte"),
        (b"[" * 600 + b"]" * 600, "levels"),
        (b"[123456789012345678901]", "integer"),
        (b"NaN", "not JSON"),
        (b'"%s"' % (b"a" * jsontext.MAX_BYTES), "at most"),
        (b"\x00[1", "delimiter"),
        (b"\x07[]", "no such form of stored bytes: 07"),
        (b"\x01", "frame"),
        (b"\x01\x00\x00\x00", "content size"),
        (b"\x03", "truncated"),
        (b"\x03\xc0", "Expected"),
    ],
)
def test_payloads_that_are_refused(raw: bytes, why: str) -> None:
    """What is no payload is refused although its sum is right, as the codec refuses it."""
    assert why in refusal(row_of(raw))


@pytest.mark.parametrize("text", [b"[" * 600 + b"]" * 600, b"[123456789012345678901]", b"nope"])
def test_packed_payloads_that_are_refused(text: bytes) -> None:
    """A payload is no better for being packed."""
    refusal(row_of(frame(text)))


def test_halves_that_make_a_whole() -> None:
    """Two payloads that would be JSON together are refused, each by itself."""
    with pytest.raises(BadRow) as caught:
        from_rows([row_of(b"[1", seq=1), row_of(b",2]", seq=2)], NO_BLOBS.__getitem__)
    assert caught.value.seq == 1


def test_a_frame_that_says_it_is_huge() -> None:
    """A frame that says it unpacks to more than 96 MiB is refused unread."""
    size = UNPACKED_MAX + 1
    frame = b"\xe0" + size.to_bytes(8, "little") + b"\x01\x00\x00"
    assert f"it unpacks to {size} bytes" in refusal(row_of(PACKED + frame))


def test_a_blob_that_is_missing_or_another() -> None:
    """A payload whose blob is missing, or is that of another, is refused."""
    one, two = (to_rows([event(b'"%s"' % (word * LONG))]) for word in (b"ab", b"ac"))
    row = one.events[0]
    (key,), (other,) = one.blobs, two.blobs
    with pytest.raises(BadRow, match=f"the blob {key.hex()} is missing"):
        from_row(row, NO_BLOBS.__getitem__)
    with pytest.raises(BadRow, match=f"the blob {key.hex()} holds something else"):
        from_row(row, lambda _: two.blobs[other])


def test_a_payload_that_repeats_a_blob_without_end() -> None:
    """A payload that says it holds one blob many times is refused when it grows too large."""
    stretch = b"a" * (UNPACKED_MAX // 4)
    rows = to_rows([event(b'["%s"]' % stretch)])
    key = hash_of(stretch)
    cuts = [(i * len(stretch), key) for i in range(1000)]
    data = CUT + msgspec.msgpack.encode((cuts, b"\x00"))
    assert f"more than {UNPACKED_MAX} bytes" in refusal(row_of(data), rows.blobs)


@pytest.mark.parametrize(
    "columns",
    [
        {"type": ""},
        {"type": '"'},
        {"type": "1", "surface_op": "replace"},
        {"surface_op": '{"op":"replace","start":-1,"end":2}'},
        {"surface_op": "["},
        {"source_event_seqs": "[[1,2,3]]"},
        {"source_event_seqs": "[[1,7]]"},
        {"source_event_seqs": "7"},
        {"ignorable": 2},
        {"extra": b"[]"},
        {"extra": b'{"seq":1}'},
        {"seq": -1},
    ],
    ids=str,
)
def test_envelopes_that_are_refused(columns: dict[str, Any]) -> None:
    """What is no envelope is refused although its sum is right."""
    refusal(row_of(b"1", **columns))


def test_columns_of_other_types() -> None:
    """A column of another type than it was written with is refused."""
    row = row_of(b"1")
    for at in range(len(row)):
        for value in ("x", 1.5, b"x", [1]):
            other: tuple[Any, ...] = (*row[:at], value, *row[at + 1 :])
            with pytest.raises(BadRow):
                from_row(other, NO_BLOBS.__getitem__)
            with pytest.raises(BadRow):
                from_rows([other], NO_BLOBS.__getitem__)


NUMBERS: tuple[int, int, list[int], bytes] = (0, 1, [], b"")


RUNS: list[tuple[tuple[Any, ...], bytes]] = [
    ((START, NUMBERS, [2], NUMBERS), b'\0"\0"\0'),
    ((START, NUMBERS, [1], NUMBERS), b'\0"a\0"\0'),
    ((START, NUMBERS, [3], NUMBERS), b"\0\0\0"),
    ((START, NUMBERS, [3], (1, 1, [], b"")), b'\0"\0"\0ab'),
    ((START, NUMBERS, [3], (-1, 3, [], b"\x0b")), b'\0"\0"\0ab'),
    ((START, NUMBERS, [1, 2], NUMBERS), b'\0"\0"\0'),
    ((START, NUMBERS, [3, 0], NUMBERS), b'\0"\0"\0\0'),
    ((START, NUMBERS, [], NUMBERS), b"\0"),
    ((2**63 - 1, (1, 1, [], b""), [3], NUMBERS), b'\0"\0"\0'),
    ((START, (0, 0, [], b""), [3], NUMBERS), b'\0"\0"\0'),
    ((START, NUMBERS, [3], NUMBERS, 1), b'\0"\0"\0'),
    ((START, NUMBERS, [3], NUMBERS), b'\0"%s\0"\0' % (b"a" * (UNPACKED_MAX // 2))),
    ((START, NUMBERS, [3], NUMBERS), b'\0"\0\0'),
]


@pytest.mark.parametrize(("told", "words"), RUNS)
def test_runs_that_are_refused(told: tuple[Any, ...], words: bytes) -> None:
    """What is no run of three chunks is refused although its sum is right."""
    data = msgspec.msgpack.encode((*told, b"\0" + words))
    with pytest.raises(BadRow) as caught:
        from_chunks(ChunkRow(5, 7, None, data, run_sum(5, 7, None, data, b"")), NO_MESSAGE)
    assert caught.value.seq == 5
    assert "\n" not in str(caught.value)


def test_a_run_that_is_right_is_not_refused() -> None:
    """The run that the refused ones differ from is read."""
    data = msgspec.msgpack.encode((START, NUMBERS, [3], NUMBERS, b'\0\0"\0"\0'))
    row = ChunkRow(5, 7, None, data, run_sum(5, 7, None, data, b""))
    assert [e.raw for e in from_chunks(row, NO_MESSAGE)] == [b'""'] * 3
