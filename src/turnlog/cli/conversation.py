"""A conversation on the terminal: who said what, which of it the model no longer sees."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from turnlog.cli import screen
from turnlog.content import Image, Message, Reasoning, Text, ToolCall
from turnlog.printable import printable, printable_line
from turnlog.session import Session
from turnlog.views.derive import visible
from turnlog.views.transcript import is_interrupted, placed

_COLOURS = {"user": "green", "assistant": "cyan", "tool": "yellow"}
PERSON = "user"


@dataclass(frozen=True)
class Entry:
    """One message to show; `seq` is its event's.

    `shadowed_by` is what took its place, `instead` what the model sees of that now.
    """

    seq: int
    message: Message
    shadowed_by: int | None = None
    instead: int | None = None
    replaces: list[int] | None = None
    interrupted: bool = False

    def say(self, *, tools: bool) -> None:
        """Print it."""
        message = self.message
        heading = _speaker(message) + (" (interrupted)" if self.interrupted else "")
        heading += f"  #{self.seq}"
        if self.replaces:
            heading += f"  (stands for {_seqs(self.replaces)})"
        if self.shadowed_by is not None:
            heading += f"  (the model sees #{self.instead} instead)"
        style = "dim" if self.shadowed_by is not None else _COLOURS.get(message.role, "bold")
        screen.say(screen.styled(printable_line(heading), style))
        shown = [text for block in message.content if (text := _block(block, tools=tools))]
        for text in shown:
            screen.say(printable(text).rstrip("\n"))
        if not shown and not tools:  # it reasoned, and called tools, and said nothing
            screen.say(screen.styled("(nothing was said; --tools shows the rest)", "dim"))
        screen.say()


def _speaker(message: Message) -> str:
    if message.role == "tool":
        return f"tool result {message.tool_call_id}" + (" (error)" if message.is_error else "")
    if message.role == "user" and message.source.kind != PERSON:
        return f"{message.source.kind}"
    if message.role == "assistant" and message.source.model:
        return f"assistant ({message.source.model})"
    return message.role


def _block(block: object, *, tools: bool) -> str:
    if isinstance(block, Text):
        return block.text
    if isinstance(block, Reasoning):
        return f"[reasoning] {block.text}" if tools and block.text else ""
    if isinstance(block, ToolCall):
        return f"[call {block.id}] {block.name} {block.arguments}" if tools else ""
    if isinstance(block, Image):
        return f"[image {block.media_type or ''} {block.url or ''}]"
    return f"[{getattr(block, 'type', 'block')}]"


def _seqs(seqs: list[int]) -> str:
    return f"#{seqs[0]}" if len(seqs) == 1 else f"#{seqs[0]} to #{seqs[-1]}"


def conversation(
    session: Session, *, tools: bool, context: bool, shadowed: bool, at: int | None
) -> Iterator[Entry]:
    """What a person reads, in log order; with `shadowed`, what stands for some of it, too."""
    said = session.extract_chat_messages(include_tools=tools, include_context=context, at=at)
    seqs = session.transcript_fold(tools=tools, context=context).seqs()
    entries = [
        Entry(seq, message, interrupted=is_interrupted(session, seq))
        for seq, message in zip(seqs, said, strict=False)
    ]
    if shadowed:
        last = session.next_seq if at is None else at
        past = [each for each in session.surface.replacements if each.seq <= last]
        gone = {node: each.seq for each in past for node in each.shadowed}
        for each in past:
            message = session.event_at(each.seq).message
            if message is not None and (tools or message.role != "tool"):
                entries.append(Entry(each.seq, message, replaces=list(each.shadowed)))
        now = {each.seq: each.seq for each in past}
        for each in reversed(past):  # a later one may stand for an earlier one
            now[each.seq] = now.get(gone.get(each.seq, -1), each.seq)
        shown = {e.seq: _shadowed(e, gone.get(e.seq), now) for e in entries}
        entries = [shown[seq] for seq in placed(seqs, past) if seq in shown]
    yield from entries


def _shadowed(entry: Entry, by: int | None, now: dict[int, int]) -> Entry:
    return entry if by is None else replace(entry, shadowed_by=by, instead=now[by])


def seen(session: Session, at: int | None) -> Iterator[Entry]:
    """What the model sees, each message with the seq of its event."""
    messages = session.derive_messages(at)
    nodes = session.surface.seqs if at is None else session.surface.at(at)
    seqs = [seq for seq in nodes if visible(session.event_at(seq)) is not None]
    for seq, message in zip(seqs, messages, strict=True):
        yield Entry(seq, message, interrupted=is_interrupted(session, seq))
