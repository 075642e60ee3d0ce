"""The tools of one step: approvals first, then bodies, then results in call order."""

from __future__ import annotations

import math
import threading
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import anyio

from turnlog import _ambient
from turnlog.agent.bodies import run_body
from turnlog.agent.gate import DENIED, Gate, Item
from turnlog.agent.tools import BadArguments, Tool, ToolAborted, as_content, calling
from turnlog.errors import AdmissionError, TurnlogError
from turnlog.events import ToolCallStart, ToolError, ToolResult

if TYPE_CHECKING:
    from turnlog.agent.approval import Approver
    from turnlog.agent.inbound import Inbound
    from turnlog.content import ToolCall
    from turnlog.session import Session

UNKNOWN_TOOL = ToolError("UnknownToolError", "TOOL_UNKNOWN")
BAD_ARGUMENTS = ToolError("ToolArgumentsError", "TOOL_BAD_ARGUMENTS")
ABORTED = ToolError("ToolAbortedError", "TOOL_ABORTED")
FAILED = "TOOL_FAILED"


class Dispatch:
    """Runs the calls of one answer. After a cancel, what it logged is enough for the closers."""

    def __init__(
        self,
        session: Session,
        inbound: Inbound,
        tools: Mapping[str, Tool],
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
        self._items: list[Item] = []
        self._lock = threading.Lock()
        self._closed = False

    async def run(self, calls: Sequence[ToolCall]) -> bool:
        """Give each call its result; False when the turn is suspended, waiting for a decision."""
        items = self._items = [Item(call, self._turn, self._step) for call in calls]
        for item in items:
            await self._look_up(item)
        gate = Gate(self._session, self._inbound, self._approver, items)
        await gate.decide()
        await self._run_ready()
        while not all(item.entered for item in items):
            if not await gate.take():
                gate.hold()
                return False
            await self._run_ready()
        return True

    @contextmanager
    def closing(self) -> Generator[None]:
        """While the calls are closed in the log; what comes before is settled, after it is late."""
        with self._lock:
            yield
            self._closed = True

    async def _look_up(self, item: Item) -> None:
        """Find the tool, check the arguments, ask for the policy."""
        call = item.call
        tool = item.tool = self._tools.get(call.name)
        if tool is None:
            known = ", ".join(self._tools) or "none"
            text = f"There is no tool {call.name!r}; the tools are: {known}."
            item.result = item.answered(text, UNKNOWN_TOOL)
            return
        try:
            item.args = tool.read(call.arguments)
        except BadArguments as error:
            item.result = item.answered(str(error), BAD_ARGUMENTS)
            return
        item.policy = await tool.decide(item.args)
        if item.policy not in ("always", "ask"):
            item.result = item.answered("This call is not allowed.", DENIED)

    # -- running -------------------------------------------------------------------------------

    async def _run_ready(self) -> None:
        """Run what may run, up to the first call that waits for a decision."""
        self._enter()
        ready: list[Item] = []
        for item in self._items:
            if item.waits:
                break
            if item.result is None:
                ready.append(item)
        while ready:
            batch = [ready.pop(0)]
            while ready and not _exclusive(batch[0]) and not _exclusive(ready[0]):
                batch.append(ready.pop(0))
            async with anyio.create_task_group() as tasks:
                for item in batch:
                    if item.tool is not None:
                        tasks.start_soon(self._dispatch, item, item.tool)

    async def _dispatch(self, item: Item, tool: Tool) -> None:
        call = item.call
        start = ToolCallStart(call.id, call.name, call.arguments, self._turn, self._step)
        item.started = self._session.append("tool/call", start).seq
        await self._inbound.flush()
        calling.set(self._session)  # in this task only
        try:
            said = await run_body(tool, item.args, partial(self._late, item))
        except (Exception, SystemExit) as error:  # noqa: BLE001 - the model reads what a tool raises
            self._settle(item, _failed(item, error))
        except anyio.get_cancelled_exc_class() as error:
            if not tool.is_async or anyio.current_effective_deadline() == -math.inf:
                raise
            self._settle(item, _failed(item, error))  # it cancelled itself, nobody else did
        else:
            self._settle(item, item.answered(said))

    def _settle(self, item: Item, result: ToolResult) -> None:
        """A result arrived: it enters if it is its turn, else it is logged and waits."""
        try:
            self._take(item, result)
        except AdmissionError as error:
            text = f"The call returned, but its result cannot be kept: {error.detail}"
            self._take(item, item.answered(text, ToolError(type(error).__name__, FAILED)))

    def _take(self, item: Item, result: ToolResult) -> None:
        item.result = result
        self._enter()
        if not item.entered:
            item.settled = self._session.append("tool/settled", result).seq

    def _enter(self) -> None:
        """Append the results that are next in call order."""
        for item in self._items:
            if item.entered:
                continue
            if item.result is None:
                return
            cited = [seq for seq in (item.started, item.settled) if seq is not None]
            self._session.append(
                "tool/result", item.result, surface_op="append", source_event_seqs=cited or None
            )
            item.entered = True

    def _late(self, item: Item, said: Any, error: BaseException | None) -> None:
        """In the tool's thread, after its call was cancelled: keep what it brought."""
        result = item.answered(as_content(said)) if error is None else _failed(item, error)
        with self._lock:
            try:
                self._session.append("tool/late-result" if self._closed else "tool/settled", result)
            except TurnlogError:
                _ambient.report_late_result(self._session.id, item.call.id)


def _exclusive(item: Item) -> bool:
    return item.tool is not None and item.tool.exclusive


def _failed(item: Item, error: BaseException) -> ToolResult:
    name, text = type(error).__name__, str(error)
    if isinstance(error, ToolAborted):
        return item.answered(text or name, ABORTED)
    return item.answered(f"{name}: {text}" if text else name, ToolError(name, FAILED))
