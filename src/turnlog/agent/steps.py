"""The steps of one turn: ask the model, run the tools it asks for, until it asks for none."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import AsyncExitStack, contextmanager
from typing import TYPE_CHECKING

from turnlog import _ambient
from turnlog.agent.asking import Answer, Asking
from turnlog.agent.dispatch import Dispatch
from turnlog.agent.results import SUSPENDED, tokens_spent
from turnlog.agent.state import LATE, open_calls
from turnlog.content import Content, Message, Source, Text, ToolCall, blocks, is_blank, user_message
from turnlog.events import EndReason, StepEnd, StepStart, ToolResult, TurnStart
from turnlog.views.loop import LoopState, loop_fold

if TYPE_CHECKING:
    from turnlog.agent.inbound import Inbound, Waiting
    from turnlog.agent.loop import ReactLoopAgent, ToolChoice
    from turnlog.commands import Prompt
    from turnlog.session import Session


class Steps:
    """Runs the steps of one turn: a new one after `begin`, else the suspended one."""

    def __init__(
        self, agent: ReactLoopAgent, session: Session, inbound: Inbound, choice: ToolChoice
    ) -> None:
        self._agent = agent
        self._session = session
        self._inbound = inbound
        self._choice: ToolChoice = choice
        self._begun = False
        self._dispatch: Dispatch | None = None

    @property
    def _state(self) -> LoopState:
        return self._session.fold(loop_fold)

    def begin(self, prompt: Content, queued: Waiting[Prompt] | None) -> None:
        """Start a turn and its first step with the prompt, before anything is waited for."""
        self._session.append("turn/start", TurnStart(self._state.turn + 1))
        self._start_step()
        if queued is not None:
            self._inbound.accept(queued)
        self._say(prompt)
        self._begun = True

    async def run(self) -> EndReason:
        """Take steps until the turn ends or is suspended.

        Raises:
            ModelError: a request failed for good.
        """
        session = self._session
        async with AsyncExitStack() as stack:
            if not self._begun and not await self._tools(open_calls(session)):
                return EndReason(SUSPENDED)
            await stack.enter_async_context(self._agent.model.connected())
            while True:
                if not self._begun:
                    limit = self._limit()
                    if limit is not None:
                        return limit
                    self._start_step()
                await self._steer()
                answer = await self._ask()
                self._begun = False
                calls = answer.message.tool_calls
                if not await self._tools(calls):
                    return EndReason(SUSPENDED)
                if not calls and not await self._inbound.steering(self._state.turn):
                    return EndReason("max-tokens" if answer.cut_off else "completed")

    @contextmanager
    def closing(self) -> Generator[None]:
        """While the turn is closed in the log: a result that comes now waits, and is late."""
        if self._dispatch is None:
            yield
        else:
            with self._dispatch.closing():
                yield

    def _limit(self) -> EndReason | None:
        agent = self._agent
        if self._state.step >= agent.max_steps:
            return EndReason("limit", reason="steps")
        if agent.max_tokens is not None and tokens_spent(self._session) >= agent.max_tokens:
            return EndReason("limit", reason="tokens")
        return None

    # -- input ---------------------------------------------------------------------------------

    def _start_step(self) -> None:
        """Start the next step with what came late."""
        state = self._state
        self._session.append("step/start", StepStart(state.turn, state.step + 1))
        for seq, late in list(state.late.items()):
            self._enter_late(seq, late)

    def _enter_late(self, seq: int, late: ToolResult) -> None:
        call_id = late.message.tool_call_id or ""
        head = Text(f"The result of tool call {call_id} came late:\n")
        source = Source(LATE, call_id=call_id)
        message = Message(_ambient.new_id(), "user", (head, *late.message.content), source)
        self._session.append(
            "context/message", message, surface_op="append", source_event_seqs=[seq]
        )

    async def _steer(self) -> None:
        for queued in await self._inbound.steering(self._state.turn):
            self._inbound.accept(queued)
            self._say(queued.command.text)

    def _say(self, said: Content) -> None:
        content = [block for block in blocks(said) if not is_blank(block)]
        message = user_message(content, id=_ambient.new_id())
        self._session.append("user/message", message, surface_op="append")

    # -- model and tools -----------------------------------------------------------------------

    async def _ask(self) -> Answer:
        agent, state = self._agent, self._state
        first = state.step == 1 or self._choice == "none"
        choice: ToolChoice = self._choice if first else "auto"
        asking = Asking(
            self._session,
            self._inbound,
            agent.model,
            agent.encoder_for(self._session),
            retries=agent.retries,
            delay=agent.delay,
        )
        header = asking.log_header(agent.header(choice), state.turn, state.step)
        forced = choice == "required" and bool(agent.tools) and not agent.model.native_tools
        return await asking.ask(header, state.turn, state.step, forced=forced)

    async def _tools(self, calls: Sequence[ToolCall]) -> bool:
        """Run the calls of the step and end it; False when it is suspended."""
        agent, turn, step = self._agent, self._state.turn, self._state.step
        if calls:
            self._dispatch = Dispatch(
                self._session, self._inbound, agent.tools, agent.approver, turn, step
            )
            if not await self._dispatch.run(calls):
                return False
        self._session.append("step/end", StepEnd(turn, step))
        return True
