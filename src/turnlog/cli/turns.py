"""A turn on the screen: as it streams, for a person; or, with --json, as it becomes durable."""

from __future__ import annotations

import math
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TextIO, TypeAlias, TypeVar

from turnlog.cli import screen
from turnlog.cli.agents import AgentOptions, command_line, continuing
from turnlog.cli.commanding import pending
from turnlog.cli.options import Options
from turnlog.cli.signals import on_interrupt
from turnlog.content import BlockEnd, Message, Reasoning, ReasoningDelta, Text, TextDelta
from turnlog.errors import CompactionBusy, CompactionFailed, StoreError
from turnlog.events import (
    AnyEvent,
    AssistantAttempt,
    AssistantChunk,
    AssistantMessage,
    CompactionEnd,
    CompactionStart,
    InboxAccepted,
    LlmRetry,
    ToolCallStart,
    ToolResult,
)
from turnlog.jsontext import join_surrogates
from turnlog.printable import printable

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Generator

    import anyio

    from turnlog.agent import ReactLoopAgent, TurnResult
    from turnlog.agent.loop import ToolChoice
    from turnlog.stores.live import StoredSession
    from turnlog.stores.patience import Patience
    from turnlog.stores.store import Store

T = TypeVar("T")
Show: TypeAlias = "Callable[[AnyEvent], None]"

LONGEST = 200  # characters of a line about a call, where no terminal says how wide it is
CHECK = 0.2  # seconds between looks at what has become durable, where nothing wakes us


class TurnScreen:
    """Answers on standard output, as they stream; all else dim, a line each, on standard error."""

    def __init__(self) -> None:
        self._unfinished: TextIO | None = None  # where a line has begun and not ended
        self._held = ""  # the end of a piece that the next one may change
        self._block: int | None = None
        self._shown: set[int] = set()  # the blocks of this answer of which something was shown
        self._calls: set[str] = set()
        self._accepted: tuple[Any, Any] = (None, None)  # kind and text of the last command

    def show(self, event: AnyEvent) -> None:
        """Show one more event of a turn."""
        data = event.data
        if isinstance(data, AssistantChunk):
            self._chunk(data)
        elif isinstance(data, AssistantMessage):
            self._answered(data)
        elif isinstance(data, AssistantAttempt):
            self._given_up(data)
        elif isinstance(data, CompactionStart):
            of = "" if data.window is None else f" of {data.window}"
            self.line(f"[compacting] the next request has about {data.tokens_before}{of} tokens")
        elif isinstance(data, CompactionEnd):
            self.line(_compacted(data))
        elif isinstance(data, LlmRetry):
            self.line(f"[retry {data.retry}] in {data.delay_ms / 1000:.1f} s")
        elif isinstance(data, ToolCallStart):
            self._call(data.call_id, data.name, data.arguments)
        elif isinstance(data, ToolResult):
            kind = "error" if data.error or data.message.is_error else "result"
            late = "late " if event.type == "tool/late-result" else ""
            if event.type != "tool/settled":
                self.line(f"[{late}{kind} {data.message.tool_call_id}] {data.message.text}")
        elif isinstance(data, InboxAccepted):
            kind = data.command.get("type")
            self._accepted = (kind, data.command.get("text"))
            if kind not in ("prompt", "steer"):
                self.line(f"[{kind}]")
        elif event.type == "user/message" and isinstance(data, Message):
            kind, text = self._accepted
            if text == data.text:  # it came from elsewhere; one's own need not be repeated
                self.line(f"[{kind}] {text}")

    def line(self, text: str) -> None:
        """One dim line."""
        self.end_line()
        screen.note_line(screen.cut(text, screen.width() or LONGEST))

    def end_line(self) -> None:
        """Finish the line that has begun."""
        if self._unfinished is None:
            return
        self._unfinished.write(printable(self._held) + "\n")
        self._unfinished.flush()
        self._unfinished, self._held = None, ""

    def _chunk(self, data: AssistantChunk) -> None:
        chunk = data.chunk
        if isinstance(chunk, TextDelta):
            self._piece(chunk.index, chunk.text, sys.stdout)
        elif isinstance(chunk, ReasoningDelta):
            self._piece(chunk.index, chunk.text, sys.stderr)
        elif isinstance(chunk, BlockEnd) and chunk.index not in self._shown:
            if isinstance(chunk.block, Text):
                self._piece(chunk.index, chunk.block.text, sys.stdout)
            elif isinstance(chunk.block, Reasoning):
                self._piece(chunk.index, chunk.block.text, sys.stderr)

    def _piece(self, block: int, text: str, stream: TextIO) -> None:
        """Write a piece of a block at once, but for an end that the next piece may change."""
        if not text:
            return
        if block != self._block:
            self.end_line()
        self._block = block
        self._shown.add(block)
        text = join_surrogates(self._held + text)
        self._held = text[-1] if text[-1] == "\r" or "\ud800" <= text[-1] <= "\udbff" else ""
        shown = printable(text.removesuffix(self._held))
        stream.write(screen.styled(shown, "dim", stream) if stream is sys.stderr else shown)
        stream.flush()
        self._unfinished = None if shown.endswith("\n") and not self._held else stream

    def _answered(self, data: AssistantMessage) -> None:
        if not self._shown and data.message.text:
            self._piece(-1, data.message.text, sys.stdout)
        self._next_answer()
        for call in data.message.tool_calls:
            self._call(call.id, call.name, call.arguments)

    def _given_up(self, data: AssistantAttempt) -> None:
        shown = bool(self._shown)
        self._next_answer()
        if data.failure is not None and data.failure.code != "cancelled":
            so_far = "; what it said so far does not count" if shown else ""
            self.line(f"[failed] {data.failure.message}{so_far}")

    def _next_answer(self) -> None:
        self.end_line()
        self._block = None
        self._shown.clear()

    def _call(self, call_id: str, name: str, arguments: str) -> None:
        if call_id not in self._calls:
            self._calls.add(call_id)
            self.line(f"[call {call_id}] {name} {arguments}")


