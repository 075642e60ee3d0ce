"""An author of legal sessions: what a loop would log, with a clock and ids that are counted."""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from turnlog import events as ev
from turnlog.content import (
    Block,
    BlockEnd,
    BlockStart,
    Chunk,
    Finish,
    FinishReason,
    Message,
    Reasoning,
    ReasoningDelta,
    Source,
    Text,
    TextDelta,
    ToolCall,
    ToolCallDelta,
    Usage,
    UsageChunk,
    assistant_message,
    tool_message,
    user_message,
)
from turnlog.events import AnyEvent, Replace
from turnlog.session import Session

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

START = 1_700_000_000_000
CONFIG = ev.ModelConfig("scripted", "parrot")
DIGEST = "sha256:" + "0" * 64


class Counted:
    """A clock and ids that count: the same calls give the same session, on every machine."""

    def __init__(self, prefix: str = "id") -> None:
        self._ids = count(1)
        self._times = count(START, 7)
        self._prefix = prefix

    def clock(self) -> int:
        """Epoch milliseconds, seven more each time."""
        return next(self._times)

    def new_id(self) -> str:
        """An id: `id-1`, then `id-2` and so on."""
        return f"{self._prefix}-{next(self._ids)}"


def new_session(session_id: str = "made") -> Session:
    """An empty session with a counted clock and ids."""
    counted = Counted()
    return Session.create(session_id, clock=counted.clock, new_id=counted.new_id)


