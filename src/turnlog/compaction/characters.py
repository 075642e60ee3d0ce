"""Tokens of a text from the kinds of its characters alone, without a vocabulary.

A byte costs so much, depending on its kind and on the kind of the byte before it: a capital behind
a small letter begins a token nearly always, a small letter behind another hardly ever. So words,
identifiers, numbers, base64 and scripts of many bytes are all told apart by one table. It was
fitted to the geometric mean of what `o200k_base` and `cl100k_base` make of prose in English and in
eighteen other languages, code, diffs, JSON, HTML, logs, tables, base64, hex and emoji.

Text is measured at some 7 ns a byte: the kinds of all bytes are looked up, then all pairs of
neighbours are made by arithmetic on the text as one number, and the sum of the costs is how many
bits are set in what two translation tables make of the pairs.
"""

from __future__ import annotations

from typing import Final

UNIT: Final = 64  # the costs below are in 64ths of a token
NEWLINE: Final = 5  # what a text is taken to begin after

# What a byte costs: a row for the kind of the byte before it, a column for its own.
COSTS: Final = (
    (28, 72, 63, 43, 24, 28, 32, 46, 56, 22, 22, 22, 22, 22, 22, 22),  # control
    (72, 11, 72, 55, 4, 42, 19, 13, 20, 22, 72, 37, 56, 23, 4, 22),  # lower
    (68, 29, 24, 72, 4, 4, 4, 4, 72, 22, 72, 22, 33, 26, 9, 22),  # upper
    (44, 64, 72, 21, 72, 72, 51, 72, 72, 22, 20, 23, 40, 18, 30, 22),  # digit
    (25, 15, 4, 72, 2, 4, 46, 47, 43, 22, 72, 4, 58, 4, 29, 27),  # space
    (33, 72, 4, 4, 31, 31, 72, 55, 32, 22, 6, 49, 12, 72, 4, 25),  # newline
    (36, 51, 4, 63, 55, 72, 4, 53, 4, 22, 4, 22, 41, 23, 23, 22),  # joiner
    (44, 47, 40, 47, 4, 4, 22, 4, 63, 22, 4, 16, 61, 42, 55, 27),  # bracket
    (45, 47, 72, 72, 64, 72, 4, 23, 18, 22, 25, 22, 28, 31, 22, 22),  # symbol
    (22, 48, 72, 44, 70, 57, 53, 72, 18, 7, 4, 34, 4, 4, 4, 72),  # inner
    (22, 22, 22, 22, 22, 22, 22, 22, 22, 6, 22, 22, 22, 22, 22, 22),  # two-byte
    (22, 22, 22, 22, 22, 22, 22, 22, 22, 6, 22, 22, 22, 22, 22, 22),  # kana
    (22, 22, 22, 22, 22, 22, 22, 22, 22, 38, 22, 22, 22, 22, 22, 22),  # ideograph
    (22, 22, 22, 22, 22, 22, 22, 22, 22, 25, 22, 22, 22, 22, 22, 22),  # hangul
    (22, 22, 22, 22, 22, 22, 22, 22, 22, 4, 22, 22, 22, 22, 22, 22),  # three-byte
    (22, 22, 22, 22, 22, 22, 22, 22, 22, 60, 22, 22, 22, 22, 22, 22),  # four-byte
)


def kind_of(byte: int) -> int:
    """The kind of a byte of UTF-8, as the rows of `COSTS` are named."""
    if byte >= 0x80:
        starts = (
            (0xF0, 15),
            (0xEE, 14),
            (0xEA, 13),
            (0xE4, 12),
            (0xE3, 11),
            (0xE0, 14),
            (0xC0, 10),
        )
        return next((kind for first, kind in starts if byte >= first), 9)
    character = chr(byte)
    if character.isalpha():
        return 1 if character.islower() else 2
    if character.isdigit():
        return 3
    groups = (" ", "\n\r\t", "_-./:", "\"'`()[]{}<>,;")
    for kind, group in enumerate(groups, 4):
        if character in group:
            return kind
    return 8 if character.isprintable() else 0


def _set_bits(count: int) -> int:
    """A byte in which so many bits are set."""
    return (1 << count) - 1


_KIND_OF: Final = bytes(map(kind_of, range(256)))
_FLAT: Final = [cost for row in COSTS for cost in row]
_EIGHTHS: Final = bytes(_set_bits(min(cost // 8, 8)) for cost in _FLAT)
_REST: Final = bytes(_set_bits(cost - 8 * min(cost // 8, 8)) for cost in _FLAT)


def text_tokens(text: str) -> int:
    """About how many tokens a text is: from 1 to its bytes; 0 for an empty one."""
    kinds = text.encode("utf-8", "surrogatepass").translate(_KIND_OF)
    length = len(kinds)
    number = int.from_bytes(kinds, "little")
    # Each byte gets the kind of the byte before it into its upper half.
    pairs = number | number << 12 | NEWLINE << 4
    paired = pairs.to_bytes(length + 2, "little")[:length]
    cost = 8 * _bits(paired.translate(_EIGHTHS)) + _bits(paired.translate(_REST))
    return min(-(-cost // UNIT), length)


def _bits(data: bytes) -> int:
    return int.from_bytes(data, "little").bit_count()
