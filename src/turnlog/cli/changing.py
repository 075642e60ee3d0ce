"""Commands that append or make a session: fork, repair."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from turnlog.cli import screen
from turnlog.cli.options import DEFAULTS, Flag, Id, Options
from turnlog.cli.outcome import Misused
from turnlog.cli.sessions import (
    check_seq,
    no_number,
    read_session,
    run_async,
    store_of,
)

if TYPE_CHECKING:
    from turnlog.events import AnyEvent
    from turnlog.log import Damage
    from turnlog.session import Session
    from turnlog.stores.live import StoredSession


def fork(
    id: Id,
    /,
    *,
    at: int | None = None,
    before_compaction: int | None = None,
    as_: Annotated[str | None, Parameter(name="--as")] = None,
    options: Options = DEFAULTS,
) -> None:
    """Make a session that shares another's log up to an event.

    The parent does not change, and may be in use. Prints the new session's id.

    Args:
        at: The last event that is shared; by default the last there is.
        before_compaction: Share what came before this compaction, from 0.
        as_: The new session's id; a new one when left out.

    Examples:
        turnlog fork ID
        turnlog fork ID --at 40 --as try-again
        turnlog fork ID --before-compaction 0
    """

    async def work() -> tuple[str, str, int]:
        async with store_of(options) as store:
            parent = await read_session(store, id)
            last = at
            if before_compaction is not None:
                if at is not None:
                    raise Misused("expected --at or --before-compaction, not both")
                last = _before(parent, before_compaction)
            check_seq("--at", at)
            child = await store.fork(parent.id, at=last, new_id=as_)
            return child, parent.id, (await store.read(child)).header.seed_length or 0

    child, of, shared = run_async(work)
    if options.json:
        screen.say_json({"id": child, "parent": of, "shared": shared})
    else:
        screen.say(child)


def _before(session: Session, number: int) -> int:
    """The last event before a compaction; -1 where there is none."""
    from turnlog.compaction.history import compactions

    found = compactions(session)
    if not 0 <= number < len(found):
        raise no_number(session.id, "compaction", number, len(found))
    before = [event.seq for event in session.events if event.seq < found[number].start]
    return before[-1] if before else -1


def repair(
    id: Id,
    /,
    *,
    accept_damage: Annotated[bool, Flag] = False,
    options: Options = DEFAULTS,
) -> None:
    """Append what an interrupted session lacks.

    Says what it appended; it edits nothing, and does nothing to a session that is whole.

    Args:
        accept_damage: Accept what cannot be read as lost, which allows writing on.

    Examples:
        turnlog repair ID
        turnlog repair ID --accept-damage
    """

    async def work() -> list[AnyEvent]:
        async with store_of(options) as store:
            found = await read_session(store, id)
            before = found.next_seq
            async with store.session(found.id, create=False) as session:
                if accept_damage:
                    session.acknowledge_damage()
                elif not session.writable:
                    _refuse(session)
                session.repair()
            return [event for event in session.events if event.seq >= before]

    added = run_async(work)
    if options.json:
        for event in added:
            screen.say_json(event.to_dict())
        return
    for event in added:
        screen.say(screen.printable_line(f"appended {event.seq} {event.type}{_what(event)}"))
    if not added:
        screen.note_line("nothing to repair")


def _what(event: AnyEvent) -> str:
    """What a closer says, in a word."""
    data = event.data
    error, reason = getattr(data, "error", None), getattr(data, "reason", None)
    ranges = getattr(data, "ranges", None)
    code = getattr(error, "code", None) or getattr(reason, "kind", None)
    return f" ({code})" if code else f" ({screen.counted(len(ranges), 'range')})" if ranges else ""


def _where(damage: Damage) -> str:
    seqs = ""
    if damage.first_seq is not None:
        first, last = damage.first_seq, damage.last_seq
        seqs = f"event {first}, " if first == last else f"events {first} to {last}, "
    place = f" in {damage.place}" if damage.place else ""
    if damage.offset is None:
        return seqs
    many = screen.counted(damage.length, "byte") if damage.length else "nothing"
    return f"{seqs}{many} at {damage.offset}{place}, "


def _refuse(session: StoredSession) -> None:
    for damage in session.damage:
        screen.note_line(f"damaged: {_where(damage)}{damage.reason}")
    from turnlog.errors import DamagedSession

    raise DamagedSession(
        f"session {session.id!r} is damaged; --accept-damage accepts what is lost and goes on"
    )
