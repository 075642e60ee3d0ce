"""The event vocabulary, the envelope, the header, and an application's own types.

An event's payload is kept as the JSON bytes that were admitted; `event.data` reads them as a typed
struct (or plain JSON where there is none), decoding on first use. The bytes are the truth: what
was appended or loaded comes out again verbatim, whatever we understand of it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, ClassVar, Final, Generic, Literal, TypeAlias, TypeVar

import msgspec

from turnlog import jsontext
from turnlog.content import (
    Chunk,
    Extra,
    Failure,
    Int,
    Message,
    Source,
    Usage,
    extra_field,
)
from turnlog.errors import (
    InvalidHeader,
    InvalidPayload,
    PayloadError,
    TurnlogError,
    UnsupportedVersion,
)
from turnlog.records import Codec, Record, flatten, freeze

FORMAT: Final = "turnlog"
VERSION: Final = 0


# -- payloads: boundaries ----------------------------------------------------------------------


class TurnStart(Record, frozen=True):
    """`turn/start`: turns count from 1."""

    turn: Int
    extra: Extra = extra_field()


class EndReason(Record, frozen=True):
    """Why a turn ended.

    `kind`: completed, aborted (its cause in `reason`), blocked, error (in `error`), max-tokens,
    limit (which one in `reason`), interrupted (by a crash, written by repair), forked. Open.
    """

    kind: str
    reason: Any = None
    error: Failure | None = None
    extra: Extra = extra_field()


class TurnEnd(Record, frozen=True):
    """`turn/end`."""

    turn: Int
    reason: EndReason
    extra: Extra = extra_field()


class StepStart(Record, frozen=True):
    """`step/start`: steps count from 1 within their turn."""

    turn: Int
    step: Int
    extra: Extra = extra_field()


class StepEnd(Record, frozen=True):
    """`step/end`."""

    turn: Int
    step: Int
    extra: Extra = extra_field()


class EndSeed(Record, frozen=True):
    """`session/end-seed`: what lies before was inherited, and authorises nothing."""

    inherited: bool | None = None
    extra: Extra = extra_field()


# -- payloads: messages ------------------------------------------------------------------------


class AssistantMessage(Record, frozen=True):
    """`assistant/message`: one model answer; `interrupted` when it was cut off."""

    message: Message
    turn: Int | None = None
    step: Int | None = None
    usage: Usage | None = None
    interrupted: bool | None = None
    extra: Extra = extra_field()


class ToolError(Record, frozen=True):
    """What went wrong in a tool: `code` is ours (TOOL_OUTCOME_UNKNOWN …) or the tool's."""

    name: str
    code: str
    extra: Extra = extra_field()


class ToolResult(Record, frozen=True):
    """`tool/result`, `tool/settled` and `tool/late-result`: a role "tool" message."""

    message: Message
    turn: Int | None = None
    step: Int | None = None
    error: ToolError | None = None
    meta: Any = None
    extra: Extra = extra_field()


class SystemMessage(Record, frozen=True):
    """`system/message` and `developer/message`, which imported logs carry."""

    message: Message
    turn: Int | None = None
    step: Int | None = None
    header_seq: Int | None = None
    extra: Extra = extra_field()


# -- payloads: stream and tools ----------------------------------------------------------------


class AssistantChunk(Record, frozen=True):
    """`assistant/chunk`: one piece of a stream; `attempt` counts from 1 within the step."""

    turn: Int
    step: Int
    chunk: Chunk
    attempt: Int = 1
    extra: Extra = extra_field()


class AssistantAttempt(Record, frozen=True):
    """`assistant/attempt`: an attempt that settled without a message.

    `first_seq` … `last_seq` are its chunks, absent when there were none.
    """

    turn: Int
    step: Int
    attempt: Int = 1
    first_seq: Int | None = None
    last_seq: Int | None = None
    failure: Failure | None = None
    usage: Usage | None = None
    extra: Extra = extra_field()


class ToolCallStart(Record, frozen=True):
    """`tool/call`: a body is about to be dispatched; `arguments` is the raw string."""

    call_id: str
    name: str
    arguments: str
    turn: Int | None = None
    step: Int | None = None
    extra: Extra = extra_field()


# -- payloads: records -------------------------------------------------------------------------


