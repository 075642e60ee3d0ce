"""Headers, events and texts that a store has to keep, and how two of them are compared."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from turnlog import jsontext
from turnlog.errors import brief
from turnlog.events import AnyEvent, Replace, SessionHeader
from turnlog.log import make_event
from turnlog.stores.port import Owner

NOON: Final = 1_700_000_000_000
"""Epoch milliseconds; event n of a sample happens n ms later."""

FIRST: Final = Owner(pid=4242, host="first.example", since=NOON)
SECOND: Final = Owner(pid=5353, host="second.example", since=NOON + 1)


def header(session_id: str, **fields: Any) -> SessionHeader:
    """A header with that id."""
    return SessionHeader(session_id, NOON, **fields)


def event(  # noqa: PLR0913 - an envelope has this many fields
    seq: int,
    data: Any = None,
    *,
    type_name: str = "acme/noted",
    time: int | None = None,
    op: Any = None,
    cited: Sequence[int] | None = None,
    ignorable: bool = False,
    extra: dict[str, Any] | None = None,
    raw: bytes | None = None,
) -> AnyEvent:
    """An event; its payload is `raw`, or `data` as JSON."""
    return make_event(
        type_name,
        seq,
        NOON + seq if time is None else time,
        jsontext.encode(data) if raw is None else raw,
        op,
        cited,
        ignorable=ignorable,
        extra=extra,
    )


def notes(start: int, count: int, say: str = "note") -> list[AnyEvent]:
    """`count` small log-only events from seq `start` on."""
    return [event(seq, {"n": seq, "say": say}) for seq in range(start, start + count)]


def prompt(seq: int, text: str, **envelope: Any) -> AnyEvent:
    """A `user/message`, appended to the surface unless `op` says otherwise."""
    data = {
        "id": f"m{seq}",
        "role": "user",
        "content": [{"type": "text", "text": text}],
        "source": {"kind": "user"},
    }
    return event(seq, data, type_name="user/message", **_shown(envelope))


def answer(seq: int, text: str, **envelope: Any) -> AnyEvent:
    """An `assistant/message`, appended to the surface."""
    message = {
        "id": f"m{seq}",
        "role": "assistant",
        "content": [{"type": "text", "text": text}],
        "source": {"kind": "model"},
    }
    data = {"message": message, "turn": 1, "step": 1}
    return event(seq, data, type_name="assistant/message", **_shown(envelope))


def _shown(envelope: dict[str, Any]) -> dict[str, Any]:
    return {"op": "append", **envelope}


def chunk(seq: int, text: str, *, field: str = "text", **envelope: Any) -> AnyEvent:
    """An `assistant/chunk`: a piece of text, or of a call's arguments."""
    kind = "text-delta" if field == "text" else "tool-call-delta"
    data = {"turn": 1, "step": 1, "chunk": {"type": kind, "index": 0, field: text}}
    return event(seq, data, type_name="assistant/chunk", **envelope)


def conversation() -> list[AnyEvent]:
    """A turn with a tool call and, later, a compaction: every kind of envelope."""
    call = {"callId": "c1", "name": "ls", "arguments": '{"path": "."}', "turn": 1, "step": 1}
    result = {
        "message": {
            "id": "m8",
            "role": "tool",
            "content": [{"type": "text", "text": "README.md"}],
            "source": {"kind": "tool", "callId": "c1"},
            "toolCallId": "c1",
        },
        "turn": 1,
        "step": 1,
    }
    return [
        event(0, {"turn": 1}, type_name="turn/start"),
        event(1, {"turn": 1, "step": 1}, type_name="step/start"),
        prompt(2, "What is here?"),
        chunk(3, "Let "),
        chunk(4, "me "),
        chunk(5, "look."),
        answer(6, "Let me look.", cited=[3, 4, 5]),
        event(7, call, type_name="tool/call"),
        event(8, result, type_name="tool/result", op="append", cited=[7]),
        event(9, {"turn": 1, "step": 1}, type_name="step/end"),
        event(10, {"turn": 1, "reason": {"kind": "completed"}}, type_name="turn/end"),
        prompt(11, "A summary.", op=Replace(2, 6), cited=[2, 3, 6]),
    ]


#: Texts that break stores; a test for each puts it into every field that takes text.
NUL: Final = "a\x00b\x00"
SURROGATES: Final = "half \ud83d and \udc00\ud800 reversed"
LINES: Final = "a\nb\rc\r\nd\u2028e\u2029f\x85g\x0bh\x0ci\x1cj\x1dk\x1el"
CONTROLS: Final = "".join(map(chr, range(1, 32))) + "\x7f\x80\x9f\ufeff\ufffe\uffff\u200b\\ \" '"
PLANES: Final = "漢字 \U0001f469\u200d\U0001f52c \U0010ffff שלום \u202egnorts\u202c مرحبا"
FORMS: Final = "e\u0301 \u00e9 \u212b \u00c5 A\u030a \ufb01 \u1e9b\u0323 \uac00 \u1100\u1161"
BLANKS: Final = " \t leading and trailing \u00a0 "


# -- comparing ---------------------------------------------------------------------------------


def canonical(value: Any) -> str:
    """JSON in which 1, 1.0, true and -0.0 differ, and the order of keys does not matter."""
    return json.dumps(value, sort_keys=True)


def assert_same(found: Sequence[AnyEvent], expected: Sequence[AnyEvent]) -> None:
    """Raise AssertionError unless both hold the same events, payloads byte for byte."""
    seqs, wanted = [e.seq for e in found], [e.seq for e in expected]
    assert seqs == wanted, f"expected the seqs {brief(wanted)}, got {brief(seqs)}"
    for ours, theirs in zip(expected, found, strict=True):
        left, right = _facets(ours), _facets(theirs)
        for name, value in left.items():
            came = right[name]
            if type(came) is not type(value) or came != value:
                said = f"event {ours.seq}: {name}: expected {brief(value)}, got {brief(came)}"
                raise AssertionError(said)


def _facets(one: AnyEvent) -> Mapping[str, Any]:
    cited = one.source_event_seqs
    return {
        "type": one.type,
        "time": one.time,
        "payload": bytes(one.raw),
        "surface operation": one.surface_op,
        "provenance": None if cited is None else tuple(cited),
        "ignorable": one.ignorable,
        "unknown envelope keys": canonical(one.extra or {}),
    }


def assert_same_header(found: SessionHeader, expected: SessionHeader) -> None:
    """Raise AssertionError unless both headers say the same, unknown keys included."""
    ours, theirs = canonical(expected.to_dict()), canonical(found.to_dict())
    assert theirs == ours, f"header: expected {brief(ours)}, got {brief(theirs)}"
