"""Events as lines of JSON, and back: payloads verbatim, provenance in ranges, chunk runs packed.

A line is one event, `{"type","seq","time","data","sourceEventSeqs"?,"surfaceOp"?,"ignorable"?}`, or
one run of `assistant/chunk` events that differ only in time and in one string:

    {"run":"assistant/chunk","seq":8,"time":T,"dt":[4,0],"field":"text",
     "data":{"turn":1,"step":1,"chunk":{"type":"text-delta","index":0,"text":null}},
     "values":["Hel","lo ","there"]}

Event i of a run has seq `seq + i`, a time that is `dt[i-1]` after its predecessor's, and `data`
with `values[i]` as `chunk[field]`. docs/log-format.md is the public description.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import accumulate, pairwise
from typing import Annotated, Any, Literal

import msgspec

from turnlog import jsontext
from turnlog.content import ReasoningDelta, TextDelta, ToolCallDelta
from turnlog.errors import AdmissionError, InvalidEnvelope
from turnlog.events import (
    EVENT_TYPES,
    AnyEvent,
    AssistantChunk,
    Event,
    Replace,
    event_type,
)
from turnlog.jsontext import is_array, is_object
from turnlog.log import MAX_RANGE, MAX_SEQS, make_event

MIN_RUN = 3
MAX_RUN = 4096
MAX_RUN_BYTES = 1 << 20
MAX_UNPACKED = 96 << 20
"""What the payloads of one run may take, in bytes: what they share is repeated for each."""

_FIELDS = {TextDelta: "text", ReasoningDelta: "text", ToolCallDelta: "argumentsDelta"}
_CHUNK = "assistant/chunk"
_NEVER_DEEP = 2 * jsontext.MAX_DEPTH  # bytes: each level takes a bracket on both sides


# -- writing -----------------------------------------------------------------------------------


def encode_event(event: AnyEvent) -> bytes:
    """One event as one line, without the newline."""
    parts = [
        b'{"type":',
        jsontext.encode(event.type),
        b',"seq":%d,"time":%d,"data":' % (event.seq, event.time),
        event.raw,
    ]
    if event.source_event_seqs is not None:
        parts += [b',"sourceEventSeqs":', jsontext.encode(pack_seqs(event.source_event_seqs))]
    op = event.surface_op
    if op is not None:
        parts.append(b',"surfaceOp":"append"' if op == "append" else _replace(op))
    if event.ignorable:
        parts.append(b',"ignorable":true')
    if event.extra:
        parts += [b",", jsontext.encode(event.extra)[1:-1]]
    parts.append(b"}")
    return b"".join(parts)


def _replace(op: Any) -> bytes:
    return b',"surfaceOp":{"op":"replace","start":%d,"end":%d}' % (op.start, op.end)


def pack_seqs(seqs: Sequence[int]) -> list[int | list[int]]:
    """Seqs with ascending runs of three and more as [first, last]; order is kept."""
    if type(seqs) is range:
        return [[seqs[0], seqs[-1]]] if len(seqs) >= MIN_RUN else list(seqs)
    packed: list[int | list[int]] = []
    i, n = 0, len(seqs)
    while i < n:
        j = i + 1
        while j < n and seqs[j] == seqs[j - 1] + 1:
            j += 1
        if j - i >= MIN_RUN:
            packed.append([seqs[i], seqs[j - 1]])
        else:
            packed.extend(seqs[i:j])
        i = j
    return packed


def encode_lines(events: Iterable[AnyEvent]) -> bytes:
    """Events as lines, newline after each, runs of chunks packed."""
    lines: list[bytes] = []
    run: _Run | None = None
    for event in events:
        if event.type == _CHUNK:
            if run is not None and run.take(event):
                continue
            if run is not None:
                run.write(lines)
            run = _Run.starting(event)
            if run is not None:
                continue
        elif run is not None:
            run.write(lines)
            run = None
        lines.append(encode_event(event))
    if run is not None:
        run.write(lines)
    lines.append(b"")
    return b"\n".join(lines)


class _Run:
    """Chunk events that share all bytes but one string."""

    __slots__ = ("events", "field", "head", "size", "tail", "values")

    def __init__(self, event: AnyEvent, field: str, head: bytes, value: bytes, tail: bytes) -> None:
        self.field, self.head, self.tail = field, head, tail
        self.events = [event]
        self.values = [value]
        self.size = len(value)

    @classmethod
    def starting(cls, event: AnyEvent) -> _Run | None:
        data = event.data
        if type(data) is not AssistantChunk or event.ignorable or event.extra:
            return None
        field = _FIELDS.get(type(data.chunk))  # pyright: ignore[reportArgumentType]
        if field is None:
            return None
        chunk: Any = data.chunk
        text = chunk.arguments_delta if field == "argumentsDelta" else chunk.text
        value = jsontext.encode(text)
        key = b'"%s":' % field.encode()
        head, found, tail = event.raw.partition(key + value)
        if not found or key in tail or key in head:
            return None
        return cls(event, field, head + key, value, tail)

    def take(self, event: AnyEvent) -> bool:
        raw, events = event.raw, self.events
        if (
            event.seq != events[-1].seq + 1
            or not raw.startswith(self.head)
            or not raw.endswith(self.tail)
            or event.ignorable
            or event.extra
            or len(events) >= MAX_RUN
            or self.size >= MAX_RUN_BYTES
        ):
            return False
        value = raw[len(self.head) : len(raw) - len(self.tail)]
        shared, size = len(self.head) + len(self.tail), self.size + len(value)
        if shared * (len(events) + 1) + size > MAX_UNPACKED or not _is_string(value):
            return False
        events.append(event)
        self.values.append(value)
        self.size = size
        return True

    def write(self, lines: list[bytes]) -> None:
        events = self.events
        if len(events) < MIN_RUN:
            lines.extend(map(encode_event, events))
            return
        gaps = [b"%d" % (b.time - a.time) for a, b in pairwise(events)]
        lines.append(
            b'{"run":"assistant/chunk","seq":%d,"time":%d,"dt":[%s],"field":"%s",'
            b'"data":%snull%s,"values":[%s]}'
            % (
                events[0].seq,
                events[0].time,
                b",".join(gaps),
                self.field.encode(),
                self.head,
                self.tail,
                b",".join(self.values),
            )
        )


def _is_string(value: bytes) -> bool:
    """Whether the bytes are exactly one JSON string."""
    if len(value) < 2 or value[0] != 34 or value[-1] != 34:
        return False
    if value.count(b'"') == 2 and value[-2] != 92:
        return True
    try:
        return isinstance(jsontext.decode(value), str)
    except ValueError:
        return False


# -- reading -----------------------------------------------------------------------------------

_Seq = Annotated[int, msgspec.Meta(ge=0, le=jsontext.INT_MAX)]
_Time = Annotated[int, msgspec.Meta(ge=jsontext.INT_MIN, le=jsontext.INT_MAX)]


class _Envelope(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    type: Annotated[str, msgspec.Meta(min_length=1)]
    seq: _Seq
    time: _Time
    data: msgspec.Raw
    source_event_seqs: list[int | list[int]] | None = None
    surface_op: Literal["append"] | Replace | None = None
    ignorable: Literal[True] | None = None


class _RunHead(msgspec.Struct, forbid_unknown_fields=True):
    run: Literal["assistant/chunk"]
    seq: _Seq
    time: _Time
    dt: list[int]
    field: Literal["text", "argumentsDelta"]


class _RunLine(_RunHead, forbid_unknown_fields=True):
    data: msgspec.Raw
    values: list[msgspec.Raw]


class _Line(msgspec.Struct, rename="camel", forbid_unknown_fields=True, gc=False):
    """An `_Envelope` or a `_RunLine`."""

    seq: _Seq
    time: _Time
    data: msgspec.Raw
    type: str | msgspec.UnsetType = msgspec.UNSET
    source_event_seqs: list[int | list[int]] | msgspec.UnsetType | None = msgspec.UNSET
    surface_op: Literal["append"] | Replace | msgspec.UnsetType | None = msgspec.UNSET
    ignorable: Literal[True] | msgspec.UnsetType | None = msgspec.UNSET
    run: Literal["assistant/chunk"] | msgspec.UnsetType = msgspec.UNSET
    dt: list[int] | msgspec.UnsetType = msgspec.UNSET
    field: Literal["text", "argumentsDelta"] | msgspec.UnsetType = msgspec.UNSET
    values: list[msgspec.Raw] | msgspec.UnsetType = msgspec.UNSET


_envelope = msgspec.json.Decoder(_Envelope).decode
_run_line = msgspec.json.Decoder(_RunLine).decode
_lines = msgspec.json.Decoder(_Line).decode_lines


def decode_line(line: bytes) -> list[AnyEvent]:
    """The event in a line, or the events of a packed run.

    Raises:
        AdmissionError: the line is JSON, but neither.
        ValueError: not JSON.
    """
    if line.startswith(b'{"run":'):
        return _unpack(line)
    try:
        wire = _envelope(line)
    except (msgspec.DecodeError, RecursionError):
        plain = jsontext.decode(line)
        if isinstance(plain, dict) and "run" in plain and "type" not in plain:
            return _unpack(line)
        return [event_from_dict(plain, line)]
    if wire.source_event_seqs is not None or wire.surface_op not in (None, "append"):
        cited = wire.source_event_seqs
        return [
            make_event(
                wire.type,
                wire.seq,
                wire.time,
                _payload(bytes(wire.data), wire.seq),
                wire.surface_op,
                None if cited is None else unpack_seqs(cited, wire.seq),
                ignorable=wire.ignorable is True,
            )
        ]
    kind = event_type(wire.type)
    return [
        Event(
            wire.type,
            wire.seq,
            wire.time,
            _payload(bytes(wire.data), wire.seq),
            wire.surface_op,
            None,
            wire.ignorable is True,
            None,
            jsontext.decode if kind is None else kind.read,
        )
    ]


def decode_lines(lines: bytes) -> list[AnyEvent] | None:
    """The events of whole lines at once: as `decode_line` of each, at less than half the cost.

    None when anything about them is out of the ordinary: `decode_line` will say what.
    """
    try:
        if not lines.isascii():
            lines.decode()  # the decoder does not look into payloads
        found = _lines(lines)
        if len(found) != lines.count(b"\n") + (not lines.endswith(b"\n")):
            return None
        check = 0 if jsontext.has_long_number(lines) else _NEVER_DEEP
        events: list[AnyEvent] = []
        unset, kinds = msgspec.UNSET, EVENT_TYPES  # looked up once, not for every line
        for line in found:
            name, seq, raw = line.type, line.seq, bytes(line.data)
            if name is unset or line.run is not unset:
                events += _spread(_run_of(line))
                continue
            if len(raw) > check:
                _payload(raw, seq)
            if line.dt is not unset or line.field is not unset or line.values is not unset:
                return None
            kind = kinds.get(name)
            reading = jsontext.decode if kind is None else kind.read
            op, cited, ignorable = line.surface_op or None, line.source_event_seqs, line.ignorable
            if cited is unset and ignorable is unset and (op is None or op == "append"):
                events.append(Event(name, seq, line.time, raw, op, None, False, None, reading))
                continue
            ignorable = ignorable is True
            cited = unpack_seqs(cited, seq) if isinstance(cited, list) else None
            events.append(
                make_event(
                    name, seq, line.time, raw, op, cited, ignorable=ignorable, reading=reading
                )
            )
    except (AdmissionError, msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    return events


def _run_of(line: _Line) -> _RunLine:
    dt, field, values = line.dt, line.field, line.values
    for never in (line.type, line.source_event_seqs, line.surface_op, line.ignorable):
        if never is not msgspec.UNSET:
            raise _odd(line)
    if (
        line.run is msgspec.UNSET
        or dt is msgspec.UNSET
        or field is msgspec.UNSET
        or values is msgspec.UNSET
    ):
        raise _odd(line)
    return _RunLine(line.run, line.seq, line.time, dt, field, data=line.data, values=values)


def _odd(line: _Line) -> InvalidEnvelope:
    return InvalidEnvelope("neither an event nor a run", seq=line.seq, value=None)


def _payload(raw: bytes, seq: int) -> bytes:
    if jsontext.suspicious(raw) or len(raw) > jsontext.MAX_BYTES:
        jsontext.check_bytes(raw, seq=seq)
    return raw


def _unpack(line: bytes) -> list[AnyEvent]:
    try:
        wire = _run_line(line)
    except msgspec.ValidationError as error:
        raise InvalidEnvelope(f"packed run: {error}", seq=None, value=line[:80]) from None
    except msgspec.DecodeError:
        wire = _run_with_surrogates(line)
    return _spread(wire)


def _spread(wire: _RunLine) -> list[AnyEvent]:
    """The events of a packed run."""
    head, found, tail = bytes(wire.data).partition(b'"%s":null' % wire.field.encode())
    if not found or len(wire.dt) != len(wire.values) - 1:
        msg = "a packed run has one value a member and one gap less"
        raise InvalidEnvelope(msg, seq=wire.seq, value=wire.field)
    head += b'"%s":' % wire.field.encode()
    size = (len(head) + len(tail)) * len(wire.values) + sum(map(_length, wire.values))
    if size > MAX_UNPACKED:
        msg = f"a packed run of {size} bytes, at most {MAX_UNPACKED} are unpacked"
        raise InvalidEnvelope(msg, seq=wire.seq, value=size)
    times = list(accumulate(wire.dt, initial=wire.time))
    if min(times) < jsontext.INT_MIN or max(times) > jsontext.INT_MAX:
        msg = "a packed run with times that are no epoch milliseconds"
        raise InvalidEnvelope(msg, seq=wire.seq, value=wire.time)
    if wire.seq + len(times) - 1 > jsontext.INT_MAX:
        msg = "a packed run with seqs beyond 64 bits"
        raise InvalidEnvelope(msg, seq=wire.seq, value=len(times))
    _payload(head + b'""' + tail, wire.seq)
    kind = event_type(_CHUNK)
    reading = jsontext.decode if kind is None else kind.read
    events: list[AnyEvent] = []
    for i, (value, time) in enumerate(zip(wire.values, times, strict=True)):
        token = bytes(value)
        if not _is_string(token):
            msg = "a packed run holds strings"
            raise InvalidEnvelope(msg, seq=wire.seq + i, value=token[:80])
        raw = head + token + tail
        events.append(Event(_CHUNK, wire.seq + i, time, raw, None, None, False, None, reading))
    return events


def _length(value: msgspec.Raw) -> int:
    return len(memoryview(value))


def _run_with_surrogates(line: bytes) -> _RunLine:
    """A packed run that msgspec cannot read, since a string has a lone surrogate."""
    wire = jsontext.decode(line)
    data, values = jsontext.member(line, "data"), jsontext.member(line, "values")
    if data is None or values is None or not values.startswith(b"["):
        raise InvalidEnvelope("packed run: expected data, values", seq=None, value=line[:80])
    del wire["data"], wire["values"]
    try:
        head = msgspec.convert(wire, _RunHead)
    except msgspec.ValidationError as error:
        raise InvalidEnvelope(f"packed run: {error}", seq=None, value=line[:80]) from None
    tokens = [msgspec.Raw(token) for token in jsontext.elements(values)]
    raw = msgspec.Raw(data)
    return _RunLine(head.run, head.seq, head.time, head.dt, head.field, raw, tokens)


def unpack_seqs(packed: Any, seq: int | None = None) -> Sequence[Any]:
    """The seqs of a list in which [first, last] stands for a run; a range if that is all of it.

    Raises:
        InvalidEnvelope: a pair that is no run, or one beyond the event's own seq; or more seqs
            than `MAX_SEQS`, or `MAX_RANGE` in a lone run.
    """
    if not is_array(packed):
        return packed
    seqs: list[Any] = []
    for item in packed:
        if not is_array(item):
            seqs.append(item)
            continue
        if len(item) != 2 or not all(type(s) is int for s in item):
            raise InvalidEnvelope("expected [first, last]", seq=seq, value=item)
        first, last = item
        if last < first or (seq is not None and last >= seq):
            raise InvalidEnvelope("expected [first, last] before seq", seq=seq, value=item)
        run, most = range(first, last + 1), MAX_RANGE if len(packed) == 1 else MAX_SEQS
        if last - first >= most - len(seqs):
            msg = f"more than {most} seqs in sourceEventSeqs"
            raise InvalidEnvelope(msg, seq=seq, value=item)
        if len(packed) == 1 and len(run) >= MIN_RUN:
            return run
        seqs.extend(run)
    return seqs


_KNOWN = frozenset({"type", "seq", "time", "data", "sourceEventSeqs", "surfaceOp", "ignorable"})


def event_from_dict(wire: Any, line: bytes | None = None) -> AnyEvent:
    """An event in wire form, `Event.to_dict()`; unknown envelope keys are kept.

    Args:
        wire: the object.
        line: the JSON it was read from, whose payload is then kept verbatim.

    Raises:
        AdmissionError: a field is not what it must be.
    """
    if not is_object(wire):
        raise InvalidEnvelope("expected a JSON object", seq=None, value=wire)
    fields: dict[str, Any] = {str(k): v for k, v in wire.items()}
    seq = fields.get("seq")
    at = seq if type(seq) is int else None
    if "data" not in fields:
        raise InvalidEnvelope("expected data", seq=at, value=sorted(fields))
    raw = jsontext.admit(fields["data"], seq=at)
    if line is not None:
        raw = jsontext.member(line, "data") or raw
    return make_event(
        fields.get("type"),
        seq,
        fields.get("time"),
        raw,
        fields.get("surfaceOp"),
        unpack_seqs(fields.get("sourceEventSeqs"), at),
        ignorable=fields.get("ignorable", False),
        extra={k: v for k, v in fields.items() if k not in _KNOWN} or None,
    )
