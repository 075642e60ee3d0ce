"""A summary that no model makes: what a person said, files, errors, the last results."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable
from typing import Final

from turnlog.compaction.sections import (
    ERRORS,
    FILES,
    GOALS,
    STATE,
    Sections,
    merged,
)
from turnlog.content import Message, ToolCall
from turnlog.views.transcript import PERSON

_READ: Final = 20_000  # characters of a message that are looked at
_SAID: Final = 400  # characters of a person's message that are kept
_TOLD: Final = 240  # of a result, an error, an answer
_PATH: Final = re.compile(r"(?<![\w/.-])(?:[\w.~-]*/)*[\w-][\w.-]*\.([A-Za-z][A-Za-z0-9]{0,5})\b")
_SUFFIXES: Final = re.compile(
    "c|cfg|cpp|css|csv|go|h|html|ini|java|js|json|kt|lock|log|md|php|ps1|py|rb|rs|sh|sql|svg|swift"
    "|toml|ts|tsx|txt|xml|yaml|yml"
)


def outline(
    messages: Iterable[tuple[int, Message]], older: Sections | None, characters: int
) -> Sections:
    """What can be said of messages without a model.

    Args:
        messages: with their seqs, in order; summaries not among them.
        older: the summary that comes before them.
        characters: about how long it may be.
    """
    said: list[str] = []
    files: dict[str, None] = {}
    errors: deque[str] = deque(maxlen=5)
    results: deque[str] = deque(maxlen=3)
    answer: str | None = None
    calls: dict[str, str] = {}
    for seq, message in messages:
        text = message.text[:_READ]
        for call in message.tool_calls:
            calls[call.id] = _call(call)
            text += f"\n{call.arguments[:_READ]}"
        for name in paths(text):
            files.pop(name, None)  # what was met last goes last
            files[name] = None
        if message.role == "tool":
            called = calls.get(message.tool_call_id or "", "a call")
            line = f"- [{seq}] {called}: {one_line(message.text, _TOLD)}"
            (errors if message.is_error else results).append(line)
        elif message.role == "assistant":
            answer = f"- [{seq}] answered: {one_line(message.text, _TOLD)}" if text else answer
        elif message.source.kind == PERSON and text.strip():
            said.append(f"- [{seq}] {one_line(text, _SAID)}")
    newer = {
        GOALS: said,
        FILES: [f"- {name}" for name in files],
        ERRORS: list(errors),
        STATE: [*results, *([answer] if answer else [])],
    }
    return merged(older, newer, characters)


def paths(text: str) -> Iterable[str]:
    """What looks like the name of a file."""
    for found in _PATH.finditer(text):
        if "/" in found[0] or _SUFFIXES.fullmatch(found[1].lower()):
            yield found[0]


def one_line(text: str, characters: int) -> str:
    """The beginning of a text in one line."""
    line = " ".join(text[: 4 * characters].split())
    return line if len(line) <= characters else f"{line[: characters - 1]}…"


def _call(call: ToolCall) -> str:
    return f"{call.name}({one_line(call.arguments, 80)})"
