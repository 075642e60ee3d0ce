"""Each request that was sent: what it was made of, what it cost, what came of it.

A request is logged by `request/sent` before its bytes leave. Imported logs have no such events: a
request is inferred there from what came back (the first chunk, else the message or the failed
attempt) under the `request/header` in force. Of a request that failed before anything came back, a
foreign log says nothing, so none is listed. `turnlog.proof` builds a request's body again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import msgspec

from turnlog import events as ev
from turnlog.content import Usage
from turnlog.events import Header
from turnlog.records import Record
from turnlog.views.request import SHIFT

if TYPE_CHECKING:
    from collections.abc import Callable

    from turnlog.events import AnyEvent
    from turnlog.session import Session
    from turnlog.views.sequence import MessageList

STEP = "step"
COMPACTION = "compaction"


def shown(
    session: Session, from_seq: int | None, through_seq: int | None, at: int | None = None
) -> MessageList:
    """The messages of a request that shows the surface nodes from one to another, inclusive.

    Args:
        session: whose surface it is.
        from_seq: the first node; None: the surface's first.
        through_seq: the last node; None: the surface's last.
        at: as it was after this event.
    """
    messages = session.request_messages(at=at)
    if from_seq is None and through_seq is None:
        return messages
    anchor = session.surface.anchor
    low = 0 if from_seq is None else anchor(from_seq) << SHIFT
    high = None if through_seq is None else (anchor(through_seq) + 1) << SHIFT
    return messages.between(low, high)


Outcome: TypeAlias = Literal[
    "open",  # nothing came of it yet
    "answered",
    "interrupted",  # an answer that was cut off
    "failed",
    "unknown",  # its step ended or another request followed, and the log does not say
]


class Request(Record, frozen=True, kw_only=True):
    """One request.

    Attributes:
        index: its number, from 0.
        seq: of its `request/sent`; None when it is inferred.
        at: the boundary of its prefix: its messages are `session.request_messages(at=at)`.
        header_seq, header: the `request/header` in force; None when there was none.
        purpose: "step", or what an auxiliary request was for.
        digest: "sha256:" and the hex digest of its body; None when it is inferred.
        encoder: "name@version" of what made the body; None when it is inferred.
        instruction: what an auxiliary request said after the messages.
        from_seq, through_seq: the first and last surface node that it showed; None when all.
        outcome: see `Outcome`.
        outcome_seq: the event that says so.
        failure: why it failed: a `Failure`, or a compaction's error as it was logged.
        usage: tokens, as far as they were reported.
    """

    index: int
    seq: int | None
    at: int
    purpose: str
    model: str
    header_seq: int | None = None
    header: Header | None = None
    digest: str | None = None
    encoder: str | None = None
    turn: int | None = None
    step: int | None = None
    attempt: int = 1
    instruction: str | None = None
    from_seq: int | None = None
    through_seq: int | None = None
    outcome: Outcome = "open"
    outcome_seq: int | None = None
    failure: Any = None
    usage: Usage | None = None

    @property
    def inferred(self) -> bool:
        """Whether the log has only what came of it, as in sessions of other tools."""
        return self.seq is None


class Requests:
    """The requests as far as the log was read; O(1) an event."""

    __slots__ = ("_handlers", "_header", "_open", "_requests", "_taken")

    def __init__(self) -> None:
        self._requests: list[Request] = []
        self._taken: tuple[Request, ...] | None = ()
        self._header: tuple[int, Header] | None = None
        self._open: dict[str, int] = {}  # purpose -> the request that nothing came of yet
        self._handlers: dict[str, tuple[type[Any], Callable[[AnyEvent, Any], None]]] = {
            "request/header": (ev.RequestHeader, self._headed),
            "request/sent": (ev.RequestSent, self._sent),
            "assistant/chunk": (ev.AssistantChunk, self._chunk),
            "assistant/message": (ev.AssistantMessage, self._answered),
            "assistant/attempt": (ev.AssistantAttempt, self._failed),
            "llm/retry": (ev.LlmRetry, self._retried),
            "step/end": (ev.StepEnd, self._step_over),
            "turn/end": (ev.TurnEnd, self._step_over),
            "compaction/summary": (ev.CompactionSummary, self._summarised),
            "compaction/end": (ev.CompactionEnd, self._compacted),
            ev.SEED_END: (ev.EndSeed, self._seed_ended),
        }

    def snapshot(self) -> tuple[Request, ...]:
        """All requests; the same tuple until something changes."""
        if self._taken is None:
            self._taken = tuple(self._requests)
        return self._taken

    def add(self, event: AnyEvent) -> None:
        """Take the next event."""
        kind, handle = self._handlers.get(event.type, (None, None))
        if handle is None or (event.type == "assistant/chunk" and STEP in self._open):
            return  # a chunk of a request that we know, which is most of a log
        if type(event.data) is kind:
            handle(event, event.data)

    # -- what was sent -------------------------------------------------------------------------

    def _headed(self, event: AnyEvent, data: ev.RequestHeader) -> None:
        self._header = (event.seq, data.header)

    def _sent(self, event: AnyEvent, data: ev.RequestSent) -> None:
        self._settle(data.purpose, None, "unknown")
        header_seq, header = self._header or (None, None)
        request = Request(
            index=len(self._requests),
            seq=event.seq,
            at=event.seq - 1,
            purpose=data.purpose,
            model=data.model,
            header_seq=header_seq,
            header=header,
            digest=data.digest,
            encoder=data.encoder,
            turn=data.turn,
            step=data.step,
            attempt=data.attempt,
            instruction=data.instruction,
            from_seq=data.from_seq,
            through_seq=data.through_seq,
        )
        self._add(request)

    def _infer(self, event: AnyEvent, turn: int | None, step: int | None, attempt: int = 1) -> None:
        """What came back was asked for; without a header in force nobody can say what by."""
        if self._header is not None:
            header_seq, header = self._header
            request = Request(
                index=len(self._requests),
                seq=None,
                at=event.seq - 1,
                purpose=STEP,
                model=header.config.model,
                header_seq=header_seq,
                header=header,
                turn=turn,
                step=step,
                attempt=attempt,
            )
            self._add(request)

    def _add(self, request: Request) -> None:
        self._open[request.purpose] = request.index
        self._requests.append(request)
        self._taken = None

    # -- what came of it -----------------------------------------------------------------------

    def _chunk(self, event: AnyEvent, data: ev.AssistantChunk) -> None:
        self._infer(event, data.turn, data.step, data.attempt)

    def _answered(self, event: AnyEvent, data: ev.AssistantMessage) -> None:
        if event.surface_op != "append":
            return  # an older answer, told anew
        if not self._is_open(data.turn, data.step):
            self._infer(event, data.turn, data.step)
        outcome: Outcome = "interrupted" if data.interrupted else "answered"
        self._settle(STEP, event.seq, outcome, usage=data.usage)

    def _failed(self, event: AnyEvent, data: ev.AssistantAttempt) -> None:
        if not self._is_open(data.turn, data.step):
            self._infer(event, data.turn, data.step, data.attempt)
        self._settle(STEP, event.seq, "failed", usage=data.usage, failure=data.failure)

    def _retried(self, event: AnyEvent, data: ev.LlmRetry) -> None:
        """In a foreign log, this is how an attempt ends that left chunks behind."""
        if self._is_open(data.turn, data.step):
            self._settle(STEP, event.seq, "failed", failure=data.failure)

    def _step_over(self, _event: AnyEvent, _data: object) -> None:
        self._settle(STEP, None, "unknown")

    def _summarised(self, event: AnyEvent, data: ev.CompactionSummary) -> None:
        outcome: Outcome = "answered" if data.error is None else "failed"
        self._settle(COMPACTION, event.seq, outcome, failure=data.error, usage=data.usage)

    def _compacted(self, event: AnyEvent, data: ev.CompactionEnd) -> None:
        outcome: Outcome = "unknown" if data.error is None else "failed"
        self._settle(COMPACTION, event.seq, outcome, failure=data.error)

    def _seed_ended(self, _event: AnyEvent, _data: object) -> None:
        """Only a step's request is closed by what follows: repair settles an open attempt."""
        for purpose in self._open.keys() - {STEP}:
            self._settle(purpose, None, "unknown")

    def _is_open(self, turn: int | None, step: int | None) -> bool:
        """Whether a request of that step waits for its answer; closes one of another step."""
        index = self._open.get(STEP)
        if index is None:
            return False
        request = self._requests[index]
        if turn is None or request.turn is None or (request.turn, request.step) == (turn, step):
            return True
        self._settle(STEP, None, "unknown")
        return False

    def _settle(self, purpose: str, seq: int | None, outcome: Outcome, **fields: Any) -> None:
        index = self._open.pop(purpose, None)
        if index is not None:
            self._requests[index] = msgspec.structs.replace(
                self._requests[index], outcome=outcome, outcome_seq=seq, **fields
            )
            self._taken = None


class RequestsFold:
    """The fold behind `Session.requests`."""

    def start(self) -> Requests:
        """No requests."""
        return Requests()

    def step(self, state: Requests, event: AnyEvent, /) -> Requests:
        """Feed it the next event."""
        state.add(event)
        return state


REQUESTS = RequestsFold()