class ToolSchema(Record, frozen=True):
    """A tool as the model is told of it; `parameters` is a JSON Schema."""

    name: str
    description: str
    parameters: dict[str, Any]
    extra: Extra = extra_field()


class ModelConfig(Record, frozen=True):
    """Which model is asked, and how."""

    provider: str
    model: str
    reasoning_effort: str | None = None
    temperature: float | None = None
    max_tokens: Int | None = None
    stop: tuple[str, ...] | None = None
    tool_choice: str | None = None
    extra: Extra = extra_field()


class Header(Record, frozen=True):
    """What a request says besides its messages: configuration, system text, tools."""

    config: ModelConfig
    system: str | None = None
    tools: tuple[ToolSchema, ...] | None = None
    extra: Extra = extra_field()


class RequestHeader(Record, frozen=True):
    """`request/header`: in force until the next one; `reason` initial, resume or change."""

    header: Header
    reason: str
    extra: Extra = extra_field()


class RequestSent(Record, frozen=True):
    """`request/sent`: these bytes may have been sent.

    `digest` is "sha256:" and the hex digest of the body, `encoder` is "name@version"; an auxiliary
    request (purpose other than "step") carries its trailing `instruction`, and `from_seq` and
    `through_seq`, the first and last of the surface's nodes that it shows, when it shows a part.
    """

    purpose: str
    digest: str
    encoder: str
    model: str
    turn: Int | None = None
    step: Int | None = None
    attempt: Int = 1
    instruction: str | None = None
    from_seq: Int | None = None
    through_seq: Int | None = None
    extra: Extra = extra_field()


class RequestContext(Record, frozen=True):
    """`request/context`: what is known of the model's window, in tokens."""

    provider: str
    model: str
    context_window: Int | None = None
    extra: Extra = extra_field()


class LlmRetry(Record, frozen=True):
    """`llm/retry`: a failed attempt is tried again after `delay_ms`."""

    turn: Int
    step: Int
    retry: Int
    delay_ms: float
    failure: Failure
    max_retries: Int | None = None
    extra: Extra = extra_field()


class CompactionStart(Record, frozen=True):
    """`compaction/start`: opens the bracket that is the lock.

    `reason` says who wants it: threshold (the next request would be too long), overflow (the
    provider refused one), switch (the next request goes to another model), manual; open.
    `tokens_before` is the estimate of the next request, `window` what the model takes.
    """

    compaction_id: str
    turn: Int | None = None
    reason: str | None = None
    instruction: str | None = None
    tokens_before: Int | None = None
    window: Int | None = None
    extra: Extra = extra_field()


class CompactionSummary(Record, frozen=True):
    """`compaction/summary`: what the model made of `shadowed_seqs`, or of a part of them.

    One for each request that was sent, whatever came of it. `error` says why its text is not used;
    then nothing is shadowed by it. `policy` is model, or structural, which asks none.
    """

    compaction_id: str
    summary: tuple[Any, ...] | None = None
    shadowed_seqs: tuple[Int, ...] | None = None
    usage: Usage | None = None
    policy: str | None = None
    attempt: Int | None = None
    error: Failure | None = None
    extra: Extra = extra_field()


class CompactionEnd(Record, frozen=True):
    """`compaction/end`: closes the bracket, with `error` if it failed.

    Ours have a `Failure` there, repair's a word. `start` and `end` are the nodes that were
    replaced, from first to last, absent when none were; `tokens_after` is the estimate of the next
    request now; `policy` is model or structural; `attempts` counts the requests that were sent,
    `usage` is theirs together.
    """

    compaction_id: str
    turn: Int | None = None
    error: Any = None
    start: Int | None = None
    end: Int | None = None
    tokens_before: Int | None = None
    tokens_after: Int | None = None
    policy: str | None = None
    attempts: Int | None = None
    usage: Usage | None = None
    extra: Extra = extra_field()


class CompactionPrune(Record, frozen=True):
    """`compaction/prune`: a tool result is about to be replaced by a shorter one."""

    shadowed_seqs: tuple[Int, ...]
    extra: Extra = extra_field()


class ContextPin(Record, frozen=True):
    """`context/pin`: the content of the event `seq` survives every compaction."""

    pin_id: str
    seq: Int
    extra: Extra = extra_field()


class ContextUnpin(Record, frozen=True):
    """`context/unpin`."""

    pin_id: str
    extra: Extra = extra_field()


