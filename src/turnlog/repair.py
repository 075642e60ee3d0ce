"""What an interrupted tail lacks: the closers that make a session whole again.

Repair is a pure function of the log: it appends, never edits; ids come from the session's id and
the seq, times from the last event; on a healthy log it yields nothing, and after its closers were
appended (all, or as many as a second crash let through) it yields what is still missing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import msgspec
from msgspec.structs import replace

from turnlog.assembly import Assembly
from turnlog.content import Failure, Message, Source, Text, ToolCall, is_empty
from turnlog.events import (
    SEED_END,
    AnyEvent,
    ApprovalAsked,
    ApprovalDecided,
    AssistantAttempt,
    AssistantChunk,
    AssistantMessage,
    CompactionEnd,
    CompactionStart,
    EndReason,
    RequestHeader,
    RequestSent,
    SessionHeader,
    StepEnd,
    StepStart,
    ToolCallStart,
    ToolError,
    ToolResult,
    TurnEnd,
    TurnStart,
)

SOURCE = "repair"  # of the results that repair writes for want of better ones
NOT_STARTED = ToolError("ToolNotStartedError", "TOOL_NOT_STARTED")
OUTCOME_UNKNOWN = ToolError("ToolOutcomeUnknownError", "TOOL_OUTCOME_UNKNOWN")
_TEXTS = {
    NOT_STARTED.code: "This call was never started: the session was {0} before. It is safe to "
    "make it again if it is still needed.",
    OUTCOME_UNKNOWN.code: "The session was {0} while this call may have been running, and its "
    "result was not recorded. Its outcome is unknown: verify what it did before making it again.",
}


class Closer(msgspec.Struct, frozen=True):
    """An event that repair asks for; `seq` is the one it will have."""

    type: str
    seq: int
    data: Any
    time: int
    surface_op: str | None = None
    source_event_seqs: Sequence[int] | None = None


class _OpenCall:
    """A call without a result, and what is known of it. Ids may repeat; calls are told apart."""

    __slots__ = ("asking", "call", "proven", "settled", "started")

    def __init__(self, call: ToolCall, asking: AnyEvent, *, proven: bool) -> None:
        self.call = call
        self.asking = asking  # its message
        self.proven = proven  # without a tool/call it did not start
        self.started: int | None = None  # the seq of its tool/call
        self.settled: AnyEvent | None = None


class _Tail:
    """What is open at the end of a log, found by reading back to the last turn boundary."""

    def __init__(
        self,
        header: SessionHeader,
        events: Sequence[AnyEvent],
        on_surface: Callable[[int], bool] = lambda _: True,
    ) -> None:
        start = _tail_start(events)
        self.turn: int | None = None
        self.step: int | None = None
        self.bracket: CompactionStart | None = None
        self.attempt: list[AnyEvent] = []
        self.calls: list[_OpenCall] = []
        self._on_surface = on_surface
        self.asked: dict[str, str] = {}  # call id -> approval id
        self.decided: dict[str, str] = {}
        self.sent = False
        self.unanswered: RequestSent | None = None  # not even a chunk came of it
        self.foreign = 0
        if (header.source_format or "").startswith("dsh/"):
            self.foreign = header.source_length or 0
        for event in events[start:]:
            self._read(event)

    def _read(self, event: AnyEvent) -> None:  # noqa: C901, PLR0912, PLR0915 - one branch an event type
        data = event.data
        match event.type:
            case "turn/start" if isinstance(data, TurnStart):
                self.turn = data.turn
            case "turn/end":
                self.turn = self.step = None
            case "step/start" if isinstance(data, StepStart):
                self.step, self.sent, self.attempt, self.unanswered = data.step, False, [], None
            case "step/end":
                self.step, self.sent, self.attempt, self.unanswered = None, False, [], None
            case "request/sent":
                self.sent = True
                asked = isinstance(data, RequestSent) and data.purpose == "step"
                self.unanswered = data if asked else self.unanswered
            case "assistant/chunk" if isinstance(data, AssistantChunk):
                self.unanswered = None
                if self.attempt and self.attempt[-1].data.attempt != data.attempt:
                    self.attempt = []
                self.attempt.append(event)
            case "assistant/attempt":
                self.attempt, self.unanswered = [], None
            case "assistant/message" if isinstance(data, AssistantMessage):
                self.attempt, self.unanswered = [], None
                proven = self.sent or event.seq < self.foreign
                if event.surface_op == "append":
                    self.calls += [
                        _OpenCall(call, event, proven=proven) for call in data.message.tool_calls
                    ]
                else:
                    self._rewritten(event, data.message)
            case "tool/call" if isinstance(data, ToolCallStart):
                item = next((i for i in self._named(data.call_id) if i.started is None), None)
                if item is not None:
                    item.started = event.seq
            case "tool/settled" if isinstance(data, ToolResult):
                named = self._named(data.message.tool_call_id)
                item = next((i for i in named if i.settled is None), None)
                if item is not None:
                    item.settled = event
            case "tool/result" if isinstance(data, ToolResult) and event.surface_op == "append":
                self._answered(data.message.tool_call_id, event.source_event_seqs or ())
            case "compaction/start" if isinstance(data, CompactionStart):
                self.bracket = data
            case "compaction/end":
                self.bracket = None
            case "approval/asked" if isinstance(data, ApprovalAsked):
                if data.call_id is not None:
                    self.asked[data.call_id] = data.id
            case "approval/decided" if isinstance(data, ApprovalDecided):
                self.decided[data.id] = data.outcome
            case _ if event.type == SEED_END and event.seq >= self.foreign:
                # Nothing before it authorises anything, and a bracket before it is dead.
                self.bracket = None
                self.asked, self.decided = {}, {}
            case _:
                pass

    def _rewritten(self, event: AnyEvent, message: Message) -> None:
        """A message that replaces another asks for nothing new; what was open stays open in it."""
        kept = {call.id for call in message.tool_calls}
        cited = set(event.source_event_seqs or ())
        for item in self.calls:
            if item.call.id in kept and item.asking.seq in cited:
                item.asking = event

    def _named(self, call_id: str | None) -> list[_OpenCall]:
        """The open calls of that id, those whose message is still on the surface first."""
        named = [item for item in self.calls if item.call.id == call_id]
        return sorted(named, key=lambda item: not self._on_surface(item.asking.seq))

    def _answered(self, call_id: str | None, cited: Sequence[int]) -> None:
        named = self._named(call_id)
        item = next((item for item in named if item.started in cited), next(iter(named), None))
        if item is not None:
            self.calls.remove(item)
            self.asked.pop(item.call.id, None)  # the id may be used again: another call

    def suspended(self) -> bool:
        """Whether the turn only waits for a decision on every call that has no result."""
        return bool(self.turn is not None and self.calls) and all(
            item.started is None
            and item.call.id in self.asked
            and self.decided.get(self.asked[item.call.id], "granted") == "granted"
            for item in self.calls
        )


def _tail_start(events: Sequence[AnyEvent]) -> int:
    for i in range(len(events) - 1, -1, -1):
        if events[i].type in ("turn/start", "turn/end"):
            return i
    return 0


def is_suspended(header: SessionHeader, events: Sequence[AnyEvent]) -> bool:
    """Whether the last turn waits for approvals and nothing else: healthy, continued on resume."""
    return _Tail(header, events).suspended()


def at_rest(header: SessionHeader, events: Sequence[AnyEvent]) -> bool:
    """Whether what follows can be closed without these events: nothing of them is still open."""
    tail = _Tail(header, events)
    parts = (tail.turn, tail.step, tail.bracket, tail.unanswered)
    kept = (tail.attempt, tail.calls, tail.asked, tail.decided, tail.sent)
    return all(part is None for part in parts) and not any(kept)


def closers(
    header: SessionHeader,
    events: Sequence[AnyEvent],
    next_seq: int,
    *,
    on_surface: Callable[[int], bool] = lambda _: True,
    reason: str = "interrupted",
    end: EndReason | None = None,
    asked: tuple[str, str] | None = None,
) -> list[Closer]:
    """The events that repair appends, in order; empty on a healthy log.

    Args:
        header: the session's.
        events: the log, in order, from a place on where it was `at_rest` (only what follows the
            last turn boundary is read, but for the last request header).
        next_seq: the seq of the first closer.
        on_surface: whether a node is still on the surface; calls of shadowed messages need nothing.
        reason: what cut it off, one word: "interrupted" (a crash), "forked", "cancelled", "failed".
        end: what `turn/end` says, by default that reason; given, a suspended turn is closed too.
        asked: provider and model of the last request header before these events.
    """
    if not events:
        return []
    tail = _Tail(header, events, on_surface)
    tail.calls = [item for item in tail.calls if on_surface(item.asking.seq)]
    if end is None and reason == "interrupted" and tail.suspended():
        tail.calls, tail.attempt, tail.turn = [], [], None  # only a dead bracket is closed
    if reason == "forked":
        tail.unanswered = None  # the request is the parent's, and so is what came of it
    end = end or EndReason(reason)
    time = events[-1].time
    model = partial(_model, events, asked)
    found: list[Closer] = []
    for type_name, data, cited in _missing(header, model, tail, next_seq, reason, end):
        op = "append" if type_name in ("assistant/message", "tool/result") else None
        found.append(Closer(type_name, next_seq + len(found), data, time, op, cited))
    return found


def _missing(
    header: SessionHeader,
    model: Callable[[], Source],
    tail: _Tail,
    next_seq: int,
    reason: str,
    end: EndReason,
) -> Iterator[tuple[str, Any, Sequence[int] | None]]:
    seq = next_seq
    if tail.bracket is not None:
        bracket = tail.bracket
        yield "compaction/end", CompactionEnd(bracket.compaction_id, bracket.turn, reason), None
        seq += 1
    if tail.attempt:
        yield _settle(header, model, tail.attempt, seq, reason)
        seq += 1
    elif tail.unanswered and tail.turn is not None and tail.step is not None:
        sent = _nothing_came(tail.unanswered, tail.turn, tail.step, reason)
        yield "assistant/attempt", sent, None
        seq += 1
    for item in tail.calls:
        yield _close(header, item, seq, reason)
        seq += 1
    if tail.turn is not None:
        if tail.step is not None:
            yield "step/end", StepEnd(tail.turn, tail.step), None
        yield "turn/end", TurnEnd(tail.turn, end), None


def _settle(
    header: SessionHeader,
    model: Callable[[], Source],
    chunks: list[AnyEvent],
    seq: int,
    reason: str,
) -> tuple[str, Any, Sequence[int] | None]:
    """A last attempt's chunks become an interrupted message, or an attempt if nothing shows."""
    first = chunks[0].data
    built = Assembly(event.data.chunk for event in chunks)
    visible = built.visible()
    if not visible:
        attempt = AssistantAttempt(
            first.turn,
            first.step,
            first.attempt,
            chunks[0].seq,
            chunks[-1].seq,
            _invisible(reason),
            built.usage,
        )
        return "assistant/attempt", attempt, None
    message = Message(repair_id(header, seq), "assistant", visible, model())
    data = AssistantMessage(message, first.turn, first.step, built.usage, interrupted=True)
    return "assistant/message", data, [event.seq for event in chunks]


