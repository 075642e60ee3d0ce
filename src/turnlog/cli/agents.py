"""The agent that `run` and `chat` drive: its options, its model, its tools."""

from __future__ import annotations

import os
import shlex
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Group, Parameter

from turnlog.cli.options import Flag, Options
from turnlog.cli.outcome import Misused
from turnlog.cli.screen import note_line
from turnlog.cli.sessions import no_session, read_session

if TYPE_CHECKING:
    from turnlog.agent import ReactLoopAgent
    from turnlog.agent.approval import Approver
    from turnlog.models import Model
    from turnlog.session import Session
    from turnlog.stores.store import Store

DEFAULT_MODEL = "local:smollm2"
AGENT = Group("Agent", sort_key=5)


@Parameter(name="*", group=AGENT)
@dataclass(frozen=True)
class AgentOptions:
    """What makes an agent."""

    model: Annotated[
        str | None,
        Parameter(
            help="As in openai:gpt-5-mini. Else $TURNLOG_MODEL, else local:smollm2, a small model "
            "that runs here."
        ),
    ] = None
    context_window: Annotated[
        int | None,
        Parameter(
            help="Tokens that the model takes, where it does not say, or fewer than it does. "
            "A session that grows beyond most of them is compacted."
        ),
    ] = None
    system: Annotated[
        str | None,
        Parameter(help="System text. Else what the session has; '' takes it away."),
    ] = None
    tool: Annotated[
        list[str] | None,
        Parameter(
            negative="",
            help="A function that the model may call, as MODULE:FUNC, also from the current "
            "folder; may be given several times.",
        ),
    ] = None
    recall: Annotated[
        bool,
        Flag,
        Parameter(help="Give the model a tool that finds what was compacted."),
    ] = False
    tool_choice: Annotated[
        Literal["auto", "required", "none"],
        Parameter(help="Whether the first step may, must or must not call a tool."),
    ] = "auto"
    max_steps: Annotated[int, Parameter(help="Requests that a turn may take.")] = 50
    max_output_tokens: Annotated[int | None, Parameter(help="Tokens that an answer may take.")] = (
        None
    )
    temperature: Annotated[float | None, Parameter(help="0 is steady, 1 is free.")] = None
    yes: Annotated[
        bool,
        Flag,
        Parameter(help="Approve every call. Else you are asked, and without a terminal it waits."),
    ] = False

    @property
    def words(self) -> list[str]:
        """The options that the same agent needs again; its system text the session has."""
        words = [] if self.model is None else ["--model", self.model]
        if self.context_window is not None:
            words += ["--context-window", str(self.context_window)]
        if self.recall:
            words.append("--recall")
        words += [word for name in self.tool or () for word in ("--tool", name)]
        for option, value, usual in (
            ("--max-steps", self.max_steps, AGENT_DEFAULTS.max_steps),
            ("--max-output-tokens", self.max_output_tokens, None),
            ("--temperature", self.temperature, None),
        ):
            if value != usual:
                words += [option, str(value)]
        return [*words, "--yes"] if self.yes else words


AGENT_DEFAULTS = AgentOptions()


def continuing(
    session_id: str, chosen: AgentOptions, options: Options, *, command: str = "run"
) -> str:
    """The command that goes on with a session, with the same agent.

    A tool that the first step must or must not call belongs to a prompt; in a conversation it
    belongs to each.
    """
    words = [command, "--session", session_id, *chosen.words]
    if command == "chat" and chosen.tool_choice != AGENT_DEFAULTS.tool_choice:
        words += ["--tool-choice", chosen.tool_choice]
    return command_line(words, options)


def command_line(words: list[str], options: Options) -> str:
    """A command as it is typed, for the same store; a password is left to who types it."""
    from turnlog.stores.server.urls import shown

    store = [] if options.store is None else ["--store", shown(options.store)]
    return shlex.join(["turnlog", *words, *store])


