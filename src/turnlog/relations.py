"""How the events of a log must relate: turns, steps, attempts, calls, brackets, approvals, pins.

None of this is admission: a log that breaks it loads, and `verify` says where. `Relations` reads a
log event by event and yields what each one breaks, as (rule, what is wrong). After each breach it
goes on from what the event says, so that one mistake is reported once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec

from turnlog import events as ev
from turnlog import jsontext
from turnlog.content import Message, is_empty
from turnlog.events import SEED_END, AnyEvent, EventType, SessionHeader, event_type

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

Breach: TypeAlias = tuple[str, str]

_ROLES = {
    "user/message": ("user",),
    "context/message": ("user", "system"),
    "assistant/message": ("assistant",),
    "tool/result": ("tool",),
    "tool/settled": ("tool",),
    "tool/late-result": ("tool",),
}

#: Rules that ask for an event before: where some were lost, it may be among them.
ASKS_FOR_EARLIER = frozenset(
    {
        "call-is-approved",
        "call-was-asked",
        "compaction-open",
        "decision-was-asked",
        "late-result-after-close",
        "request-before-answer",
        "request-has-header",
        "result-has-call",
        "results-in-call-order",
        "unpin-names-a-pin",
    }
)


class _Call(msgspec.Struct, eq=False):
    """A call that has no result yet; `before` is the call that its message asked just before."""

    id: str
    turn: int | None
    step: int | None
    before: _Call | None
    started: int | None = None
    settled: ev.ToolResult | None = None
    answered: bool = False


class Relations:
    """The state of a log as far as it has been read."""

    def __init__(self, header: SessionHeader) -> None:
        self._foreign = header.source_length or 0
        self.turn: int | None = None
        self.step: int | None = None
        self.bracket: str | None = None
        self._last_turn: int | None = 0
        self._last_step = 0
        self._calls: dict[str, list[_Call]] = {}
        self._closed: set[str] = set()  # ids of calls that have a result
        self._asked: dict[str, str] = {}  # call id -> approval id
        self._outcomes: dict[str, str] = {}  # approval id -> granted, denied or ""
        self._approvals: set[str] = set()
        self._pins: set[str] = set()
        self._header = False  # a request/header is in force
        self._requests = False  # this log records its requests
        self._begin_step()

    def _begin_step(self) -> None:
        self._chunks: list[int] = []
        self._attempt = 1
        self._answered = self._sent = False

    def forget(self) -> None:
        """Events were lost here: what was open may have been closed, and the other way round."""
        self.turn = self.step = self.bracket = self._last_turn = None
        self._begin_step()

    def read(self, event: AnyEvent) -> Iterator[Breach]:
        """What the event breaks; an event that no one here knows breaks nothing."""
        kind = event_type(event.type)
        if kind is None:
            return
        data = event.data
        if kind.payload is not None and type(data) is not kind.payload:
            yield "payload-shape", f"{event.type} has data that is no {kind.payload.__name__}"
            return
        if kind.seq_fields:
            yield from _seqs(event, kind)
        message = data if type(data) is Message else getattr(data, "message", None)
        if type(message) is Message:
            yield from _message(event, message)
        reader = _READERS.get(event.type)
        if reader is not None:
            yield from getattr(self, reader)(event, data)

    # -- turns and steps -----------------------------------------------------------------------

    def _turn_start(self, _: AnyEvent, data: ev.TurnStart) -> Iterator[Breach]:
        yield from self._boundary("turn/start")
        if self.turn is not None:
            yield "turn-closed", f"turn {data.turn} starts while turn {self.turn} is open"
        if self._last_turn is not None and data.turn != self._last_turn + 1:
            yield "turn-number", f"expected turn {self._last_turn + 1}, got {data.turn}"
        self.turn = self._last_turn = data.turn
        self.step, self._last_step = None, 0
        self._begin_step()

    def _turn_end(self, _: AnyEvent, data: ev.TurnEnd) -> Iterator[Breach]:
        yield from self._boundary("turn/end")
        if self.turn != data.turn:
            yield "turn-open", f"turn {data.turn} ends, {_open('turn', self.turn)}"
        if self.step is not None:
            yield "step-closed", f"turn {data.turn} ends while step {self.step} is open"
        self.turn = self.step = None
        self._last_turn = data.turn

    def _boundary(self, what: str) -> Iterator[Breach]:
        if self.bracket is not None:
            yield "compaction-closed", f"{what} while compaction {self.bracket!r} is open"
            self.bracket = None

    def _step_start(self, _: AnyEvent, data: ev.StepStart) -> Iterator[Breach]:
        if self.turn != data.turn:
            yield "turn-open", f"a step of turn {data.turn} starts, {_open('turn', self.turn)}"
        if self.step is not None:
            yield "step-closed", f"step {data.step} starts while step {self.step} is open"
        if data.step != self._last_step + 1 and self._last_turn is not None:
            yield "step-number", f"expected step {self._last_step + 1}, got {data.step}"
        self.step = self._last_step = data.step
        self._begin_step()

    def _step_end(self, _: AnyEvent, data: ev.StepEnd) -> Iterator[Breach]:
        yield from self._in_step("step/end", data)
        yield from self._attempt_closed("the step ends")
        self.step = None
        self._begin_step()

    def _in_step(self, what: str, data: Any) -> Iterator[Breach]:
        """What names a turn and a step names the open ones."""
        if data.turn is None or (data.turn, data.step) == (self.turn, self.step):
            return
        named = f"turn {data.turn}, step {data.step}"
        if self.turn is None or self.step is None:
            yield "names-open-step", f"{what} names {named}, no step is open"
        else:
            yield "names-open-step", f"{what} names {named}, open is {self.turn}, {self.step}"

    # -- requests, attempts, answers -----------------------------------------------------------

    def _request_header(self, _: AnyEvent, __: ev.RequestHeader) -> Iterator[Breach]:
        self._header = True
        yield from ()

    def _request_sent(self, _: AnyEvent, data: ev.RequestSent) -> Iterator[Breach]:
        if data.purpose != "step":
            return
        yield from self._in_step("request/sent", data)
        if not self._header:
            yield "request-has-header", "no request/header is in force since the seed"
        if self._chunks or self._answered:
            yield "request-before-answer", "request/sent comes after the answer began"
        self._sent = self._requests = True

    def _chunk(self, event: AnyEvent, data: ev.AssistantChunk) -> Iterator[Breach]:
        yield from self._in_step("assistant/chunk", data)
        if self._chunks and data.attempt != self._attempt:
            yield from self._attempt_closed(f"attempt {data.attempt} begins")
            self._attempt += 1
        if data.attempt != self._attempt:
            yield "attempt-number", f"expected attempt {self._attempt}, got {data.attempt}"
            self._attempt = data.attempt
        if not self._chunks:
            yield from self._explained("assistant/chunk")
        self._chunks.append(event.seq)

    def _attempt_end(self, _: AnyEvent, data: ev.AssistantAttempt) -> Iterator[Breach]:
        yield from self._in_step("assistant/attempt", data)
        if data.attempt != self._attempt:
            yield "attempt-number", f"expected attempt {self._attempt}, got {data.attempt}"
        chunks = self._chunks
        first, last = (chunks[0], chunks[-1]) if chunks else (None, None)
        if (data.first_seq, data.last_seq) != (first, last):
            named = f"{data.first_seq} to {data.last_seq}"
            yield "attempt-names-chunks", f"expected chunks {first} to {last}, it names {named}"
        self._chunks = []
        self._attempt = data.attempt + 1

    def _attempt_closed(self, when: str) -> Iterator[Breach]:
        if self._chunks:
            first = self._chunks[0]
            yield "attempt-closed", f"{when}, and the chunks from {first} on have no answer"
            self._chunks = []

    def _explained(self, what: str) -> Iterator[Breach]:
        if self._answered:
            yield "one-answer-a-step", f"{what} comes after the step's answer"
        if self._requests and not self._sent:
            yield "request-before-answer", f"{what} has no request/sent before it in its step"

    def _answer(self, event: AnyEvent, data: ev.AssistantMessage) -> Iterator[Breach]:
        if event.surface_op != "append":
            return
        yield from self._in_step("assistant/message", data)
        missing = sorted(set(self._chunks).difference(event.source_event_seqs or ()))
        if missing:
            yield "answer-cites-chunks", f"the chunks {missing[:10]} of its attempt are not cited"
        if data.turn is not None:
            if not self._chunks:
                yield from self._explained("assistant/message")
            self._answered = True
        self._chunks = []
        if data.interrupted and data.message.tool_calls:
            yield "interrupted-has-no-calls", "an interrupted message asks for no tools"
        before: _Call | None = None
        for asked in data.message.tool_calls:
            before = _Call(asked.id, data.turn, data.step, before)
            self._calls.setdefault(asked.id, []).append(before)

    # -- calls and results ---------------------------------------------------------------------

    def _tool_call(self, event: AnyEvent, data: ev.ToolCallStart) -> Iterator[Breach]:
        yield from self._in_step("tool/call", data)
        call = next((c for c in self._calls.get(data.call_id, ()) if c.started is None), None)
        if call is None:
            yield "call-was-asked", f"no answer asks for call {data.call_id!r}, or it has started"
        else:
            call.started = event.seq
        approval = self._asked.get(data.call_id)
        if approval is not None and self._outcomes.get(approval) != "granted":
            yield "call-is-approved", f"call {data.call_id!r} starts without its approval granted"

    def _settled(self, _: AnyEvent, data: ev.ToolResult) -> Iterator[Breach]:
        yield from self._in_step("tool/settled", data)
        call_id = data.message.tool_call_id or ""
        call = next((c for c in self._calls.get(call_id, ()) if c.started is not None), None)
        if call is None:
            yield "result-has-call", f"no call {call_id!r} is running"
        elif call.settled is not None:
            yield "one-result-a-call", f"call {call_id!r} had settled"
        else:
            call.settled = data

    def _result(self, event: AnyEvent, data: ev.ToolResult) -> Iterator[Breach]:
        if event.surface_op != "append":
            return
        call_id = data.message.tool_call_id or ""
        calls = self._calls.get(call_id)
        if not calls:
            if call_id in self._closed:
                yield "one-result-a-call", f"call {call_id!r} has a result"
            else:
                yield "result-has-call", f"no answer asks for call {call_id!r}"
            return
        call = calls.pop(0)
        if not calls:
            del self._calls[call_id]
        call.answered = True
        self._asked.pop(call_id, None)
        self._closed.add(call_id)
        if data.turn is not None:
            yield from self._ordered(call, data)
        if call.settled is not None and call.settled.message.content != data.message.content:
            yield "settled-result-enters", f"call {call_id!r} had settled with another result"
        if data.error is not None and data.error.code == "TOOL_NOT_STARTED" and call.started:
            yield "not-started", f"call {call_id!r} started at {call.started}"

    @staticmethod
    def _ordered(call: _Call, data: ev.ToolResult) -> Iterator[Breach]:
        if call.turn is not None and (data.turn, data.step) != (call.turn, call.step):
            named = f"turn {data.turn}, step {data.step}"
            yield "names-open-step", f"the result names {named}, its call {call.turn}, {call.step}"
        if call.before is not None and not call.before.answered:
            yield "results-in-call-order", f"call {call.before.id!r} before it has no result yet"

    def _late(self, _: AnyEvent, data: ev.ToolResult) -> Iterator[Breach]:
        if (data.message.tool_call_id or "") not in self._closed:
            call_id = data.message.tool_call_id
            yield "late-result-after-close", f"call {call_id!r} has no result that it comes after"

    # -- compaction, approvals, pins, seeds ----------------------------------------------------

    def _compaction_start(self, _: AnyEvent, data: ev.CompactionStart) -> Iterator[Breach]:
        if self.bracket is not None:
            yield "compaction-closed", f"compaction {self.bracket!r} is open"
        self.bracket = data.compaction_id

    def _compaction(self, event: AnyEvent, data: Any) -> Iterator[Breach]:
        if self.bracket != data.compaction_id:
            was = _open("compaction", self.bracket)
            yield "compaction-open", f"{event.type} names {data.compaction_id!r}, {was}"
        if event.type == "compaction/end":
            self.bracket = None

    def _approval_asked(self, _: AnyEvent, data: ev.ApprovalAsked) -> Iterator[Breach]:
        self._approvals.add(data.id)
        self._outcomes[data.id] = ""
        if data.call_id is not None:
            self._asked[data.call_id] = data.id
        yield from ()

    def _approval_decided(self, _: AnyEvent, data: ev.ApprovalDecided) -> Iterator[Breach]:
        if data.id not in self._approvals:
            yield "decision-was-asked", f"approval {data.id!r} was never asked"
        self._outcomes[data.id] = data.outcome

    def _pin(self, _: AnyEvent, data: ev.ContextPin) -> Iterator[Breach]:
        if data.pin_id in self._pins:
            yield "pin-is-new", f"pin {data.pin_id!r} is there"
        self._pins.add(data.pin_id)

    def _unpin(self, _: AnyEvent, data: ev.ContextUnpin) -> Iterator[Breach]:
        if data.pin_id not in self._pins:
            yield "unpin-names-a-pin", f"there is no pin {data.pin_id!r}"
        self._pins.discard(data.pin_id)

    def _end_seed(self, event: AnyEvent, _: ev.EndSeed) -> Iterator[Breach]:
        """Nothing before the last native mark authorises; a bracket before it is dead."""
        if event.seq >= self._foreign:
            self.bracket = None
            self._asked, self._outcomes = {}, {}
            self._header = self._requests = False
        yield from ()


def _open(what: str, number: object) -> str:
    return f"no {what} is open" if number is None else f"open is {number!r}"


def _message(event: AnyEvent, message: Message) -> Iterator[Breach]:
    roles = _ROLES.get(event.type)
    if roles is not None and message.role not in roles:
        yield "message-role", f"{event.type} has a message of role {message.role!r}"
    if any(map(is_empty, message.content)):
        yield "no-empty-block", f"{event.type} holds an empty block"


def _seqs(event: AnyEvent, kind: EventType) -> Iterator[Breach]:
    """Payload fields that hold seqs name earlier events."""
    wire = jsontext.decode(event.raw)
    for path in kind.seq_fields:
        value = wire
        for key in path.split("."):
            value = value.get(key) if isinstance(value, dict) else None  # pyright: ignore[reportUnknownMemberType,reportUnknownVariableType]
        wrong = [seq for seq in _flat(value) if type(seq) is not int or not 0 <= seq < event.seq]
        if wrong:
            yield "payload-names-earlier", f"{event.type}: {path} names {wrong[:10]}"


def _flat(value: Any) -> Iterator[Any]:
    if isinstance(value, list):
        for item in value:  # pyright: ignore[reportUnknownVariableType]
            yield from _flat(item)
    elif value is not None:
        yield value


#: The method that reads an event type; a type that is not here relates to nothing.
_READERS: Mapping[str, str] = {
    "turn/start": "_turn_start",
    "turn/end": "_turn_end",
    "step/start": "_step_start",
    "step/end": "_step_end",
    "request/header": "_request_header",
    "request/sent": "_request_sent",
    "assistant/chunk": "_chunk",
    "assistant/attempt": "_attempt_end",
    "assistant/message": "_answer",
    "tool/call": "_tool_call",
    "tool/settled": "_settled",
    "tool/result": "_result",
    "tool/late-result": "_late",
    "compaction/start": "_compaction_start",
    "compaction/summary": "_compaction",
    "compaction/end": "_compaction",
    "approval/asked": "_approval_asked",
    "approval/decided": "_approval_decided",
    "context/pin": "_pin",
    "context/unpin": "_unpin",
    SEED_END: "_end_seed",
}
