"""What is sent: the derived messages in a form that any provider accepts.

Each call has exactly one result, results follow their call's message at once and in call order, no
result is without a call, no block is empty. On a log that this engine wrote there is nothing to
mend but calls that are still open; on others the outgoing copy is mended, and `mends` says how.
The log is never changed.

The fold is incremental. Every call gets a slot right behind its message as soon as the message
arrives, filled with a placeholder until its result comes, wherever that was appended. Keys are
`anchor << SHIFT`, plus 1, 2 … for the slots.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from turnlog.content import Message, Source, Text, ToolCall, is_blank
from turnlog.events import AnyEvent
from turnlog.log import SessionLog
from turnlog.repair import SOURCE as REPAIR
from turnlog.views.derive import DerivedMessages, Spliced, visible
from turnlog.views.sequence import Builder, Leaf, MessageList

SHIFT = 24  # more slots than a payload of 64 MiB can have calls

OPEN_CALL_TEXT = "No result was recorded for this call; whether it ran is unknown."
NO_OUTPUT_TEXT = "(no output)"
_SOURCE = Source("turnlog")


class Mend(msgspec.Struct, frozen=True):
    """One thing that the outgoing copy has otherwise than the log.

    `kind`: open-call (a placeholder stands for a result), moved-result (it did not follow its call
    in call order), orphan-result (left out: no call), stray-call (left out: no
    assistant made it, or it lacks id or name), empty-block (left out), empty-result (a result
    without content says so), empty-message (left out: nothing else in it).
    """

    kind: Literal[
        "open-call",
        "moved-result",
        "orphan-result",
        "stray-call",
        "empty-block",
        "empty-result",
        "empty-message",
    ]
    message_id: str
    call_id: str | None = None


class RequestMessages(MessageList):
    """Messages that any provider accepts, and what was mended to make them so."""

    __slots__ = ("mends",)

    def __init__(self, messages: MessageList, mends: tuple[Mend, ...]) -> None:
        super().__init__(
            messages._leaves,  # noqa: SLF001 - the base class  # pyright: ignore[reportPrivateUsage]
            messages._starts,  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]
            messages._count,  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]
            messages._tail,  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]
            messages._length,  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]
        )
        self.mends = mends


class Mender:
    """Folds derived messages, one by one, into a provider-valid sequence."""

    __slots__ = ("_held", "_last", "_open", "_slots", "builder", "mends")

    def __init__(self) -> None:
        self.builder = Builder()
        self.mends: dict[int, list[Mend]] = {}  # by key
        self._open: dict[str, list[int]] = {}  # call id -> its unfilled slots
        self._held: dict[str, int] = {}  # call id -> the slot that repair filled for want of better
        self._slots: dict[int, int] = {}  # key of a result -> the slot it fills
        self._last = 0  # the greatest key or slot that was written

    def append(self, anchor: int, message: Message) -> None:
        """Fold the next message."""
        key = anchor << SHIFT
        if message.role == "tool":
            self._result(key, message)
            return
        message = self._clean(key, message)
        if not message.content:
            self._note(key, "empty-message", message)
            return
        self.builder.append(key, message)
        self._last = key
        calls = message.tool_calls
        if not calls:
            return
        for call in calls:
            self._open[call.id] = []
            self._held.pop(call.id, None)
        for slot, call in enumerate(calls, key + 1):
            self._open[call.id].append(slot)
            self.builder.append(slot, _placeholder(message, call, slot - key))
            self._note(slot, "open-call", message, call.id)

    def _result(self, key: int, message: Message) -> None:
        call_id = message.tool_call_id or ""
        slots = self._open.get(call_id)
        if not slots:
            held = self._held.pop(call_id, None)
            if held is None or message.source.kind == REPAIR:
                self._note(key, "orphan-result", message, call_id)
            else:  # no placeholder ever covers a real result
                self._fill(key, held, message)
                self._note(held, "moved-result", message, call_id)
            return
        slot = slots.pop(0)
        if not slots:
            del self._open[call_id]
            if message.source.kind == REPAIR:
                self._held[call_id] = slot
        del self.mends[slot]
        self._fill(key, slot, message)
        if slot < self._last:
            self._note(slot, "moved-result", message, call_id)
        else:
            self._last = slot

    def _fill(self, key: int, slot: int, message: Message) -> None:
        message = self._clean(slot, message)
        if not message.content:
            self._note(slot, "empty-result", message, message.tool_call_id)
            message = msgspec.structs.replace(message, content=(Text(NO_OUTPUT_TEXT),))
        self._slots[key] = slot
        self.builder.set(slot, message)

    def _clean(self, key: int, message: Message) -> Message:
        if any(_stray(message, call) for call in message.tool_calls):
            kept = tuple(
                block
                for block in message.content
                if type(block) is not ToolCall or not _stray(message, block)
            )
            self._note(key, "stray-call", message)
            message = msgspec.structs.replace(message, content=kept)
        if not any(map(is_blank, message.content)):
            return message
        kept = tuple(block for block in message.content if not is_blank(block))
        self._note(key, "empty-block", message)
        return msgspec.structs.replace(message, content=kept)

    def _note(self, key: int, kind: str, message: Message, call_id: str | None = None) -> None:
        mend = Mend(kind, message.id, call_id)  # pyright: ignore[reportArgumentType]
        self.mends.setdefault(key, []).append(mend)

    def splice(self, change: Spliced, message: Message | None) -> bool:
        """Fold a replacement in place; False when only folding anew would be right."""
        if any(mend.kind != "open-call" for mends in self.mends.values() for mend in mends):
            return False
        low, high = change.low << SHIFT, ((change.high + 1) << SHIFT) - 1
        if message is not None and message.role == "tool":
            return self._splice_result(change, message)
        if _untidy(message) or not _balanced(change.items):
            return False
        if any(low <= slot <= high for slot in self.mends):
            return False
        self._held = {call: slot for call, slot in self._held.items() if not low <= slot <= high}
        if message is None:
            self.builder.splice(low, high, [], [])
            return True
        self.builder.splice(low, high, [low], [message])
        self._last = max(self._last, low)
        return True

    def _splice_result(self, change: Spliced, message: Message) -> bool:
        slot = self._slots.get(change.low << SHIFT)
        if slot is None or len(change.items) != 1 or _untidy(message):
            return False
        if change.items[0].tool_call_id != message.tool_call_id:
            return False
        self.builder.set(slot, message)
        return True

    def result(self) -> RequestMessages:
        """What was folded so far."""
        mends = tuple(mend for key in sorted(self.mends) for mend in self.mends[key])
        return RequestMessages(self.builder.snapshot(), mends)


class RequestFold:
    """The fold behind `Session.request_messages`."""

    __slots__ = ("_derived", "_log", "_mender", "_result", "_seen", "_spliced")

    def __init__(self, log: SessionLog) -> None:
        self._log = log
        self._derived = DerivedMessages(log, sent)
        self._mender = Mender()
        self._seen = 0
        self._spliced = 0
        self._result: RequestMessages | None = None

    def current(self) -> RequestMessages:
        """The messages now: O(what is new), unless a replacement met something mended."""
        now = self._derived.current()
        events = self._log.messages
        if self._result is not None and self._seen == len(events):
            return self._result
        if self._result is None or not self._fold():
            self._mender = mend(now)
        self._seen, self._spliced = len(events), len(self._derived.spliced)
        self._result = self._mender.result()
        return self._result

    def _fold(self) -> bool:
        spliced = self._derived.spliced
        mender = self._mender
        for event in self._log.messages[self._seen :]:
            message = sent(event)
            replaced = False
            while self._spliced < len(spliced) and spliced[self._spliced].seq == event.seq:
                change = spliced[self._spliced]
                if not mender.splice(change, None if change.key is None else message):
                    return False
                self._spliced += 1
                replaced = True
            if message is not None and not replaced:
                mender.append(event.seq, message)
        return True

    def at(self, seq: int) -> RequestMessages:
        """The messages as they were after event `seq`."""
        events = self._log.messages
        if not events or seq >= events[-1].seq:
            return self.current()
        return mend(self._derived.at(seq)).result()


def sent(event: AnyEvent) -> Message | None:
    """The event's message as `derive_messages` has it, and a tool's even if it says nothing.

    Without its result a call would look unanswered.
    """
    message = event.message
    return message if message is not None and message.role == "tool" else visible(event)


def mend(messages: MessageList) -> Mender:
    """Fold a whole sequence."""
    mender = Mender()
    leaf: Leaf
    for leaf, count in messages.leaves():
        for i in range(count):
            mender.append(leaf.keys[i], leaf.items[i])
    return mender


def _stray(message: Message, call: ToolCall) -> bool:
    """Whether no provider would take the call as one."""
    return message.role != "assistant" or not (call.id and call.name)


def _untidy(message: Message | None) -> bool:
    """Whether a message needs more than to be put in its place."""
    if message is None:
        return False
    return not message.content or bool(message.tool_calls) or any(map(is_blank, message.content))


def _balanced(messages: list[Message]) -> bool:
    """Whether the stretch holds only whole groups of calls and results."""
    waiting: list[str] = []
    for message in messages:
        if message.role == "tool":
            if message.tool_call_id not in waiting:
                return False
            waiting.remove(message.tool_call_id)
        elif waiting:
            return False
        else:
            waiting = [call.id for call in message.tool_calls]
    return not waiting


def _placeholder(message: Message, call: ToolCall, number: int) -> Message:
    return Message(
        f"open-call-{message.id}-{number}",
        "tool",
        (Text(OPEN_CALL_TEXT),),
        _SOURCE,
        call.id,
        is_error=True,
    )
