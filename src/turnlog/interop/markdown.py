"""A conversation as a Markdown page: safe whatever stands in the log.

Text that is plain Markdown is quoted as it is. Text that holds anything which could act or reach
beyond its quotation (HTML, links, images, references, entities) is shown verbatim in a fence longer
than any in it. Tool calls and results are folded.
"""

from __future__ import annotations

import re
from html import escape
from typing import TYPE_CHECKING

from turnlog.content import Image, Message, Reasoning, Text, ToolCall
from turnlog.events import SessionTitle
from turnlog.log import unacknowledged
from turnlog.printable import printable, printable_line
from turnlog.views.transcript import is_interrupted, placed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from turnlog.events import AnyEvent
    from turnlog.session import Session
    from turnlog.surface import Replacement

_active = re.compile(r"<|!\[|\]\s*[(\[:]|&#?\w+;|https?:|www\.", re.IGNORECASE)
# What acts inside a heading or a line: the rest of Markdown acts at the beginning of a line only.
_inline = re.compile(
    r"[\\`*\[\]<&~@]|(?<![^\W_])_|_(?![^\W_])|:(?=//)|(?<=www)\.|#(?=#*\s*$)", re.IGNORECASE
)


def page(session: Session) -> Iterator[str]:
    """The page, part by part."""
    header = session.header
    title = _title(session)
    yield f"# {_plain(title) if title else f'Session {_plain(header.id)}'}\n\n"
    facts = [f"session {header.id}"] if title else []
    facts.append(_counted(len(session), "event"))
    if header.source_format:
        facts.append(f"imported from {header.source_format}")
    if header.parent_session:
        facts.append(f"forked from {header.parent_session}")
    lost = len(unacknowledged(session))
    if lost:
        facts.append(f"{_counted(lost, 'damaged stretch', 'damaged stretches')}")
    facts[0] = facts[0][:1].upper() + facts[0][1:]
    yield f"{_plain(', '.join(facts))}\n"
    said = session.extract_chat_messages(include_tools=True)
    seqs = session.transcript_fold(tools=True, context=False).seqs()
    messages = dict(zip(seqs, said, strict=True))
    replacements = {each.seq: each for each in session.surface.replacements}
    for seq in placed(seqs, replacements.values()):
        if seq in replacements:
            yield from _replacement(session.event_at(seq), replacements[seq])
        else:
            yield from _message(messages[seq], interrupted=is_interrupted(session, seq))


def _title(session: Session) -> str:
    """The title that was logged last."""
    for event in reversed(session.events):
        if event.type == "session/title" and type(event.data) is SessionTitle:
            return " ".join(event.data.title.split())
    return ""


def _counted(count: int, one: str, many: str = "") -> str:
    return f"{count} {one if count == 1 else many or f'{one}s'}"


def _replacement(event: AnyEvent, made: Replacement) -> Iterator[str]:
    """A compaction's mark; a result that was made shorter needs none."""
    message = event.message
    if message is not None and message.role != "tool":
        many = _counted(len(made.shadowed), "message")
        yield _folded(f"compaction: here the model reads this instead of {many}", _said(message))


def _message(message: Message, *, interrupted: bool) -> Iterator[str]:
    if message.role == "tool":
        failed = " (error)" if message.is_error else ""
        yield _folded(f"result of {message.tool_call_id}{failed}", _said(message))
        return
    name = message.role
    if message.source.model:
        name += f" ({message.source.model})"
    if interrupted:
        name += " (interrupted)"
    yield f"\n## {_plain(name)}\n"
    for block in message.content:
        if isinstance(block, Text):
            yield f"\n{_quoted(block.text)}"
        elif isinstance(block, ToolCall):
            yield _folded(f"call of {block.name}, {block.id}", block.arguments)
        elif isinstance(block, Reasoning):
            if block.text:
                yield _folded("reasoning", block.text)
        elif isinstance(block, Image):
            image = f"[image {block.media_type or ''} {block.url or ''}]"
            yield f"\n{_quoted(image)}"
        else:
            yield f"\n{_quoted(f'[{block.type}]')}"


def _said(message: Message) -> str:
    texts = [
        block.text if isinstance(block, Text) else f"[{getattr(block, 'type', 'block')}]"
        for block in message.content
    ]
    return "\n".join(texts)


def _quoted(text: str) -> str:
    """A text as a quotation that it cannot leave."""
    if _active.search(text):
        return _fenced(text)
    lines = printable(text).split("\n")
    return "".join(f"> {line}\n" if line else ">\n" for line in lines)


def _fenced(text: str) -> str:
    """A text verbatim, in a fence longer than any in it."""
    longest = max((len(run) for run in re.findall(r"~+", text)), default=0)
    fence = "~" * max(3, longest + 1)
    return f"{fence}text\n{printable(text)}\n{fence}\n"


def _folded(summary: str, text: str) -> str:
    line = escape(printable_line(summary))
    return f"\n<details><summary>{line}</summary>\n\n{_fenced(text)}\n</details>\n"


def _plain(text: str) -> str:
    """One line that is nothing but text."""
    return _inline.sub(r"\\\g<0>", printable_line(text))
