"""Commands about what the model no longer sees: compact, compactions, pin, unpin, recall."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, TypeVar

from cyclopts import Parameter

from turnlog.cli import screen
from turnlog.cli.agents import named_model
from turnlog.cli.options import DEFAULTS, Flag, Id, Options
from turnlog.cli.outcome import Failed, Misused
from turnlog.cli.sessions import check_seq, find, read_sync, run_async, store_of
from turnlog.errors import (
    CompactionBusy,
    CompactionFailed,
    InvalidSearch,
    SessionInUse,
    TurnlogError,
)
from turnlog.printable import printable

if TYPE_CHECKING:
    from collections.abc import Callable

    from turnlog.compaction.history import Compaction
    from turnlog.compaction.pins import Pinned
    from turnlog.compaction.port import Compacted
    from turnlog.compaction.recall import Hit
    from turnlog.session import Session
    from turnlog.views.usage import Count

T = TypeVar("T")
_PREVIEW = 60  # characters of what is pinned, in a list


def compact(
    id: Id,
    /,
    *,
    instruction: Annotated[str | None, Parameter(help="What the summary has to keep.")] = None,
    model: Annotated[
        str | None,
        Parameter(help="Who writes it. Else $TURNLOG_MODEL, else local:smollm2."),
    ] = None,
    context_window: Annotated[
        int | None,
        Parameter(help="Tokens that it takes, where it does not say, or fewer than it does."),
    ] = None,
    options: Options = DEFAULTS,
) -> None:
    """Compact a session's context now.

    A summary takes the place of all but the most recent messages. Nothing is lost: see
    compactions, recall, and fork --before-compaction. Where another process has the session,
    the wish is left for it.

    Examples:
        turnlog compact ID
        turnlog compact ID --instruction "Keep the schema."
    """
    from turnlog.commands import Compact
    from turnlog.compaction.engine import BasicCompactionEngine

    if instruction is not None and not instruction.strip():
        raise Misused("--instruction: expected words, got none")
    if context_window is not None and context_window < 1:
        raise Misused(f"--context-window: expected 1 or more, got {context_window}")

    async def work() -> tuple[str, Compacted | None, str | None, str]:
        async with store_of(options) as store:
            name = await find(store, id)
            try:
                async with store.session(name, create=False) as session:
                    writer = await named_model(store, model, context_window)
                    engine = BasicCompactionEngine(writer)
                    done = await engine.compact_now(session, instruction=instruction)
                    return name, done, None, f"{writer.provider}:{writer.model}"
            except CompactionBusy:
                raise
            except CompactionFailed as error:
                raise TurnlogError(f"session {name!r} was not compacted: {error}") from error
            except SessionInUse as error:
                posted = await store.inbox(name).post(Compact(instruction))
                return name, None, posted, str(error.owner or "another process")

    name, done, command, whose = run_async(work)
    if done is not None:
        _say_compacted(name, done, whose, options)
    elif command is None:
        screen.note_line(f"session {name!r} waits in a step; it is compacted when that ends")
    elif options.json:
        screen.say_json({"id": command, "session": name, "owner": whose})
    else:
        screen.say(screen.printable_line(f"compaction posted; {whose} takes it"))


def _say_compacted(id: str, done: Compacted, writer: str, options: Options) -> None:
    if options.json:
        found = {
            "session": id,
            "id": done.compaction_id,
            "seq": done.seq,
            "start": done.start,
            "end": done.end,
            "shadowed": done.shadowed,
            "pruned": list(done.pruned),
            "tokensBefore": done.tokens_before,
            "tokensAfter": done.tokens_after,
            "policy": done.policy,
            "model": writer if done.policy == "model" else None,
            "requests": done.attempts,
            "summary": done.summary,
        }
        screen.say_json({key: value for key, value in found.items() if value is not None})
        return
    what = screen.counted(done.shadowed, "message") if done.seq is not None else "nothing"
    shortened = len(done.pruned)
    if shortened:
        what += f", {screen.counted(shortened, 'tool result')} made shorter"
    tokens = f"about {done.tokens_before} to {done.tokens_after} tokens"
    screen.say(f"compacted {what}: {tokens}")
    if done.summary:
        who = "without a model" if done.policy != "model" else f"by {writer}"
        screen.note_line(f"the summary, {who}:")
        screen.say(printable(done.summary))


def compactions(id: Id, /, *, options: Options = DEFAULTS) -> None:
    """List what was compacted, and what it brought.

    They count from 0. Of each: its range, the tokens of the next request before and after, what it
    cost, and the summary that the model reads instead. Behind it lie tokens that a provider had
    cached and had to read anew.

    Examples:
        turnlog compactions ID
        turnlog compactions ID --json
    """
    from turnlog.compaction.history import compactions

    session = read_sync(options, id)
    found = compactions(session)
    for each in found:
        if options.json:
            screen.say_json(_wire(each))
        else:
            _say(each)
    if not found and not options.json:
        screen.note_line(f"session {session.id!r} has no compactions")


def _wire(found: Compaction) -> dict[str, Any]:
    tokens = found.tokens
    known = {
        "number": found.number,
        "id": found.id,
        "status": found.status,
        "start": found.start,
        "end": found.end,
        "reason": found.reason,
        "instruction": found.instruction,
        "policy": found.policy,
        "seq": found.seq,
        "shadowed": list(found.shadowed),
        "pruned": list(found.pruned),
        "tokensBefore": found.tokens_before,
        "tokensAfter": found.tokens_after,
        "gain": found.gain,
        "estimated": found.is_estimated,
        "model": found.model,
        "requests": tokens.answers,
        "input": tokens.input.exact,
        "cacheRead": tokens.cache_read.exact,
        "cacheWrite": tokens.cache_write.exact,
        "output": tokens.output.exact,
        "resent": found.resent,
        "error": found.error,
        "summary": found.summary,
    }
    return {key: value for key, value in known.items() if value is not None}


def _say(found: Compaction) -> None:
    why = f"{found.status}, {found.reason}" if found.reason else found.status
    where = f"events {found.start} to {'…' if found.end is None else found.end}"
    screen.say(screen.styled(screen.printable_line(f"{found.number}  {why}  ({where})"), "bold"))
    rows: list[tuple[str, str]] = []
    if found.shadowed:
        count = screen.counted(len(found.shadowed), "message")
        first, last = found.shadowed[0], found.shadowed[-1]
        rows.append(("range", f"#{first} to #{last}, {count}; the model sees #{found.seq} instead"))
    if found.pruned:
        rows.append(("made shorter", ", ".join(f"#{seq}" for seq in found.pruned)))
    after = "unknown" if found.tokens_after is None else str(found.tokens_after)
    about = " (estimated)" if found.is_estimated else ""
    rows.append(("tokens", f"{found.tokens_before} to {after}{about}"))
    if found.tokens.answers:
        rows.append(("cost", _cost(found)))
    if found.broke is not None:
        rows.append(("prefix cache", f"{found.resent} tokens behind #{found.broke} to read anew"))
    for name, value in (("wish", found.instruction), ("error", found.error)):
        if value:
            rows.append((name, screen.printable_line(value)))
    screen.rows((f"  {name}", value) for name, value in rows)
    for line in printable(found.summary).splitlines():
        screen.say(f"  | {line}".rstrip())
    screen.say()


def _cost(found: Compaction) -> str:
    def said(count: Count) -> str:
        return "unknown" if count.exact is None else str(count.exact)

    tokens = found.tokens
    model = f" by {screen.printable_line(found.model)}" if found.model else ""
    return (
        f"{screen.counted(tokens.answers, 'request')}{model}: input {said(tokens.input)}, "
        f"from cache {said(tokens.cache_read)}, output {said(tokens.output)}"
    )


# -- pins --------------------------------------------------------------------------------------


def pin(
    id: Id,
    what: Annotated[
        str | None,
        Parameter(help="The seq of a message, or a text. Without it, the pins there are."),
    ] = None,
    /,
    *,
    options: Options = DEFAULTS,
) -> None:
    """Pin a message or a text, or list the pins.

    Every compaction carries it on, word by word. A text enters the context first. Prints the pin's
    id, for unpin.

    Examples:
        turnlog pin ID 12
        turnlog pin ID "Never touch prod."
        turnlog pin ID
    """
    if what is None:
        _list_pins(read_sync(options, id), options)
        return
    if not what.strip():
        raise Misused("expected the seq of a message, or a text that says something")
    wanted: int | str = int(what) if what.isascii() and what.isdigit() else what
    pin_id, seq = run_async(lambda: _change(options, id, lambda session: _pin(session, wanted)))
    if options.json:
        screen.say_json({"pin": pin_id, "seq": seq})
    else:
        screen.say(screen.printable_line(pin_id))


def _pin(session: Session, what: int | str) -> tuple[str, int]:
    from turnlog.compaction.pins import pinned

    pin_id = session.pin(what)
    return pin_id, next(each.seq for each in pinned(session) if each.pin_id == pin_id)


def _list_pins(session: Session, options: Options) -> None:
    from turnlog.compaction.pins import pinned

    found = pinned(session)
    for each in found:
        text = _text(each)
        if options.json:
            screen.say_json({"pin": each.pin_id, "seq": each.seq, "text": text})
        else:
            screen.say(f"{screen.printable_line(each.pin_id)}  #{each.seq}  {_cut(text)}")
    if not found and not options.json:
        screen.note_line(f"session {session.id!r} has no pins")


def _text(found: Pinned) -> str:
    from turnlog.content import Text

    return "\n".join(b.text if isinstance(b, Text) else f"[{b.type}]" for b in found.blocks)


def _cut(text: str) -> str:
    return screen.cut(" ".join(text.split()), _PREVIEW)


def unpin(
    id: Id,
    pin: Annotated[str, Parameter(help="The pin's id; turnlog pin ID lists them.")],
    /,
    *,
    options: Options = DEFAULTS,
) -> None:
    """Take a pin off.

    From then on it is compacted like anything else.

    Examples:
        turnlog unpin ID PIN
    """
    run_async(lambda: _change(options, id, lambda session: session.unpin(pin)))
    if options.json:
        screen.say_json({"pin": pin})


# -- recall ------------------------------------------------------------------------------------


def recall(
    id: Id,
    text: Annotated[str | None, Parameter(help="Words; rare ones find best.")] = None,
    /,
    *,
    seq: Annotated[int | None, Parameter(help="Instead of words: this message, whole.")] = None,
    limit: Annotated[int, Parameter(help="How many messages at most.")] = 5,
    into_context: Annotated[bool, Flag] = False,
    options: Options = DEFAULTS,
) -> None:
    """Find what the model no longer sees.

    Searches what was compacted or shortened, as it was. The exit status is 1 if nothing is found.

    Args:
        into_context: Append what is found, with its seqs, for the model to read.

    Examples:
        turnlog recall ID "the port of the database"
        turnlog recall ID --seq 12
        turnlog recall ID deadline --into-context
    """
    if (text is None) is (seq is None):
        raise Misused("expected words, or --seq")
    if limit < 1:
        raise Misused(f"--limit: expected 1 or more, got {limit}")
    check_seq("--seq", seq)
    wanted: str | int = text if text is not None else seq or 0
    try:
        hits, entered = _recalled(options, id, wanted, limit, into_context=into_context)
    except InvalidSearch as error:
        raise Misused(str(error)) from None
    for hit in hits:
        _say_hit(hit, options, whole=seq is not None)
    if not hits:
        if not options.json:
            screen.note_line("nothing that the model no longer sees holds these words")
        raise Failed
    if entered is not None and not options.json:
        screen.note_line(f"entered the context as #{entered}")


def _recalled(
    options: Options, id: str, wanted: str | int, limit: int, *, into_context: bool
) -> tuple[tuple[Hit, ...], int | None]:
    """What was found, and the seq under which it entered the context, if it did."""
    if into_context:
        return run_async(
            lambda: _change(options, id, lambda session: _enter(session, wanted, limit))
        )
    from turnlog.compaction.recall import recall

    return recall(read_sync(options, id), wanted, limit=limit), None


def _enter(session: Session, wanted: str | int, limit: int) -> tuple[tuple[Hit, ...], int | None]:
    from turnlog.compaction.recall import into_context, recall

    hits = recall(session, wanted, limit=limit)
    return hits, into_context(session, hits).seq if hits else None


def _say_hit(hit: Hit, options: Options, *, whole: bool) -> None:
    if options.json:
        found = {"seq": hit.seq, "role": hit.role, "snippet": hit.snippet, "text": hit.text}
        screen.say_json({**found, "score": hit.score})
        return
    screen.say(screen.styled(f"{hit.role}  #{hit.seq}", "bold"))
    screen.say(printable(hit.text).rstrip("\n") if whole else screen.printable_line(hit.snippet))
    screen.say()


async def _change(options: Options, id: str, act: Callable[[Session], T]) -> T:
    """Act on a session as its one writer, with all of it in memory."""
    async with store_of(options) as store:
        name = await find(store, id)
        async with store.session(name, create=False, load="all") as session:
            return act(session)
