"""The tools of one step: approvals first, then bodies, then results in call order."""

from __future__ import annotations

import inspect
import threading
from collections.abc import Sequence
from typing import Any

import anyio
import anyio.to_thread

from turnlog import _ambient
from turnlog.agent.approval import ApprovalRequest, Approver
from turnlog.agent.inbound import POLL, Inbound
from turnlog.agent.state import loop_fold
from turnlog.agent.tools import BadArguments, Tool, ToolAborted, as_content
from turnlog.commands import Approve, Deny
from turnlog.content import Block, Content, ToolCall, blocks, tool_message
from turnlog.errors import TurnlogError
from turnlog.events import (
    ApprovalAsked,
    ApprovalDecided,
    ToolCallStart,
    ToolError,
    ToolResult,
)
from turnlog.session import Session

UNKNOWN_TOOL = ToolError("UnknownToolError", "TOOL_UNKNOWN")
BAD_ARGUMENTS = ToolError("ToolArgumentsError", "TOOL_BAD_ARGUMENTS")
DENIED = ToolError("ToolDeniedError", "TOOL_DENIED")
ABORTED = ToolError("ToolAbortedError", "TOOL_ABORTED")


class _Call:
    """One call of the step and what became of it."""

    __slots__ = ("args", "call", "entered", "result", "settled", "started", "tool")

    def __init__(self, call: ToolCall) -> None:
        self.call = call
        self.tool: Tool | None = None
        self.args: dict[str, Any] = {}
        self.result: ToolResult | None = None
        self.started: int | None = None  # seq of tool/call
        self.settled: int | None = None  # seq of tool/settled
        self.entered = False


