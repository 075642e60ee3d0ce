"""`ReactLoopAgent`: reason, act, observe, until there is nothing left to do.

The order of events in a turn is the law (docs/agents.md): `turn/start`; then for each step, after
compaction if it is due, `step/start`, the input it brings, `request/header` if it changed,
`request/sent`, a flush, the stream, `assistant/message`, the tools with their results in call
order, `step/end`; `turn/end` says why. Whatever cuts a turn off, cancellation, an error, a crash,
closes it by the same closers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Literal, TypeAlias, get_args
from weakref import WeakKeyDictionary

import msgspec

from turnlog.agent.approval import Approver
from turnlog.agent.asking import without_system
from turnlog.agent.inbound import Inbound
from turnlog.agent.recalling import recall_tool
from turnlog.agent.results import TurnResult
from turnlog.agent.state import system_node
from turnlog.agent.tools import Tool, toolbox
from turnlog.agent.turn import AgentBusy, Turn, idle
from turnlog.backoff import Backoff, backoff
from turnlog.compaction.engine import BasicCompactionEngine
from turnlog.compaction.port import Ahead, Compacted, CompactionEngine
from turnlog.content import Content, Message, blocks, is_blank
from turnlog.dialects import BodyEncoder, encoder
from turnlog.errors import CompactionFailed, TurnlogError
from turnlog.events import Header, ModelConfig
from turnlog.models.forced_tools import forced_header
from turnlog.models.port import Model
from turnlog.session import Session

__all__ = ["AgentBusy", "ReactLoopAgent", "ToolChoice", "Turn", "TurnResult"]

ToolChoice: TypeAlias = Literal["auto", "required", "none"]


class ReactLoopAgent:
    """A ReAct loop over a session: ask the model, run the tools it asks for, until it is done.

    Args:
        model: `provider:model`, or a model.
        tools: functions or `Tool`s; their order does not matter.
        system: system text.
        approve: decides calls whose policy is "ask"; without it the turn is suspended until
            a decision comes through the inbox.
        max_steps, max_tokens, max_seconds: limits of a turn, at least 1; it ends with reason
            "limit". Tokens are input and output, as far as the model reports them.
        retries: how often a failed request is tried again.
        temperature, max_output_tokens, reasoning_effort: for the model, as far as it knows them.
        compaction: keeps requests within the model's window; by default a `BasicCompactionEngine`.
            One that has no model asks the agent's own for summaries.
        recall: whether the model has a tool, `recall`, that finds what was compacted.
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
        compaction: CompactionEngine | None = None,
        recall: bool = False,
    ) -> None:
        self.model: Model = _open(model)
        self.tools = toolbox([*tools, recall_tool()] if recall else tools)
        self.system = system
        self.approver = approve
        self.max_steps = max(1, max_steps)
        self.max_tokens = max_tokens
        self.max_seconds = max_seconds
        self.retries = retries
        self.delay = delay
        if isinstance(compaction, BasicCompactionEngine):
            compaction = compaction.asking(self.model)
        self.compaction: CompactionEngine = compaction or BasicCompactionEngine(
            self.model, delay=delay
        )
        self._config = ModelConfig(
            self.model.provider,
            self.model.model,
            reasoning_effort,
            temperature,
            max_output_tokens,
        )
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
            TurnlogError: the prompt has no visible content, or the session cannot be written or
                flushed.
        """
        async with self.stream(session, prompt, tool_choice=tool_choice) as turn:
            async for _ in turn:
                pass
        if turn.result is None:
            msg = f"session {session.id!r}: there was nothing to run"
            raise TurnlogError(msg)
        return turn.result

    def stream(
        self,
        session: Session,
        prompt: Content | None = None,
        *,
        tool_choice: ToolChoice = "auto",
        one: bool = False,
        go_on: bool = False,
    ) -> Turn:
        """The same as a block whose body sees each event as it is logged.

        Args:
            session: the session.
            prompt: as for `run`.
            tool_choice: as for `run`.
            one: run one turn only of what waits in the inbox, and none of a prompt.
            go_on: with `one`: if a crash, or a `Turn.stop("shutdown")`, cut off a turn that came
                through the inbox, a turn that goes on with it is the first of what waits.
        """
        if prompt is not None and all(map(is_blank, blocks(prompt))):
            msg = f"session {session.id!r}: expected a prompt with visible content, got {prompt!r}"
            raise TurnlogError(msg)
        if tool_choice not in get_args(ToolChoice):
            msg = f"expected tool_choice auto, required or none, got {tool_choice!r}"
            raise TurnlogError(msg)
        if tool_choice == "required" and not self.tools:
            msg = 'tool_choice="required" needs an agent with tools'
            raise TurnlogError(msg)
        if one and prompt is not None:
            msg = "expected no prompt with one=True: what waits in the inbox is run"
            raise TurnlogError(msg)
        return Turn(self, session, prompt, tool_choice, one=one, go_on=go_on)

    async def compact(
        self, session: Session, *, instruction: str | None = None
    ) -> Compacted | None:
        """Compact the session because somebody asks for it.

        Args:
            session: the session.
            instruction: what is to be kept in particular.

        Returns:
            What was done; None inside a step of a running turn, which is ended first.

        Raises:
            CompactionBusy: another compaction of the session is running.
            CompactionFailed: nothing was compacted; the log says why.
        """
        ahead = self.ahead(session)
        with idle(session) as is_idle:
            if is_idle:
                session.repair()
            return await self.compaction.compact_now(session, instruction=instruction, ahead=ahead)

    async def make_room(self, session: Session, messages: Sequence[Message] = ()) -> None:
        """Compact if the next request would be too large, or somebody asked for it.

        Args:
            session: the session, between two steps.
            messages: what the next request will bring.
        """
        with suppress(CompactionFailed):  # in the log; whether it fits the provider says
            await self.compaction.compact_if_needed(session, self.ahead(session, messages))

    async def compact_as_asked(self, session: Session, inbound: Inbound) -> None:
        """Compact if somebody asked for it; called where no step follows."""
        await inbound.accept_compactions()
        if self.compaction.is_wanted(session):
            await self.make_room(session)

    def ahead(self, session: Session, messages: Sequence[Message] = ()) -> Ahead:
        """The next request, as far as the session does not say."""
        header = self.header("auto")
        if system_node(session) is not None:
            header = without_system(header)
        return Ahead(header, self.model.context_window, tuple(messages))

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


def _open(model: str | Model) -> Model:
    if not isinstance(model, str):
        return model
    from turnlog.models import open_model  # noqa: PLC0415 - providers are loaded when used

    return open_model(model)
