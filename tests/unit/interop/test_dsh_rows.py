"""One line of a session file: envelopes, packed rows, provenance, operations."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.unit.interop.dsh_files import event
from turnlog.interop.dsh.rows import MAX_CITED, NotARecord, PackedRow, SourceEvent, parse_row

TEXTS = {"turn": 1, "step": 2, "index": 0, "dt": [1, -3], "texts": ["a", "", "🙂"]}
ARGS = {"turn": 1, "step": 2, "index": 3, "dt": [0, 4], "id": "c", "name": "f", "args": list("abc")}


def row(tag: str, data: Any, **more: Any) -> bytes:
    """A packed row."""
    return json.dumps({"type": tag, "seq0": 9, "time0": 100, "data": data, **more}).encode()


def parsed(record: dict[str, Any]) -> SourceEvent:
    """An event's record, read."""
    result = parse_row(json.dumps(record).encode())
    assert isinstance(result, SourceEvent)
    return result


def test_packed_text() -> None:
    """A text run becomes one chunk event for each delta, seq and time counted on."""
    packed = parse_row(row("text-chunks", TEXTS))
    assert isinstance(packed, PackedRow)
    assert packed.last_seq == 11
    members = list(packed.events())
    assert [(e.seq, e.time, e.type) for e in members] == [
        (9, 100, "assistant/chunk"),
        (10, 101, "assistant/chunk"),
        (11, 98, "assistant/chunk"),
    ]
    assert [json.loads(e.data) for e in members] == [
        {"turn": 1, "step": 2, "chunk": {"type": "text-delta", "index": 0, "text": text}}
        for text in ("a", "", "🙂")
    ]


def test_packed_reasoning() -> None:
    """A reasoning run becomes reasoning deltas."""
    first = next(parse_row(row("reasoning-chunks", TEXTS)).events())
    assert first.data == (
        b'{"turn":1,"step":2,"chunk":{"type":"reasoning-delta","index":0,"text":"a"}}'
    )


@pytest.mark.parametrize("name", ["f", None])
def test_packed_tool_call(name: str | None) -> None:
    """A tool call run carries its id, and its name where the deltas had one."""
    data = {key: value for key, value in ARGS.items() if key != "name" or name}
    chunk = json.loads(next(parse_row(row("tool-call-chunks", data)).events()).data)["chunk"]
    named = {"name": "f"} if name else {}
    delta = {"type": "tool-call-delta", "index": 3, "id": "c", "argumentsDelta": "a"}
    assert chunk == {**delta, **named}


def test_packed_lone_surrogate() -> None:
    """Half a surrogate pair in a delta, which a model stream cut apart, survives as an escape."""
    halves = {**TEXTS, "texts": ["\ud83d", "\ude42", ""]}
    members = list(parse_row(row("text-chunks", halves)).events())
    assert [json.loads(e.data)["chunk"]["text"] for e in members] == ["\ud83d", "\ude42", ""]


@pytest.mark.parametrize(
    ("tag", "change"),
    [
        ("text-chunks", {"texts": []}),
        ("text-chunks", {"texts": ["a", 1, "b"]}),
        ("text-chunks", {"texts": "abc"}),
        ("text-chunks", {"dt": [1]}),
        ("text-chunks", {"dt": [1, 1.5]}),
        ("text-chunks", {"dt": [1, True]}),
        ("text-chunks", {"dt": [1, 2**53]}),
        ("text-chunks", {"index": "0"}),
        ("text-chunks", {"turn": None}),
        ("text-chunks", {"more": 1}),
        ("text-chunks", {"id": "c"}),
        ("tool-call-chunks", {}),
        ("tool-call-chunks", {"args": ["a", "b", "c"], "texts": ["a", "b", "c"], "id": "c"}),
        ("other-chunks", {}),
    ],
)
def test_malformed_packed(tag: str, change: dict[str, Any]) -> None:
    """A packed row with any key, kind or count amiss is no record."""
    with pytest.raises(NotARecord):
        parse_row(row(tag, {**TEXTS, **change}))


def test_packed_with_more_keys() -> None:
    """A packed row has its four keys and no others."""
    with pytest.raises(NotARecord):
        parse_row(row("text-chunks", TEXTS, ignorable=True))


def test_packed_past_the_safe_integers() -> None:
    """A run may not count beyond what JavaScript can."""
    with pytest.raises(NotARecord):
        parse_row(row("text-chunks", TEXTS, seq0=2**53 - 2))


