"""Commands that read one store: ls, show, messages, events, requests."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter

from turnlog.cli import screen
from turnlog.cli.options import DEFAULTS, Flag, Id, Options
from turnlog.cli.outcome import Failed, Misused
from turnlog.cli.sessions import (
    check_seq,
    instead,
    is_missing,
    no_number,
    read_sync,
    run_async,
    store_of,
)

if TYPE_CHECKING:
    from turnlog.stores.port import SessionInfo
    from turnlog.views.requests import Request

At = Annotated[int | None, Parameter(help="As it was after this event.")]
Dialect = Literal["neutral", "openai", "anthropic"]


def ls(*, options: Options = DEFAULTS) -> None:
    """List the sessions, the last active first.

    Messages are those a person reads, as show prints them; events that are lost do not count.

    Examples:
        turnlog ls
        turnlog ls --store jsonl:./sessions
        turnlog ls --json
    """
    if options.is_default and is_missing(options):
        if not options.json:
            screen.note_line(f"no sessions yet in {options.url}")
        return

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

    found = {field.encode_name: getattr(info, field.name) for field in msgspec.structs.fields(info)}
    if info.health == "unreadable":
        known = ("id", "health", "problem")
        return {name: found[name] for name in known}
    return {name: value for name, value in found.items() if value is not None}


def _say_info(info: SessionInfo) -> None:
    columns = screen.width()
    name = screen.cut(info.id, columns)
    health = {"ok": "", "open": "open turn"}.get(info.health, info.health)
    details = [health]
    if info.health != "unreadable":
        counts = [screen.counted(info.events, "event"), screen.counted(info.messages, "message")]
        when = screen.when(info.last_activity)
        details = [*counts, when, health, info.source_format or ""]
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
    id: Id,
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

    check_seq("--at", at)
    session = read_sync(options, id)
    entries = conversation(session, tools=tools, context=context, shadowed=shadowed, at=at)

    def wire(entry: Entry) -> dict[str, Any]:
        found = {"seq": entry.seq, "shadowedBy": entry.shadowed_by, "replaces": entry.replaces}
        known = {key: value for key, value in found.items() if value is not None}
        if entry.interrupted:
            known["interrupted"] = True
        return {**known, "message": _plain(entry.message)}

    shown = False
    for entry in entries:
        shown = True
        if options.json:
            screen.say_json(wire(entry))
        else:
            entry.say(tools=tools)
    if session.damage and not shown:
        screen.note_line(f"events of session {session.id!r} cannot be read: see turnlog verify")


def messages(
    id: Id,
    /,
    *,
    at: At = None,
    dialect: Dialect = "neutral",
    model: str | None = None,
    options: Options = DEFAULTS,
) -> None:
    """Show what the model sees.

    That is the history as it is now, or as it was after an event.

    Args:
        dialect: openai and anthropic print the request's body as JSON, with the header in force.
        model: With a dialect, the model that the body names.

    Examples:
        turnlog messages ID
        turnlog messages ID --at 40
        turnlog messages ID --dialect openai
    """
    from turnlog.cli.conversation import seen

    check_seq("--at", at)
    if model is not None and dialect == "neutral":
        raise Misused("--model goes with --dialect")
    session = read_sync(options, id)
    if dialect != "neutral":
        from turnlog.cli.dialects import body

        screen.say_json(body(session, dialect, at, model))
        return
    for entry in seen(session, at):
        if options.json:
            screen.say_json(_plain(entry.message))
        else:
            entry.say(tools=True)


def _plain(record: Any) -> Any:
    from turnlog.records import flatten

    return flatten(record)


def events(
    id: Id,
    /,
    *,
    type: Annotated[list[str] | None, Parameter(negative="")] = None,
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
    check_seq("--from", from_)
    check_seq("--to", to)
    if to is not None and to < from_:
        raise Misused(f"--to: expected {from_} or more, as --from says, got {to}")
    session = read_sync(options, id)
    wanted = set(type or ())
    _check_types(wanted, {event.type for event in session.events})
    for event in session.events:
        if event.seq < from_ or (to is not None and event.seq >= to):
            continue
        if not wanted or event.type in wanted:
            screen.say_json(event.to_dict())


def _check_types(wanted: set[str], present: set[str]) -> None:
    from turnlog.errors import TurnlogError
    from turnlog.events import event_type

    for name in sorted(wanted - present):
        if event_type(name) is None:
            raise TurnlogError(f"no event of type {name!r}: {instead(name, sorted(present))}")


def requests(
    id: Id,
    /,
    *,
    show: Annotated[int | None, Parameter(help="Rebuild this one, byte for byte.")] = None,
    options: Options = DEFAULTS,
) -> None:
    """List the requests that were sent to a model, or rebuild one.

    They count from 0. In sessions of other tools they are inferred from what came back. The exit
    status of --show is 1 if the bytes are not those whose digest was logged.

    Examples:
        turnlog requests ID
        turnlog requests ID --show 3
    """
    session = read_sync(options, id)
    found = session.requests()
    if show is None:
        for request in found:
            if options.json:
                screen.say_json({key: v for key, v in _plain(request).items() if key != "header"})
            else:
                _say_request(request)
        if not found and not options.json:
            screen.note_line(f"session {session.id!r} has no requests")
        return
    if not 0 <= show < len(found):
        raise no_number(session.id, "request", show, len(found))
    from turnlog.cli.dialects import rebuilt

    body, differs = rebuilt(session, found[show])
    screen.say_parts([body])
    if differs:
        raise Failed


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