class ApprovalAsked(Record, frozen=True):
    """`approval/asked`: a call waits for a person."""

    id: str
    tool_name: str
    call_id: str | None = None
    arguments: str | None = None
    reason: str | None = None
    turn: Int | None = None
    extra: Extra = extra_field()


class ApprovalDecided(Record, frozen=True):
    """`approval/decided`: `outcome` granted or denied."""

    id: str
    outcome: str
    reason: str | None = None
    extra: Extra = extra_field()


class InboxAccepted(Record, frozen=True):
    """`inbox/accepted`: a command from the inbox, as it was posted."""

    command: dict[str, Any]
    extra: Extra = extra_field()


class SessionTitle(Record, frozen=True):
    """`session/title`: `source` says whether a person, a model or a rule made it."""

    title: str
    message_seqs: tuple[Int, ...] = ()
    source: Source = Source("fallback")
    extra: Extra = extra_field()


class SessionLinked(Record, frozen=True):
    """`session/linked`: another session and what it is to this one."""

    session_id: str
    relation: str
    extra: Extra = extra_field()


class DamageAcknowledged(Record, frozen=True):
    """`session/damage-acknowledged`: the ranges that are accepted as lost."""

    ranges: tuple[dict[str, Any], ...] = ()
    extra: Extra = extra_field()


class SessionErased(Record, frozen=True):
    """`session/erased`: which payloads were removed, and why."""

    seqs: tuple[Int, ...]
    reason: str
    extra: Extra = extra_field()


# -- event types -------------------------------------------------------------------------------

SEED_END: Final = "session/end-seed"


_OBJECT: Final = ord("{")  # with which every typed payload begins
_MESSAGE_PAYLOADS: Final = frozenset({Message, AssistantMessage, ToolResult, SystemMessage})


class EventType:
    """One event type: how its payload is read, and whether it may enter the surface.

    Attributes:
        name: as in the log, `family/noun`.
        surface: a message type, which must carry `surface_op`.
        seq_fields: dotted wire paths of payload fields that hold seqs (`message.seqs`).
        codec: reads and admits typed payloads; None means plain JSON.
        free: a byte that the payload's JSON contains when it has parts of any shape, so that
            integers and depth must be checked; None when there are never such parts.
        has_message: the payload is a message, or carries one.
        tracks_calls: a `tool/result` will have to cite events of this type.
        admit: `admit(data, seq)` gives the bytes of a payload, and its typed snapshot. It raises a
            PayloadError: not JSON, not this type's shape, too large, too deep.
        read: `read(raw)` is the payload as this type's struct, or plain JSON when it does not have
            that shape. It and `admit` are made once, not bound anew for every event.
    """

    __slots__ = (
        "admit",
        "codec",
        "free",
        "has_message",
        "name",
        "payload",
        "read",
        "seq_fields",
        "surface",
        "tracks_calls",
    )

    def __init__(
        self,
        name: str,
        payload: type[Any] | None = None,
        *,
        surface: bool = False,
        seq_fields: Sequence[str] = (),
        free: int | None = _OBJECT,
    ) -> None:
        self.name = name
        self.payload = payload
        self.surface = surface
        self.seq_fields = tuple(seq_fields)
        self.codec = None if payload is None else Codec(payload)
        self.free = free
        self.has_message = payload in _MESSAGE_PAYLOADS
        self.tracks_calls = name in ("tool/call", "tool/settled")
        self.admit: Callable[[Any, int], tuple[bytes, Any]] = self._admit
        if self.codec is not None:
            self.admit = self.codec.admission(free, self._admit)
        self.read: Callable[[bytes], Any] = jsontext.decode
        if self.codec is not None:
            self.read = self.codec.reading()

    def __repr__(self) -> str:
        return f"EventType({self.name!r})"

    def _admit(self, data: Any, seq: int) -> tuple[bytes, Any]:
        codec = self.codec
        if codec is not None and type(data) is self.payload:
            return codec.admit(data, seq)
        if isinstance(data, msgspec.Struct):
            if codec is not None:
                msg = f"expected {codec.cls.__name__} or a dict, got {type(data).__name__}"
                raise InvalidPayload(msg, seq=seq, value=data)
            data = flatten(data)
        raw = jsontext.admit(data, seq=seq)
        if codec is None:
            return raw, jsontext.decode(raw)
        try:
            return raw, codec.decode(raw)
        except msgspec.ValidationError as error:
            raise InvalidPayload(f"{self.name}: {error}", seq=seq, value=data) from None