class Author:
    """Writes what a loop would write; each method appends one thing, all of it legal in order.

    `session` may be exchanged for another that continues it (a fork, a reload).
    """

    def __init__(self, session: Session | None = None) -> None:
        self.session = new_session() if session is None else session
        self.turn = max((e.data.turn for e in self._of("turn/start")), default=0)
        self.step = 0
        self.attempt = 1

    def _of(self, type_name: str) -> Iterator[AnyEvent]:
        return (event for event in self.session.events if event.type == type_name)

    def record(self, type_name: str, data: Any) -> AnyEvent:
        """Append a log-only event."""
        append: Any = self.session.append  # any type: what the overloads would tell apart
        return append(type_name, data)

    # -- boundaries ----------------------------------------------------------------------------

    def begin_turn(self) -> None:
        """`turn/start`."""
        self.turn, self.step = self.turn + 1, 0
        self.record("turn/start", ev.TurnStart(self.turn))

    def end_turn(self, kind: str = "completed") -> None:
        """`turn/end`."""
        self.record("turn/end", ev.TurnEnd(self.turn, ev.EndReason(kind)))

    def begin_step(self) -> None:
        """`step/start`."""
        self.step, self.attempt = self.step + 1, 1
        self.record("step/start", ev.StepStart(self.turn, self.step))

    def end_step(self) -> None:
        """`step/end`."""
        self.record("step/end", ev.StepEnd(self.turn, self.step))

    # -- the model -----------------------------------------------------------------------------

    def request(self, system: str | None = None, *, header: bool = True) -> None:
        """`request/header`, unless one is in force, and `request/sent`."""
        if header:
            data = ev.RequestHeader(ev.Header(CONFIG, system), "initial")
            self.record("request/header", data)
        sent = ev.RequestSent("step", DIGEST, "none@0", "parrot", self.turn, self.step)
        self.record("request/sent", replace(sent, attempt=self.attempt))

    def stream(self, blocks: Sequence[Block], size: int = 3) -> list[int]:
        """The chunks in which the blocks would arrive; returns their seqs."""
        return [self.chunk(chunk).seq for chunk in chunks_of(blocks, size)]

    def chunk(self, chunk: Chunk) -> AnyEvent:
        """One `assistant/chunk`."""
        return self.record(
            "assistant/chunk", ev.AssistantChunk(self.turn, self.step, chunk, self.attempt)
        )

    def fail(self, chunks: Sequence[int] = ()) -> None:
        """`assistant/attempt` and `llm/retry`: the attempt failed and is made again."""
        failure = ev.Failure("the line was cut", "transport")
        first, last = (chunks[0], chunks[-1]) if chunks else (None, None)
        here = self.turn, self.step
        attempt = ev.AssistantAttempt(*here, self.attempt, first, last, failure)
        self.record("assistant/attempt", attempt)
        self.record("llm/retry", ev.LlmRetry(*here, self.attempt, 12.5, failure))
        self.attempt += 1

    def answer(
        self,
        blocks: Sequence[Block],
        chunks: Sequence[int] | None = None,
        *,
        interrupted: bool | None = None,
    ) -> AnyEvent:
        """`assistant/message`, citing the chunks of its attempt."""
        message = assistant_message(blocks, id=f"a{self.session.next_seq}", model="parrot")
        usage = Usage(input_tokens=7, output_tokens=len(blocks))
        data = ev.AssistantMessage(message, self.turn, self.step, usage, interrupted)
        return self.session.append(
            "assistant/message", data, surface_op="append", source_event_seqs=chunks
        )

    # -- tools ---------------------------------------------------------------------------------

    def dispatch(self, call: ToolCall) -> AnyEvent:
        """`tool/call`."""
        data = ev.ToolCallStart(call.id, call.name, call.arguments, self.turn, self.step)
        return self.record("tool/call", data)

    def settle(self, call: ToolCall, content: str = "settled") -> AnyEvent:
        """`tool/settled`: the result came before an earlier call's."""
        return self.record("tool/settled", self._result_of(call, content))

    def result(self, call: ToolCall, content: str = "done", *, is_error: bool = False) -> AnyEvent:
        """`tool/result`, with the settled content if there is one, citing what it must."""
        data = self._result_of(call, content, is_error=is_error)
        waiting: list[list[int]] = []  # an id may be used again, and by several calls
        for event in self.session.events:
            if event.type == "assistant/message" and call in event.data.message.tool_calls:
                waiting = []
            elif event.type == "tool/call" and event.data.call_id == call.id:
                waiting.append([event.seq])
            elif event.type == "tool/settled" and event.data.message.tool_call_id == call.id:
                unsettled = [seqs for seqs in waiting if len(seqs) == 1]
                if unsettled:
                    unsettled[0].append(event.seq)
            elif (
                event.type == "tool/result"
                and event.surface_op == "append"
                and event.data.message.tool_call_id == call.id
                and waiting
            ):
                seen = event.source_event_seqs or ()
                waiting.remove(next((seqs for seqs in waiting if seqs[0] in seen), waiting[0]))
        cited = waiting[0] if waiting else []
        if len(cited) > 1:
            data = self.session.event_at(cited[1]).data
        return self.session.append(
            "tool/result", data, surface_op="append", source_event_seqs=cited or None
        )

    def _result_of(self, call: ToolCall, content: str, *, is_error: bool = False) -> ev.ToolResult:
        message_id = f"r{self.session.next_seq}"
        message = tool_message(call.id, content, id=message_id, is_error=is_error)
        return ev.ToolResult(message, self.turn, self.step)

    def late(self, call: ToolCall, content: str = "too late") -> None:
        """`tool/late-result`, and the `context/message` by which the model learns of it."""
        self.record("tool/late-result", self._result_of(call, content))
        self.session.add_context(f"late: {content}")

    # -- context -------------------------------------------------------------------------------

    def compact(self, start: int, end: int, summary: str = "what happened before") -> AnyEvent:
        """A whole compaction of the nodes at the positions `start` to `end` of the surface."""
        nodes = self.session.surface.seqs[start : end + 1]
        name = f"c{self.session.next_seq}"
        opened = self.record("compaction/start", ev.CompactionStart(name))
        told = self.record("compaction/summary", ev.CompactionSummary(name, None, nodes))
        message = Message(f"s{name}", "user", (Text(summary),), Source("compact-checkpoint"))
        done = self.session.append(
            "user/message",
            message,
            surface_op=Replace(nodes[0], nodes[-1]),
            source_event_seqs=[opened.seq, told.seq, *nodes],
        )
        self.record("compaction/end", ev.CompactionEnd(name))
        return done

    def prune(self, seq: int, content: str = "…") -> AnyEvent:
        """Replace the tool result at `seq` by a shorter one."""
        self.record("compaction/prune", ev.CompactionPrune((seq,)))
        old: ev.ToolResult = self.session.event_at(seq).data
        data = replace(old, message=replace(old.message, content=(Text(content),)))
        return self.session.append(
            "tool/result", data, surface_op=Replace(seq, seq), source_event_seqs=[seq]
        )

    def user(self, content: str) -> AnyEvent:
        """A person's message."""
        message = user_message(content, id=f"u{self.session.next_seq}")
        return self.session.append("user/message", message, surface_op="append")


def chunks_of(blocks: Sequence[Block], size: int = 3) -> Iterator[Chunk]:
    """The chunks of an answer of these blocks, `size` characters or more at a time."""
    for index, block in enumerate(blocks):
        yield BlockStart(index, block.type)
        if isinstance(block, Text):
            yield from (TextDelta(index, piece) for piece in _pieces(block.text, size))
        elif isinstance(block, Reasoning):
            yield from (ReasoningDelta(index, piece) for piece in _pieces(block.text, size))
        elif isinstance(block, ToolCall):
            for piece in _pieces(block.arguments, size):
                yield ToolCallDelta(index, block.id, block.name, piece)
        yield BlockEnd(index, block)
    yield UsageChunk(Usage(input_tokens=7))
    yield Finish(FinishReason("stop"))


def _pieces(text: str, size: int) -> list[str]:
    """Pieces of `size` characters, larger ones for a long text: at most eight."""
    size = max(size, len(text) // 8 + 1)
    return [text[i : i + size] for i in range(0, len(text), size)]