def _compacted(data: CompactionEnd) -> str:
    if data.error is None:
        without = " (without a model)" if data.policy == "structural" else ""
        return f"[compacted] to about {data.tokens_after} tokens{without}"
    match data.error:
        case {"message": str(why)}:
            return f"[not compacted] {why}"
        case why:
            return f"[not compacted] {why}"


class Talk:
    """A session and an agent whose turns are shown.

    Args:
        said: how many of the session's events need not be printed with `json`.
        patient: wait for a store that went away, until Ctrl-C.
    """

    def __init__(
        self,
        store: Store,
        session: StoredSession,
        agent: ReactLoopAgent,
        *,
        json: bool,
        said: int,
        patient: bool = False,
    ) -> None:
        self._store = store
        self._session = session
        self._agent = agent
        self._json = json
        self._said = said
        self.patient = patient

    async def turn(self, prompt: str | None, choice: ToolChoice = "auto") -> TurnResult | None:
        """Run a turn and show it; Ctrl-C cancels it, and what had arrived is kept.

        None if there was nothing to run, or it was cancelled before it began.
        """
        return await self._shown(lambda show: self._run(prompt, choice, show))

    async def compact(self, wish: str | None) -> None:
        """Compact the session now, and show it; Ctrl-C cancels that.

        Args:
            wish: what the summary has to keep.
        """
        await self._shown(lambda show: self._compact(wish, show))

    async def _shown(self, work: Callable[[Show], Awaitable[T]]) -> T | None:
        """Do something, and show the events that it logs."""
        import anyio

        if not self._json:
            shown = TurnScreen()
            try:
                return await work(shown.show)
            finally:
                shown.end_line()
        over = anyio.Event()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._say_durable, over)
            try:
                return await work(lambda _: None)
            finally:
                over.set()

    async def _run(self, prompt: str | None, choice: ToolChoice, show: Show) -> TurnResult | None:
        stream = self._agent.stream(self._session, prompt, tool_choice=choice)
        with self._waiting() as patience:
            async with stream as turn:
                with on_interrupt(lambda: (patience.end(), turn.stop())):
                    async for event in turn:
                        show(event)
        return turn.result

    @contextmanager
    def _waiting(self) -> Generator[Patience]:
        """While something runs: the session waits for a store that went away."""
        from turnlog.stores.patience import Patience

        def away(error: StoreError, again_in: float) -> None:
            del again_in
            screen.error_line(str(error), "it is tried again; Ctrl-C gives up")

        patience = Patience(math.inf if self.patient else 0.0, away)
        self._session.patience = patience
        try:
            yield patience
        finally:
            patience.end()

    async def _compact(self, wish: str | None, show: Show) -> None:
        import anyio

        stop = self._session.observe(show)
        try:
            with (
                self._waiting() as patience,
                anyio.CancelScope() as scope,
                on_interrupt(lambda: (patience.end(), scope.cancel())),
            ):
                if await self._agent.compact(self._session, instruction=wish) is None:
                    screen.note_line("a step waits; it is compacted when that ends")
        except CompactionBusy as error:
            screen.error_line(str(error))
        except CompactionFailed:
            pass  # its `compaction/end` says why
        finally:
            stop()

    async def _say_durable(self, over: anyio.Event) -> None:
        """Print each event once it is durable, until the turn is over and all are."""
        session = self._session
        while True:
            last = over.is_set()
            for event in session.events[self._said :]:
                if event.seq >= session.durable_seq:
                    break
                screen.say_json(event.to_dict())
                self._said += 1
            sys.stdout.flush()
            if last:
                return
            await self._store.backend.wait(session.id, session.durable_seq - 1, CHECK)


# -- how it ended ------------------------------------------------------------------------------


def say_end(
    result: TurnResult, session: StoredSession, chosen: AgentOptions, options: Options
) -> bool:
    """Say why a turn ended unless it just did; whether it did what was asked."""
    end = result.end_reason
    if end.kind == "completed":
        return True
    if end.kind == "max-tokens":
        screen.note_line("the answer is cut off: it took as many tokens as it may")
        return True
    if end.kind == "suspended":
        _say_waiting(session, chosen, options)
    elif end.kind == "aborted":
        match end.reason:
            case {"kind": str(cause)}:
                pass
            case cause:
                cause = str(cause)
        screen.error_line(f"turn {result.turn} was cancelled ({cause}); what had arrived is kept")
    elif end.error is not None:
        screen.error_line(f"turn {result.turn} failed: {end.error.message} ({end.error.code})")
    else:
        why = f": {end.reason}" if end.reason else ""
        screen.error_line(f"turn {result.turn} ended early: {end.kind}{why}")
    return False


def _say_waiting(session: StoredSession, chosen: AgentOptions, options: Options) -> None:
    waiting = pending(session)
    calls = ", ".join(asked.call_id or "" for asked in waiting)
    screen.error_line(f"the turn waits for approval of {calls}")
    for asked in waiting:
        call_id = asked.call_id or ""
        screen.note_line(f"[waits {call_id}] {asked.tool_name} {asked.arguments or ''}")
        for command in ("approve", "deny"):
            screen.note_line(f"  {command_line([command, session.id, call_id], options)}")
    screen.note_line("and then")
    screen.note_line(f"  {continuing(session.id, chosen, options)}")
