"""Lines: events and packed runs, written and read."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from turnlog import Session
from turnlog.codec import (
    MAX_RUN,
    decode_line,
    decode_lines,
    encode_event,
    encode_lines,
    event_from_dict,
    pack_seqs,
    unpack_seqs,
)
from turnlog.content import TextDelta
from turnlog.errors import AdmissionError, InvalidEnvelope, NotJson, PayloadTooDeep
from turnlog.testing.builders import Author

RUN: dict[str, Any] = {
    "run": "assistant/chunk",
    "seq": 4,
    "time": 9,
    "dt": [1, -2],
    "field": "text",
    "data": {"turn": 1, "step": 1, "chunk": {"type": "text-delta", "index": 0, "text": None}},
    "values": ["a", "\u2028", "\ud800"],
}


def line(value: Any) -> bytes:
    """A value as one line."""
    return json.dumps(value, separators=(",", ":")).encode()


def streaming() -> Author:
    """An author in an open step."""
    author = Author()
    author.begin_turn()
    author.begin_step()
    return author


def test_lines_have_one_line_break() -> None:
    """Hostile text stays within its line."""
    author = Author()
    author.user("a\nb\r\n\u2028c\x0b\x0c\x1c\u0085")
    assert encode_lines(author.session.events).count(b"\n") == 1


def test_short_runs_are_not_packed() -> None:
    """Two chunks are two lines, three are one."""
    author = streaming()
    for n, lines in ((2, 4), (3, 3)):
        while len(author.session) < 2 + n:
            author.chunk(TextDelta(0, "x"))
        assert encode_lines(author.session.events).count(b"\n") == lines


def test_what_breaks_a_run() -> None:
    """Another index, another attempt, other fields, or another event begins a new line."""
    author = streaming()
    for index, extra in ((0, None), (1, None), (1, {"odd": {"text": "y"}})):
        for _ in range(3):
            author.chunk(TextDelta(index, "x", extra))
    for _ in range(3):
        author.session.append("turn/start", {"turn": 1})
    author.attempt = 2
    for _ in range(3):
        author.chunk(TextDelta(1, "x"))
    raw = encode_lines(author.session.events)
    assert raw.count(b'"run"') == 3
    assert raw.count(b"\n") == 2 + 1 + 1 + 3 + 3 + 1


def test_long_runs_are_cut() -> None:
    """A run holds so many chunks at most."""
    author = streaming()
    for _ in range(MAX_RUN + 3):
        author.chunk(TextDelta(0, "x"))
    raw = encode_lines(author.session.events)
    assert raw.count(b'"run"') == 2
    assert len([e for part in raw.split(b"\n")[:-1] for e in decode_line(part)]) == MAX_RUN + 5


def test_reading_a_run() -> None:
    """A run gives its events back, times by their gaps."""
    events = decode_line(line(RUN))
    assert [(event.seq, event.time) for event in events] == [(4, 9), (5, 10), (6, 8)]
    assert [event.data.chunk.text for event in events] == ["a", "\u2028", "\ud800"]


@pytest.mark.parametrize(
    "change",
    [
        {"dt": [1]},
        {"field": "argumentsDelta"},
        {"field": "turn"},
        {"values": ["a", "b", 7]},
        {"values": ["a", "\ud800", 7]},
        {"values": "abc"},
        {"values": "\ud800"},
        {"data": "\ud800"},
        {"seq": -1},
        {"run": "turn/start"},
        {"more": 1},
        {"more": "\ud800"},
    ],
)
def test_bad_runs(change: dict[str, Any]) -> None:
    """A run that is not what it must be is refused, not guessed at."""
    with pytest.raises(InvalidEnvelope):
        decode_line(line({**RUN, **change}))


def test_runs_have_limits_too() -> None:
    """What surrounds the texts of a run is held to the limits of a payload."""
    deep: Any = 1
    for _ in range(600):
        deep = [deep]
    with pytest.raises(PayloadTooDeep):
        decode_line(line({**RUN, "data": {**RUN["data"], "deep": deep}}))
    with pytest.raises(NotJson):
        decode_line(line({**RUN, "data": {**RUN["data"], "big": 2**63}}))


@pytest.mark.parametrize(
    "change",
    [
        {"time": 2**63 - 5, "dt": [10, 0]},
        {"time": 5 - 2**63, "dt": [-10, 10]},
        {"dt": [2**63, -(2**63)]},
        {"seq": 2**63 - 2},
    ],
)
def test_the_members_of_a_run_stay_within_64_bits(change: dict[str, Any]) -> None:
    """A run whose later times or seqs leave 64 bits is refused, alone and among other lines."""
    raw = line({**RUN, **change})
    with pytest.raises(InvalidEnvelope):
        decode_line(raw)
    assert decode_lines(raw + b"\n") is None


def test_what_a_run_shares_is_not_repeated_without_bounds() -> None:
    """A run whose payloads would take more than 96 MiB is refused, and never written."""
    shared = {**RUN["data"], "more": "x" * (1 << 20)}
    wire = {**RUN, "data": shared, "values": [""] * 97, "dt": [0] * 96}
    with pytest.raises(InvalidEnvelope, match="unpacked"):
        decode_line(line(wire))
    events = decode_line(line({**wire, "values": [""] * 95, "dt": [0] * 94}))
    more = [msgspec.structs.replace(event, seq=event.seq + 95) for event in events]
    lines = encode_lines([*events, *more]).split(b"\n")[:-1]
    assert [len(decode_line(one)) for one in lines] == [95, 95]


@pytest.mark.parametrize(
    "payload",
    [rb'{ "a" : 1.50 , "b":"\u0041" }', rb'{"half" : "\ud800"}', b"null", b" 7", b'{"a":1,"a":2}'],
)
def test_payloads_verbatim(payload: bytes) -> None:
    """A payload's bytes come through as they stand in the file, blanks and escapes too."""
    raw = b'{"type":"x/y","seq":3,"time":1,"data":' + payload + b"}"
    (event,) = decode_line(raw)
    assert event.raw == payload.strip()
    assert encode_event(event).count(payload.strip()) == 1
    more = b'{"later":[1],"data":' + payload + b',"type":"x/y","time":1,"seq":3}'
    (event,) = decode_line(more)
    assert event.raw == payload.strip()
    assert event.extra == {"later": [1]}
    assert decode_line(encode_event(event)) == [event]


