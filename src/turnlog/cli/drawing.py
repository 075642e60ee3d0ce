"""A session that is followed, drawn for a person: as `show` draws it, and live as `run` does."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from turnlog.cli import screen
from turnlog.cli.conversation import Entry
from turnlog.cli.turns import TurnScreen
from turnlog.events import (
    ApprovalAsked,
    ApprovalDecided,
    AssistantChunk,
    AssistantMessage,
    Replace,
    ToolResult,
    TurnEnd,
)

if TYPE_CHECKING:
    from turnlog.events import AnyEvent

_ANSWERED = frozenset({"assistant/message", "assistant/attempt"})  # what ends a run of chunks
_SILENT = frozenset(  # what says nothing to a person, or what another event says
    {
        "turn/start",
        "step/start",
        "step/end",
        "request/header",
        "request/sent",
        "request/context",
        "compaction/summary",
        "compaction/prune",
        "tool/settled",
    }
)
_TURN = frozenset(  # what a turn's own screen knows
    {
        "assistant/chunk",
        "assistant/message",
        "assistant/attempt",
        "compaction/start",
        "compaction/end",
        "llm/retry",
        "tool/call",
        "tool/result",
        "tool/late-result",
        "inbox/accepted",
    }
)


class Drawing:
    """Messages under headings with their seqs, answers as they stream; all else a dim line."""

    def __init__(self) -> None:
        self._turn = TurnScreen()
        self._streaming = False  # an answer has its heading, and perhaps some of its text

    def past(self, events: Sequence[AnyEvent]) -> None:
        """Draw what is there already: chunks only of an answer that is not finished."""
        ends = [number for number, event in enumerate(events) if event.type in _ANSWERED]
        last = ends[-1] if ends else -1
        for number, event in enumerate(events):
            if number > last or event.type != "assistant/chunk":
                self.show(event)

    def show(self, event: AnyEvent) -> None:
        """Draw one more event."""
        data = event.data
        if event.type in _SILENT:
            return
        if isinstance(data, AssistantChunk):
            self._begin("assistant")
            self._turn.show(event)
        elif isinstance(data, AssistantMessage):
            self._answer(event, data)
        elif isinstance(data, ToolResult) and isinstance(event.surface_op, Replace):
            self._turn.line(f"[shortened {data.message.tool_call_id}] #{event.surface_op.start}")
        elif event.type in _TURN:
            self._turn.show(event)
            if event.type == "assistant/attempt":
                self._streaming = False
        elif event.message is not None:
            self._message(event)
        elif isinstance(data, ApprovalAsked):
            self._turn.line(f"[waits {data.call_id}] {data.tool_name} {data.arguments or ''}")
        elif isinstance(data, ApprovalDecided):
            self._turn.line(f"[{data.outcome}] {data.reason or ''}")
        elif isinstance(data, TurnEnd):
            self._turn.line(f"[turn {data.turn} {data.reason.kind}]")
        else:
            self._turn.line(f"[{event.type}] {raw(event)}")

    def close(self) -> None:
        """End the line that has begun."""
        self._turn.end_line()

    def _begin(self, heading: str) -> None:
        if not self._streaming:
            self._streaming = True
            self._turn.end_line()
            screen.say(screen.styled(screen.printable_line(heading), "cyan"))

    def _answer(self, event: AnyEvent, data: AssistantMessage) -> None:
        streamed, model = self._streaming, data.message.source.model
        self._begin(f"assistant ({model})  #{event.seq}" if model else f"assistant  #{event.seq}")
        self._turn.show(event)
        self._streaming = False
        if streamed:  # when the heading was written, its seq was not known
            screen.say(screen.styled(f"#{event.seq}", "dim"))
        screen.say()

    def _message(self, event: AnyEvent) -> None:
        self._turn.end_line()
        if event.message is not None:
            op = event.surface_op
            replaced = [op.start, op.end] if isinstance(op, Replace) else None
            Entry(event.seq, event.message, replaces=replaced).say(tools=True)


def raw(event: AnyEvent) -> str:
    """The beginning of a payload as it was logged, nothing for an empty one."""
    text = event.raw[:400].decode("utf-8", "replace")
    return "" if text == "{}" else text
