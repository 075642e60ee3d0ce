"""The interactive command: chat."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from turnlog.cli import screen
from turnlog.cli.agents import AGENT_DEFAULTS, AgentOptions, continuing, make_agent
from turnlog.cli.commanding import pending
from turnlog.cli.options import DEFAULTS, Options
from turnlog.cli.running import SessionOption, check_id, check_tools, opened
from turnlog.cli.sessions import run_async, store_of
from turnlog.cli.signals import on_interrupt
from turnlog.cli.terminal import Lines, is_interactive
from turnlog.cli.turns import say_end
from turnlog.commands import Approve, Compact, Deny, Prompt

if TYPE_CHECKING:
    from turnlog.cli.turns import Talk
    from turnlog.stores.live import StoredSession

LOOK = 0.5  # seconds between looks into the inbox while nothing runs
_COMPACT = re.compile(r"\s*/compact(?:\s+(.*\S))?\s*")
HELP = """\
/help  this
/compact [WISH]  put a summary in the place of what was said; it keeps what you wish
/exit  leave; so do Ctrl-D, and Ctrl-C while nothing runs
Ctrl-C cancels a turn and keeps what had arrived; twice, it leaves at once"""


def chat(
    *,
    session_id: SessionOption = None,
    chosen: AgentOptions = AGENT_DEFAULTS,
    options: Options = DEFAULTS,
) -> None:
    """Talk with an agent.

    Each line is a prompt. Ctrl-C cancels the turn and keeps what had
    arrived; while nothing runs it leaves, and so does Ctrl-D.

    Another terminal may steer or cancel the turn, approve its calls, and compact.

    Examples:
        turnlog chat
        turnlog chat --session trip --model openai:gpt-5-mini
        turnlog chat --tool weather:forecast --system "Be brief."
    """
    check_id(session_id)

    async def work() -> None:
        lines = Lines()
        async with store_of(options, make=True) as store:
            agent = await make_agent(store, chosen, lines.approve if is_interactive() else None)
            async with opened(store, session_id, agent, chosen, json=options.json) as (talk, live):
                check_tools(live, agent)
                screen.note_line(f"session {live.id}; /help says what there is")
                await _converse(talk, live, lines, chosen, options)
            screen.note_line(continuing(live.id, chosen, options, command="chat"))

    run_async(work)


async def _converse(
    talk: Talk, session: StoredSession, lines: Lines, chosen: AgentOptions, options: Options
) -> None:
    prompt: str | None = None  # what waits in the session comes first
    inbox = _Inbox(session)
    while True:
        result = await talk.turn(prompt, chosen.tool_choice)
        if result is not None:
            say_end(result, session, chosen, options)
        line = await _next(lines, inbox)
        if line is None:
            return
        asked = _COMPACT.fullmatch(line)
        if asked is not None:
            await talk.compact(asked[1])
        prompt = None if asked else line or None


async def _next(lines: Lines, inbox: _Inbox) -> str | None:
    """The next prompt, empty when something came through the inbox; None to leave."""
    while True:
        with on_interrupt(lines.close):
            line = await _line_or_work(lines, inbox)
        if line is None or line.strip() in ("/exit", "/quit"):
            return None
        if not line or _COMPACT.fullmatch(line):
            return line
        if line.strip() and not re.fullmatch(r"\s*/\w*\s*", line):
            return line
        if line.strip():
            known = line.strip() == "/help"
            for text in ([] if known else [f"no command {line.strip()}"]) + HELP.splitlines():
                screen.note_line(text)


async def _line_or_work(lines: Lines, inbox: _Inbox) -> str | None:
    """The next line that says something; an empty one when another process left work."""
    import anyio

    line: str | None = ""

    async def read(scope: anyio.CancelScope) -> None:
        nonlocal line
        while (line := await lines.ask("> ")) == "":
            pass
        scope.cancel()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(read, tasks.cancel_scope)
        while not await inbox.has_work():  # noqa: ASYNC110 - another process posts
            await anyio.sleep(LOOK)
        tasks.cancel_scope.cancel()
    return line


class _Inbox:
    """The session's inbox between turns."""

    def __init__(self, session: StoredSession) -> None:
        self._session = session
        self._seen: set[str] = set()  # what did not help once is not tried again by itself

    async def has_work(self) -> bool:
        """Whether a prompt came, a wish to compact, or a decision that a turn waits for."""
        waiting = {asked.call_id for asked in pending(self._session)}
        fresh = {
            command.id
            for command in [queued.command for queued in await self._session.commands()]
            if isinstance(command, (Prompt, Compact))
            or (isinstance(command, (Approve, Deny)) and command.call_id in waiting)
        } - self._seen
        self._seen |= fresh
        return bool(fresh)
