"""The command that runs one turn: run."""

from __future__ import annotations

import re
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from turnlog.cli import screen
from turnlog.cli.agents import (
    AGENT_DEFAULTS,
    AgentOptions,
    continuing,
    make_agent,
    system_in_force,
)
from turnlog.cli.commanding import asked_in_turn
from turnlog.cli.options import DEFAULTS, Options
from turnlog.cli.outcome import Failed, Misused
from turnlog.cli.sessions import no_session, run_async, store_of
from turnlog.cli.terminal import Lines, is_interactive
from turnlog.cli.turns import Talk, say_end
from turnlog.errors import NoSuchSession, TurnlogError

if TYPE_CHECKING:
    from turnlog.agent import ReactLoopAgent
    from turnlog.stores.live import StoredSession
    from turnlog.stores.store import Store

SessionOption = Annotated[
    str | None,
    Parameter(name="--session", help="The session to go on with, made if need be. Else a new one."),
]


def run(
    prompt: Annotated[
        str | None,
        Parameter(
            allow_leading_hyphen=True,
            help="What to say; - reads standard input. Without it, what waits in the session is "
            "run: a turn that was approved, prompts in its inbox.",
        ),
    ] = None,
    /,
    *,
    session_id: SessionOption = None,
    chosen: AgentOptions = AGENT_DEFAULTS,
    options: Options = DEFAULTS,
) -> None:
    """Run one turn of an agent.

    The answer streams to standard output. Reasoning, tool calls and the
    session's id go to standard error.

    Ctrl-C cancels the turn and keeps what had arrived; a second one leaves
    at once.

    With --json each event is printed once it is durable: what was printed
    is never lost. The last line is the end of the turn.

    The exit status is 0 if the turn was completed, 1 if it failed, was
    cancelled, reached a limit or waits for an approval.

    Examples:
        turnlog run "Why is the sky blue?"
        turnlog run --session trip "And at night?"
        turnlog run --tool weather:forecast "Do I need a coat?"
        turnlog run --session trip --json - < prompt.txt
        turnlog run --session trip
    """
    text = _prompt(prompt)
    check_id(session_id)
    if text is None and session_id is None:
        raise Misused("expected a PROMPT, or the --session to go on with")

    async def work() -> bool:
        asked = Lines().approve if is_interactive() and prompt != "-" else None
        async with store_of(options, make=True) as store:
            agent = await make_agent(store, chosen, asked)
            if text is None:
                await _must_exist(store, session_id or "")
            async with opened(store, session_id, agent, chosen, json=options.json) as (talk, live):
                if text is None:
                    check_tools(live, agent)
                result = await talk.turn(text, chosen.tool_choice)
            if result is None:
                raise TurnlogError(
                    f"session {live.id!r}: nothing waits to be run: give it a PROMPT"
                    if text is None
                    else "cancelled before the turn began"
                )
            completed = say_end(result, live, chosen, options)
            if result.end_reason.kind != "suspended":  # which says how to go on by itself
                again = continuing(live.id, chosen, options)
                screen.note_line(f"session {live.id}: {again} PROMPT")
            return completed

    if not run_async(work):
        raise Failed


def _prompt(prompt: str | None) -> str | None:
    if prompt == "-":
        prompt = sys.stdin.buffer.read().decode("utf-8", "replace").removesuffix("\n")
    elif prompt is not None and re.fullmatch(r"-\S*", prompt):
        raise Misused(f"Unknown option: {prompt}")
    if prompt is not None and not prompt.strip():
        raise Misused("the prompt is empty")
    return prompt


def check_id(session_id: str | None) -> None:
    """Refuse what can be no id of a session.

    Raises:
        Misused: it is empty.
    """
    if session_id == "":
        raise Misused("--session: expected an id, got ''")


async def _must_exist(store: Store, session_id: str) -> None:
    try:
        await store.backend.next_seq(session_id)
    except NoSuchSession:
        raise await no_session(store, session_id) from None


@asynccontextmanager
async def opened(
    store: Store,
    session_id: str | None,
    agent: ReactLoopAgent,
    chosen: AgentOptions,
    *,
    json: bool,
    patient: bool = False,
) -> AsyncGenerator[tuple[Talk, StoredSession]]:
    """Own a session, made if need be, and say if something interrupted had to be closed.

    Args:
        patient: as for `Talk`.
    """
    before = 0
    if session_id is not None and await store.backend.exists(session_id):
        before = await store.backend.next_seq(session_id)
    async with store.session(session_id, cwd=str(Path.cwd())) as session:
        repaired = await session.read_events(before)
        if repaired and before and not json:
            screen.note_line(f"what was interrupted is closed: {len(repaired)} events appended")
        if chosen.system is None:
            agent.system = system_in_force(session)
        said = len(session) - len(repaired)
        yield Talk(store, session, agent, json=json, said=said, patient=patient), session


def check_tools(session: StoredSession, agent: ReactLoopAgent) -> None:
    """A turn that waits goes on only with the tools that it waits for.

    Raises:
        Misused: one is missing, and without it the call would fail.
    """
    waiting = {asked.tool_name for asked, outcome in asked_in_turn(session) if outcome != "denied"}
    missing = sorted(waiting - set(agent.tools))
    if missing:
        raise Misused(
            f"session {session.id!r} waits with a call of {', '.join(missing)}: "
            "give the --tool MODULE:FUNC for it too"
        )