def _core() -> Iterable[EventType]:
    message, log = True, False
    some, none = _OBJECT, None  # parts of any shape
    replay = ord("S")  # of `replayState`, the only such part of a chunk
    # name, payload, surface-eligible, free-form parts, fields with seqs
    rows: list[tuple[str, type[Any], bool, int | None, tuple[str, ...]]] = [
        ("turn/start", TurnStart, log, none, ()),
        ("turn/end", TurnEnd, log, some, ()),
        ("step/start", StepStart, log, none, ()),
        ("step/end", StepEnd, log, none, ()),
        (SEED_END, EndSeed, log, none, ()),
        ("user/message", Message, message, none, ()),
        ("context/message", Message, message, none, ()),
        ("assistant/message", AssistantMessage, message, none, ()),
        ("tool/result", ToolResult, message, some, ()),
        ("system/message", SystemMessage, message, none, ()),
        ("developer/message", SystemMessage, message, none, ("headerSeq",)),
        ("assistant/chunk", AssistantChunk, log, replay, ()),
        ("assistant/attempt", AssistantAttempt, log, some, ("firstSeq", "lastSeq")),
        ("tool/call", ToolCallStart, log, none, ()),
        ("tool/settled", ToolResult, log, some, ()),
        ("tool/late-result", ToolResult, log, some, ()),
        ("request/header", RequestHeader, log, some, ()),
        ("request/sent", RequestSent, log, none, ("fromSeq", "throughSeq")),
        ("request/context", RequestContext, log, none, ()),
        ("llm/retry", LlmRetry, log, some, ()),
        ("compaction/start", CompactionStart, log, none, ()),
        ("compaction/summary", CompactionSummary, log, some, ("shadowedSeqs",)),
        ("compaction/end", CompactionEnd, log, some, ("start", "end")),
        ("compaction/prune", CompactionPrune, log, none, ("shadowedSeqs",)),
        ("context/pin", ContextPin, log, none, ("seq",)),
        ("context/unpin", ContextUnpin, log, none, ()),
        ("approval/asked", ApprovalAsked, log, none, ()),
        ("approval/decided", ApprovalDecided, log, none, ()),
        ("inbox/accepted", InboxAccepted, log, some, ()),
        ("session/title", SessionTitle, log, none, ("messageSeqs",)),
        ("session/linked", SessionLinked, log, none, ()),
        ("session/damage-acknowledged", DamageAcknowledged, log, some, ()),
        ("session/erased", SessionErased, log, none, ("seqs",)),
    ]
    for name, payload, surface, free, seq_fields in rows:
        yield EventType(name, payload, surface=surface, free=free, seq_fields=seq_fields)


CORE_TYPES: Final[Mapping[str, EventType]] = {kind.name: kind for kind in _core()}
_registered: dict[str, EventType] = {}
_types: dict[str, EventType] = dict(CORE_TYPES)


def register_event_type(
    name: str, payload: type[Any] | None = None, *, seq_fields: Sequence[str] = ()
) -> EventType:
    """Register an application's own, log-only event type for this process.

    Args:
        name: under the application's own prefix, as in `acme/deployed`.
        payload: a msgspec struct to read it as; without one the payload is plain JSON. Derive it
            from `turnlog.Record` and give it an `extra` field, and unknown fields are kept too.
        seq_fields: dotted paths of payload fields that hold seqs.

    Raises:
        TurnlogError: the prefix belongs to turnlog, or the name has none.
    """
    prefix, slash, noun = name.partition("/")
    if not (prefix and slash and noun):
        msg = f"expected an event type like 'acme/deployed', got {name!r}"
        raise TurnlogError(msg)
    if prefix in {core.partition("/")[0] for core in CORE_TYPES}:
        msg = f"the prefix {prefix!r} belongs to turnlog; register {name!r} under your own"
        raise TurnlogError(msg)
    kind = _types[name] = _registered[name] = EventType(name, payload, seq_fields=seq_fields)
    return kind


def unregister_event_type(name: str) -> None:
    """Forget a registered type; events of it are then unknown, and kept."""
    if _registered.pop(name, None) is not None:
        del _types[name]


