"""Terms of a text, as a search compares them; the same for every search over sessions.

A term is a run of letters, digits and marks. Case, width and the accents of Latin, Greek and
Cyrillic letters do not matter. Scripts that are written without spaces (Chinese, Japanese, Thai …)
and Korean, which joins words, have pairs of neighbouring characters for terms.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from functools import cache
from typing import NamedTuple

#: Scripts whose words no space tells apart: Thai and Lao, Burmese, Khmer, Hangul, kana, Han.
UNSPACED = (
    "\u0e00-\u0eff\u1000-\u109f\u1100-\u11ff\u1780-\u17ff\u3005-\u3007\u3040-\u30ff\u3130-\u318f"
    "\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff\U00020000-\U0003ffff"
)
_DROPPED = re.compile("[\u00ad\u0300-\u036f\u200c\u200d]")  # accents, soft hyphen, joiners
_ascii_words = re.compile("[0-9a-z]+")
_is_unspaced = re.compile(f"[{UNSPACED}]").match


def fold(text: str) -> str:
    """The text without what a search ignores: case, width, accents."""
    if text.isascii():
        return text.lower()
    apart = unicodedata.normalize("NFKD", text.casefold())
    return unicodedata.normalize("NFKC", _DROPPED.sub("", apart)).casefold()


def terms(text: str) -> list[str]:
    """The terms of a text, in order, repeats included.

    In an unspaced script, each character with its neighbour, and the last of a run alone: a lone
    character that is asked for is the beginning of one of these.
    """
    if text.isascii():
        return _ascii_words.findall(text.lower())
    found: list[str] = []
    for run in _runs(text):
        if is_unspaced(run):
            found += [run[at : at + 2] for at in range(len(run))]
        else:
            found.append(run)
    return found


class Place(NamedTuple):
    """A term, and the stretch of the text that it comes from."""

    term: str
    start: int
    end: int


def places(text: str) -> Iterator[Place]:
    """The terms of a text with their places, to show them.

    A word that folding makes longer or shorter is one place for all its terms. What only the whole
    text joins, over a soft hyphen, comes in parts.
    """
    if text.isascii():
        for match in _ascii_words.finditer(text.lower()):
            yield Place(match[0], *match.span())
        return
    for match in _all_words().finditer(text):
        start, end = match.span()
        found = terms(match[0])
        exact = sum(1 if is_unspaced(term) else len(term) for term in found) == end - start
        for term in found:
            yield Place(term, start, start + len(term) if exact else end)
            if exact:
                start += 1 if is_unspaced(term) else len(term)


def asked(text: str) -> list[str]:
    """The terms of a question, each once, in order: pairs, without the last character alone."""
    found: dict[str, None] = {}
    for run in _runs(text):
        if is_unspaced(run):
            found.update(dict.fromkeys(run[at : at + 2] for at in range(max(len(run) - 1, 1))))
        else:
            found[run] = None
    return list(found)


def is_unspaced(term: str) -> bool:
    """Whether a term is of a script that is written without spaces; one character is a prefix."""
    return _is_unspaced(term) is not None


def _runs(text: str) -> list[str]:
    """Runs of word characters, each in one kind of script."""
    text = fold(text)
    return _ascii_words.findall(text) if text.isascii() else _all_words().findall(text)


@cache
def _all_words() -> re.Pattern[str]:
    """Runs of one kind; marks belong to the letter they stand on, and Python has them for none."""
    marks = "".join(
        chr(code) for code in range(0x300, 0x20000) if unicodedata.category(chr(code))[0] == "M"
    )
    letter = rf"[^\W_{UNSPACED}]"
    unspaced = rf"[{UNSPACED}](?:[{UNSPACED}{marks}])*"
    plain = r"[0-9A-Za-z]++(?![^\x00-\x7f])"  # most of most texts, and the fastest to find
    return re.compile(rf"{plain}|{unspaced}|{letter}(?:{letter}|[{marks}])*")
