"""The command that follows: tail."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from turnlog.cli import screen
from turnlog.cli.options import DEFAULTS, Id, Options
from turnlog.cli.sessions import check_seq, read_session, run_async, store_of

if TYPE_CHECKING:
    from turnlog.events import AnyEvent

LAST = 10


def tail(
    id: Id,
    /,
    *,
    from_: Annotated[int | None, Parameter(name="--from")] = None,
    follow: bool = True,
    options: Options = DEFAULTS,
) -> None:
    """Follow a session until Ctrl-C.

    Prints events as they become durable, whichever process writes them.

    Args:
        from_: The first seq; by default the last ten events come first.
        follow: Wait for more.

    Examples:
        turnlog tail ID
        turnlog tail ID --from 0
        turnlog tail ID --no-follow --json
    """
    check_seq("--from", from_)

    async def work() -> None:
        async with store_of(options) as store:
            session = await read_session(store, id, "surface")
            start = max(session.next_seq - LAST, 0) if from_ is None else from_
            last = start - 1
            for event in await session.read_events(start):
                _say(event, json=options.json)
                last = event.seq
            if follow:
                async for event in store.tail(session.id, after=last):
                    _say(event, json=options.json)

    try:
        run_async(work)
    except KeyboardInterrupt:
        return


def _say(event: AnyEvent, *, json: bool) -> None:
    import sys

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
    raw = event.raw[:400].decode("utf-8", "replace")
    return "" if raw == "{}" else raw