def event_type(name: str) -> EventType | None:
    """The core or registered type of that name."""
    return _types.get(name)


#: `event_type` without the call: for the one place that runs for every append.
EVENT_TYPES: Final[Mapping[str, EventType]] = _types


#: The core types that are log-only: they carry neither `surface_op` nor `source_event_seqs`.
LogOnlyType: TypeAlias = Literal[
    "approval/asked",
    "approval/decided",
    "assistant/attempt",
    "assistant/chunk",
    "compaction/end",
    "compaction/prune",
    "compaction/start",
    "compaction/summary",
    "context/pin",
    "context/unpin",
    "inbox/accepted",
    "llm/retry",
    "request/context",
    "request/header",
    "request/sent",
    "session/damage-acknowledged",
    "session/end-seed",
    "session/erased",
    "session/linked",
    "session/title",
    "step/end",
    "step/start",
    "tool/call",
    "tool/late-result",
    "tool/settled",
    "turn/end",
    "turn/start",
]
LogOnlyPayload: TypeAlias = (
    ApprovalAsked
    | ApprovalDecided
    | AssistantAttempt
    | AssistantChunk
    | CompactionEnd
    | CompactionPrune
    | CompactionStart
    | CompactionSummary
    | ContextPin
    | ContextUnpin
    | DamageAcknowledged
    | EndSeed
    | InboxAccepted
    | LlmRetry
    | RequestContext
    | RequestHeader
    | RequestSent
    | SessionErased
    | SessionLinked
    | SessionTitle
    | StepEnd
    | StepStart
    | ToolCallStart
    | ToolResult
    | TurnEnd
    | TurnStart
)

# -- the envelope ------------------------------------------------------------------------------


class Replace(
    msgspec.Struct, frozen=True, tag_field="op", tag="replace", forbid_unknown_fields=True
):
    """Surface operation: the nodes from `start` to `end` inclusive give way to this event."""

    start: int
    end: int

    def to_dict(self) -> dict[str, Any]:
        """`{"op": "replace", "start": seq, "end": seq}`."""
        return {"op": "replace", "start": self.start, "end": self.end}


SurfaceOp: TypeAlias = Literal["append"] | Replace


D = TypeVar("D")
_UNREAD: Any = msgspec.UNSET
_set = msgspec.structs.force_setattr
_SHOWN = 100  # bytes of a payload in an event's repr


class Event(msgspec.Struct, Generic[D], frozen=True, eq=False, gc=False):
    """One event of a log; immutable.

    Attributes:
        type: e.g. "user/message".
        seq: its place in the log, from 0.
        time: epoch milliseconds; informative only.
        raw: the payload's JSON, verbatim.
        surface_op: "append", a `Replace`, or None for log-only events.
        source_event_seqs: what it was made from, or None when not recorded.
        ignorable: True when a foreign writer marked it as safe to skip.
        extra: envelope keys that we do not know, by name.
    """

    type: str
    seq: int
    time: int
    raw: bytes
    surface_op: SurfaceOp | None = None
    source_event_seqs: Sequence[int] | None = None
    ignorable: bool = False
    extra: dict[str, Any] | None = None
    reading: Callable[[bytes], Any] = jsontext.decode
    _data: Any = _UNREAD

    @property
    def data(self) -> D:
        """The payload: a struct of the event's type, or plain JSON where there is none."""
        data = self._data
        if data is _UNREAD:
            data = self.reading(self.raw)
            _set(self, "_data", data)
        return data

    @property
    def message(self) -> Message | None:
        """The message of a message event that we can read, else None."""
        data: Any = self._data
        if data is _UNREAD:
            data = self.data
        if type(data) is Message:
            return data
        if type(data) in _CARRIERS:
            return data.message
        return None

    def to_dict(self) -> dict[str, Any]:
        """The wire form: {type, seq, time, data, sourceEventSeqs?, surfaceOp?, ignorable?}."""
        wire: dict[str, Any] = {
            "type": self.type,
            "seq": self.seq,
            "time": self.time,
            "data": jsontext.decode(self.raw),
        }
        if self.source_event_seqs is not None:
            wire["sourceEventSeqs"] = list(self.source_event_seqs)
        if self.surface_op is not None:
            op = self.surface_op
            wire["surfaceOp"] = op if isinstance(op, str) else op.to_dict()
        if self.ignorable:
            wire["ignorable"] = True
        if self.extra:
            wire.update(self.extra)
        return wire

    def __repr__(self) -> str:
        said = self.raw[:_SHOWN].decode(errors="replace")
        return f"<Event {self.seq} {self.type} {said}{'…' if len(self.raw) > _SHOWN else ''}>"

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if not isinstance(other, Event):
            return NotImplemented
        if self.seq != other.seq or self.type != other.type:  # pyright: ignore[reportUnknownMemberType]
            return False
        return self.to_dict() == other.to_dict()

    def __ne__(self, other: object) -> bool:  # a struct's own compares identities
        return not self == other

    def __hash__(self) -> int:
        return hash((self.type, self.seq, self.time))


