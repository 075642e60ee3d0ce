"""The command that follows: tail."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from turnlog.cli import screen
from turnlog.cli.options import DEFAULTS, Flag, Id, Options
from turnlog.cli.sessions import check_seq, read_session, run_async, store_of
from turnlog.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from turnlog.events import AnyEvent
    from turnlog.stores.store import Store

LAST = 10
AGAIN = 0.5  # seconds until a store that is away is tried again


def tail(
    id: Id,
    /,
    *,
    from_: Annotated[int | None, Parameter(name="--from")] = None,
    follow: bool = True,
    events: Annotated[bool, Flag] = False,
    options: Options = DEFAULTS,
) -> None:
    """Follow a session until Ctrl-C.

    Shows what becomes durable, whichever process writes it: on a terminal as
    a person reads it, answers while they stream; elsewhere, or with --events,
    a line for each event; with --json each event as it is in the log. A store
    that is away is waited for; then it goes on where it was.

    Args:
        events: On a terminal, too, a line for each event.
        from_: The first seq; by default the last ten events come first.
        follow: Wait for more.

    Examples:
        turnlog tail ID
        turnlog tail ID --from 0
        turnlog tail ID --no-follow --json
        turnlog tail ID | grep tool/
    """
    check_seq("--from", from_)

    from turnlog.cli.drawing import Drawing

    drawing = Drawing() if sys.stdout.isatty() and not (events or options.json) else None

    async def work() -> None:
        async with store_of(options) as store:
            session = await read_session(store, id, "surface")
            start = max(session.next_seq - LAST, 0) if from_ is None else from_
            past = await session.read_events(start)
            last = past[-1].seq if past else start - 1
            if start > session.next_seq:
                screen.note_line(f"session {session.id!r} has no event {start} yet")
            if drawing is not None:
                drawing.past(past)
                sys.stdout.flush()
            for event in past if drawing is None else ():
                _say(event, json=options.json)
            if follow:
                async for event in followed(store, session.id, last):
                    if drawing is None:
                        _say(event, json=options.json)
                    else:
                        drawing.show(event)
                        sys.stdout.flush()

    try:
        run_async(work)
    except KeyboardInterrupt:
        return
    finally:
        if drawing is not None:
            drawing.close()


async def followed(store: Store, session_id: str, after: int) -> AsyncGenerator[AnyEvent]:
    """Events as they become durable; a store that is away is waited for, which is said once.

    Args:
        store: where the session is.
        session_id: which.
        after: the seq after which to begin.

    Raises:
        StoreError: the failure is not one that may pass.
    """
    import anyio

    from turnlog.stores.patience import may_pass

    away = False
    while True:
        try:
            async for event in store.tail(session_id, after=after):
                yield event
                after, away = event.seq, False
        except StoreError as error:
            if not may_pass(error):
                raise
            if not away:
                screen.error_line(str(error), "it is tried again until Ctrl-C")
            away = True
            await anyio.sleep(AGAIN)


def _say(event: AnyEvent, *, json: bool) -> None:
    if json:
        screen.say_json(event.to_dict())
    else:
        line = f"{event.seq}  {event.type}  {_gist(event)}".rstrip()
        columns = screen.width()
        screen.say(screen.cut(line, columns))
    sys.stdout.flush()


def _gist(event: AnyEvent) -> str:
    """The event's own text, or its payload."""
    message = event.message
    if message is not None:
        calls = [f"{call.name}({call.arguments})" for call in message.tool_calls]
        return " ".join([message.text, *calls]).strip() or f"({message.role})"
    from turnlog.cli.drawing import raw

    return raw(event)
