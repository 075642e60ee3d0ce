"""Lists of small whole numbers, such as gaps between times, in hardly more than they say.

The values, less the lowest, are the digits of one large number, in the base that their range asks
for: 90 gaps of 5 to 40 ms take 59 bytes. A few that are far off do not make the base larger: they
are told by its highest digit, and follow by themselves.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import log2

Numbers = tuple[int, int, list[int], bytes]
"""The lowest value, the base, what is beyond the base (less the lowest), the digits."""

_NARROW = 16  # a base up to this one is never worth an exception
_MAX_DIGIT = 10  # bytes: what a value of 64 bits may take


def pack_numbers(values: Sequence[int]) -> Numbers:
    """Values whose range is below 2**64."""
    if not values:
        return 0, 1, [], b""
    low = min(values)
    base = max(values) - low + 1
    last = base  # the digit that stands for something beyond, if there is one
    if base > _NARROW and len(values) > 2:
        base, last = _narrowed(sorted(values), low, base)
    beyond: list[int] = []
    number = 0
    for value in reversed(values):
        digit = value - low
        if digit >= last:
            beyond.append(digit)
            digit = last
        number = number * base + digit
    beyond.reverse()
    return low, base, beyond, number.to_bytes((number.bit_length() + 7) // 8, "little")


def _narrowed(ordered: list[int], low: int, base: int) -> tuple[int, int]:
    """The base that takes least room, and its digit for what is beyond."""
    count = len(ordered)
    best = log2(base) * count / 8
    last = base
    for beyond in {1, 2, count // 32, count // 16, count // 8}:
        narrow = ordered[-1 - beyond] - low + 2
        size = log2(narrow) * count / 8 + 3 * beyond  # bytes: a small number takes 3
        if beyond and size < best:
            best, base, last = size, narrow, narrow - 1
    return base, last


def unpack_numbers(packed: Numbers, count: int) -> list[int]:
    """The `count` values.

    Raises:
        ValueError: `packed` does not hold that many.
    """
    low, base, beyond, digits = packed
    if base < 1 or len(digits) > _MAX_DIGIT * count or len(beyond) > count:
        raise ValueError(f"numbers in base {base}, {len(digits)} bytes for {count}")
    number = int.from_bytes(digits, "little")
    last = base - 1 if beyond else base
    values: list[int] = []
    following = iter(beyond)
    for _ in range(count):
        number, digit = divmod(number, base)
        if digit == last:
            digit = next(following, -1)
            if digit < last:
                raise ValueError(f"expected more than {len(beyond)} numbers beyond {last}")
        values.append(digit + low)
    if number or next(following, None) is not None:
        raise ValueError(f"more than {count} numbers")
    return values
