"""What a model is asked for, whether its answer may stand for a range, and the message that does.

The request is the conversation itself up to the end of the range, byte for byte, and one more
message, the instruction; so a provider that keeps prefixes has all of it but the instruction.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Final, TypeAlias, cast

import msgspec

from turnlog.compaction.pins import is_carried
from turnlog.compaction.port import SOURCE
from turnlog.compaction.sections import (
    DECISIONS,
    STATE,
    Sections,
    cited,
    merged,
    read,
    without_unknown,
    write,
)
from turnlog.compaction.structural import one_line, outline
from turnlog.content import Message, Source, Text
from turnlog.errors import InvalidOption
from turnlog.views.transcript import PERSON

SMALL_WINDOW: Final = 8192
"""Tokens below which a model is asked in one sentence: it is a small one."""
_LISTED: Final = 40  # messages of a person that an instruction lists
_EXCERPT: Final = 80  # characters of each of them
_FILLED: Final = 1600  # characters that are added to a text without headings

_BRIEF: Final = (
    "Summarize our conversation so far in a few sentences. Keep names, numbers and wishes."
)
_FULL: Final = """\
Stop here. Do not answer and do not call tools: write a summary of everything above, which will \
stand in its place. Whoever goes on reads only the summary and what was said last. Use at most \
{words} words, and exactly these headings:

## Goals
What the user wants to achieve, in their terms.
## Decisions and constraints
One a line, only what was really said, each with the number of the event that says so, as in [12].
## Files
Each file that matters and what was done to it.
## Errors and fixes
What went wrong, and what helped.
## State
What is done and what is true now.
## Next step
What comes next.

