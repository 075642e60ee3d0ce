"""The command that moves sessions between stores: copy."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from turnlog.cli import screen
from turnlog.cli.options import DEFAULTS, Options
from turnlog.cli.outcome import Failed, Misused
from turnlog.cli.sessions import run_async, store_of

if TYPE_CHECKING:
    from turnlog.stores.copying import Copied, CopyProgress


def copy(
    from_: Annotated[str, Parameter(name="FROM-URL")],
    to: Annotated[str, Parameter(name="TO-URL")],
    ids: Annotated[list[str] | None, Parameter(name="ID", negative="")] = None,
    /,
    *,
    options: Options = DEFAULTS,
) -> None:
    """Copy sessions from one store to another, exactly.

    Every event is copied byte for byte, and what waits in the inboxes. Forks
    share what they share where the target can do that. What cannot be read
    stays damage. Interrupted at any moment and given again, the command goes on
    where it stopped. A session that the target holds with other events is
    refused; the others are copied, and the exit status is 1.

    Args:
        from_: Where the sessions are.
        to: Where they are copied to; made when it is not there.
        ids: Which sessions; all of them when left out.

    Examples:
        turnlog copy jsonl:./sessions sqlite:agents.db
        turnlog copy sqlite:agents.db jsonl:./backup support-42
    """
    if options.store is not None:
        raise Misused("copy names both of its stores: there is nothing for --store to name")

    async def work() -> None:
        from turnlog.cli.progress import Progress
        from turnlog.errors import CopyFailed

        source, target = Options(from_), Options(to)
        async with store_of(source) as mine, store_of(target, make=True) as other:
            with Progress() as progress:

                def tell(at: CopyProgress) -> None:
                    progress.stand(at.number, at.sessions, at.id, at.seq)
                    if at.copied is not None:
                        copied = at.copied
                        progress.pause(lambda: _report(copied, json=options.json))

                try:
                    await mine.copy_to(other, ids or None, on_progress=tell)
                except CopyFailed:
                    raise Failed from None  # each failure was told as it came

    run_async(work)


def _report(copied: Copied, *, json: bool) -> None:
    """Say what became of one session."""
    if json:
        screen.say_json(_as_json(copied))
    elif copied.problem is not None:
        screen.error_line(str(copied.problem))
    else:
        screen.say(screen.printable_line(f"{copied.done} {copied.id}{_what(copied)}"))


def _what(copied: Copied) -> str:
    said = [screen.counted(copied.events, "event")] if copied.done != "identical" else []
    if copied.shared:
        said.append(f"{copied.shared} shared with its parent")
    if copied.commands:
        said.append(screen.counted(copied.commands, "waiting command"))
    return f" ({', '.join(said)})" if said else ""


def _as_json(copied: Copied) -> dict[str, Any]:
    line: dict[str, Any] = {"id": copied.id, "done": copied.done, "events": copied.events}
    if copied.shared:
        line["shared"] = copied.shared
    if copied.commands:
        line["commands"] = copied.commands
    if copied.problem is not None:
        line["error"] = str(copied.problem)
    return line