@pytest.mark.parametrize(
    "change",
    [
        {"type": 1},
        {"type": ""},
        {"seq": None},
        {"seq": 1.5},
        {"seq": -1},
        {"time": "now"},
        {"ignorable": False, "seq": True},
        {"ignorable": "yes"},
        {"surfaceOp": "prepend"},
        {"surfaceOp": {"op": "replace", "start": 0}},
        {"surfaceOp": "append", "sourceEventSeqs": 5},
        {"surfaceOp": "append", "sourceEventSeqs": [[1, 2, 3]]},
        {"surfaceOp": "append", "sourceEventSeqs": [[2, 1]]},
        {"surfaceOp": "append", "sourceEventSeqs": [[0, 99999999999]]},
    ],
)
def test_bad_envelopes(change: dict[str, Any]) -> None:
    """A malformed envelope is an admission error, from a line and from a dict."""
    wire: dict[str, Any] = {"type": "user/message", "seq": 3, "time": 1, "data": {}, **change}
    with pytest.raises(AdmissionError):
        decode_line(line(wire))
    with pytest.raises(AdmissionError):
        event_from_dict(wire)


@pytest.mark.parametrize("raw", [b"", b"{", b"\x00\x00", b"nul", b'{"type":"a"}{', b"\xff\xfe"])
def test_not_json(raw: bytes) -> None:
    """What is not JSON is a ValueError."""
    with pytest.raises(ValueError):  # noqa: PT011 - msgspec and json word it differently
        decode_line(raw)


@pytest.mark.parametrize("raw", [b"[]", b"7", b"null", b'"x"', b"{}", b'{"type":"x/y","seq":0}'])
def test_json_but_no_event(raw: bytes) -> None:
    """JSON that is no event is an admission error."""
    with pytest.raises(AdmissionError):
        decode_line(raw)


def test_packing_of_seqs() -> None:
    """Runs of three and more become pairs; order is kept."""
    assert pack_seqs([3, 7, 8, 9, 10, 30]) == [3, [7, 10], 30]
    assert pack_seqs([5, 4, 3]) == [5, 4, 3]
    assert pack_seqs(range(2, 5)) == [[2, 4]]
    assert pack_seqs(range(2, 4)) == [2, 3]
    assert pack_seqs([]) == []
    assert unpack_seqs([3, [7, 10], 30]) == [3, 7, 8, 9, 10, 30]


def test_a_run_of_seqs_takes_no_room() -> None:
    """A lone run stays a range; what it and what a list may stand for is bounded."""
    assert unpack_seqs([[0, 3_999_999]]) == range(4_000_000)
    assert unpack_seqs([[5, 5]]) == [5]
    bombs = ([[0, 3_999_999_999]], [[0, 3_999_999_999], 4_000_000_000], [[0, 999_999]] * 2)
    for bomb in bombs:
        with pytest.raises(InvalidEnvelope, match="more than"):
            unpack_seqs(bomb, 2**40)


def test_both_ways_to_write_provenance_are_one() -> None:
    """A list, a tuple and a range of the same seqs give the same event."""
    for cited in ([0, 1, 2], (0, 1, 2), range(3)):
        author = Author()
        for _ in range(3):
            author.user("x")
        event = author.session.append(
            "user/message",
            {"id": "m", "role": "user", "content": [], "source": {"kind": "user"}},
            surface_op={"op": "replace", "start": 0, "end": 2},
            source_event_seqs=cited,
        )
        assert b'"sourceEventSeqs":[[0,2]]' in encode_event(event)
        assert decode_line(encode_event(event)) == [event]


def test_unknown_events_through_a_copy() -> None:
    """An event that no one here knows comes through loading and writing byte for byte."""
    raw = (
        b'{"type":"x/y","seq":0,"time":1,"data":{ "odd" : 1e2 },"sourceEventSeqs":[],'
        b'"surfaceOp":"append","ignorable":true,"later":{"a":null}}'
    )
    (event,) = decode_line(raw.replace(b'"sourceEventSeqs":[],', b""))
    session = Session.from_events({"format": "turnlog", "id": "a", "createdAt": 1}, [event])
    assert encode_event(session.events[0]) == raw.replace(b'"sourceEventSeqs":[],', b"")
    assert session.surface.seqs == [0]
    assert session.derive_messages() == []
    assert session.unknown_types == {}
