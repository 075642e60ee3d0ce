"""Work for other processes: worker, which does it, and post, which leaves it."""

from __future__ import annotations

import copy
import inspect
import sys
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from turnlog.cli import screen
from turnlog.cli.agents import (
    AGENT_DEFAULTS,
    AgentOptions,
    find_named,
    make_agent,
    system_in_force,
)
from turnlog.cli.options import DEFAULTS, Flag, Id, Options
from turnlog.cli.outcome import Failed, Misused
from turnlog.cli.sessions import find, run_async, store_of
from turnlog.cli.signals import on_interrupt
from turnlog.commands import Prompt

if TYPE_CHECKING:
    from turnlog.agent import ReactLoopAgent
    from turnlog.session import Session
    from turnlog.stores.metrics import WriterMetrics
    from turnlog.stores.store import Store
    from turnlog.worker import AgentFor, Report, Skipped, Tally

LONGEST = 200  # characters of a line, where no terminal says how wide it is


def worker(  # noqa: PLR0913 - all optional
    *,
    agent: Annotated[
        str | None,
        Parameter(
            help="An agent, or a function that makes the agent for a session, as MODULE:NAME, also "
            "from the current folder. Else the options below make it."
        ),
    ] = None,
    concurrency: Annotated[int, Parameter(help="Sessions that are run at once.")] = 8,
    once: Annotated[
        bool, Flag, Parameter(help="End when nothing waits any more; what is broken aside.")
    ] = False,
    grace: Annotated[
        float, Parameter(help="Seconds that turns have to end after the first signal.")
    ] = 30.0,
    attempts: Annotated[
        int,
        Parameter(help="How often in a row to go on with a turn whose process died."),
    ] = 5,
    patience: Annotated[
        float,
        Parameter(
            help="Seconds for which a turn waits for a store that is away; none with --once."
        ),
    ] = 600.0,
    metrics: Annotated[
        bool,
        Flag,
        Parameter(
            help="Measure with OpenTelemetry what is written, for the meter provider that "
            "opentelemetry-instrument or the module of --agent sets."
        ),
    ] = False,
    chosen: AgentOptions = AGENT_DEFAULTS,
    options: Options = DEFAULTS,
) -> None:
    """Run what waits in the inboxes of a store.

    Any number of workers may run on a store, on any machines: each session
    is run by one of them at a time, one turn, and goes to the end of the
    line. What a worker that died was doing is gone on with by another.

    A line is printed for each turn. What cannot be run is reported on
    standard error, tried again later, and holds up nothing else.

    Ctrl-C or SIGTERM lets the turns that run end and starts no other; a
    second one cuts them off and keeps what had arrived, for another worker
    to go on with; a third one leaves at once.

    The exit status is 0, or 1 if turns were cut off, or, with --once, if a
    turn failed or a session could not be run.

    Examples:
        turnlog worker --store postgresql://me@db/agents --agent shop:make_agent
        turnlog worker --model openai:gpt-5-mini --tool weather:forecast
        turnlog worker --once --json
    """
    if concurrency < 1:
        raise Misused(f"--concurrency: expected 1 or more, got {concurrency}")
    for option, number in (("grace", grace), ("attempts", attempts), ("patience", patience)):
        if not number >= 0:  # NaN is not, either
            raise Misused(f"--{option}: expected 0 or more, got {number}")
    if agent is not None and chosen != AGENT_DEFAULTS:
        raise Misused("--agent MODULE:NAME says all of the agent: no --model, --tool … beside it")

    async def work() -> Tally:
        from turnlog.worker import Worker

        measured = _measured() if metrics else None
        async with store_of(options, make=True, metrics=measured) as store:
            made = await _made(store, chosen) if agent is None else _named(agent)
            if metrics:
                _check_measured()
            running = Worker(
                store,
                made,
                concurrency=concurrency,
                attempts=attempts,
                grace=grace,
                patience=patience,
                on_report=lambda report: _say(report, running, json=options.json),
            )
            if not once and not options.json:
                screen.note_line(f"runs what waits in {store.url}; Ctrl-C lets it end")
            with on_interrupt(running.drain, running.stop):
                return await running.run(once=once)

    try:
        tally = run_async(work)
    finally:
        if metrics:
            _send_measured()
    if once and tally.stuck and not options.json:
        screen.note_line(f"not run, and waiting: {', '.join(map(repr, tally.stuck))}")
    if tally.cut_off or (once and (tally.failed or tally.stuck)):
        raise Failed


