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
from turnlog.printable import printable, printable_line

if TYPE_CHECKING:
    from collections.abc import Iterator

    from turnlog.session import Session

_active = re.compile(r"<|!\[|\]\s*[(\[:]|&#?\w+;|https?:|www\.", re.IGNORECASE)
_inline = re.compile(r"([\\`*_{}\[\]()<>#+\-.!|~&:@])")


def page(session: Session) -> Iterator[str]:
    """The page, part by part."""
    header = session.header
    yield f"# Session {_plain(header.id)}\n\n"
    facts = [f"{len(session)} events"]
    if header.source_format:
        facts.append(f"imported from {header.source_format}")
    if header.parent_session:
        facts.append(f"forked from {header.parent_session}")
    if session.damage:
        facts.append(f"{len(session.damage)} damaged stretches")
    yield f"{_plain(', '.join(facts))}\n"
    for message in session.extract_chat_messages(include_tools=True):
        yield from _message(message)


def _message(message: Message) -> Iterator[str]:
    if message.role == "tool":
        failed = " (error)" if message.is_error else ""
        yield _folded(f"result of {message.tool_call_id}{failed}", _said(message))
        return
    name = message.role
    if message.source.model:
        name += f" ({message.source.model})"
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
    return _inline.sub(r"\\\1", printable_line(text))
