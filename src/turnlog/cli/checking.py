"""Commands that judge: verify, stats, doctor."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from turnlog.cli import screen
from turnlog.cli.options import DEFAULTS, ID_HELP, Flag, Options
from turnlog.cli.outcome import Failed, Misused
from turnlog.cli.sessions import find, read_session, run_async, store_of
from turnlog.errors import NoSuchSession, TurnlogError

if TYPE_CHECKING:
    from turnlog.invariants import Finding
    from turnlog.stores.store import Store

MaybeId = Annotated[str | None, Parameter(help=ID_HELP)]


def verify(
    id: MaybeId = None,
    /,
    *,
    all: Annotated[bool, Flag] = False,
    options: Options = DEFAULTS,
) -> None:
    """Check every law of a log.

    Prints one line for each fault, and a note for what is legal but worth knowing. The exit status
    is 1 if there is any fault.

    Args:
        all: Every session of the store.

    Examples:
        turnlog verify ID
        turnlog verify --all
    """
    if (id is None) != all:
        raise Misused("expected a session's id, or --all")

    async def work() -> bool:
        sound = True
        async with store_of(options) as store:
            if id is not None:
                names = [await find(store, id)]
            else:
                names = [info.id async for info in store.sessions()]
            for name in names:
                sound &= await _verify(store, name, options)
        return sound

    if not run_async(work):
        raise Failed


async def _verify(store: Store, name: str, options: Options) -> bool:
    from turnlog import invariants, proof
    from turnlog.invariants import Finding

    try:
        session = await store.read(name, load="all")
        found: list[Finding] = invariants.verify(session, prove=proof.finding)
    except NoSuchSession:
        raise
    except TurnlogError as error:
        found = [Finding("fault", "readable", None, str(error))]
    faults = [finding for finding in found if finding.level == "fault"]
    if options.json:
        for finding in found:
            screen.say_json({"session": name, **_wire(finding)})
        return not faults
    for finding in found:
        screen.say(screen.printable_line(f"{name}: {finding}"))
    if not faults:
        notes = f", {screen.counted(len(found), 'note')}" if found else ""
        screen.say(screen.printable_line(f"{name}: ok{notes}"))
    return not faults


def _wire(finding: Finding) -> dict[str, Any]:
    import msgspec

    return {key: v for key, v in msgspec.to_builtins(finding).items() if v is not None}


def stats(id: MaybeId = None, /, *, options: Options = DEFAULTS) -> None:
    """Count what a session, or the whole store, holds.

    Requests are what was sent; answers are what came back: messages, failed attempts, summaries.
    Tokens that a provider did not report are unknown, not zero. Over the whole store, what forks
    share is counted once.

    Examples:
        turnlog stats
        turnlog stats ID --json
    """
    from turnlog.cli.statistics import of_session, of_store, told

    async def work() -> dict[str, Any]:
        async with store_of(options) as store:
            if id is not None:
                return of_session(await read_session(store, id))
            return await of_store(store)

    found = run_async(work)
    if options.json:
        screen.say_json(found)
        return
    for name, value in told(found):
        if isinstance(value, str):
            screen.rows([(name, screen.printable_line(value))])
        else:
            screen.say(screen.styled(name, "bold"))
            screen.rows((f"  {screen.printable_line(key)}", said) for key, said in value)


def doctor(*, deep: Annotated[bool, Flag] = False, options: Options = DEFAULTS) -> None:
    """Say what is installed, and whether the store answers and is whole.

    Says what to do about what is not as it should be, too. The exit status is 1 if the store does
    not answer, or its file is damaged.

    Args:
        deep: Look through an SQLite file for damage also if it has more than 256 MiB.

    Examples:
        turnlog doctor
        turnlog doctor --deep
        turnlog doctor --store jsonl:./sessions
    """
    from turnlog.cli.diagnosis import diagnose

    found = diagnose(options, deep=deep)
    for item in found:
        if options.json:
            screen.say_json({"check": item.name, "state": item.state, "detail": item.detail})
            continue
        colour = {"ok": "green", "warning": "yellow", "missing": "dim"}.get(item.state, "red")
        state = screen.styled(item.state.ljust(7), colour)
        screen.say(f"{state}  {screen.printable_line(f'{item.name}: {item.detail}')}")
    if any(item.state == "failed" for item in found):
        raise Failed
