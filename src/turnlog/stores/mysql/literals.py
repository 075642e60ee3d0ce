"""Statements with their values in them: asyncmy sends text.

All of it rests on the session's `sql_mode`, which every connection sets and looks at: a backslash
escapes, and only `'` ends a string.
"""

from __future__ import annotations

from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_SHORT = 32  # bytes up to which a value is easier to read in the server's own logs as hex


def literal(value: bytes | int | str | None) -> bytes:
    """A value as a statement says it.

    Text is compared byte by byte wherever it is compared, whatever the column's collation says of
    trailing blanks.
    """
    if value is None:
        return b"NULL"
    if isinstance(value, int):
        return b"%d" % value
    if isinstance(value, str):
        return b"_binary'%b' COLLATE `binary`" % _escaped(value.encode())
    if len(value) <= _SHORT:
        return b"x'%b'" % value.hex().encode()
    return b"_binary'%b'" % _escaped(value)


def _escaped(value: bytes) -> bytes:
    return value.replace(b"\\", b"\\\\").replace(b"'", b"\\'")


@cache
def _parts(query: str) -> list[bytes]:
    return query.encode().split(b"?")


def filled(query: str, values: Sequence[Any]) -> bytes:
    """The query with the values in the place of each `?`."""
    first, *others = _parts(query)
    pairs = zip(values, others, strict=True)
    return b"".join((first, *(piece for value, part in pairs for piece in (literal(value), part))))


def row(values: Sequence[Any]) -> bytes:
    """The values of one row to insert, where texts are not compared: plain ones are told so."""
    return b"(%b)" % b",".join(
        [
            b"'%b'" % value.encode() if type(value) is str and _is_plain(value) else literal(value)
            for value in values
        ]
    )


@lru_cache(256)  # there are few kinds of events
def _is_plain(text: str) -> bool:
    return text.isascii() and text.isprintable() and "'" not in text and "\\" not in text


def joined(pieces: Iterable[bytes], between: bytes, room: int) -> Iterable[bytes]:
    """The pieces, joined to as few as fit into `room` bytes; a larger one stays alone."""
    some: list[bytes] = []
    size = 0
    for piece in pieces:
        if some and size + len(piece) > room:
            yield between.join(some)
            some, size = [], 0
        some.append(piece)
        size += len(piece) + len(between)
    if some:
        yield between.join(some)
