"""The turns of one `run` or `stream`: in which order they come, and how each one is closed."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import anyio

from turnlog import _ambient
from turnlog.agent.gate import DENIED
from turnlog.agent.inbound import POLL, Inbound, Waiting
from turnlog.agent.results import SUSPENDED, TurnResult, turn_result
from turnlog.agent.state import is_answered, open_calls
from turnlog.agent.steps import Steps
from turnlog.commands import Approve, Cancel, Deny, Prompt
from turnlog.content import Content, Failure, tool_message
from turnlog.errors import ModelError
from turnlog.events import ApprovalDecided, EndReason, ToolResult
from turnlog.views.loop import SHUTDOWN, LoopState, loop_fold

if TYPE_CHECKING:
    from turnlog.agent.loop import ReactLoopAgent, ToolChoice
    from turnlog.session import Session


_CUT_OFF = (
    "The last turn was cut off: the process that ran it ended, or lost its store. What is known to "
    "have been done is above; a call whose outcome is not known may have had its effect. Go on "
    "from there."
)


class Drive:
    """Runs a suspended turn, then the prompts that wait, then the caller's own."""

    def __init__(self, agent: ReactLoopAgent, session: Session) -> None:
        self._agent = agent
        self._session = session
        self._inbound = Inbound(session)
        self._stopped: str | None = None  # why no further turn is to run
        self._cancelled: str | None = None  # why the running turn is to end
        self._scope = anyio.CancelScope()  # the running turn's

    def stop(self, cause: str) -> None:
        """Cancel the running turn, and run no other; the first cause counts."""
        if self._stopped is None:
            self._stopped = cause
        self._scope.cancel()

    async def run(self, prompt: Content | None, choice: ToolChoice) -> TurnResult | None:
        """Run what there is to run; the result of the last turn, None when there was none."""
        self._session.repair()
        result: TurnResult | None = None
        if self._is_suspended() and (
            prompt is None or await self._inbound.of(Approve, Deny, Cancel)
        ):
            result = await self._turn(None, None, choice)
        while self._stopped is None:
            said, queued = await self._next()
            if said is None:
                break
            result = await self._new_turn(said, queued, choice)
        if prompt is not None and self._stopped is None:
            result = await self._new_turn(prompt, None, choice)
        if self._stopped is None:
            await self._compact_as_asked()
        return result

    async def run_one(self, *, go_on: bool) -> TurnResult | None:
        """Run one turn of those that wait; its result, None when none could be run.

        Args:
            go_on: go on with a turn that a crash or a shutdown cut off.
        """
        session = self._session
        session.repair()
        result: TurnResult | None = None
        first = session.next_seq
        if self._is_suspended():
            if await self._inbound.of(Approve, Deny, Cancel):
                result = await self._turn(None, None, "auto")
        elif go_on and await self._is_cut_off():
            result = await self._turn(_CUT_OFF, None, "auto", goes_on=True)
        if self._stopped is None and (result is None or session.next_seq == first):
            said, queued = await self._next()
            if said is not None:
                result = await self._new_turn(said, queued, "auto")
        if self._stopped is None:
            if not self._state.open:
                await self._inbound.discard_stale()  # or it would call for a turn for ever
            await self._compact_as_asked()
        return result

    async def _is_cut_off(self) -> bool:
        """Whether the last turn, which came through the inbox, has ended before it was done."""
        state = self._state
        if not state.cut_off or state.unfinished is not None or is_answered(self._session):
            return False
        cancels = [queued.command.turn for queued in await self._inbound.of(Cancel)]
        if None in cancels or state.turn in cancels:
            return False
        begun = await self._inbound.begun()
        return any(isinstance(command, (Prompt, Approve, Deny)) for command in begun)

    async def _compact_as_asked(self) -> None:
        """Compact if the inbox asks for it, and no turn is open to do it in."""
        scope = self._scope = anyio.CancelScope()
        if not self._state.open:
            with scope:
                await self._agent.compact_as_asked(self._session, self._inbound)
            with anyio.CancelScope(shield=True):
                await self._inbound.settle()

    @property
    def _state(self) -> LoopState:
        return self._session.fold(loop_fold)

    def _is_suspended(self) -> bool:
        """Whether a turn is open, which after repair means that it waits for approvals.

        Not one of an import: nothing in a seed authorises anything, so that its end comes first.
        """
        session = self._session
        if self._state.open and session.header.seed_length == session.next_seq:
            session.end_seed("interrupted")
        return self._state.open

    async def _next(self) -> tuple[Content | None, Waiting[Prompt] | None]:
        """What to run next: a prompt that a crash cut off, else the one that waited longest."""
        unfinished = self._state.unfinished
        if unfinished is not None:
            return unfinished.text, None
        queued = await self._inbound.next_prompt()
        return (None, None) if queued is None else (queued.command.text, queued)

    async def _new_turn(
        self, prompt: Content, queued: Waiting[Prompt] | None, choice: ToolChoice
    ) -> TurnResult:
        session = self._session
        if session.header.seed_length == session.next_seq:
            session.end_seed("interrupted")
        if self._state.open:
            self._supersede()
        await self._inbound.discard_stale()
        return await self._turn(prompt, queued, choice)

    def _supersede(self) -> None:
        """A new prompt closes a suspended turn: denied, then aborted."""
        session, state = self._session, self._state
        for call in open_calls(session):
            asked = state.asked.get(call.id)
            if asked is not None and state.decision(call.id) is None:
                decided = ApprovalDecided(asked.id, "denied", "superseded")
                session.append("approval/decided", decided)
            text = "This call was not run: a new prompt came instead of a decision."
            message = tool_message(call.id, text, id=_ambient.new_id(), is_error=True)
            result = ToolResult(message, state.turn, state.step, DENIED)
            session.append("tool/result", result, surface_op="append")
        session.repair(end=EndReason("aborted", reason={"kind": "superseded"}))

    # -- one turn ------------------------------------------------------------------------------

    async def _turn(
        self,
        prompt: Content | None,
        queued: Waiting[Prompt] | None,
        choice: ToolChoice,
        *,
        goes_on: bool = False,
    ) -> TurnResult:
        """Run one turn until it ends or is suspended; without a prompt, the suspended one."""
        session = self._session
        first = session.next_seq
        steps = Steps(self._agent, session, self._inbound, choice)
        scope = self._scope = anyio.CancelScope()
        self._cancelled = None
        if self._stopped is not None:
            scope.cancel()
        end: EndReason | None = None
        reason = "cancelled"
        try:
            if prompt is not None:
                steps.begin(prompt, queued, goes_on=goes_on)
            with scope:
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(self._watch, scope)
                    end = await self._limited(steps)
                    tasks.cancel_scope.cancel()
        except* ModelError as group:
            end, reason = EndReason("error", error=_failure(group)), "failed"
        except* Exception as group:
            end, reason = EndReason("error", error=_internal(group)), "failed"
            raise
        finally:
            with anyio.CancelScope(shield=True):
                await self._close(steps, end, reason)
        return turn_result(session, first)

    async def _limited(self, steps: Steps) -> EndReason | None:
        """Why the turn ends; None when a cancel came while it was being suspended."""
        seconds = self._agent.max_seconds
        with anyio.move_on_after(math.inf if seconds is None else seconds):
            end = await steps.run()
            if end.kind == SUSPENDED and await self._is_cancelled():
                return None
            return end
        return EndReason("limit", reason="seconds")

    async def _close(self, steps: Steps, end: EndReason | None, reason: str) -> None:
        """Close the turn in the log, whatever ended it, and make it durable."""
        if end is None or (end.kind == SUSPENDED and self._stopped not in (None, SHUTDOWN)):
            cause = self._cancelled or self._stopped or "host"
            end = EndReason("aborted", reason={"kind": cause})
        if end.kind != SUSPENDED:
            steps.enter_input()
            with steps.closing():
                self._session.repair(reason=reason, end=end)
            steps.settle()
        if self._stopped == SHUTDOWN and end.kind == "aborted":
            await self._inbound.flush()  # another process is to go on with it
        else:
            await self._inbound.settle()

    async def _watch(self, scope: anyio.CancelScope) -> None:
        """Look for a cancel from another process, as long as the turn runs."""
        while self._inbound.durable:
            if await self._is_cancelled():
                scope.cancel()
                return
            await anyio.sleep(POLL)

    async def _is_cancelled(self) -> bool:
        """Whether a cancel of this turn has come through the inbox."""
        command = await self._inbound.cancel_of(self._state.turn)
        if command is not None:
            self._cancelled = command.reason
        return self._cancelled is not None


def _errors(group: BaseExceptionGroup[BaseException]) -> Sequence[BaseException]:
    found: list[BaseException] = []
    for error in group.exceptions:
        found += _errors(error) if isinstance(error, BaseExceptionGroup) else [error]  # pyright: ignore[reportUnknownArgumentType]
    return found


def _failure(group: BaseExceptionGroup[ModelError]) -> Failure:
    return next(error.failure for error in _errors(group) if isinstance(error, ModelError))


def _internal(group: BaseExceptionGroup[BaseException]) -> Failure:
    """An error that is no model's: the caller gets it too."""
    error = _errors(group)[0]
    return Failure(f"{type(error).__name__}: {error}", "internal")
