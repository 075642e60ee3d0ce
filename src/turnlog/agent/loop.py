"""`ReactLoopAgent`: reason, act, observe, until there is nothing left to do.

The order of events in a turn is the law (docs/agents.md): `turn/start`; then for each step
`step/start`, the input it brings, `request/header` if it changed, `request/sent`, a flush, the
stream, `assistant/message`, the tools with their results in call order, `step/end`; `turn/end` says
why. Whatever cuts a turn off, cancellation, an error, a crash, closes it by the same closers.
"""

from __future__ import annotations

import math
import threading
from collections import deque
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, Literal, TypeAlias
from weakref import WeakKeyDictionary

import anyio
import anyio.abc
import msgspec

from turnlog import _ambient
from turnlog.agent.approval import Approver
from turnlog.agent.asking import Asking, Backoff, backoff
from turnlog.agent.dispatch import DENIED, Dispatch
from turnlog.agent.inbound import POLL, Inbound
from turnlog.agent.state import LATE, loop_fold, open_calls
from turnlog.agent.tools import Tool, toolbox
from turnlog.commands import Cancel, Prompt
from turnlog.content import (
    Content,
    Failure,
    Message,
    Source,
    Text,
    Usage,
    blocks,
    tool_message,
    user_message,
)
from turnlog.dialects import BodyEncoder, encoder
from turnlog.errors import ModelError, TurnlogError
from turnlog.events import (
    AnyEvent,
    ApprovalDecided,
    AssistantAttempt,
    AssistantMessage,
    EndReason,
    Header,
    ModelConfig,
    StepEnd,
    StepStart,
    ToolResult,
    TurnEnd,
    TurnStart,
)
from turnlog.models.forced_tools import forced_header
from turnlog.models.port import Model
from turnlog.session import Session
from turnlog.stores.port import Queued

ToolChoice: TypeAlias = Literal["auto", "required", "none"]


class AgentBusy(TurnlogError):
    """The session is in a turn of this agent already."""


class TurnResult(msgspec.Struct, frozen=True):
    """What became of a turn.

    Attributes:
        text: the text of its last answer; partial when it was cut off.
        usage: all its requests added up, failed ones too; a bucket is None when any was unknown.
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


class Turn:
    """A running turn: `async with agent.stream(session, …) as turn`, then iterate its events.

    Leaving the block early cancels the turn and keeps what had arrived.
    """

    def __init__(
        self, agent: ReactLoopAgent, session: Session, prompt: Content | None, choice: ToolChoice
    ) -> None:
        self._agent = agent
        self._session = session
        self._prompt = prompt
        self._choice: ToolChoice = choice
        self._events: deque[AnyEvent] = deque()
        self._more = anyio.Event()
        self._ended = anyio.Event()
        self._done = False
        self._thread = 0
        self._cause = "left"
        self._scope = anyio.CancelScope()
        self._tasks: anyio.abc.TaskGroup | None = None
        self._unobserve: Callable[[], None] = lambda: None
        self._error: BaseException | None = None
        self.result: TurnResult | None = None

    async def __aenter__(self) -> Turn:
        self._thread = threading.get_ident()
        self._agent._begin(self._session)  # noqa: SLF001 - one class in two  # pyright: ignore[reportPrivateUsage]
        self._unobserve = self._session.observe(self._observe)
        self._tasks = anyio.create_task_group()
        await self._tasks.__aenter__()
        self._tasks.start_soon(self._run)
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            if not self._done:
                self._scope.cancel()
            if self._tasks is not None:
                if not isinstance(exc, anyio.get_cancelled_exc_class()):
                    exc_type = exc = traceback = None  # the body's own error comes out as it is
                await self._tasks.__aexit__(exc_type, exc, traceback)
            if self._error is not None:
                raise self._error
        finally:
            self._unobserve()
            self._agent._finish(self._session)  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]

    async def _run(self) -> None:
        try:
            drive = _Drive(self._agent, self._session, self._scope, lambda: self._cause)
            self.result = await drive.run(self._prompt, self._choice)
        except Exception as error:  # noqa: BLE001 - raised again where the block is left
            self._error = _first(error)
        finally:
            self._done = True
            self._more.set()
            self._ended.set()

    def _observe(self, event: AnyEvent) -> None:
        self._events.append(event)
        if threading.get_ident() == self._thread:
            self._more.set()

    def __aiter__(self) -> Turn:
        return self

    async def __anext__(self) -> AnyEvent:
        while not self._events:
            if self._done:
                raise StopAsyncIteration
            if self._more.is_set():
                self._more = anyio.Event()
            await self._more.wait()
        return self._events.popleft()

    def stop(self, cause: str = "user") -> None:
        """Ask the turn to stop, as `cancel` does, without waiting: for a signal's callback."""
        self._cause = cause
        self._scope.cancel()

    async def cancel(self, cause: str = "user") -> TurnResult | None:
        """Cancel the turn, wait until it is closed in the log, and return what became of it.

        The events that nobody has iterated yet, those that close the turn among them, stay there.
        """
        self.stop(cause)
        await self._ended.wait()
        return self.result


