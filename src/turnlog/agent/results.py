"""What became of a turn, read from its events."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from turnlog.content import Failure, Usage
from turnlog.events import (
    AnyEvent,
    AssistantAttempt,
    AssistantMessage,
    CompactionSummary,
    EndReason,
    TurnEnd,
    TurnStart,
)
from turnlog.models.failures import error_of
from turnlog.session import Session
from turnlog.views.usage import add_usage

SUSPENDED = "suspended"
_SPENDING = ("assistant/message", "assistant/attempt", "compaction/summary")


class TurnResult(msgspec.Struct, frozen=True):
    """What became of a turn.

    Attributes:
        text: the text of its last answer; partial when it was cut off.
        usage: all its requests added up, those that failed and those of compactions too; a bucket
            is None when any was unknown.
        turn: its number.
        end_reason: why it ended; `kind` is "suspended" when it waits for approvals.
        first_seq, last_seq: its events.
    """

    text: str
    usage: Usage
    turn: int
    end_reason: EndReason
    first_seq: int
    last_seq: int

    @property
    def error(self) -> Failure | None:
        """What went wrong, when `end_reason.kind` is "error"."""
        return self.end_reason.error

    def raise_for_error(self) -> TurnResult:
        """Raise what went wrong as a `ModelError`; else return the result."""
        if self.error is not None:
            raise error_of(self.error)
        return self


def turn_result(session: Session, first_seq: int) -> TurnResult:
    """The result of the session's last turn.

    Args:
        session: the session; its last turn has ended or is suspended.
        first_seq: the first event of this run of it; a turn that was resumed began earlier.
    """
    text, number, end = "", 0, EndReason(SUSPENDED)
    for event in _last_turn(session):
        if isinstance(event.data, AssistantMessage) and not text:
            text = event.data.message.text
        elif isinstance(event.data, TurnEnd):
            end = event.data.reason
        elif isinstance(event.data, TurnStart):
            number = event.data.turn
    return TurnResult(text, add_usage(_used(session)), number, end, first_seq, session.next_seq - 1)


def tokens_spent(session: Session) -> int:
    """Input and output tokens of the last turn, as far as its requests reported them."""
    return sum(
        (used.input_tokens or 0) + (used.output_tokens or 0) for used in _used(session) if used
    )


def _used(session: Session) -> list[Usage | None]:
    return [event.data.usage for event in _last_turn(session) if _is_spending(event.data)]


def _is_spending(data: object) -> bool:
    if isinstance(data, CompactionSummary):
        return data.policy != "structural"  # that asks no model
    return isinstance(data, (AssistantMessage, AssistantAttempt))


def _last_turn(session: Session) -> Iterator[AnyEvent]:
    """The last turn's events that say what became of it, the last one first."""
    told = ("turn/start", "turn/end", *_SPENDING)
    for event in reversed(session.events):
        if event.type in told:  # chunks are many, and are not decoded for this
            yield event
        if event.type == "turn/start":
            return
