"""Commands that read one store: ls, show, messages, events, requests."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter

from turnlog.cli import screen
from turnlog.cli.options import DEFAULTS, Flag, Id, Options
from turnlog.cli.sessions import instead, read_sync, run_async, store_of

if TYPE_CHECKING:
    from turnlog.stores.port import SessionInfo
    from turnlog.views.requests import Request

At = Annotated[int | None, Parameter(help="As it was after this event.")]
Dialect = Literal["neutral", "openai", "anthropic"]


def ls(*, options: Options = DEFAULTS) -> None:
    """List the sessions, the last active first.

    Examples:
        turnlog ls
        turnlog ls --store jsonl:./sessions
        turnlog ls --json
    """

    async def work() -> None:
        async with store_of(options) as store:
            found = False
            async for info in store.sessions():
                found = True
                if options.json:
                    screen.say_json(_info(info))
                else:
                    _say_info(info)
            if not found and not options.json:
                screen.note_line(f"no sessions in {store.url}")

    run_async(work)


def _info(info: SessionInfo) -> dict[str, Any]:
    import msgspec

    return {name: value for name, value in msgspec.to_builtins(info).items() if value is not None}


def _say_info(info: SessionInfo) -> None:
    columns = screen.width()
    name = screen.cut(info.id, columns)
    counts = f"{info.events} events, {info.messages} messages"
    health = {"ok": "", "open": "open turn"}.get(info.health, info.health)
    details = [counts, screen.when(info.last_activity), health, info.source_format or ""]
    rest = ", ".join(detail for detail in details if detail)
    if info.problem:
        rest += f": {info.problem}"
    if columns is not None and columns < screen.WIDE:
        screen.say(screen.styled(name, "bold"))
        for line in (rest, info.title):
            if line:
                screen.say(f"  {screen.cut(line, columns - 2)}")
        return
    title = f"  {screen.printable_line(info.title)}" if info.title else ""
    line = f"{name}  ({screen.printable_line(rest)}){title}"
    line = screen.cut(line, columns)
    screen.say(screen.styled(name, "bold") + line.removeprefix(name))


def show(
    id: Id,  # noqa: A002
    /,
    *,
    tools: Annotated[bool, Flag] = False,
    context: Annotated[bool, Flag] = False,
    shadowed: Annotated[bool, Flag] = False,
    at: At = None,
    options: Options = DEFAULTS,
) -> None:
    """Show a conversation as a person reads it.

    That is as it happened, whatever was compacted since. For what the model sees, see messages.

    Args:
        tools: Tool calls and their results too.
        context: What no person typed, too: context, system text.
        shadowed: Mark what the model no longer sees, and show what stands for it.

    Examples:
        turnlog show ID
        turnlog show ID --tools --at 40
        turnlog show ID --shadowed
    """
    from turnlog.cli.conversation import Entry, conversation

    session = read_sync(options, id)
    entries = conversation(session, tools=tools, context=context, shadowed=shadowed, at=at)

    def wire(entry: Entry) -> dict[str, Any]:
        found = {"seq": entry.seq, "shadowedBy": entry.shadowed_by, "replaces": entry.replaces}
        known = {key: value for key, value in found.items() if value is not None}
        if entry.interrupted:
            known["interrupted"] = True
        return {**known, "message": _plain(entry.message)}

    for entry in entries:
        if options.json:
            screen.say_json(wire(entry))
        else:
            entry.say(tools=tools)


def messages(
    id: Id,  # noqa: A002
    /,
    *,
    at: At = None,
    dialect: Dialect = "neutral",
    options: Options = DEFAULTS,
) -> None:
    """Show what the model sees.

    That is the history as it is now, or as it was after an event.

    Args:
        dialect: openai and anthropic print the request's body as JSON, with the header in force.

    Examples:
        turnlog messages ID
        turnlog messages ID --at 40
        turnlog messages ID --dialect openai
    """
    from turnlog.cli.conversation import Entry

    session = read_sync(options, id)
    if dialect != "neutral":
        from turnlog.cli.dialects import body

        screen.say_json(body(session, dialect, at))
        return
    for message in session.derive_messages(at):
        if options.json:
            screen.say_json(_plain(message))
        else:
            Entry(None, message).say(tools=True)


def _plain(record: Any) -> Any:
    from turnlog.records import flatten

    return flatten(record)


def events(
    id: Id,  # noqa: A002
    /,
    *,
    type: Annotated[list[str] | None, Parameter(negative="")] = None,  # noqa: A002
    from_: Annotated[int, Parameter(name="--from")] = 0,
    to: int | None = None,
    options: Options = DEFAULTS,
) -> None:
    """Print the log itself, one JSON object a line.

    Args:
        type: Only events of this type; may be given several times.
        from_: The first seq.
        to: The seq to stop before.

    Examples:
        turnlog events ID
        turnlog events ID --type tool/call --type tool/result
        turnlog events ID --from 100 --to 120
    """
    session = read_sync(options, id)
    wanted = set(type or ())
    _check_types(wanted, {event.type for event in session.events})
    for event in session.events:
        if event.seq < from_ or (to is not None and event.seq >= to):
            continue
        if not wanted or event.type in wanted:
            screen.say_json(event.to_dict())


def _check_types(wanted: set[str], present: set[str]) -> None:
    from turnlog.errors import UnknownEventType
    from turnlog.events import event_type

    for name in sorted(wanted - present):
        if event_type(name) is None:
            msg = f"no event of type {name!r}: {instead(name, sorted(present))}"
            raise UnknownEventType(msg, seq=None, value=name)


def requests(
    id: Id,  # noqa: A002
    /,
    *,
    show: Annotated[int | None, Parameter(help="Rebuild this one, byte for byte.")] = None,
    options: Options = DEFAULTS,
) -> None:
    """List the requests that were sent to a model, or rebuild one.

    They count from 0. In sessions of other tools they are inferred from what came back.

    Examples:
        turnlog requests ID
        turnlog requests ID --show 3
    """
    from turnlog.errors import NoSuchEvent

    session = read_sync(options, id)
    found = session.requests()
    if show is None:
        for request in found:
            if options.json:
                screen.say_json({key: v for key, v in _plain(request).items() if key != "header"})
            else:
                _say_request(request)
        return
    if not 0 <= show < len(found):
        there = f"there are 0 to {len(found) - 1}" if found else "there is none"
        raise NoSuchEvent(f"session {id!r} has no request {show}: {there}")
    from turnlog.cli.dialects import rebuilt

    screen.say_parts([rebuilt(session, found[show])])


def _say_request(request: Request) -> None:
    where = [
        f"turn {request.turn}" if request.turn is not None else "",
        f"step {request.step}" if request.step is not None else "",
        f"attempt {request.attempt}" if request.attempt > 1 else "",
        f"event {request.seq}"
        if request.seq is not None
        else f"inferred, after event {request.at}",
    ]
    place = ", ".join(part for part in where if part)
    text = f"{request.index}  {request.purpose}  {request.model}  {request.outcome}  ({place})"
    screen.say(screen.printable_line(text))
