"""The steps of one turn: ask the model, run the tools it asks for, until it asks for none."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import AsyncExitStack, contextmanager
from typing import TYPE_CHECKING

import msgspec

from turnlog import _ambient
from turnlog.agent.asking import Answer, Asking
from turnlog.agent.dispatch import Dispatch
from turnlog.agent.results import SUSPENDED, tokens_spent
from turnlog.agent.state import CUT_OFF, LATE, open_calls
from turnlog.compaction.refused import Refused, is_about_media
from turnlog.content import Content, Message, Source, Text, ToolCall, blocks, is_blank, user_message
from turnlog.errors import CompactionFailed, ContextOverflow, RequestRefused
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
        self._input: tuple[Content, Waiting[Prompt] | None] | None = None  # not in the log yet
        self._goes_on = False
        self._dispatch: Dispatch | None = None
        self._refused: Refused | None = None  # what the open step's requests were refused for

    @property
    def _state(self) -> LoopState:
        return self._session.fold(loop_fold)

    def begin(
        self, prompt: Content, queued: Waiting[Prompt] | None, *, goes_on: bool = False
    ) -> None:
        """Start a turn for the prompt, which enters with its first step.

        With `goes_on` no person said it: it says that the turn goes on with the one before.
        """
        self._goes_on = goes_on
        self._session.append("turn/start", TurnStart(self._state.turn + 1))
        self._input = (prompt, queued)

    def enter_input(self) -> None:
        """Start the first step with the prompt, if that has not been done: it is never lost."""
        if self._input is not None:
            (prompt, queued), self._input = self._input, None
            self._start_step()
            if queued is not None:
                self._inbound.accept(queued)
            if self._goes_on:
                note = Message(_ambient.new_id(), "user", blocks(prompt), Source(CUT_OFF))
                self._session.append("context/message", note, surface_op="append")
            else:
                self._say(prompt)

    async def run(self) -> EndReason:
        """Take steps until the turn ends or is suspended.

        Raises:
            ModelError: a request failed for good.
        """
        session = self._session
        async with AsyncExitStack() as stack:
            if self._input is None and not await self._tools(open_calls(session)):
                return EndReason(SUSPENDED)
            await stack.enter_async_context(self._agent.model.connected())
            while True:
                limit = self._limit() if self._input is None else None
                if limit is not None:
                    return limit
                await self._begin_step()
                answer = await self._ask()
                calls = answer.message.tool_calls
                if not await self._tools(calls):
                    return EndReason(SUSPENDED)
                if not calls and not await self._inbound.steering(self._state.turn):
                    await self._agent.compact_as_asked(session, self._inbound)
                    return EndReason("max-tokens" if answer.cut_off else "completed")

    @contextmanager
    def closing(self) -> Generator[None]:
        """While the turn is closed in the log: a result that comes now waits, and is late."""
        if self._dispatch is None:
            yield
        else:
            with self._dispatch.closing():
                yield

    def settle(self) -> None:
        """The turn has ended in the log: what its last request was refused for is left out."""
        if self._refused is not None:
            self._refused.settle()

    def _limit(self) -> EndReason | None:
        agent = self._agent
        if self._state.step >= agent.max_steps:
            return EndReason("limit", reason="steps")
        if agent.max_tokens is not None and tokens_spent(self._session) >= agent.max_tokens:
            return EndReason("limit", reason="tokens")
        return None

    # -- input ---------------------------------------------------------------------------------

    async def _begin_step(self) -> None:
        """Make room for what the next step brings, then start it."""
        await self._inbound.accept_compactions()
        await self._agent.make_room(self._session, await self._incoming())
        if self._input is None:
            self._start_step()
        else:
            self.enter_input()
        await self._steer()

    async def _incoming(self) -> list[Message]:
        """What the next step will bring, none of it in the log yet."""
        steering = await self._inbound.steering(self._state.turn)
        said: list[Content] = [] if self._input is None else [self._input[0]]
        said += [queued.command.text for queued in steering]
        late = [result.message for result in self._state.late.values()]
        return [*late, *map(user_message, said)]

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
        turn, step = state.turn, state.step
        forced = choice == "required" and bool(agent.tools) and not agent.model.native_tools
        self._refused = refused = Refused(self._session)
        is_shrunk = False
        while True:
            header = asking.log_header(agent.header(choice), turn, step)
            try:
                return await asking.ask(header, turn, step, forced=forced)
            except (ContextOverflow, RequestRefused) as error:
                if is_about_media(error):
                    if not refused.leave_out(error, asking.body(header)):
                        raise
                elif isinstance(error, ContextOverflow) and not is_shrunk:
                    await self._shrink(error)
                    is_shrunk = True
                else:
                    raise

    async def _shrink(self, error: ContextOverflow) -> None:
        """Make the request smaller that was refused, or say why that is not possible."""
        agent, session = self._agent, self._session
        try:
            await agent.compaction.on_overflow(session, error, agent.ahead(session))
        except CompactionFailed as failed:
            said = f"{error.failure.message} (compaction does not help: {failed})"
            raise ContextOverflow(msgspec.structs.replace(error.failure, message=said)) from failed

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