def _nothing_came(sent: RequestSent, turn: int, step: int, reason: str) -> AssistantAttempt:
    """The account of a request that may have been sent: what it took is unknown, not nothing."""
    return AssistantAttempt(turn, step, sent.attempt, failure=_invisible(reason))


def _invisible(reason: str) -> Failure:
    return Failure(f"the session was {reason} before anything was visible", reason)


def _close(
    header: SessionHeader, item: _OpenCall, seq: int, reason: str
) -> tuple[str, Any, Sequence[int] | None]:
    """An open call's settled result, or the error that says what is known of it."""
    call, started, settled = item.call, item.started, item.settled
    if settled is not None:
        cited = [settled.seq] if started is None else [started, settled.seq]
        return "tool/result", _admissible(settled.data, repair_id(header, seq)), cited
    error = NOT_STARTED if item.proven and started is None else OUTCOME_UNKNOWN
    message = Message(
        repair_id(header, seq),
        "tool",
        (Text(_TEXTS[error.code].format(reason)),),
        Source(SOURCE, call_id=call.id),
        call.id,
        is_error=True,
    )
    data = ToolResult(message, item.asking.data.turn, item.asking.data.step, error)
    return "tool/result", data, None if started is None else [started]


def _admissible(result: ToolResult, message_id: str) -> ToolResult:
    """The result with an id and without empty blocks: what was loaded may be otherwise."""
    message = result.message
    said = tuple(block for block in message.content if not is_empty(block))
    if said == message.content and message.id:
        return result
    return replace(result, message=replace(message, content=said, id=message.id or message_id))


def repair_id(header: SessionHeader, seq: int) -> str:
    """The id of a message that repair makes: the same whenever and wherever it runs."""
    return f"repair-{header.id}-{seq}"


def _model(events: Sequence[AnyEvent], asked: tuple[str, str] | None) -> Source:
    provider, model = last_asked(events) or asked or (None, None)
    return Source("model", provider, model)


def last_asked(events: Sequence[AnyEvent]) -> tuple[str, str] | None:
    """Provider and model of the last request header."""
    for event in reversed(events):
        if event.type == "request/header" and isinstance(event.data, RequestHeader):
            config = event.data.header.config
            return config.provider, config.model
    return None
