"""Full-text search over sessions: what is searched, what a hit is, and how to do without an index.

A message is searched in three parts: what was said (a person's text, a model's answer), the context
that no person typed (the text of messages from elsewhere, and the summaries that stand for what was
compacted), and the tools (calls, their results, a model's reasoning). A pruned tool result is not
searched: it says nothing that the whole one does not.

A backend with an index of its own is a `Searcher`; for all others see `scanning`.
"""

from __future__ import annotations

from typing import Literal, NamedTuple, Protocol, TypeAlias, runtime_checkable

import msgspec

from turnlog.content import Message, Reasoning, Text, ToolCall
from turnlog.errors import InvalidSearch
from turnlog.events import AnyEvent
from turnlog.stores.phrases import Matcher, Phrase, parse
from turnlog.views.transcript import PERSON

Kind: TypeAlias = Literal["user", "assistant", "context", "summary", "tool"]

MOST = 1000
"""The most hits that one search may ask for."""
FURTHEST = 1 << 30
"""The most hits that it may leave out."""


class Hit(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """A message that a search found.

    Attributes:
        session: its session's id.
        title: its session's title, or the beginning of the first prompt.
        seq: its event's.
        time: when it was said, epoch milliseconds.
        kind: "user", "assistant", "context" (no person typed it), "summary" (it stands for what was
            compacted), "tool" (a result).
        snippet: the place where most of what was asked for stands, on one line; not yet safe to
            print (see `turnlog.printable`).
        matches: which stretches of the snippet, [start, end), were asked for.
        score: the higher the better; comparable within one answer only.
        shadowed_by: the event that the model sees instead, if there is one.
    """

    session: str
    title: str = ""
    seq: int
    time: int
    kind: Kind
    snippet: str
    matches: tuple[tuple[int, int], ...]
    score: float
    shadowed_by: int | None = None


class Search(NamedTuple):
    """What is searched for, where, and how much of it is wanted.

    Attributes:
        phrases: all of them must occur in a message.
        session: only in this one, with what a fork inherited.
        tools, context: search these parts of messages, too.
        shadowed: whether to find what a compaction took from the model's view.
        limit, skip: the best hits, after so many better ones.
    """

    phrases: tuple[Phrase, ...]
    session: str | None = None
    tools: bool = False
    context: bool = False
    shadowed: bool = True
    limit: int = 20
    skip: int = 0


@runtime_checkable
class Searcher(Protocol):
    """A backend that has an index."""

    async def search(self, wanted: Search) -> list[Hit]:
        """The hits, best first; of two that are as good the later event.

        Raises:
            NoSuchSession: the one to search in does not exist.
        """
        ...


def asked_for(
    text: str,
    session: str | None = None,
    *,
    tools: bool,
    context: bool,
    shadowed: bool,
    limit: int,
    skip: int,
) -> Search:
    """A search as a person asked for it.

    Raises:
        InvalidSearch: no word to look for, or more hits than a search gives.
    """
    whole = type(limit) is int and type(skip) is int
    if not whole or not 0 < limit <= MOST or not 0 <= skip <= FURTHEST:
        raise InvalidSearch(f"expected a limit of 1 to {MOST} hits, got {limit!r} after {skip!r}")
    return Search(parse(text), session, tools, context, shadowed, limit, skip)


# -- what is searched --------------------------------------------------------------------------


class Searched(NamedTuple):
    """The texts of a message by its parts."""

    kind: Kind
    said: str = ""
    context: str = ""
    tools: str = ""

    def parts(self, wanted: Search) -> list[str]:
        """Those to search."""
        parts = (self.said, self.context if wanted.context else "")
        return [text for text in (*parts, self.tools if wanted.tools else "") if text]


def searched(event: AnyEvent) -> Searched | None:
    """What of an event is searched; None where there is nothing."""
    message = event.message if event.surface_op is not None else None
    if message is None:
        return None
    texts = _joined([block.text for block in message.content if type(block) is Text])
    if event.surface_op != "append":
        return None if message.role == "tool" else Searched("summary", context=texts)
    if message.role == "tool":
        return Searched("tool", tools=texts)
    if message.role == "assistant":
        return Searched("assistant", said=texts, tools=_workings(message))
    if event.type == "user/message" and message.source.kind == PERSON:
        return Searched("user", said=texts)
    return Searched("context", context=texts)


def _workings(message: Message) -> str:
    found: list[str] = []
    for block in message.content:
        if type(block) is Reasoning:
            found.append(block.text)
        elif type(block) is ToolCall:
            found.append(f"{block.name} {block.arguments}")
    return _joined(found)


def _joined(texts: list[str]) -> str:
    return "\n".join(text for text in texts if text)


def hit_of(
    where: tuple[str, str],
    event: AnyEvent,
    found: Searched,
    matcher: Matcher,
    wanted: Search,
    score: float,
    shadowed_by: int | None,
) -> Hit:
    """The hit in a message; `where` is its session's id and title."""
    snippet = matcher.snippet("\n".join(found.parts(wanted)))
    return Hit(
        session=where[0],
        title=where[1],
        seq=event.seq,
        time=event.time,
        kind=found.kind,
        snippet=snippet.text,
        matches=snippet.matches,
        score=round(score, 6),
        shadowed_by=shadowed_by,
    )


class Shadows:
    """Which messages replacements took from the model's view, from the replacements alone.

    A node stands where the first event stands that it transitively replaces, its anchor (see
    `turnlog.surface`); so a replacement takes out what has its anchor between two others.
    """

    def __init__(self) -> None:
        self._anchors: dict[int, int] = {}
        self._nodes: dict[int, list[int]] = {}  # anchor -> what replaced that node alone
        self._ranges: list[tuple[int, int, int]] = []  # what replaced more, from, to

    def add(self, seq: int, start: int, end: int) -> None:
        """Take note of the replacement of `start` to `end` by event `seq`; in order of seq."""
        low, high = self._anchors.get(start, start), self._anchors.get(end, end)
        self._anchors[seq] = low
        if low == high:
            self._nodes.setdefault(low, []).append(seq)
        else:
            self._ranges.append((seq, low, high))

    def by(self, seq: int) -> int | None:
        """What the model sees instead of the message, or None: the last that replaced it."""
        last = None
        while (found := self._first(seq)) is not None:
            last = seq = found
        return last

    def _first(self, seq: int) -> int | None:
        anchor = self._anchors.get(seq, seq)
        found = [by for by in self._nodes.get(anchor, ()) if by > seq]
        found += [by for by, low, high in self._ranges if by > seq and low <= anchor <= high]
        return min(found, default=None)