class ReactLoopAgent:
    """A ReAct loop over a session: ask the model, run the tools it asks for, until it is done.

    Args:
        model: `provider:model`, or a model.
        tools: functions or `Tool`s; their order does not matter.
        system: system text.
        approve: decides calls whose policy is "ask"; without it the turn is suspended until
            a decision comes through the inbox.
        max_steps, max_tokens, max_seconds: limits of a turn; it ends with reason "limit".
        retries: how often a failed request is tried again.
        temperature, max_output_tokens, reasoning_effort: for the model, as far as it knows them.
    """

    def __init__(  # noqa: PLR0913 - all optional
        self,
        model: str | Model,
        *,
        tools: Sequence[Tool | Callable[..., Any]] = (),
        system: str | None = None,
        approve: Approver | None = None,
        max_steps: int = 50,
        max_tokens: int | None = None,
        max_seconds: float | None = None,
        retries: int = 4,
        delay: Backoff = backoff,
        temperature: float | None = None,
        max_output_tokens: int | None = None,
        reasoning_effort: str | None = None,
    ) -> None:
        self.model: Model = _open(model)
        self.tools = toolbox(tools)
        self.system = system
        self.approver = approve
        self.max_steps = max_steps
        self.max_tokens = max_tokens
        self.max_seconds = max_seconds
        self.retries = retries
        self.delay = delay
        self._config = ModelConfig(
            self.model.provider,
            self.model.model,
            reasoning_effort,
            temperature,
            max_output_tokens,
        )
        self._busy: set[int] = set()
        self._encoders: WeakKeyDictionary[Session, BodyEncoder] = WeakKeyDictionary()

    async def run(
        self, session: Session, prompt: Content | None = None, *, tool_choice: ToolChoice = "auto"
    ) -> TurnResult:
        """One turn, to its end; prompts that waited in the inbox have theirs first.

        Without a prompt: those that wait in the inbox, and a suspended turn if it can go on.

        Errors of the model end the turn and are in the result (`end_reason.kind` "error",
        `result.error`), where everything that arrived is kept too.

        Raises:
            AgentBusy: the session is in a turn already.
            TurnlogError: the session cannot be written or flushed.
        """
        async with self.stream(session, prompt, tool_choice=tool_choice) as turn:
            async for _ in turn:
                pass
        if turn.result is None:
            msg = f"session {session.id!r}: there was nothing to run"
            raise TurnlogError(msg)
        return turn.result

    def stream(
        self, session: Session, prompt: Content | None = None, *, tool_choice: ToolChoice = "auto"
    ) -> Turn:
        """The same as a block whose body sees each event as it is logged."""
        return Turn(self, session, prompt, tool_choice)

    def header(self, choice: ToolChoice) -> Header:
        """The request header of a step.

        On a model without native tools a step that must call one has a header of its own, with
        worked examples and a schema for the answer; other steps then know of no tools.
        """
        tools = tuple(tool.schema for tool in self.tools.values())
        if choice == "none" or not tools:
            return Header(self._config, self.system)
        if not self.model.native_tools:
            if choice != "required":
                return Header(self._config, self.system)
            worked = {tool.name: tool.examples for tool in self.tools.values() if tool.examples}
            return forced_header(self._config, tools, worked)
        config = self._config
        if choice == "required":
            config = msgspec.structs.replace(config, tool_choice="required")
        return Header(config, self.system, tools)

    def encoder_for(self, session: Session) -> BodyEncoder:
        """The session's incremental encoder."""
        found = self._encoders.get(session)
        if found is None:
            found = self._encoders[session] = encoder(self.model.encoder).incremental()
        return found

    def _begin(self, session: Session) -> None:
        if id(session) in self._busy:
            msg = f"session {session.id!r} is in a turn already: post a Steer or wait for its end"
            raise AgentBusy(msg)
        self._busy.add(id(session))

    def _finish(self, session: Session) -> None:
        self._busy.discard(id(session))


def _open(model: str | Model) -> Model:
    if not isinstance(model, str):
        return model
    from turnlog.models import open_model  # noqa: PLC0415 - providers are loaded when used

    return open_model(model)


class _LimitReached(Exception):  # noqa: N818 - control flow inside this module
    def __init__(self, which: str) -> None:
        self.which = which