def post(
    id: Id,
    text: Annotated[
        str, Parameter(allow_leading_hyphen=True, help="The prompt; - reads standard input.")
    ],
    /,
    *,
    create: Annotated[bool, Flag, Parameter(help="Make the session if there is none.")] = False,
    options: Options = DEFAULTS,
) -> None:
    """Leave a prompt in a session's inbox.

    Whichever process runs the session next answers it: a worker, chat, or
    run without a prompt. Prompts have a turn each, in order of posting.

    Examples:
        turnlog post ID "And at night?"
        turnlog post trip "Where to?" --create
        turnlog post ID - < prompt.txt
    """
    if text == "-":
        text = sys.stdin.buffer.read().decode("utf-8", "replace").removesuffix("\n")
    if not text.strip():
        raise Misused("the prompt is empty")

    async def work() -> tuple[str, str]:
        async with store_of(options, make=create) as store:
            name = id if create else await find(store, id)
            return await store.inbox(name).post(Prompt(text), create=create), name

    command_id, name = run_async(work)
    if options.json:
        screen.say_json({"id": command_id, "session": name})
    else:
        screen.say(screen.printable_line(f"prompt posted to session {name}"))


# -- the agent ---------------------------------------------------------------------------------


def _named(name: str) -> ReactLoopAgent | AgentFor:
    """The agent that MODULE:NAME names, or what makes it; a maker may take the session, or nothing.

    Raises:
        Misused: it is neither.
    """
    from turnlog.agent import ReactLoopAgent

    found = find_named("--agent", name)
    if isinstance(found, ReactLoopAgent):
        return found
    if not callable(found):
        kind = type(found).__name__
        raise Misused(f"--agent {name}: expected an agent or a function, got {kind}")
    takes_session = bool(inspect.signature(found).parameters)

    def make(session: Session) -> Any:
        return found(session) if takes_session else found()

    return make


async def _made(store: Store, chosen: AgentOptions) -> AgentFor:
    """What makes the agent that the options describe: each session keeps its system text."""
    agent = await make_agent(store, chosen, None)

    def make(session: Session) -> ReactLoopAgent:
        own = copy.copy(agent)
        if chosen.system is None:
            own.system = system_in_force(session)
        return own

    return make


# -- what is measured --------------------------------------------------------------------------


def _measured() -> WriterMetrics:
    from turnlog.telemetry import writer_metrics

    return writer_metrics()


def _send_measured() -> None:
    from turnlog.telemetry import flush

    flush()


def _check_measured() -> None:
    """See to it that the measurements go somewhere.

    Raises:
        Misused: nobody set a meter provider.
    """
    from turnlog.telemetry import is_configured

    if not is_configured():
        msg = "--metrics: this process has no meter provider to measure with: start it by"
        hint = "opentelemetry-instrument, or let the module of --agent set one"
        raise Misused(f"{msg} {hint}")


# -- what it says ------------------------------------------------------------------------------


def _say(report: Report, running: Any, *, json: bool) -> None:
    """One line; when nobody reads any more, the worker ends."""
    try:
        if json:
            screen.say_json(_wire(report))
        else:
            _say_line(report)
        sys.stdout.flush()
    except BrokenPipeError:
        screen.quiet_stdout()
        running.drain()


def _wire(report: Report) -> dict[str, Any]:
    from turnlog.worker import Ran

    if not isinstance(report, Ran):
        said = {"session": report.session_id, "error": str(report.error)}
        return {**said, "kind": type(report.error).__name__, "againIn": report.again_in}
    result, end = report.result, report.result.end_reason
    return {
        "session": report.session_id,
        "turn": result.turn,
        "end": end.kind,
        "error": None if end.error is None else end.error.message,
        "goesOn": report.goes_on,
        "seconds": round(report.seconds, 3),
        "text": result.text,
    }


def _why(report: Skipped) -> str:
    """What went wrong, and in which session; a fault that no part of turnlog raised by its kind."""
    from turnlog.errors import TurnlogError

    error, name = report.error, report.session_id
    said = str(error)
    if not isinstance(error, TurnlogError):
        said = f"{type(error).__name__}: {said}" if said else type(error).__name__
    return said if name is None or repr(name) in said else f"session {name!r}: {said}"


def _say_line(report: Report) -> None:
    from turnlog.worker import Ran

    if not isinstance(report, Ran):
        again = "" if report.again_in is None else f" (again in {report.again_in:.1f} s)"
        screen.error_line(f"{_why(report)}{again}")
        return
    result, end = report.result, report.result.end_reason
    why = end.error.message if end.error is not None else result.text
    again = " again" if report.goes_on else ""
    said = f"{report.session_id}  turn {result.turn}{again} {end.kind}, {report.seconds:.1f} s"
    screen.say(screen.cut(f"{said}  {why}".rstrip(), screen.width() or LONGEST))
