"""Approvals of one step's calls: the tool's policy, then whoever must be asked."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import anyio

from turnlog import _ambient
from turnlog.agent.approval import ApprovalRequest
from turnlog.agent.inbound import POLL
from turnlog.commands import Approve, Deny
from turnlog.content import Content, ToolCall, blocks, tool_message
from turnlog.events import ApprovalAsked, ApprovalDecided, ToolError, ToolResult
from turnlog.views.loop import LoopState, loop_fold

if TYPE_CHECKING:
    from turnlog.agent.approval import Approver
    from turnlog.agent.inbound import Inbound, Waiting
    from turnlog.agent.tools import Tool
    from turnlog.session import Session

DENIED = ToolError("ToolDeniedError", "TOOL_DENIED")
POLICY = "policy"  # why a call is granted that nobody had to be asked about


class Item:
    """One call of the step and what becomes of it.

    Attributes:
        policy: what the tool says of the call: "always", "ask" or "never".
        waits: a person has to decide first.
        result, entered: its result, and whether that is on the surface.
        started, settled: the seqs of its `tool/call` and `tool/settled`.
    """

    __slots__ = (
        "args",
        "call",
        "entered",
        "policy",
        "result",
        "settled",
        "started",
        "step",
        "tool",
        "turn",
        "waits",
    )

    def __init__(self, call: ToolCall, turn: int, step: int) -> None:
        self.call = call
        self.turn = turn
        self.step = step
        self.tool: Tool | None = None
        self.args: dict[str, Any] = {}
        self.policy = "always"
        self.waits = False
        self.result: ToolResult | None = None
        self.started: int | None = None
        self.settled: int | None = None
        self.entered = False

    def answered(self, content: Content, error: ToolError | None = None) -> ToolResult:
        """A result of the call."""
        said = blocks(content)
        message = tool_message(self.call.id, said, id=_ambient.new_id(), is_error=error is not None)
        return ToolResult(message, self.turn, self.step, error)


class Gate:
    """Decides which calls of a step may run.

    The log alone says what was decided. A call that waits keeps those after it waiting, since
    results enter in call order; those before it run.
    """

    def __init__(
        self, session: Session, inbound: Inbound, approver: Approver | None, items: Sequence[Item]
    ) -> None:
        self._session = session
        self._inbound = inbound
        self._approver = approver
        self._items = items

    @property
    def _state(self) -> LoopState:
        return self._session.fold(loop_fold)

    async def decide(self) -> None:
        """Ask about what the policy says to ask about, and take the decisions there are."""
        unasked = [item for item in self._items if self._is_unasked(item)]
        for item in unasked:
            self._log_asked(item)
        if unasked:
            await self._inbound.flush()  # before anybody sees the question
        await self.take()
        for item in self._items:
            if item.waits and self._approver is not None:
                await self._ask(item, self._approver)
        self._apply()

    async def take(self) -> bool:
        """Take decisions out of the inbox; whether there were any.

        One for a call that is closed, decided or not this step's has no effect. A denial stays in
        the inbox while a call before it waits: it closes its call at once, which would be out of
        order.
        """
        for command in list(self._state.undone.values()):  # accepted, then cut off by a crash
            self._log_decided(command)
        self._apply()
        waiting = await self._inbound.of(Approve, Deny)
        taken = False
        while queued := self._next(waiting):
            waiting.remove(queued)
            self._inbound.accept(queued)
            self._log_decided(queued.command)
            self._apply()
            taken = True
        return taken

    def hold(self) -> None:
        """Log what makes the turn a suspended one: each call that is left has been asked about.

        Those that need no person are granted by policy, which is looked at again on resume and
        authorises nothing by itself.
        """
        for item in self._items:
            if item.entered or item.call.id in self._state.asked:
                continue
            asked = self._log_asked(item)
            if item.result is None:
                self._session.append(
                    "approval/decided", ApprovalDecided(asked.id, "granted", POLICY)
                )

    # -- what the log says of a call -----------------------------------------------------------

    def _decision(self, item: Item) -> ApprovalDecided | None:
        """What a person decided of the call."""
        decided = self._state.decision(item.call.id)
        return None if decided is None or is_by_policy(decided) else decided

    def _is_unasked(self, item: Item) -> bool:
        if item.result is not None or item.policy != "ask":
            return False
        decided = self._state.decision(item.call.id)
        asked = item.call.id in self._state.asked
        return not asked or (decided is not None and is_by_policy(decided))

    def _apply(self) -> None:
        """Let each call run, wait or be closed, as was decided."""
        for item in self._items:
            if item.result is not None or item.started is not None:
                continue
            decided = self._decision(item)
            item.waits = item.policy == "ask" and decided is None
            if decided is not None and decided.outcome != "granted":
                why = f": {decided.reason}" if decided.reason else "."
                item.result = item.answered(f"This call was denied{why}", DENIED)
            asked = self._state.asked.get(item.call.id)
            if asked is not None and item.policy == "always" and decided is None:
                self._grant(asked)

    def _grant(self, asked: ApprovalAsked) -> None:
        if asked.id not in self._state.decided:
            decided = ApprovalDecided(asked.id, "granted", POLICY)
            self._session.append("approval/decided", decided)

    def _next(self, waiting: Sequence[Waiting[Approve | Deny]]) -> Waiting[Approve | Deny] | None:
        """The decision to take next; a denial of a call comes before a grant of it."""
        denied = {q.command.call_id for q in waiting if isinstance(q.command, Deny)}
        for queued in waiting:
            command = queued.command
            if isinstance(command, Approve) and command.call_id in denied:
                continue
            if self._is_timely(command):
                return queued
        return None

    def _is_timely(self, command: Approve | Deny) -> bool:
        if isinstance(command, Approve):
            return True
        calls = [item.call.id for item in self._items]
        before = calls.index(command.call_id) if command.call_id in calls else 0
        return not any(item.waits for item in self._items[:before])

    # -- asking --------------------------------------------------------------------------------

    def _log_asked(self, item: Item) -> ApprovalAsked:
        call = item.call
        asked = ApprovalAsked(_ambient.new_id(), call.name, call.id, call.arguments, turn=item.turn)
        self._session.append("approval/asked", asked)
        return asked

    def _log_decided(self, command: Approve | Deny) -> None:
        asked = self._state.asked.get(command.call_id)
        if asked is None or asked.id in self._state.decided:
            return
        granted = isinstance(command, Approve)
        reason = None if granted else command.reason
        decided = ApprovalDecided(asked.id, "granted" if granted else "denied", reason)
        self._session.append("approval/decided", decided)

    async def _ask(self, item: Item, approver: Approver) -> None:
        """Ask the approver; a decision that comes through the inbox meanwhile is as good."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._ask_approver, item, approver, tasks.cancel_scope)
            while self._decision(item) is None:
                await anyio.sleep(POLL)
                await self.take()
            tasks.cancel_scope.cancel()

    async def _ask_approver(self, item: Item, approver: Approver, scope: anyio.CancelScope) -> None:
        asked = self._state.asked[item.call.id]
        said = approver(
            ApprovalRequest(asked.id, item.call.id, asked.tool_name, asked.arguments or "")
        )
        if inspect.isawaitable(said):
            said = await said
        if self._decision(item) is None:
            outcome = "granted" if said else "denied"
            self._session.append("approval/decided", ApprovalDecided(asked.id, outcome))
        scope.cancel()


def is_by_policy(decided: ApprovalDecided) -> bool:
    """Whether no person decided it."""
    return decided.outcome == "granted" and decided.reason == POLICY
