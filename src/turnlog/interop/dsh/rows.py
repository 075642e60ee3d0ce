"""One line of a session file as what it says: an event, or a packed run of stream chunks.

DeepSeek Harness packs runs of three or more chunks of one block into a row of its own (v0, v1).
Rows are told apart by `seq0`, so they are read in every version. An event's `data` is cut out of
the line as it stands, never decoded and encoded again.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias, cast

import msgspec

from turnlog import jsontext

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

SAFE_INT = 2**53 - 1
MAX_CITED = 1 << 20
"""How many seqs one event may cite, so that a range such as [0, 10**15] is not spelt out."""

SurfaceOp: TypeAlias = Literal["append"] | tuple[int, int] | None

_KNOWN = frozenset({"type", "seq", "time", "data", "sourceEventSeqs", "surfaceOp", "ignorable"})
_PACKED = {"type", "seq0", "time0", "data"}
_REPLACE = (frozenset({"op", "start", "end"}), frozenset({"op", "startSeq", "endSeq"}))
_RUNS: dict[str, tuple[str, str, str, frozenset[str]]] = {
    "text-chunks": ("texts", "text-delta", "text", frozenset()),
    "reasoning-chunks": ("texts", "reasoning-delta", "text", frozenset()),
    "tool-call-chunks": ("args", "tool-call-delta", "argumentsDelta", frozenset({"id", "name"})),
}
_fields = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_slow = json.JSONDecoder()


class NotARecord(ValueError):
    """A line that is neither an event nor a packed row; the message says why."""


class SourceEvent(NamedTuple):
    """An event as the source has it, its envelope read, its data untouched."""

    seq: int
    type: str
    time: int
    """Epoch milliseconds."""
    data: bytes
    """JSON text: the source's own bytes, or, for a member of a packed row, built from it."""
    source_event_seqs: list[int] | None = None
    surface_op: SurfaceOp = None
    """"append", or the first and last node that a replacement covers."""
    ignorable: bool = False
    extra: dict[str, Any] | None = None
    """Envelope keys that no version documents."""

    @property
    def last_seq(self) -> int:
        """Its own seq: an event is a run of one."""
        return self.seq

    def events(self) -> Iterator[SourceEvent]:
        """Itself."""
        yield self


class PackedRow(NamedTuple):
    """A run of `assistant/chunk` events of one block, still packed."""

    seq: int
    time: int
    place: dict[str, Any]
    """Turn and step."""
    chunk: dict[str, Any]
    """What the chunks have in common, in the order in which a chunk has it."""
    field: str
    gaps: list[int]
    """Milliseconds between one member and the next."""
    members: list[str]

    @property
    def last_seq(self) -> int:
        """Seq of the last member."""
        return self.seq + len(self.members) - 1

    def events(self) -> Iterator[SourceEvent]:
        """The events that were packed, one by one."""
        time = self.time
        for index, member in enumerate(self.members):
            if index:
                time += self.gaps[index - 1]
            data = {**self.place, "chunk": {**self.chunk, self.field: member}}
            yield SourceEvent(self.seq + index, "assistant/chunk", time, jsontext.encode(data))


def parse_row(text: bytes) -> SourceEvent | PackedRow:
    """Read one line.

    Raises:
        NotARecord: the line is not JSON, or not an event's envelope or a well-formed packed row.
    """
    fields = split_object(text)
    return _packed(fields) if "seq0" in fields else _event(fields)


def split_object(text: bytes) -> Mapping[str, bytes | msgspec.Raw]:
    """The members of a JSON object, each as the text that stands there.

    Raises:
        NotARecord: not UTF-8, not JSON, or not an object.
    """
    try:
        decoded = text.decode("utf-8")
        try:
            return _fields(text)
        except (msgspec.DecodeError, RecursionError):
            return _split_slowly(decoded)
    except UnicodeDecodeError as error:
        raise NotARecord(f"not UTF-8 at byte {error.start} of the record") from None
    except (ValueError, RecursionError) as error:
        raise NotARecord(f"not a JSON object ({str(error)[:80]})") from None


def _split_slowly(text: str) -> dict[str, bytes]:
    """As msgspec's raw fields, for text with lone surrogates, which msgspec refuses.

    Cuts the object at the commas of its own level: each key and value is decoded once to find its
    end, and kept as the text it was.
    """
    jsontext.decode_leniently(text.encode())
    fields: dict[str, bytes] = {}
    at = _blank(text, 0) + 1
    if text[at - 1] != "{":
        raise ValueError("expected an object")
    at = _blank(text, at)
    while text[at] != "}":
        key, at = _slow.raw_decode(text, at)
        start = _blank(text, _blank(text, at) + 1)
        _, at = _slow.raw_decode(text, start)
        fields[key] = text[start:at].encode()
        at = _blank(text, at)
        if text[at] == ",":
            at = _blank(text, at + 1)
    return fields


def _blank(text: str, at: int) -> int:
    while text[at] in " \t\r\n":
        at += 1
    return at