class _Drive:
    """Runs the turns of one `run` or `stream`."""

    def __init__(
        self,
        agent: ReactLoopAgent,
        session: Session,
        scope: anyio.CancelScope,
        cause: Callable[[], str],
    ) -> None:
        self._agent = agent
        self._session = session
        self._scope = scope
        self._cause = cause
        self._command: str | None = None  # the cause that a Cancel command named
        self._inbound = Inbound(session)

    @property
    def _state(self) -> Any:
        return self._session.fold(loop_fold)

    async def run(self, prompt: Content | None, choice: ToolChoice) -> TurnResult | None:
        session = self._session
        session.repair()
        result: TurnResult | None = None
        if self._state.open:  # what repair leaves open is suspended
            if prompt is None:
                result = await self._turn(None, None, choice)
                if result.end_reason.kind == "suspended":
                    return result
            else:
                self._supersede()
        if self._state.unfinished is not None:  # accepted, then cut off by a crash
            result = await self._turn(self._state.unfinished.text, None, choice)
        while not self._scope.cancel_called:
            queued = await self._inbound.next_prompt()
            if queued is None or not isinstance(queued.command, Prompt):
                break
            result = await self._turn(queued.command.text, queued, choice)
            if result.end_reason.kind == "suspended":
                if prompt is None:
                    return result
                self._supersede()
        if prompt is not None and not self._scope.cancel_called:
            result = await self._turn(prompt, None, choice)
        return result

    def _supersede(self) -> None:
        """A new prompt closes a suspended turn: denied, then aborted."""
        session = self._session
        found = open_calls(session)
        state = self._state
        for call in found[1] if found else ():
            asked = state.asked.get(call.id)
            if asked is not None and state.decision(call.id) is None:
                decided = ApprovalDecided(asked.id, "denied", "superseded")
                session.append("approval/decided", decided)
            text = "This call was not run: a new prompt came instead of a decision."
            message = tool_message(call.id, text, id=_ambient.new_id(), is_error=True)
            session.append(
                "tool/result",
                ToolResult(message, state.turn, state.step, DENIED),
                surface_op="append",
            )
        session.repair(
            reason="cancelled", end=EndReason("aborted", reason={"kind": "superseded"})
        )

    # -- one turn ------------------------------------------------------------------------------

    async def _turn(
        self, prompt: Content | None, queued: Queued | None, choice: ToolChoice
    ) -> TurnResult:
        """Run one turn to its end, or until it is suspended; `prompt` None continues one."""
        session = self._session
        first = session.next_seq
        if prompt is not None:
            session.append("turn/start", TurnStart(self._state.turn + 1))
        end: EndReason | None = None
        reason = "cancelled"
        try:
            with self._scope:
                async with self._agent.model.connected(), anyio.create_task_group() as tasks:
                    tasks.start_soon(self._watch)
                    end = await self._bounded(prompt, queued, choice)
                    tasks.cancel_scope.cancel()
        except* ModelError as group:
            end, reason = EndReason("error", error=_failure(group)), "failed"
        except* _LimitReached as group:
            end = EndReason("limit", reason=_first(group).which)
        finally:
            with anyio.CancelScope(shield=True):
                await self._close(end, reason)
        return self._result(first)

    async def _bounded(
        self, prompt: Content | None, queued: Queued | None, choice: ToolChoice
    ) -> EndReason:
        seconds = self._agent.max_seconds
        with anyio.move_on_after(math.inf if seconds is None else seconds):
            return await self._steps(prompt, queued, choice)
        raise _LimitReached("seconds")

    async def _close(self, end: EndReason | None, reason: str) -> None:
        """Close the turn in the log, whatever ended it, and make it durable."""
        if end is not None and end.kind == "suspended":
            await self._inbound.flush()
            return
        if end is None:
            cause = self._command or (self._cause() if self._scope.cancel_called else "host")
            end = EndReason("aborted", reason={"kind": cause})
        self._session.repair(reason=reason, end=end)
        await self._inbound.flush()

    async def _watch(self) -> None:
        """Look for a cancel from another process, as long as the turn runs."""
        while True:
            for queued in await self._inbound.waiting():
                command = queued.command
                if isinstance(command, Cancel):
                    self._inbound.accept(queued)
                    if command.turn is None or command.turn == self._state.turn:
                        self._command = command.reason
                        self._scope.cancel()
                        return
            await anyio.sleep(POLL)

    async def _steps(
        self, prompt: Content | None, queued: Queued | None, choice: ToolChoice
    ) -> EndReason:
        session, agent = self._session, self._agent
        turn = self._state.turn
        if prompt is None:
            found = open_calls(session)
            step = self._state.step
            if found is not None and not await self._dispatch(turn, step, found[1]):
                return EndReason("suspended")
            session.append("step/end", StepEnd(turn, step))
        while True:
            step = self._state.step + 1
            self._check_limits(step)
            session.append("step/start", StepStart(turn, step))
            await self._input(prompt if step == 1 else None, queued, turn)
            first_choice: ToolChoice = choice if step == 1 or choice == "none" else "auto"
            answer = await self._ask(first_choice, turn, step)
            calls = answer.data.message.tool_calls
            if calls and not await self._dispatch(turn, step, calls):
                return EndReason("suspended")
            session.append("step/end", StepEnd(turn, step))
            if not calls and not await self._inbound.steering(turn):
                end = EndReason(self._why(answer))
                session.append("turn/end", TurnEnd(turn, end))
                return end

    def _why(self, answer: AnyEvent) -> str:
        for seq in reversed(answer.source_event_seqs or ()):
            chunk = self._session.event_at(seq).data.chunk
            if chunk.type == "finish":
                return "max-tokens" if chunk.reason.kind == "max-tokens" else "completed"
        return "completed"

    def _check_limits(self, step: int) -> None:
        agent = self._agent
        if step > agent.max_steps:
            raise _LimitReached("steps")
        if agent.max_tokens is not None:
            used = self._usage(self._turn_start())
            if (used.input_tokens or 0) + (used.output_tokens or 0) >= agent.max_tokens:
                raise _LimitReached("tokens")

    async def _input(self, prompt: Content | None, queued: Queued | None, turn: int) -> None:
        """What the step brings: late results, the prompt, steering."""
        session = self._session
        for seq, late in list(self._state.late.items()):
            self._late_result(seq, late)
        if prompt is not None:
            if queued is not None:
                self._inbound.accept(queued)
            message = user_message(blocks(prompt), id=_ambient.new_id())
            session.append("user/message", message, surface_op="append")
        for steer in await self._inbound.steering(turn):
            self._inbound.accept(steer)
            text = getattr(steer.command, "text", "")
            message = user_message(text, id=_ambient.new_id())
            session.append("user/message", message, surface_op="append")

    def _late_result(self, seq: int, late: ToolResult) -> None:
        call_id = late.message.tool_call_id or ""
        head = Text(f"The result of tool call {call_id} came late:\n")
        message = Message(
            _ambient.new_id(), "user", (head, *late.message.content), Source(LATE, call_id=call_id)
        )
        self._session.append(
            "context/message", message, surface_op="append", source_event_seqs=[seq]
        )

    async def _ask(self, choice: ToolChoice, turn: int, step: int) -> Any:
        agent = self._agent
        asking = Asking(
            self._session,
            self._inbound,
            agent.model,
            agent.encoder_for(self._session),
            retries=agent.retries,
            delay=agent.delay,
            new_id=_ambient.new_id,
        )
        header = asking.log_header(agent.header(choice), turn, step)
        forced = choice == "required" and bool(agent.tools) and not agent.model.native_tools
        return await asking.ask(header, turn, step, forced=forced)

    async def _dispatch(self, turn: int, step: int, calls: Sequence[Any]) -> bool:
        agent = self._agent
        dispatch = Dispatch(
            self._session, self._inbound, agent.tools, agent.approver, turn, step
        )
        return await dispatch.run(calls)

    # -- the result ----------------------------------------------------------------------------

    def _turn_start(self) -> int:
        for event in reversed(self._session.events):
            if event.type == "turn/start":
                return event.seq
        return 0

    def _usage(self, start: int) -> Usage:
        used: list[Usage | None] = []
        for event in reversed(self._session.events):
            if event.seq < start:
                break
            if isinstance(event.data, (AssistantMessage, AssistantAttempt)):
                used.append(event.data.usage)
        return add_usage(used)

    def _result(self, first: int) -> TurnResult:
        session = self._session
        start = self._turn_start()
        text, end = "", EndReason("suspended")
        for event in reversed(session.events):
            if event.seq < start:
                break
            if event.type == "assistant/message" and not text and event.message is not None:
                text = event.message.text
            if event.type == "turn/end" and isinstance(event.data, TurnEnd):
                end = event.data.reason
        return TurnResult(
            text, self._usage(start), self._state.turn, end, first, session.next_seq - 1
        )


def add_usage(used: Sequence[Usage | None]) -> Usage:
    """Usages added up, bucket by bucket; unknown where any part is."""

    def total(bucket: str) -> int | None:
        values = [None if one is None else getattr(one, bucket) for one in used]
        if not values or any(value is None for value in values):
            return None
        return sum(values)

    return Usage(*(total(bucket) for bucket in Usage.__struct_fields__[:5]))


def _first(error: BaseException) -> Any:
    """The first error inside nested groups."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]  # pyright: ignore[reportUnknownMemberType,reportUnknownVariableType]
    return error


def _failure(group: BaseExceptionGroup[ModelError]) -> Failure:
    return _first(group).failure