class Dispatch:
    """Runs the calls of one answer. After a cancel, what it logged is enough for the closers."""

    def __init__(  # noqa: PLR0913 - its surroundings
        self,
        session: Session,
        inbound: Inbound,
        tools: dict[str, Tool],
        approver: Approver | None,
        turn: int,
        step: int,
    ) -> None:
        self._session = session
        self._inbound = inbound
        self._tools = tools
        self._approver = approver
        self._turn = turn
        self._step = step
        self._calls: list[_Call] = []

    async def run(self, calls: Sequence[ToolCall]) -> bool:
        """Give each call its result; False when the turn is suspended, waiting for a decision."""
        self._calls = [_Call(call) for call in calls]
        undecided: list[_Call] = []
        for item in self._calls:
            if not await self._prepare(item):
                undecided.append(item)
        if undecided and not await self._decide(undecided):
            return False
        self._enter()
        running = [item for item in self._calls if item.result is None]
        while running:
            batch = [running.pop(0)]
            while running and not _exclusive(batch[0]) and not _exclusive(running[0]):
                batch.append(running.pop(0))
            async with anyio.create_task_group() as tasks:
                for item in batch:
                    tasks.start_soon(self._dispatch, item)
        return True

    # -- before a body runs --------------------------------------------------------------------

    async def _prepare(self, item: _Call) -> bool:
        """Find the tool, check the arguments, apply the policy; False when a person must decide."""
        call = item.call
        tool = item.tool = self._tools.get(call.name)
        if tool is None:
            known = ", ".join(self._tools) or "none"
            text = f"There is no tool {call.name!r}; the tools are: {known}."
            item.result = self._result(call, text, UNKNOWN_TOOL)
            return True
        try:
            item.args = tool.read(call.arguments)
        except BadArguments as error:
            item.result = self._result(call, str(error), BAD_ARGUMENTS)
            return True
        state = self._session.fold(loop_fold)
        decided = state.decision(call.id)
        if decided is None and call.id not in state.asked:
            policy = await tool.decide(item.args)
            if policy == "always":
                return True
            if policy != "ask":
                item.result = self._result(call, "This call is not allowed.", DENIED)
                return True
        return self._apply(item, decided)

    def _apply(self, item: _Call, decided: ApprovalDecided | None) -> bool:
        if decided is None:
            return False
        if decided.outcome != "granted":
            why = f": {decided.reason}" if decided.reason else "."
            item.result = self._result(item.call, f"This call was denied{why}", DENIED)
        return True

    async def _decide(self, undecided: list[_Call]) -> bool:
        """Ask for what is undecided; False when someone else must answer, later."""
        state = self._session.fold(loop_fold)
        for item in undecided:
            call = item.call
            if call.id not in state.asked:
                asked = ApprovalAsked(
                    _ambient.new_id(), call.name, call.id, call.arguments, turn=self._turn
                )
                self._session.append("approval/asked", asked)
        await self._inbound.flush()
        await self._read_decisions()
        state = self._session.fold(loop_fold)
        if self._approver is not None:
            for item in undecided:
                if state.decision(item.call.id) is None:
                    await self._ask(state.asked[item.call.id], self._approver)
        state = self._session.fold(loop_fold)
        return all([self._apply(item, state.decision(item.call.id)) for item in undecided])

    async def _ask(self, asked: ApprovalAsked, approver: Approver) -> None:
        """Ask the approver; a decision that comes through the inbox meanwhile is as good."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._ask_approver, asked, approver, tasks.cancel_scope)
            while not self._is_decided(asked):
                await anyio.sleep(POLL)
                await self._read_decisions()
            tasks.cancel_scope.cancel()

    async def _ask_approver(
        self, asked: ApprovalAsked, approver: Approver, scope: anyio.CancelScope
    ) -> None:
        request = ApprovalRequest(
            asked.id, asked.call_id or "", asked.tool_name, asked.arguments or ""
        )
        said = approver(request)
        if inspect.isawaitable(said):
            said = await said
        if not self._is_decided(asked):
            outcome = "granted" if said else "denied"
            self._session.append("approval/decided", ApprovalDecided(asked.id, outcome))
        scope.cancel()

    def _is_decided(self, asked: ApprovalAsked) -> bool:
        return asked.id in self._session.fold(loop_fold).decided

    async def _read_decisions(self) -> None:
        """Take decisions out of the inbox; one for a call that is closed has no effect."""
        waiting_for = {item.call.id for item in self._calls}
        for queued in await self._inbound.waiting():
            command = queued.command
            if not isinstance(command, (Approve, Deny)):
                continue
            self._inbound.accept(queued)
            state = self._session.fold(loop_fold)
            asked = state.asked.get(command.call_id)
            if asked is None or command.call_id not in waiting_for:
                continue
            if state.decision(command.call_id) is None:
                granted = isinstance(command, Approve)
                reason = None if granted else command.reason
                decided = ApprovalDecided(asked.id, "granted" if granted else "denied", reason)
                self._session.append("approval/decided", decided)

    # -- running -------------------------------------------------------------------------------

    async def _dispatch(self, item: _Call) -> None:
        call, tool = item.call, item.tool
        if tool is None:
            return
        start = ToolCallStart(call.id, call.name, call.arguments, self._turn, self._step)
        item.started = self._session.append("tool/call", start).seq
        await self._inbound.flush()
        try:
            said = await self._body(item, tool)
        except ToolAborted as error:
            self._settle(item, self._result(call, str(error), ABORTED))
        except Exception as error:  # noqa: BLE001 - whatever a tool raises, the model reads it
            failed = ToolError(type(error).__name__, "TOOL_FAILED")
            text = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
            self._settle(item, self._result(call, text, failed))
        else:
            self._settle(item, self._result(call, said))

    async def _body(self, item: _Call, tool: Tool) -> tuple[Block, ...]:
        if inspect.iscoroutinefunction(tool.function):
            return as_content(await tool.function(**item.args))
        thread = _ThreadBody(tool, item.args)
        try:
            await anyio.to_thread.run_sync(thread.run, abandon_on_cancel=True)
        except BaseException:
            if not thread.abandon(lambda said, error: self._late(item.call, said, error)):
                raise  # it runs on; what it returns comes late
        return thread.result()

    def _settle(self, item: _Call, result: ToolResult) -> None:
        """A result arrived: it enters if it is its turn, else it is logged and waits."""
        item.result = result
        self._enter()
        if not item.entered:
            item.settled = self._session.append("tool/settled", result).seq

    def _enter(self) -> None:
        """Append the results that are next in call order."""
        for item in self._calls:
            if item.entered:
                continue
            if item.result is None:
                return
            cited = [seq for seq in (item.started, item.settled) if seq is not None]
            self._session.append(
                "tool/result", item.result, surface_op="append", source_event_seqs=cited or None
            )
            item.entered = True

    def _result(
        self, call: ToolCall, content: Content, error: ToolError | None = None
    ) -> ToolResult:
        said = blocks(content) or blocks("(no output)")
        message = tool_message(
            call.id, said, id=_ambient.new_id(), is_error=error is not None
        )
        return ToolResult(message, self._turn, self._step, error)

    def _late(self, call: ToolCall, said: Any, error: BaseException | None) -> None:
        """In the tool's thread, after its call was closed: keep what it brought."""
        if error is None:
            result = self._result(call, as_content(said))
        else:
            failed = ToolError(type(error).__name__, "TOOL_FAILED")
            result = self._result(call, f"{type(error).__name__}: {error}", failed)
        try:
            self._session.append("tool/late-result", result)
        except TurnlogError:
            _ambient.report_late_result(self._session.id, call.id)


def _exclusive(item: _Call) -> bool:
    return item.tool is not None and item.tool.exclusive


class _ThreadBody:
    """A plain function in a thread, which may outlive the interest in it."""

    def __init__(self, tool: Tool, args: dict[str, Any]) -> None:
        self._tool = tool
        self._args = args
        self._lock = threading.Lock()
        self._done = False
        self._said: Any = None
        self._error: BaseException | None = None
        self._late: Any = None

    def run(self) -> None:
        said, error = None, None
        try:
            said = self._tool.function(**self._args)
        except BaseException as raised:  # noqa: BLE001 - carried to whoever waits
            error = raised
        with self._lock:
            self._done, self._said, self._error = True, said, error
            late = self._late
        if late is not None:
            late(said, error)

    def abandon(self, late: Any) -> bool:
        """Stop waiting; whether it had finished already. If not, `late` gets what it brings."""
        with self._lock:
            if not self._done:
                self._late = late
            return self._done

    def result(self) -> tuple[Block, ...]:
        if self._error is not None:
            raise self._error
        return as_content(self._said)