async def make_agent(
    store: Store, chosen: AgentOptions, approver: Approver | None
) -> ReactLoopAgent:
    """The agent that the options describe; nothing is sent or started yet.

    Raises:
        Misused: a tool that is none, or numbers that make no sense.
        InvalidModel, MissingExtra: no such model.
    """
    from turnlog.agent import InvalidTool, ReactLoopAgent

    for name, value in (
        ("max-steps", chosen.max_steps),
        ("max-output-tokens", chosen.max_output_tokens),
        ("context-window", chosen.context_window),
    ):
        if value is not None and value < 1:
            raise Misused(f"--{name}: expected 1 or more, got {value}")
    has_tools = bool(chosen.tool) or chosen.recall
    if chosen.tool_choice == "required" and not has_tools:
        raise Misused("--tool-choice required needs a --tool MODULE:FUNC")
    model = await named_model(store, chosen.model, chosen.context_window)
    if has_tools and chosen.tool_choice == "auto" and not model.native_tools:
        note_line(f"{model.name} calls a tool only with --tool-choice required")
    try:
        return ReactLoopAgent(
            model,
            tools=[find_tool(name) for name in chosen.tool or ()],
            system=chosen.system or None,
            approve=(lambda _: True) if chosen.yes else approver,
            max_steps=chosen.max_steps,
            max_output_tokens=chosen.max_output_tokens,
            temperature=chosen.temperature,
            recall=chosen.recall,
        )
    except InvalidTool as error:
        raise Misused(f"--tool: {error}") from None


async def named_model(store: Store, name: str | None, context_window: int | None = None) -> Model:
    """The model by its name; a recorded one finds its session in the same store."""
    from turnlog.models import open_model

    name = name or os.environ.get("TURNLOG_MODEL") or DEFAULT_MODEL
    provider, _, session_id = name.partition(":")
    if provider == "recorded" and session_id:
        if not await store.backend.exists(session_id):  # the log names the model: a whole id
            raise await no_session(store, session_id)
        events = (await read_session(store, session_id)).events
        return open_model(name, events=events, context_window=context_window)
    return open_model(name, context_window=context_window)


def find_tool(name: str) -> Any:
    """The tool that MODULE:FUNC names.

    Raises:
        Misused: there is no such module, nothing of that name in it, or it is no function.
    """
    from turnlog.agent import Tool

    found = find_named("--tool", name)
    if not isinstance(found, Tool) and not callable(found):
        raise Misused(f"--tool {name}: expected a function, got {type(found).__name__}")
    return found


def find_named(option: str, name: str) -> Any:
    """What MODULE:NAME names; modules of the current folder are found first.

    Raises:
        Misused: there is no such module, or nothing of that name in it.
    """
    from importlib import import_module

    module_name, colon, attribute = name.partition(":")
    if not (module_name and colon and attribute):
        raise Misused(f"{option} {name}: expected MODULE:NAME, as in weather:forecast")
    if module_name.endswith(".py"):
        raise Misused(f"{option} {name}: a module is named without .py")
    here = os.getcwd()  # noqa: PTH109 - as sys.path has it
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        found: Any = import_module(module_name)
    except Exception as error:  # noqa: BLE001 - whatever a module raises while it is loaded
        said = f"{type(error).__name__}: {error}"
        if isinstance(error, ModuleNotFoundError) and module_name.startswith(error.name or "?"):
            said = f"there is no module {error.name!r} here or among the installed ones"
        raise Misused(f"{option} {name}: {said}") from None
    for part in attribute.split("."):
        if not hasattr(found, part):
            raise Misused(f"{option} {name}: {module_name} has no {attribute!r}")
        found = getattr(found, part)
    return found


def system_in_force(session: Session) -> str | None:
    """The system text of the last request, so that a session goes on as it was."""
    from turnlog.views.loop import loop_fold

    return session.fold(loop_fold).system
