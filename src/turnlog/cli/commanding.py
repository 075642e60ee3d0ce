"""Commands to whichever process owns a session: cancel, steer, approvals, approve, deny."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from turnlog.cli import screen
from turnlog.cli.agents import command_line
from turnlog.cli.options import DEFAULTS, ID_HELP, Id, Options
from turnlog.cli.sessions import instead, read_session, run_async, store_of
from turnlog.commands import Approve, Cancel, Command, Deny, Steer
from turnlog.errors import SessionInUse, TurnlogError

if TYPE_CHECKING:
    from turnlog.events import ApprovalAsked
    from turnlog.session import Session
    from turnlog.stores.store import Store

Call = Annotated[str, Parameter(help="The call's id; turnlog approvals lists them.")]


def cancel(
    id: Id,
    /,
    *,
    turn: Annotated[int | None, Parameter(help="Only if this turn is the one that runs.")] = None,
    options: Options = DEFAULTS,
) -> None:
    """Cancel the turn that runs.

    Whichever process runs it closes it; what had arrived is kept.

    Examples:
        turnlog cancel ID
        turnlog cancel ID --turn 3
    """
    _post(id, lambda session, _: Cancel(_open_turn(session, turn)), "cancel", options)


def steer(
    id: Id,
    text: Annotated[str, Parameter(help="What to say.")],
    /,
    *,
    options: Options = DEFAULTS,
) -> None:
    """Say something to the turn that runs.

    The model reads it with its next step; the turn does not end before it has.

    Examples:
        turnlog steer ID "Only the first file."
    """
    _post(id, lambda session, _: Steer(text, _open_turn(session)), "message", options)


def approvals(
    id: Annotated[str | None, Parameter(help=f"{ID_HELP} Without it, all sessions.")] = None,
    /,
    *,
    options: Options = DEFAULTS,
) -> None:
    """List the calls that wait for an approval.

    Not those for which a decision was posted that nobody has taken yet.

    Examples:
        turnlog approvals
        turnlog approvals ID --json
    """
    posted: list[str] = []

    async def work() -> list[tuple[str, ApprovalAsked]]:
        async with store_of(options) as store:
            if id is not None:
                names = [id]
            else:
                names = [info.id async for info in store.sessions() if info.health == "open"]
            found: list[tuple[str, ApprovalAsked]] = []
            for name in names:
                session = await read_session(store, name)
                waiting = pending(session)
                decided = await _decisions(store, session) if waiting else {}
                for asked in waiting:
                    decision = decided.get(asked.call_id or "")
                    if decision is None:
                        found.append((session.id, asked))
                    else:
                        posted.append(f"{session.id}  {asked.call_id}  {decision} posted")
            return found

    found = run_async(work)
    for session_id, asked in found:
        if options.json:
            screen.say_json(_wire(session_id, asked))
        else:
            call = f"{session_id}  {asked.call_id}  {asked.tool_name} {asked.arguments or ''}"
            screen.say(screen.cut(call, screen.width()))
    for line in [] if options.json else posted:
        screen.note_line(f"{line}, and nobody has taken it yet")
    if not found and not posted and not options.json:
        screen.note_line("nothing waits for an approval")


async def _decisions(store: Store, session: Session) -> dict[str, str]:
    """What was posted about calls and not taken yet, by call id; a denial goes before a grant."""
    from turnlog.views.loop import loop_fold

    taken = session.fold(loop_fold).accepted
    waiting = [queued.command for queued in await store.inbox(session.id).waiting()]
    fresh = [command for command in waiting if command.id not in taken]
    granted = {one.call_id: "approval" for one in fresh if isinstance(one, Approve)}
    return granted | {one.call_id: "denial" for one in fresh if isinstance(one, Deny)}


def _wire(session_id: str, asked: ApprovalAsked) -> dict[str, Any]:
    return {
        "id": asked.id,
        "session": session_id,
        "call": asked.call_id,
        "tool": asked.tool_name,
        "arguments": asked.arguments,
        "turn": asked.turn,
    }


def approve(
    id: Id,
    call: Call,
    /,
    *,
    options: Options = DEFAULTS,
) -> None:
    """Let a call run that waits for an approval.

    Examples:
        turnlog approvals
        turnlog approve ID CALL
    """
    _post(id, lambda session, posted: Approve(_waiting(session, call, posted)), "approval", options)


def deny(
    id: Id,
    call: Call,
    /,
    *,
    reason: Annotated[str | None, Parameter(help="The model reads it.")] = None,
    options: Options = DEFAULTS,
) -> None:
    """Do not let a call run that waits for an approval.

    The turn goes on; the model reads that the call was denied.

    Examples:
        turnlog deny ID CALL
        turnlog deny ID CALL --reason "Not that folder."
    """

    def make(session: Session, posted: Mapping[str, str]) -> Deny:
        denied = {name: what for name, what in posted.items() if what == "denial"}
        return Deny(_waiting(session, call, denied), reason)

    _post(id, make, "denial", options)


# -- what they share ---------------------------------------------------------------------------


def asked_in_turn(session: Session) -> list[tuple[ApprovalAsked, str | None]]:
    """What was asked in the turn that is open, and what was decided, if it was."""
    from turnlog.views.loop import loop_fold

    state = session.fold(loop_fold)
    asked = [one for one in state.asked.values() if state.open and one.turn == state.turn]
    decided = [state.decided.get(one.id) for one in asked]
    return [(one, by and by.outcome) for one, by in zip(asked, decided, strict=True)]


def pending(session: Session) -> list[ApprovalAsked]:
    """The approvals of the open turn that nobody has decided."""
    return [asked for asked, outcome in asked_in_turn(session) if outcome is None]


def _waiting(session: Session, call_id: str, posted: Mapping[str, str]) -> str:
    """The call's id.

    Args:
        session: whose call it is.
        call_id: which.
        posted: what would make another decision useless, by call id.

    Raises:
        TurnlogError: it does not wait, or one of `posted` decides it.
    """
    waiting = [asked.call_id or "" for asked in pending(session)]
    if call_id not in waiting:
        raise TurnlogError(
            f"session {session.id!r}: no call {call_id!r} waits for an approval: "
            f"{instead(call_id, waiting)}"
        )
    if call_id in posted:
        raise TurnlogError(
            f"session {session.id!r}: a decision about call {call_id!r} was posted already: "
            f"{posted[call_id]}; whoever runs the session next takes it"
        )
    return call_id


def _open_turn(session: Session, wanted: int | None = None) -> int:
    """The turn that runs: commands name it, so that they cannot hit a later one."""
    from turnlog.views.loop import loop_fold

    state = session.fold(loop_fold)
    if not state.open:
        raise TurnlogError(f"session {session.id!r}: no turn is running")
    if wanted not in (None, state.turn):
        raise TurnlogError(f"session {session.id!r}: turn {state.turn} is running, not {wanted}")
    return state.turn


def _post(
    id: str,
    make: Callable[[Session, Mapping[str, str]], Command],
    what: str,
    options: Options,
) -> None:
    """Post a command, and say what comes of it.

    Args:
        id: the session's.
        make: the command, from the session as it is now, and what was decided about its calls and
            not taken yet, by call id.
        what: it is.
        options: of every command.
    """
    from turnlog.repair import is_suspended

    async def work() -> tuple[str, str, SessionInUse | None]:
        async with store_of(options) as store:
            session = await read_session(store, id)
            name = session.id
            decided = await _decisions(store, session)
            command, owner = make(session, decided), await _in_use(store, name)
            if owner is None and not is_suspended(session.header, session.held):
                raise TurnlogError(
                    f"session {name!r}: its turn was interrupted; "
                    f"{command_line(['repair', name], options)} closes it"
                )
            return name, await store.inbox(name).post(command), owner

    name, command_id, in_use = run_async(work)
    owner = None if in_use is None else str(in_use.owner or "another process")
    is_gone = in_use is not None and _is_gone(in_use.owner)
    if options.json:
        gone = {"ownerIsGone": True} if is_gone else {}
        screen.say_json({"id": command_id, "session": name, "owner": owner, **gone})
    elif is_gone:
        repair = command_line(["repair", name], options)
        screen.say(screen.printable_line(f"{what} posted; {owner} has it, but is gone"))
        screen.note_line(
            "if it crashed, its turn is over and nothing comes of this: "
            f"{repair} closes the turn once the lease has run out"
        )
    elif owner is not None:
        screen.say(screen.printable_line(f"{what} posted; {owner} takes it"))
    else:
        run = command_line(["run", "--session", name], options)
        screen.say(screen.printable_line(f"{what} posted; nobody runs the session now"))
        screen.note_line(f"a worker goes on with it, or {run}, with its --model and --tool")


async def _in_use(store: Store, session_id: str) -> SessionInUse | None:
    """Who owns a session, None if nobody does: found out by owning it for a moment."""
    from turnlog.stores.adopting import this_process

    try:
        claim = await store.backend.claim(session_id, this_process())
    except SessionInUse as error:
        return error
    await store.backend.release(claim)
    return None


def _is_gone(owner: object) -> bool:
    """Whether the owner is a process of this machine that is not there any more.

    A database server keeps a session for a process that crashed until its lease has run out.
    """
    from turnlog.stores.adopting import this_process
    from turnlog.stores.port import Owner

    if not isinstance(owner, Owner) or owner.host != this_process().host or os.name != "posix":
        return False
    try:
        os.kill(owner.pid, 0)
    except ProcessLookupError:
        return True
    except (OSError, OverflowError):  # somebody else's, or no number of a process
        return False
    return False