def _event(fields: Mapping[str, bytes | msgspec.Raw]) -> SourceEvent:
    if "data" not in fields:
        raise NotARecord("an event without data")
    seq = _integer(fields, "seq", least=0)
    cited, op, ignorable = (
        fields.get("sourceEventSeqs"),
        fields.get("surfaceOp"),
        fields.get("ignorable"),
    )
    extra = {key: _value(raw) for key, raw in fields.items() if key not in _KNOWN}
    if ignorable is not None and _value(ignorable) is not True:
        extra["ignorable"] = _value(ignorable)
    return SourceEvent(
        seq,
        _text(fields, "type"),
        _integer(fields, "time", least=-SAFE_INT),
        bytes(fields["data"]),
        None if cited is None else unpack_seqs(_value(cited), seq),
        None if op is None else _surface_op(_value(op)),
        ignorable is not None and "ignorable" not in extra,
        extra or None,
    )


def unpack_seqs(value: Any, own: int) -> list[int]:
    """Provenance as a flat list; runs may be packed as pairs of first and last.

    Raises:
        NotARecord: not a list of seqs and rising pairs, or more than `MAX_CITED` of them.
    """
    seqs: list[int] = []
    if not isinstance(value, list):
        raise NotARecord("sourceEventSeqs that is no list")
    for item in cast("list[Any]", value):
        if _is_seq(item):
            first, last = item, item
        elif isinstance(item, list) and all(map(_is_seq, item)) and len(item) == 2:  # pyright: ignore[reportUnknownArgumentType]
            first, last = cast("list[int]", item)
            if not first < last < own:
                raise NotARecord(
                    f"a range of seqs [{first}, {last}] that does not rise to below {own}"
                )
        else:
            raise NotARecord("sourceEventSeqs with something that is neither a seq nor a range")
        if len(seqs) + last - first >= MAX_CITED:
            raise NotARecord(f"more than {MAX_CITED} cited seqs")
        seqs.extend(range(first, last + 1))
    return seqs


def _surface_op(value: Any) -> SurfaceOp:
    if value == "append":
        return "append"
    if isinstance(value, dict):
        op = cast("dict[str, Any]", value)
        start, end = op.get("start", op.get("startSeq")), op.get("end", op.get("endSeq"))
        if op.keys() in _REPLACE and op["op"] == "replace" and _is_seq(start) and _is_seq(end):
            return cast("tuple[int, int]", (start, end))
    raise NotARecord("a surfaceOp that is neither append nor a replace of two seqs")


def _packed(fields: Mapping[str, bytes | msgspec.Raw]) -> PackedRow:
    tag = _text(fields, "type")
    seq = _integer(fields, "seq0", least=0)
    time = _integer(fields, "time0", least=-SAFE_INT)
    data = _value(fields["data"]) if "data" in fields else None
    if set(fields) != _PACKED or tag not in _RUNS or not isinstance(data, dict):
        raise NotARecord(f"a packed row {tag!r} with other keys than it should have")
    run = cast("dict[str, Any]", data)
    members_key, kind, field, named = _RUNS[tag]
    required = {"turn", "step", "index", "dt", members_key} | (named - {"name"})
    if not required <= run.keys() <= required | named:
        raise NotARecord(f"a packed row {tag!r} with other fields than it should have")
    members, gaps = run[members_key], run["dt"]
    if not _all(members, str) or not members:
        raise NotARecord(f"a packed row {tag!r} whose {members_key} is no list of strings")
    if not _all(gaps, int) or len(gaps) != len(members) - 1:
        raise NotARecord(f"a packed row {tag!r} whose dt does not fit its {members_key}")
    if not all(_is_seq(run[key]) for key in ("turn", "step", "index")) or not all(
        isinstance(run[key], str) for key in named & run.keys()
    ):
        raise NotARecord(f"a packed row {tag!r} that does not say where it belongs")
    _check_reach(seq, time, gaps)
    chunk = {"type": kind, "index": run["index"]}
    chunk |= {key: run[key] for key in ("id", "name") if key in run}
    place = {"turn": run["turn"], "step": run["step"]}
    return PackedRow(seq, time, place, chunk, field, gaps, members)


def _check_reach(seq: int, time: int, gaps: list[int]) -> None:
    """Seq and time stay integers that JavaScript can count with, at every member."""
    if seq + len(gaps) > SAFE_INT:
        raise NotARecord("a packed row whose seqs leave the safe integers")
    for gap in gaps:
        time += gap
        if abs(time) > SAFE_INT:
            raise NotARecord("a packed row whose times leave the safe integers")


def _all(value: Any, kind: type) -> bool:
    return isinstance(value, list) and all(type(item) is kind for item in cast("list[Any]", value))


def _is_seq(value: Any) -> bool:
    return type(value) is int and 0 <= value <= SAFE_INT


def _value(raw: bytes | msgspec.Raw) -> Any:
    try:
        return jsontext.decode(bytes(raw))
    except ValueError as error:
        raise NotARecord(f"not JSON ({str(error)[:80]})") from None


def _integer(fields: Mapping[str, bytes | msgspec.Raw], key: str, *, least: int) -> int:
    value = _value(fields[key]) if key in fields else None
    if type(value) is not int or not least <= value <= SAFE_INT:
        raise NotARecord(f"an event whose {key} is no safe integer")
    return value


def _text(fields: Mapping[str, bytes | msgspec.Raw], key: str) -> str:
    value = _value(fields[key]) if key in fields else None
    if not isinstance(value, str) or not value:
        raise NotARecord(f"an event whose {key} is no text")
    return value
