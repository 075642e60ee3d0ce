"""Recall: what the model no longer sees, found again by words or by seq.

Only originals are searched: a message that stands for others repeats them, and so does what was
recalled before. Hits are ranked by how rare the words are that they hold (BM25).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from math import log
from typing import TYPE_CHECKING, Final

import msgspec

from turnlog.compaction.pins import is_carried
from turnlog.content import Message, Source, Text, ToolCall, user_message
from turnlog.errors import InvalidSearch, NoMessage
from turnlog.words import UNSPACED, asked, fold, is_unspaced, places

if TYPE_CHECKING:
    from turnlog.events import AnyEvent, Event
    from turnlog.session import Session

SOURCE: Final = "recall"
"""The kind of source of a message that holds what was recalled."""
LIMIT: Final = 5
"""How many hits there are at most, if nobody says."""
BUDGET: Final = 6000
"""Characters of recalled text that the model gets at once."""
_SHOWN: Final = 200  # characters of a snippet, about
_BEFORE: Final = 40  # of which stand before the first word
_LOOKED_AT: Final = 200  # matches among which the best place for a snippet is sought
_SATURATION, _LENGTH = 1.2, 0.6  # BM25: what repetition adds less and less, what length takes
_BEGINNING: Final = 4  # characters from which on a word may be the beginning of another
_BEGUN: Final = 0.5  # and what that counts
_HEAD: Final = "Recalled from event "


class Hit(msgspec.Struct, frozen=True):
    """A message that was found.

    Attributes:
        seq: its event.
        role: who said it.
        snippet: the place where the words are, on one line; the beginning, if it was found by seq.
        text: all of its text, calls included.
        score: the higher the better; 0 if it was found by seq.
    """

    seq: int
    role: str
    snippet: str
    text: str
    score: float = 0.0


def recall(
    session: Session,
    query: str | int,
    *,
    limit: int = LIMIT,
    events: Sequence[AnyEvent] | None = None,
) -> tuple[Hit, ...]:
    """What the model no longer sees and holds these words, the best first.

    Args:
        session: the session.
        query: words, of which a hit holds at least one; or the seq of any message.
        limit: how many hits at most.
        events: the whole log, where the session has not all of it in memory.

    Raises:
        InvalidSearch: there is no word in the query, or a limit below 1.
        NoSuchEvent: there is no event with that seq.
        NoMessage: it holds no message.
        NotLoaded: the session has not all events in memory, and none were given.
    """
    if limit < 1:
        msg = f"expected a limit of 1 or more, got {limit}"
        raise InvalidSearch(msg)
    if not isinstance(query, str):
        return (_by_seq(session, query, events),)
    terms = asked(query)
    if not terms:
        msg = f"nothing to search for in {query[:80]!r}: expected a word (letters or digits)"
        raise InvalidSearch(msg)
    ranked = _rank(list(_shadowed(session, session.events if events is None else events)), terms)
    return tuple(_hit(event, score, terms) for score, event in islice(ranked, limit))


def told(hits: Iterable[Hit], budget: int = BUDGET, offset: int = 0) -> str:
    """Hits as a model reads them, each with its seq, in about `budget` characters.

    Args:
        hits: what was found.
        budget: characters of text; a text that is too long ends by saying how to have the rest.
        offset: characters of the text to leave out, of a single hit.
    """
    parts: list[str] = []
    for hit in hits:
        text = hit.text[offset:]
        shown = text[: max(budget, 0)]
        budget -= len(shown)
        rest = len(text) - len(shown)
        if not shown and rest:
            parts.append(f"{_HEAD}{hit.seq} ({hit.role}): {hit.snippet}")
            continue
        at = f", from character {offset}" if offset else ""
        more = f"\n[{rest} more characters: seq {hit.seq}, offset {offset + len(shown)}]"
        parts.append(f"{_HEAD}{hit.seq} ({hit.role}{at}):\n{shown}{more if rest else ''}")
    return "\n\n".join(parts)


def into_context(session: Session, hits: Sequence[Hit], budget: int = BUDGET) -> Event[Message]:
    """Append what was found as a `context/message`, which cites the events it came from.

    Raises:
        NoMessage: there are no hits.
    """
    if not hits:
        msg = f"session {session.id!r}: nothing was found that could enter the context"
        raise NoMessage(msg)
    message = user_message(told(hits, budget), source=Source(SOURCE))
    return session.append(
        "context/message",
        message,
        surface_op="append",
        source_event_seqs=[hit.seq for hit in hits],
    )


def text_of(message: Message) -> str:
    """What a message says, as a search reads it: its texts and calls, without reasoning."""
    said: list[str] = []
    for block in message.content:
        if isinstance(block, Text):
            if not is_carried(block):
                said.append(block.text)
        elif isinstance(block, ToolCall):
            said.append(f"{block.name} {block.arguments}")
    return "\n".join(said)


def _shadowed(session: Session, events: Iterable[AnyEvent]) -> Iterator[tuple[AnyEvent, str]]:
    """The messages that are no longer on the surface, as they were appended, and their text."""
    surface = set(session.surface.seqs)
    for event in events:
        if event.surface_op == "append" and event.seq not in surface:
            message = event.message
            if message is not None and message.source.kind != SOURCE:
                text = text_of(message)
                if text and not (message.role == "tool" and text.startswith(_HEAD)):
                    yield event, text


def _rank(
    messages: Sequence[tuple[AnyEvent, str]], terms: Sequence[str]
) -> Iterator[tuple[float, AnyEvent]]:
    """Messages with one of the terms or more, by their score; of equals the latest first."""
    counting = [_counter(term) for term in terms]
    counts: list[tuple[AnyEvent, int, list[float]]] = []
    length, frequency = 0, [0] * len(terms)
    for event, text in messages:
        folded = fold(text)
        length += len(folded)
        found = [count(folded) for count in counting]
        if any(found):
            counts.append((event, len(folded), found))
            frequency = [many + (one > 0) for many, one in zip(frequency, found, strict=True)]
    total = len(messages)
    rarity = [log(1 + (total - many + 0.5) / (many + 0.5)) for many in frequency]
    scored: list[tuple[float, int, AnyEvent]] = []
    for event, size, found in counts:
        damping = _SATURATION * (1 - _LENGTH + _LENGTH * size * total / length)
        score = sum(
            weight * many * (1 + _SATURATION) / (many + damping)
            for weight, many in zip(rarity, found, strict=True)
        )
        scored.append((score, event.seq, event))
    scored.sort(key=lambda each: (-each[0], -each[1]))
    return ((score, event) for score, _, event in scored)


def _counter(term: str) -> Callable[[str], float]:
    """How often a term is in a folded text; the beginning of a longer word counts less."""
    if is_unspaced(term):
        return lambda folded: float(folded.count(term))
    letter = rf"[^\W_{UNSPACED}]"  # a script without spaces ends a word of another
    begins = re.compile(rf"(?<!{letter}){re.escape(term)}({letter}?)").findall

    def count(folded: str) -> float:
        if term not in folded:  # which is quickly said of most
            return 0.0
        rests = begins(folded)
        whole = rests.count("")
        return whole + (_BEGUN * (len(rests) - whole) if len(term) >= _BEGINNING else 0)

    return count


def _by_seq(session: Session, seq: int, events: Sequence[AnyEvent] | None) -> Hit:
    known = [event for event in events or () if event.seq == seq]
    event = known[0] if known else session.event_at(seq)
    if event.message is None:
        msg = f"session {session.id!r}: event {seq} ({event.type}) holds no message"
        raise NoMessage(msg)
    return _hit(event, 0.0, ())


def _hit(event: AnyEvent, score: float, terms: Sequence[str]) -> Hit:
    message = event.message
    text = "" if message is None else text_of(message)
    role = "" if message is None else message.role
    return Hit(event.seq, role, _snippet(text, terms), text, round(score, 6))


def _snippet(text: str, terms: Sequence[str]) -> str:
    """The place where most of the terms stand together, on one line."""
    lone = tuple(term for term in terms if len(term) >= _BEGINNING or is_unspaced(term))
    wanted = frozenset(terms)
    matches = (p for p in places(text) if p.term in wanted or (lone and p.term.startswith(lone)))
    found = list(islice(matches, _LOOKED_AT)) if terms else []
    best, at = 0, 0
    for i, first in enumerate(found):
        near = {place.term for place in found[i:] if place.start <= first.start + _SHOWN}
        if len(near) > best:
            best, at = len(near), first.start
    start = max(at - _BEFORE, 0)
    end = start + _SHOWN
    said = " ".join(text[start:end].split())
    return f"{'…' if start else ''}{said}{'…' if end < len(text) else ''}"
