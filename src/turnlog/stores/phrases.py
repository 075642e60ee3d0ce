"""What a search asks for, whether a text holds it, and what of the text is shown.

All stores share this, so that each finds the same. Terms are those of `turnlog.words`; they hold
letters, digits and marks only, whatever a query held: no quote, no operator, no NUL and no lone
surrogate reaches an index.

In a query each word must occur; `"…"` is a phrase, whose terms follow on each other; `word*` is the
beginning of a word. A word of several terms, `read_file` or three Han characters, is a phrase too;
a lone character of a script without spaces asks for the terms that begin with it.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import NamedTuple
from unicodedata import combining

from turnlog.errors import InvalidSearch
from turnlog.words import Place, fold, is_unspaced, places, terms

MANY = 256
"""How many terms a query may have."""
SHOWN = 160
"""About how many characters a snippet has."""
_LOOKED_AT = 100  # matches among which the best place for a snippet is sought
_WINDOW = 1 << 15  # characters of a long text that are looked at together for one

_blanks = re.compile(r"\s+")
_part = re.compile(r'(?<!\S)"([^"]*)"?|(\S+)')


class Phrase(NamedTuple):
    """Terms that follow on each other; with `prefix` the last one is only the beginning of one."""

    terms: tuple[str, ...]
    prefix: bool = False


class Snippet(NamedTuple):
    """A piece of a text on one line, and which stretches of it (start, end) were asked for."""

    text: str
    matches: tuple[tuple[int, int], ...]


# -- queries -----------------------------------------------------------------------------------


def parse(query: str) -> tuple[Phrase, ...]:
    """What a query asks for, each phrase once.

    Raises:
        InvalidSearch: there is no word in it, or there are too many.
    """
    phrases: list[Phrase] = []
    for match in _part.finditer(query):
        quoted, bare = match[1], match[2]
        part = bare if quoted is None else quoted
        phrase = _phrase(part, prefix=quoted is None and part.endswith("*"))
        if phrase is not None:
            phrases.append(phrase)
    if not phrases:
        msg = f"nothing to search for in {query[:80]!r}: expected a word (letters or digits)"
        raise InvalidSearch(msg)
    if sum(len(phrase.terms) for phrase in phrases) > MANY:
        raise InvalidSearch(f"expected at most {MANY} words to search for")
    return tuple(dict.fromkeys(phrases))


def _phrase(part: str, *, prefix: bool) -> Phrase | None:
    found = terms(part)
    if not found:
        return None
    last = found[-1]
    if len(last) == 1 and is_unspaced(last):  # the end of a run: it begins a term in the text
        before = found[-2] if len(found) > 1 else ""
        if len(before) == 2 and before[1] == last and is_unspaced(before):
            return Phrase(tuple(found[:-1]), prefix=False)
        return Phrase(tuple(found), prefix=True)
    return Phrase(tuple(found), prefix)


class Matcher:
    """Finds phrases in texts, where there is no index."""

    def __init__(self, phrases: Sequence[Phrase]) -> None:
        self.phrases = phrases
        self._longest = max(len(phrase.terms) for phrase in phrases)
        self._needed = {term for phrase in phrases for term in phrase.terms}
        self._ends: dict[str, list[tuple[int, Phrase]]] = {}  # by the last term
        self._open: list[tuple[int, Phrase]] = []  # those of which that is only the beginning
        for which, phrase in enumerate(phrases):
            ends = self._open if phrase.prefix else self._ends.setdefault(phrase.terms[-1], [])
            ends.append((which, phrase))

    def count(self, texts: Sequence[str]) -> tuple[list[int], int] | None:
        """How often each phrase occurs in texts that belong together, and their number of terms.

        None unless each occurs.
        """
        folded = fold("\n".join(texts))
        if not all(term in folded for term in self._needed):
            return None
        found = [terms(text) for text in texts]
        counts = [sum(_count(phrase, each) for each in found) for phrase in self.phrases]
        return (counts, sum(map(len, found))) if all(counts) else None

    def snippet(self, text: str, width: int = SHOWN) -> Snippet:
        """The place of a text where most of what was asked for stands together.

        Where nothing of it occurs it is the beginning.
        """
        found = list(islice(self._found(text), _LOOKED_AT))
        best, chosen = 0, 0
        for i, (start, _, _) in enumerate(found):
            near: set[int] = set()
            for at, end, which in islice(found, i, None):
                if end > start + width:
                    break
                if at >= start:
                    near.add(which)
            if i == 0 or len(near) > best:
                best, chosen = len(near), start
            if best == len(self.phrases):
                break
        return _excerpt(text, chosen, [(start, end) for start, end, _ in found], width)

    def _found(self, text: str) -> Iterator[tuple[int, int, int]]:
        """Where phrases occur, in order of their ends: start, end, which phrase."""
        for first in range(0, len(text), _WINDOW):
            window = text[first : first + _WINDOW]
            folded = fold(window)
            if any(term in folded for term in self._needed):
                for start, end, which in self._found_in(window):
                    yield first + start, first + end, which

    def _found_in(self, text: str) -> Iterator[tuple[int, int, int]]:
        last: deque[Place] = deque(maxlen=self._longest)
        for place in places(text):
            last.append(place)
            for which, (wanted, prefix) in self._ending(place.term):
                tail = list(last)[-len(wanted) :]
                if len(tail) == len(wanted) and _fits([p.term for p in tail], wanted, prefix):
                    end = place.end
                    if prefix and place.end - place.start == len(place.term):
                        end = place.start + len(wanted[-1])
                    yield tail[0].start, end, which

    def _ending(self, term: str) -> Iterable[tuple[int, Phrase]]:
        """The phrases that may end with a term."""
        if not self._open:
            return self._ends.get(term, ())
        begun = [each for each in self._open if term.startswith(each[1].terms[-1])]
        return [*self._ends.get(term, ()), *begun]


def _fits(found: Sequence[str], wanted: tuple[str, ...], prefix: bool) -> bool:  # noqa: FBT001
    if prefix and not found[-1].startswith(wanted[-1]):
        return False
    upto = -1 if prefix else len(wanted)
    return tuple(found[:upto]) == wanted[:upto]


def _count(phrase: Phrase, found: list[str]) -> int:
    wanted, prefix = phrase
    size = len(wanted)
    if size == 1:
        if prefix:
            return sum(term.startswith(wanted[0]) for term in found)
        return found.count(wanted[0])
    ends = range(size, len(found) + 1)
    return sum(_fits(found[end - size : end], wanted, prefix) for end in ends)


# -- snippets ----------------------------------------------------------------------------------


def _excerpt(text: str, at: int, spans: list[tuple[int, int]], width: int) -> Snippet:
    """About `width` characters around `at`, each white space one blank, with the spans in it."""
    first = _start(text, max(at - width // 4, 0), at)
    last = _end(text, min(first + width, len(text)))
    said = "…" if first else ""
    matches: list[tuple[int, int]] = []
    done = first
    for start, whole in _joined(spans):
        end = min(whole, last)
        if start < done or start >= end:
            continue
        said = _append(said, text[done:start])
        before = len(said)
        said += " ".join(text[start:end].split())
        matches.append((before, len(said)))
        done = end
    said = _append(said, text[done:last]).rstrip()
    return Snippet(said + ("…" if last < len(text.rstrip()) else ""), tuple(matches))


def _start(text: str, first: int, at: int) -> int:
    """Where to begin: at the beginning of a word, if there is one before `at`."""
    if first == 0:
        return 0
    blank = _blanks.search(text, first, at)
    if blank is not None:
        return blank.end()
    while first < at and combining(text[first]):
        first += 1
    return first


def _end(text: str, last: int) -> int:
    """Where to end: not within a word, if a blank is near."""
    if last == len(text):
        return last
    for i in range(last, max(last - 24, 0), -1):
        if text[i].isspace():
            return i
    while last < len(text) and combining(text[last]):
        last += 1
    return last


def _joined(spans: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Spans in order; those that touch or overlap are one."""
    joined: list[tuple[int, int]] = []
    for start, end in sorted(spans):
        if joined and start <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(end, joined[-1][1]))
        else:
            joined.append((start, end))
    return joined


def _append(said: str, text: str) -> str:
    """Text behind what was said, each stretch of white space one blank."""
    if not text:
        return said
    words = " ".join(text.split())
    before = " " if text[0].isspace() and said not in ("", "…") else ""
    after = " " if words and text[-1].isspace() else ""
    return f"{said}{before}{words}{after}"