_CARRIERS: Final = _MESSAGE_PAYLOADS - {Message}
AnyEvent: TypeAlias = Event[Any]


# -- the header --------------------------------------------------------------------------------


class SessionHeader(Record, frozen=True):
    """Written once, before the first event.

    Attributes:
        id: the session's id; any non-empty string, never used as a path.
        created_at: epoch milliseconds.
        seed_length: how many leading events were inherited (a fork) or imported.
        source_format: what the seed was imported from, e.g. "dsh/v4".
        source_length: how many leading events are the source's own (at most `seed_length`).
        imported_length: of a fork of an import, how many leading events came with the import.
        source: a foreign header, verbatim.
        source_damage: what could not be read of the source: {reason, firstSeq?, lastSeq?, offset?,
            length?, place?, bytes?} each, `bytes` in base64 and perhaps cut off.
    """

    format: ClassVar[str] = FORMAT

    id: str
    created_at: Int
    version: Int = VERSION
    cwd: str | None = None
    parent_session: str | None = None
    seed_length: Int | None = None
    source_format: str | None = None
    source_length: Int | None = None
    imported_length: Int | None = None
    source: dict[str, Any] | None = None
    source_damage: tuple[dict[str, Any], ...] | None = None
    extra: Extra = extra_field()

    @property
    def imported(self) -> int:
        """How many leading events came with an import, here or in a session it was forked from."""
        if self.source_format is None:
            return 0
        known = self.imported_length
        return (self.seed_length or 0) if known is None else known

    def to_dict(self) -> dict[str, Any]:
        """The wire form, `format` and `version` always written."""
        return {"format": FORMAT, "version": self.version, **flatten(self)}

    @classmethod
    def from_dict(cls, wire: Any) -> SessionHeader:
        """The header in a wire object.

        Raises:
            InvalidHeader: not a header of ours.
            UnsupportedVersion: written by a newer turnlog.
        """
        if not isinstance(wire, dict) or wire.get("format") != FORMAT:  # pyright: ignore[reportUnknownMemberType]
            msg = f'expected a session header with "format": "{FORMAT}"'
            raise InvalidHeader(msg)
        rest: dict[str, Any] = {str(k): v for k, v in wire.items() if k != "format"}  # pyright: ignore[reportUnknownVariableType,reportUnknownArgumentType]
        version = rest.get("version", VERSION)
        if type(version) is int and version > VERSION:
            msg = (
                f"this log has format version {version}, and this turnlog reads up to {VERSION}: "
                "install a newer turnlog"
            )
            raise UnsupportedVersion(msg)
        try:
            header = _header_codec.convert(freeze(rest))
        except msgspec.ValidationError as error:
            msg = f"session header: {error}"
            raise InvalidHeader(msg) from None
        header.check()
        return header

    def check(self) -> None:
        """Raise InvalidHeader unless every field is what the law asks for."""
        try:
            _header_codec.admit(self, None)
        except PayloadError as error:
            raise InvalidHeader(f"session header: {error.detail}") from None
        if not self.id:
            msg = "session header: expected a non-empty id"
            raise InvalidHeader(msg)
        if _PAIR.search(self.id):  # JSON, and so whoever lists, reads another id
            msg = "session header: expected an id without a pair of surrogates: write its character"
            raise InvalidHeader(msg)
        if self.created_at < 0 or self.version < 0 or (self.seed_length or 0) < 0:
            msg = "session header: createdAt, version and seedLength must not be negative"
            raise InvalidHeader(msg)


_PAIR = re.compile("[\ud800-\udbff][\udc00-\udfff]")
_header_codec = Codec(SessionHeader)