def test_data_verbatim() -> None:
    """Spaces, number spellings, escapes and key order of the data stay as they are."""
    data = b'{ "b" : 1.0, "a":[1e3,-0, "\\u00e9\\/"],  "a":null }'
    read = parse_row(b'{"seq":0, "data" : ' + data + b' ,"time":5,"type":"x/y"}\r')
    assert isinstance(read, SourceEvent)
    assert read.data == data


def test_lone_surrogates_verbatim() -> None:
    """A line with lone surrogates, in keys too, is cut up just the same."""
    data = b'{"\\udc00":"\\ud800", "n": [1, {"x":"}\\""}]}'
    text = b' { "type":"x/y","seq":3,"time":5 , "data": ' + data + b',"\\ud801":{"y":2} } '
    read = parse_row(text)
    assert isinstance(read, SourceEvent)
    assert read.data == data
    assert read.extra == {"\ud801": {"y": 2}}


def test_ranges() -> None:
    """Provenance may pack runs as pairs; any order of plain seqs is kept."""
    assert parsed(event(40, sourceEventSeqs=[3, [7, 10], 30])).source_event_seqs == [
        3,
        *range(7, 11),
        30,
    ]
    assert parsed(event(40, sourceEventSeqs=[9, 2, 5])).source_event_seqs == [9, 2, 5]
    assert parsed(event(40, sourceEventSeqs=[])).source_event_seqs == []
    assert parsed(event(40)).source_event_seqs is None


@pytest.mark.parametrize(
    "cited", [[[5, 5]], [[7, 3]], [[3, 40]], [[1, 2, 3]], [-1], [1.5], ["1"], [True], {}, 3]
)
def test_malformed_provenance(cited: Any) -> None:
    """Provenance that is no list of seqs and rising pairs makes the line no record."""
    with pytest.raises(NotARecord):
        parsed(event(40, sourceEventSeqs=cited))


def test_a_range_is_not_a_bomb() -> None:
    """A range of more seqs than a log cites is refused before it is spelt out."""
    with pytest.raises(NotARecord, match=str(MAX_CITED)):
        parsed(event(2**50, sourceEventSeqs=[[0, 2**49]]))


def test_surface_ops() -> None:
    """Append, and both spellings of replace."""
    assert parsed(event(9, surfaceOp="append")).surface_op == "append"
    old = {"op": "replace", "start": 7, "end": 4}
    new = {"op": "replace", "startSeq": 7, "endSeq": 4}
    assert parsed(event(9, surfaceOp=old)).surface_op == (7, 4)
    assert parsed(event(9, surfaceOp=new)).surface_op == (7, 4)
    assert parsed(event(9)).surface_op is None


@pytest.mark.parametrize(
    "op",
    [
        "prepend",
        {"op": "replace", "start": 1},
        {"op": "replace", "start": 1, "endSeq": 2},
        {"op": "replace", "start": 1, "end": 2, "more": 3},
        {"op": "swap", "start": 1, "end": 2},
        {"op": "replace", "start": 1, "end": "2"},
        ["append"],
    ],
)
def test_malformed_surface_op(op: Any) -> None:
    """Any other operation makes the line no record."""
    with pytest.raises(NotARecord):
        parsed(event(9, surfaceOp=op))


def test_unknown_envelope_keys() -> None:
    """What no version documents is kept beside the event; `ignorable` counts only when true."""
    assert parsed(event(1, ignorable=True)).ignorable
    assert parsed(event(1, ignorable=True)).extra is None
    odd = parsed(event(1, ignorable=False, acme={"a": 1}))
    assert not odd.ignorable
    assert odd.extra == {"ignorable": False, "acme": {"a": 1}}


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b"{}",
        b'{"type":"a","seq":0,"time":1}',
        b'{"type":"","seq":0,"time":1,"data":{}}',
        b'{"type":"a","seq":-1,"time":1,"data":{}}',
        b'{"type":"a","seq":1.5,"time":1,"data":{}}',
        b'{"type":"a","seq":9007199254740992,"time":1,"data":{}}',
        b'{"type":"a","seq":0,"time":"1","data":{}}',
        b'{"type":"a","seq":0,"time":1,"data":NaN}',
        b'{"type":"a","seq":0,"time":1,"data":{}}x',
        b'{"type":"a","seq":0,"time":1,"data":"\xff"}',
        b'{"type":"a","seq":0,"time":1,"data":"\xed\xa0\x80"}',
        b'{"type":"a","seq":0,"time":1,"data":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    ],
)
def test_no_record(text: bytes) -> None:
    """What is not JSON, or no whole envelope, is no record."""
    with pytest.raises(NotARecord):
        parse_row(text)
