"""What the model sees: the messages of the surface, in surface order."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable

from turnlog.content import Message
from turnlog.events import AnyEvent
from turnlog.log import SessionLog
from turnlog.surface import Replacement
from turnlog.views.sequence import Builder, MessageList


class Spliced:
    """One stretch that a replacement changed: the keys `low` … `high` and what stood there."""

    __slots__ = ("high", "index", "items", "key", "keys", "low", "seq", "single")

    def __init__(
        self,
        seq: int,
        low: int,
        high: int,
        key: int | None,
        index: int,
        keys: list[int],
        items: list[Message],
    ) -> None:
        self.seq = seq  # the replacing event
        self.low = low
        self.high = high
        self.key = key  # where its message went, None when it has none
        self.index = index  # of the stretch among all messages
        self.keys = keys
        self.items = items
        self.single = low == high and key is not None and bool(items)  # one for one


class DerivedMessages:
    """The fold behind `Session.derive_messages`, keyed by anchor and fed by what is new."""

    __slots__ = ("_builder", "_log", "_replaced", "_seen", "_shown", "spliced")

    def __init__(
        self, log: SessionLog, shown: Callable[[AnyEvent], Message | None] | None = None
    ) -> None:
        self._log = log
        self._shown = shown or visible
        self._builder = _of_base(log, self._shown)
        self._seen = 0  # message events folded
        self._replaced = 0  # replacements folded
        self.spliced: list[Spliced] = []

    def current(self) -> MessageList:
        """The messages now: O(what is new)."""
        events = self._log.messages
        if self._seen < len(events):
            self._fold(events)
        return self._builder.snapshot()

    def _fold(self, events: list[AnyEvent]) -> None:
        replacements = self._log.surface.replacements
        coming = iter(replacements[self._replaced :])
        planned = next(coming, None)
        for event in events[self._seen :]:
            message = self._shown(event)
            if planned is not None and planned.seq == event.seq:
                self._replace(planned, message)
                planned = next(coming, None)
            elif message is not None:
                self._builder.append(event.seq, message)
        self._seen, self._replaced = len(events), len(replacements)

    def _replace(self, planned: Replacement, message: Message | None) -> None:
        anchor = self._log.surface.anchor
        low = planned.anchor
        keys, items = ([], []) if message is None else ([low], [message])
        key = None if message is None else low
        if planned.scattered is None:
            spans = [(low, anchor(planned.shadowed[-1]))]
        else:
            spans = [(anchor(node), anchor(node)) for node in planned.shadowed]
        for start, end in spans:
            index, was, said = self._builder.splice(start, end, keys, items)
            self.spliced.append(Spliced(planned.seq, start, end, key, index, was, said))
            keys, items, key = [], [], None

    def at(self, seq: int) -> MessageList:
        """The messages as they were after event `seq`: later replacements undone backwards."""
        now = self.current()
        events = self._log.messages
        if not events or seq >= events[-1].seq:
            return now
        keys, items = self._builder.flat()
        for past in reversed(self.spliced):
            if past.seq <= seq:
                break
            index = past.index  # as it was then: all that came later is undone
            if past.single:
                items[index] = past.items[0]
                continue
            end = index + (past.key is not None)
            keys[index:end] = past.keys
            items[index:end] = past.items
        end = bisect_left(keys, seq + 1)  # what was appended later is now the tail
        del keys[end:], items[end:]
        return Builder.of(keys, items).snapshot()


def _of_base(log: SessionLog, shown: Callable[[AnyEvent], Message | None]) -> Builder:
    """The messages that are there before the first event that the log holds."""
    keys: list[int] = []
    items: list[Message] = []
    for event in () if log.base is None else log.base.nodes:
        message = shown(event)
        if message is not None:
            keys.append(log.surface.anchor(event.seq))
            items.append(message)
    return Builder.of(keys, items) if items else Builder()


def visible(event: AnyEvent) -> Message | None:
    """The event's message, unless it has none or says nothing."""
    message = event.message
    return message if message is not None and message.content else None
