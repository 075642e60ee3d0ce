"""The command that finds what was said: search."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from turnlog.cli import screen
from turnlog.cli.options import DEFAULTS, Flag, Options
from turnlog.cli.outcome import Failed, Misused
from turnlog.cli.sessions import find, is_missing, run_async, store_of
from turnlog.errors import InvalidSearch
from turnlog.printable import printable_line

if TYPE_CHECKING:
    from turnlog.stores.searching import Hit


def search(
    text: str,
    /,
    *,
    session: Annotated[str | None, Parameter(help="Look in this session only.")] = None,
    tools: Annotated[bool, Flag] = False,
    context: Annotated[bool, Flag] = False,
    limit: Annotated[int, Parameter(help="The most messages to show.")] = 20,
    options: Options = DEFAULTS,
) -> None:
    """Find messages in all sessions by their words, the best first.

    All the words must occur; case and accents do not matter. A "quoted phrase"
    is words in a row, word* the beginning of one. What was compacted is found,
    too. The exit status is 1 if nothing is found, as recall's is.

    Args:
        text: What to look for.
        tools: Also in tool calls, their results and reasoning.
        context: Also in what no person typed: context, system text, summaries.

    Examples:
        turnlog search "blue sky"
        turnlog search '"why is the" sk*'
        turnlog search error --tools
    """
    from turnlog.stores.searching import MOST

    if not 1 <= limit <= MOST:
        raise Misused(f"--limit: expected 1 to {MOST}, got {limit}")
    if options.is_default and is_missing(options):
        if not options.json:
            screen.note_line(f"no sessions yet in {options.url}")
        raise Failed

    async def work() -> list[Hit]:
        async with store_of(options) as store:
            where = None if session is None else await find(store, session)
            try:
                return await store.search(
                    text,
                    session=where,
                    include_tools=tools,
                    include_context=context,
                    limit=limit,
                )
            except InvalidSearch as error:
                raise Misused(str(error)) from None

    hits = run_async(work)
    for hit in hits:
        if options.json:
            _say_json(hit)
        else:
            _say(hit)
    if not hits:
        if not options.json:
            screen.note_line("nothing was found")
        raise Failed


def _say_json(hit: Hit) -> None:
    import msgspec

    screen.say_json(msgspec.to_builtins(hit))


def _say(hit: Hit) -> None:
    columns = screen.width()
    name = printable_line(hit.session)
    heading = f"{name} #{hit.seq}  {hit.kind}, {screen.when(hit.time)}"
    if hit.shadowed_by is not None:
        heading += f" (the model sees #{hit.shadowed_by} instead)"
    heading = screen.cut(f"{heading}  {printable_line(hit.title)}".rstrip(), columns)
    screen.say(screen.styled(name[: len(heading)], "bold") + heading[len(name) :])
    screen.say(f"  {_marked(hit)}")


def _marked(hit: Hit) -> str:
    """The snippet with what was looked for standing out."""
    said, done = "", 0
    for start, end in hit.matches:
        said += printable_line(hit.snippet[done:start])
        said += screen.styled(printable_line(hit.snippet[start:end]), "yellow")
        done = end
    return said + printable_line(hit.snippet[done:])
