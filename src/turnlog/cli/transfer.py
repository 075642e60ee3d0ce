"""Commands that take sessions in and give them out: import, export."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias

from cyclopts import Parameter

from turnlog.cli import screen
from turnlog.cli.options import DEFAULTS, Flag, Id, Options
from turnlog.cli.outcome import Failed, Misused
from turnlog.cli.sessions import read_sync, run_async, store_of
from turnlog.errors import ImportFailed, TurnlogError

if TYPE_CHECKING:
    from turnlog.interop.importing import Found
    from turnlog.stores.store import Store

Conflict: TypeAlias = Literal["error", "skip", "rename"]
Kind: TypeAlias = Literal["auto", "dsh", "turnlog", "openai", "anthropic"]


def import_(
    paths: Annotated[list[Path], Parameter(name="PATH", negative="")],
    /,
    *,
    from_: Annotated[Kind, Parameter(name="--from")] = "auto",
    on_conflict: Conflict = "error",
    as_: Annotated[str | None, Parameter(name="--as")] = None,
    options: Options = DEFAULTS,
) -> None:
    """Take in sessions that were made elsewhere.

    A path is a file, a session's folder, a folder of exports, or a whole home; a message list in
    JSON becomes a session named like its file. One bad file hides no other: each is
    reported, and the exit status is 1 if any was not taken. The same session again is skipped when
    it is identical, and extended when the source has grown and nothing was appended here. Nothing
    in a file is executed or fetched, and nothing in it authorises anything.

    Args:
        paths: What to import.
        from_: Whose files: DeepSeek Harness's (dsh), turnlog's own export, message lists of OpenAI
            or Anthropic, or see for itself.
        on_conflict: What to do when the id is taken by something else.
        as_: The id to import under, for a single session.

    Examples:
        turnlog import ~/.dsh/sessions
        turnlog import session.v4.jsonl.zstd --as first
        turnlog import exports --on-conflict skip
        turnlog import history.json --from openai
    """

    async def work() -> bool:
        from turnlog.cli.progress import Progress

        places, sound = _places(paths, from_, options)
        if as_ is not None and len(places) != 1:
            raise Misused(f"--as names one session, there are {len(places)}")
        async with store_of(options, make=True) as store:
            with Progress(len(places)) as progress:
                for place in places:
                    progress.next(place.path)
                    line = await _import(store, place, on_conflict, as_, progress.events)
                    sound &= "error" not in line
                    progress.pause(lambda line=line: _report(line, json=options.json))
        return sound

    if not run_async(work):
        raise Failed


def _places(paths: list[Path], kind: Kind, options: Options) -> tuple[list[Found], bool]:
    """Where the sessions are; what is nowhere is reported."""
    from turnlog.interop.importing import find

    places: list[Found] = []
    sound = True
    for path in paths:
        try:
            places += find(path.expanduser(), kind)
        except ImportFailed as error:
            sound = False
            _report({"path": str(path), "error": str(error)}, json=options.json)
    return places, sound


async def _import(
    store: Store,
    place: Found,
    on_conflict: Conflict,
    name: str | None,
    progress: Callable[[int], object],
) -> dict[str, Any]:
    """Import one session; returns what to report."""
    import msgspec
    from anyio import to_thread

    line: dict[str, Any] = {"path": str(place.path)}
    try:
        incoming = await to_thread.run_sync(place.read, _watched(progress))
        header = incoming.header
        if name is not None:
            header = msgspec.structs.replace(header, id=name)
        line["id"], line["done"] = await store.adopt(header, incoming, on_conflict=on_conflict)
    except TurnlogError as error:
        return {**line, "error": str(error)}
    info = await store.backend.info(line["id"])
    line["events"] = info.events if line["done"] != "skipped" else header.seed_length
    line["format"] = header.source_format
    if info.damage and line["done"] != "skipped":
        line["damage"], line["problem"] = info.damage, info.problem
    if incoming.notes:
        line["notes"] = incoming.notes
    return line


def _watched(progress: Callable[[int], object]) -> Callable[[int], object]:
    """The same, and in a worker thread a point where Ctrl-C ends the reading of a long file."""
    from threading import current_thread

    from anyio import from_thread

    home = current_thread()

    def tell(count: int) -> None:
        if current_thread() is not home:
            from_thread.check_cancelled()
        progress(count)

    return tell


def _report(line: dict[str, Any], *, json: bool) -> None:
    if json:
        screen.say_json(line)
        return
    if "error" in line:
        error, path = line["error"], line["path"]
        screen.error_line(error if path in error else f"{path}: {error}")
        return
    events = screen.counted(line["events"], "event")
    text = f"{line['done']} {line['id']} ({events}, {line['format']})"
    screen.say(screen.printable_line(text))
    if "damage" in line:
        many = screen.counted(line["damage"], "damaged stretch", "damaged stretches")
        screen.note_line(
            f"{line['id']}: {many} ({line['problem']}): it can be read, and written to after "
            "turnlog repair --accept-damage"
        )
    for note in line.get("notes", ()):
        screen.note_line(f"{line['id']}: {note}")


def export(
    id: Id,
    /,
    *,
    to: Literal["jsonl", "markdown", "openai", "anthropic"] = "jsonl",
    output: Annotated[Path | None, Parameter(name=["--output", "-o"])] = None,
    force: Annotated[bool, Flag] = False,
    options: Options = DEFAULTS,
) -> None:
    """Give a session out, to standard output or a file.

    Args:
        to: jsonl is the whole log, which turnlog import takes; markdown is for a person; openai
            and anthropic are what the model sees, as those providers take it.
        output: The file to write; readable by the user only.
        force: Overwrite the file if it is there.

    Examples:
        turnlog export ID > session.jsonl
        turnlog export ID --to markdown -o session.md
        turnlog export ID --to openai
    """
    from turnlog.interop.exporting import to_jsonl, to_markdown
    from turnlog.log import unacknowledged

    session = read_sync(options, id)
    lost = len(unacknowledged(session))
    if lost:
        many = screen.counted(lost, "damaged stretch", "damaged stretches")
        screen.note_line(f"{session.id}: {many}: what is lost is not in the export")
    if to == "jsonl":
        parts = to_jsonl(session)
    elif to == "markdown":
        parts = to_markdown(session)
    else:
        from turnlog.cli.dialects import message_list

        parts = iter([screen.as_json(message_list(session, to)).encode() + b"\n"])
    if output is None:
        screen.say_parts(parts)
        return
    from turnlog.cli.files import write_private

    written = write_private(output, parts, overwrite=force)
    if options.json:
        screen.say_json({"id": session.id, "output": str(output), "bytes": written})
    else:
        screen.note_line(f"wrote {output} ({screen.size(written)})")
