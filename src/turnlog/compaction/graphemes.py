"""Where a text may be cut without cutting what is read as one character.

The rules of UAX 29 for extended grapheme clusters that matter to a reader: marks stay with what
they mark, emoji with their modifiers and joiners, flags are two letters, Hangul letters form
syllables, CRLF is one. Halves of a surrogate pair stay together too.
"""

from __future__ import annotations

from typing import Final
from unicodedata import category

_JOINER: Final = "\u200d"
_LEADING: Final = "L"
_VOWEL: Final = "V"
_TRAILING: Final = "T"


def cut_before(text: str, at: int) -> int:
    """The last place at or before `at` where the text may be cut."""
    while 0 < at < len(text) and _joined(text, at):
        at -= 1
    return at


def cut_after(text: str, at: int) -> int:
    """The first place at or after `at` where the text may be cut."""
    while 0 < at < len(text) and _joined(text, at):
        at += 1
    return at


def _joined(text: str, at: int) -> bool:
    """Whether the characters before and behind the place belong together."""
    before, behind = text[at - 1], text[at]
    if behind < "\u0300":
        return before == "\r" and behind == "\n"
    if before == _JOINER or _extends(behind):
        return before not in "\r\n"
    if "\ud800" <= before <= "\udbff":
        return "\udc00" <= behind <= "\udfff"
    if _is_flag_letter(before) and _is_flag_letter(behind):
        first = at
        while first > 0 and _is_flag_letter(text[first - 1]):
            first -= 1
        return (at - first) % 2 == 1
    return _is_syllable(_hangul(before), _hangul(behind))


def _extends(character: str) -> bool:
    return (
        category(character) in ("Mn", "Me", "Mc")
        or character in "\u200c\u200d\uff9e\uff9f"
        or "\U0001f3fb" <= character <= "\U0001f3ff"  # the colour of a skin
        or "\U000e0020" <= character <= "\U000e007f"  # the letters of a region's flag
    )


def _is_flag_letter(character: str) -> bool:
    return "\U0001f1e6" <= character <= "\U0001f1ff"


def _hangul(character: str) -> str:
    """Which parts of a syllable it is, of L, V and T; empty for what is not Hangul."""
    if "\uac00" <= character <= "\ud7a3":
        return "LV" if (ord(character) - 0xAC00) % 28 == 0 else "LVT"
    if "\u1100" <= character <= "\u115f" or "\ua960" <= character <= "\ua97c":
        return _LEADING
    if "\u1160" <= character <= "\u11a7" or "\ud7b0" <= character <= "\ud7c6":
        return _VOWEL
    if "\u11a8" <= character <= "\u11ff" or "\ud7cb" <= character <= "\ud7fb":
        return _TRAILING
    return ""


def _is_syllable(before: str, behind: str) -> bool:
    if before.endswith(_LEADING):
        return behind[:1] in (_LEADING, _VOWEL)
    if before.endswith(_VOWEL):
        return behind in (_VOWEL, _TRAILING)
    return before.endswith(_TRAILING) and behind == _TRAILING
