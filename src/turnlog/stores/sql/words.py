"""Search text: what of a text is indexed, what a query asks for, and what of a hit is shown.

All stores share this, so that each finds the same. Pure functions.

A *term* is a word in lower case, compatibility forms (NFKC) and diacritics folded. What writing
does not separate by blanks (Han, Kana, Hangul, Thai and its neighbours) is cut into overlapping
pairs of characters, and the last character of such a run is a term of its own: so every character
begins exactly one term, and a query of one character asks for the terms that begin with it. A word
of more than 64 characters becomes several terms. Terms hold word characters only, whatever the text
held: no quote, no operator, no NUL and no lone surrogate reaches an index.

In a query each word must occur; `"…"` is a phrase, whose terms follow on each other; `word*` is the
beginning of a word. A word of several terms, `read_file` or three Han characters, is a phrase too.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import NamedTuple
from unicodedata import combining, normalize

from turnlog.errors import InvalidSearch

LONGEST = 64
"""Characters of the longest term."""
MANY = 256
"""How many terms a query may have."""
SHOWN = 160
"""About how many characters a snippet has."""
_LOOKED_AT = 100  # matches among which the best place for a snippet is sought
_WINDOW = 1 << 15  # characters of a long text that are looked at together for one

# Marks that are folded away; soft hyphens and joiners with them. They do not end a word.
_DROPPED = (
    "\u00ad\u0300-\u036f\u0483-\u0487\u0591-\u05bd\u05bf\u05c1\u05c2\u05c4\u05c5\u05c7"
    "\u0610-\u061a\u064b-\u065f\u0670\u200c\u200d"
)
# Marks without which the word is another one: vowels of Indic scripts, voiced Kana.
_KEPT = (
    "\u0900-\u0963\u0966-\u0dff\u0e01-\u0e4e\u0e81-\u0ece\u0f18-\u0fbc\u1000-\u1049\u1050-\u109d"
    "\u1780-\u17d3\u3099\u309a"
)
_UNSPACED = (
    "\u0e01-\u0e4e\u0e81-\u0ece\u1000-\u1049\u1050-\u109d\u1780-\u17d3"  # Thai, Lao, Burmese, Khmer
    "\u3005-\u3007\u3041-\u3096\u3099\u309a\u309d-\u309f\u30a1-\u30fa\u30fc-\u30ff\u31f0-\u31ff"
    "\u1100-\u11ff\u3131-\u318e\ua960-\ua97c\uac00-\ud7fb"
    "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
)
_word = re.compile(rf"[^\W_]+(?:[{_DROPPED}{_KEPT}]+[^\W_]*)*")
_plain_word = re.compile(rf"[0-9a-z]{{1,{LONGEST}}}")
_dropped = re.compile(f"[{_DROPPED}]")
_stretch = re.compile(f"[{_UNSPACED}]+|[^{_UNSPACED}]+")
_unspaced = re.compile(f"[{_UNSPACED}]")
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


# -- terms -------------------------------------------------------------------------------------


def terms(text: str) -> list[str]:
    """The terms of a text, in order."""
    if text.isascii():
        return _plain_word.findall(text.lower())
    found: list[str] = []
    for word in _word.findall(text):
        if word.isascii() and len(word) <= LONGEST:
            found.append(word.lower())
        else:
            for piece in _pieces(word):
                found.extend(_cut(piece))
    return found


def fold(text: str) -> str:
    """The text as terms have it: lower case, NFKC, without diacritics."""
    if text.isascii():
        return text.lower()
    return normalize("NFC", _dropped.sub("", normalize("NFKD", text).casefold()))


def _pieces(word: str) -> list[str]:
    """A word folded, and cut where its writing changes between spaced and unspaced."""
    folded = fold(word)
    if folded.isascii() and folded.isalnum():
        return [folded]
    return [piece for part in _word.findall(folded) for piece in _stretch.findall(part)]


def _cut(piece: str) -> list[str]:
    if _unspaced.match(piece):
        return [piece[i : i + 2] for i in range(len(piece))]
    if len(piece) <= LONGEST:
        return [piece]
    return [piece[i : i + LONGEST] for i in range(0, len(piece), LONGEST)]


class _Place(NamedTuple):
    """A term, and where in the text it comes from."""

    term: str
    start: int
    end: int


def _places(text: str) -> Iterator[_Place]:
    """The terms of a text with their places; what folding made longer or shorter is one place."""
    for match in _word.finditer(text):
        start, end = match.span()
        pieces = _pieces(match[0])
        exact = sum(map(len, pieces)) == end - start
        for piece in pieces:
            step = 1 if _unspaced.match(piece) else LONGEST
            for i, term in enumerate(_cut(piece)):
                if exact:
                    yield _Place(term, start + i * step, start + i * step + len(term))
                else:
                    yield _Place(term, start, end)
            if exact:
                start += len(piece)


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
    if len(last) == 1 and _unspaced.match(last):  # the end of a run: it begins a term in the text
        before = found[-2] if len(found) > 1 else ""
        if len(before) == 2 and before[1] == last and _unspaced.match(before):
            return Phrase(tuple(found[:-1]), prefix=False)
        return Phrase(tuple(found), prefix=True)
    return Phrase(tuple(found), prefix)


class Matcher:
    """Finds phrases in texts, where there is no index."""

    def __init__(self, phrases: Sequence[Phrase]) -> None:
        self.phrases = phrases
        self._longest = max(len(phrase.terms) for phrase in phrases)
        self._needed = {term for phrase in phrases for term in phrase.terms}

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
        last: list[_Place] = []
        for place in _places(text):
            last.append(place)
            if len(last) > self._longest:
                del last[0]
            for which, (wanted, prefix) in enumerate(self.phrases):
                tail = last[-len(wanted) :]
                if len(tail) == len(wanted) and _fits([p.term for p in tail], wanted, prefix):
                    end = place.end
                    if prefix and place.end - place.start == len(place.term):
                        end = place.start + len(wanted[-1])
                    yield tail[0].start, end, which


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
    """About `width` characters around `at`, white space made single blanks, with the spans in it."""
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