If the conversation begins with a summary, merge it with what came after: leave out what no longer \
matters, and do not quote it as a whole."""
_AGAIN: Final = "The last attempt was of no use: {why}."
_AGAIN_BRIEF: Final = "Use three short sentences."


class Rejected(Exception):
    """A summary that may not stand for anything: the code says why, as in `CompactionFailed`."""

    def __init__(self, code: str, message: str) -> None:
        self.code = code
        super().__init__(message)


class SummaryRequest(msgspec.Struct, frozen=True):
    """A summary that a model is about to be asked for.

    Attributes:
        words: how many it may have, about.
        window: what the model takes, in tokens.
        messages: what it is about, with their seqs.
        default: the words that ask for it unless an engine has a `prompt`.
    """

    words: int
    window: int
    messages: Sequence[tuple[int, Message]]
    default: str


PromptFor: TypeAlias = Callable[[SummaryRequest], str]
"""Says in which words a model is asked for a summary; the same for the same, often called."""


def instruction(
    window: int,
    limit: int,
    said: Sequence[tuple[int, Message]],
    *,
    prompt: str | PromptFor | None = None,
    wish: str | None = None,
    before: str = "",
    left_out: Sequence[str] = (),
) -> str:
    """The message that asks for a summary.

    Args:
        window: what the model takes, in tokens.
        limit: tokens that the summary may have.
        said: the messages it is about, with their seqs; a person's are listed with their numbers.
        prompt: other words than these, or what makes them.
        wish: what a person wants to be kept.
        before: the summary of what precedes these messages and is not shown.
        left_out: what else is not shown, a line each.

    Raises:
        InvalidOption: `prompt` is a function and returned no words.
    """
    asked = [_words(window, limit, said, prompt)]
    if before:
        asked.insert(0, f"What came before the messages above, in short:\n{before}")
    if left_out:
        asked.insert(0, "Too long to be shown here:\n" + "\n".join(left_out))
    if wish:
        asked.append(f"The user asks in particular: {wish}")
    return "\n\n".join(asked)


def _words(
    window: int, limit: int, said: Sequence[tuple[int, Message]], prompt: str | PromptFor | None
) -> str:
    if isinstance(prompt, str):
        return prompt
    words = max(limit * 6 // 10, 50)
    default = _BRIEF
    if window >= SMALL_WINDOW:
        default = _FULL.format(words=words)
        listed = [f"[{seq}] {one_line(m.text, _EXCERPT)}" for seq, m in said if _is_person(m)]
        if listed:
            shown = [listed[0], *listed[1:][-_LISTED:]]
            default += "\n\nEvents in which the user spoke:\n" + "\n".join(shown)
    if prompt is None:
        return default
    made = prompt(SummaryRequest(words, window, said, default))
    if not isinstance(cast("object", made), str) or not made.strip():
        raise InvalidOption("prompt", "a function that returns words", made)
    return made


def complaint(window: int, rejected: Rejected) -> str:
    """What an instruction adds after an answer that was of no use.

    A small model would take a reason for what it is to say.
    """
    if window < SMALL_WINDOW:
        return f" {_AGAIN_BRIEF}"
    return f"\n\n{_AGAIN.format(why=rejected)}"


def judged(text: str, finish: str | None, calls: int, asked: str = "") -> str:
    """The text of an answer that can be used.

    Args:
        text: what the model said.
        finish: why it ended.
        calls: how many tools it called.
        asked: the instruction, which is no summary of anything.

    Raises:
        Rejected: it is none.
    """
    if calls:
        raise Rejected("tool-calls", f"expected a summary, the model called {calls} tools")
    if finish == "max-tokens":
        raise Rejected("truncated", "the model ran out of tokens before the summary was complete")
    plain = re.sub(r"^\s*```\w*\n|\n```\s*$|</?summary>", "", text).strip()
    if not plain:
        raise Rejected("empty", "the model said nothing")
    if is_runaway(plain):
        raise Rejected("runaway", "the model repeats itself")
    if one_line(plain, len(plain)) in one_line(asked, len(asked)):
        raise Rejected("echo", "the model repeats what it was asked")
    return plain


def is_runaway(text: str) -> bool:
    """Whether a text says the same over and over."""
    lines = [piece.strip() for piece in re.split(r"\n|(?<=[.!?])\s", text) if piece.strip()]
    if len(lines) >= 8 and max(Counter(lines).values()) * 2 > len(lines):
        return True
    words = text.split()
    if len(words) >= 120:
        groups = [tuple(words[i : i + 4]) for i in range(len(words) - 3)]
        return len(set(groups)) * 3 < len(groups)
    pieces = [text[i : i + 8] for i in range(len(text) - 7)]
    return len(pieces) > 400 and len(set(pieces)) * 10 < len(pieces)


def told(
    text: str,
    messages: Sequence[tuple[int, Message]],
    older: str,
    known: Iterable[int],
    tokens: int,
) -> str:
    """The text under the fixed headings, without claims that cite what nobody knows.

    Args:
        text: a summary that was judged good.
        messages: what it stands for, with the seqs.
        older: the text of the summary that it merges, if there is one.
        known: seqs that it may cite.
        tokens: what it stands for has so many.
    """
    seqs = {*known, *cited(older)}
    found = read(text)
    if found is not None:
        found[DECISIONS] = without_unknown(found.get(DECISIONS, []), seqs)
        return write(found)
    lines = without_unknown([line for line in text.splitlines() if line.strip()], seqs)
    filled: Sections = outline(messages, read(older), min(_FILLED, tokens))
    filled[STATE] = lines
    return write(filled)


def stands_for(
    text: str, first: int, last: int, maker: str, provider: str | None, model: str | None
) -> tuple[Text, Source]:
    """The block that holds a summary, and the source of its message.

    Args:
        text: the summary.
        first: the first seq that it stands for.
        last: the last one.
        maker: who made it, for the reader.
        provider: of the model that made it, if one did.
        model: that model.
    """
    head = (
        f"Summary of events {first} to {last}, made by {maker}; it stands in their place. It is no "
        "instruction: where it differs from what is pinned or comes after it, they hold."
    )
    return Text(f"{head}\n\n{text}"), Source(SOURCE, provider, model)


def text_of(message: Message) -> str:
    """The summary in a message that stands for others: its text but what was carried on."""
    return "\n".join(b.text for b in message.content if isinstance(b, Text) and not is_carried(b))


def shortened(text: str, characters: int) -> str:
    """A summary that is too long, its sections cut to about so many characters."""
    found = read(text)
    if found is None:
        return text[:characters]
    return write(merged(None, found, characters))


def _is_person(message: Message) -> bool:
    return message.role == "user" and message.source.kind == PERSON
