"""The interactive command: chat."""

from __future__ import annotations

import re
from contextlib import contextmanager
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
from turnlog.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Generator

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

    On a terminal a turn waits for a store that is away, until Ctrl-C.

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
            live: StoredSession | None = None
            json, patient = options.json, is_interactive()
            try:
                async with opened(store, session_id, agent, chosen, json=json, patient=patient) as (
                    talk,
                    live,
                ):
                    check_tools(live, agent)
                    screen.note_line(f"session {live.id}; /help says what there is")
                    await converse(talk, live, lines, chosen, options)
            except StoreError:
                if live is not None:
                    screen.note_line(continuing(live.id, chosen, options, command="chat"))
                raise
            screen.note_line(continuing(live.id, chosen, options, command="chat"))

    run_async(work)


async def converse(
    talk: Talk, session: StoredSession, lines: Lines, chosen: AgentOptions, options: Options
) -> None:
    """Run what waits in the session, then what is typed, until there is nothing more."""
    prompt: str | None = None  # what waits in the session comes first
    inbox = Inbox(session)
    while True:
        with _outliving(talk, session, prompt):
            result = await talk.turn(prompt, chosen.tool_choice)
            if result is not None:
                say_end(result, session, chosen, options)
        line = await _next(lines, inbox)
        if line is None:
            return
        asked = _COMPACT.fullmatch(line)
        if asked is not None:
            with _outliving(talk, session):
                await talk.compact(asked[1])
        prompt = None if asked else line or None


@contextmanager
def _outliving(talk: Talk, session: StoredSession, prompt: str | None = None) -> Generator[None]:
    """On a terminal a store that is away ends what was asked for, and not the conversation."""
    from turnlog.stores.patience import may_pass

    before = session.next_seq
    try:
        yield
    except StoreError as error:
        if not may_pass(error) or not talk.patient:
            raise
        screen.error_line(str(error))
        if prompt is not None and session.next_seq == before:
            screen.note_line(f"not said: {prompt}")
        elif session.durable_seq < session.next_seq:
            screen.note_line("what is not stored is kept here, and stored with what comes next")


async def _next(lines: Lines, inbox: Inbox) -> str | None:
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


async def _line_or_work(lines: Lines, inbox: Inbox) -> str | None:
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


class Inbox:
    """A session's inbox between turns."""

    def __init__(self, session: StoredSession) -> None:
        self._session = session
        self._seen: set[str] = set()  # what did not help once is not tried again by itself
        self._away = False  # whether the store is, and that was said

    async def has_work(self) -> bool:
        """Whether a prompt came, a wish to compact, or a decision that a turn waits for.

        Not while the store is away, which is said once: it may be back when a line is typed.
        """
        from turnlog.stores.patience import may_pass

        try:
            commands = [queued.command for queued in await self._session.commands()]
        except StoreError as error:
            if not may_pass(error):
                raise
            if not self._away:
                screen.error_line(str(error), "it is looked at again")
            self._away = True
            return False
        self._away = False
        waiting = {asked.call_id for asked in pending(self._session)}
        fresh = {
            command.id
            for command in commands
            if isinstance(command, (Prompt, Compact))
            or (isinstance(command, (Approve, Deny)) and command.call_id in waiting)
        } - self._seen
        self._seen |= fresh
        return bool(fresh)
