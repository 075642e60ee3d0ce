"""What a person reads: the conversation as it happened, which no compaction erases."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import msgspec

from turnlog.content import Message, ToolCall
from turnlog.events import AnyEvent
from turnlog.log import SessionLog
from turnlog.surface import Replacement

if TYPE_CHECKING:
    from turnlog.session import Session

PERSON = "user"


class Transcript:
    """The fold behind `Session.extract_chat_messages`, for one choice of what to include."""

    __slots__ = ("_context", "_log", "_messages", "_seen", "_seqs", "_taken", "_tools")

    def __init__(self, log: SessionLog, *, tools: bool, context: bool) -> None:
        self._log = log
        self._tools = tools
        self._context = context
        self._seen = 0
        self._seqs: list[int] = []
        self._messages: list[Message] = []
        self._taken: tuple[Message, ...] | None = ()

    def current(self) -> tuple[Message, ...]:
        """The messages so far."""
        self._fold()
        if self._taken is None:
            self._taken = tuple(self._messages)
        return self._taken

    def at(self, seq: int) -> tuple[Message, ...]:
        """The messages up to and including event `seq`."""
        self._fold()
        return tuple(self._messages[: bisect_right(self._seqs, seq)])

    def seqs(self) -> Sequence[int]:
        """The seq of each message. Do not change."""
        self._fold()
        return self._seqs

    def _fold(self) -> None:
        self._log.check_whole()
        events = self._log.messages
        for event in events[self._seen :]:
            message = said(event, tools=self._tools, context=self._context)
            if message is not None:
                self._seqs.append(event.seq)
                self._messages.append(message)
                self._taken = None
        self._seen = len(events)


def is_interrupted(session: Session, seq: int) -> bool:
    """Whether the message of event `seq` is an answer that was cut off."""
    return getattr(session.event_at(seq).data, "interrupted", None) is True


def placed(seqs: Iterable[int], replacements: Iterable[Replacement]) -> list[int]:
    """Seqs in log order, and each replacement where it took effect: behind what it shadows."""
    place: dict[int, int] = {}
    for each in replacements:
        place[each.seq] = max((place.get(seq, seq) for seq in each.shadowed), default=each.seq)
    found = {*seqs, *place}
    return sorted(found, key=lambda seq: (place.get(seq, seq), seq if seq in place else -1))


def said(event: AnyEvent, *, tools: bool = False, context: bool = False) -> Message | None:
    """The event's message as a person reads it; None where it is nothing for a person."""
    message = event.message if event.surface_op == "append" else None
    if message is None or not message.content:
        return None
    if message.role == "tool":
        return message if tools else None
    if message.role == "assistant":
        if tools or not message.tool_calls:
            return message
        text = tuple(block for block in message.content if type(block) is not ToolCall)
        return msgspec.structs.replace(message, content=text) if text else None
    if event.type == "user/message" and message.source.kind == PERSON:
        return message
    return message if context else None
