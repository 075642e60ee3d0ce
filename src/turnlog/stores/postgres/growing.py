"""What sessions grew by, stored by one statement, which is a transaction of its own.

Its parts see one state of the database, and what one returns decides what the others do: of a
session whose row is not as expected nothing is written. A row that another transaction holds is
waited for, and compared as that one leaves it.

asyncpg looks at each value of an array several times, which takes longer than all the rest: so only
bytes are given as arrays, and of numbers and texts the lines, which PostgreSQL makes arrays of. No
text that is stored has a line break, or is empty.
"""

from __future__ import annotations

from functools import cache
from itertools import repeat
from typing import TYPE_CHECKING, Any

from turnlog.stores.postgres.dialect import TYPES
from turnlog.stores.server.dialect import Column
from turnlog.stores.server.driver import Growth
from turnlog.stores.server.schema import CHUNKS, EVENTS, SESSIONS

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from turnlog.stores.server.dialect import Kind

_KINDS: dict[str, Kind] = {column.name: column.kind for column in SESSIONS.columns}
_PARTS: Sequence[Sequence[Column]] = (
    [Column(name, _KINDS.get(name, "int")) for name in Growth._fields],
    CHUNKS.columns[:2],
    EVENTS.columns,
    CHUNKS.columns,
)
_AS_ARRAYS = ("key", "bytes")
_MINE = "session IN (SELECT session FROM grown)"


@cache
def statement(now: str) -> str:
    """The statement; `values` are what it takes.

    Args:
        now: as `Dialect.now`.
    """
    marks = iter(range(2, 1000))
    grown, gone, events, chunks = (_rows(part, marks) for part in _PARTS)
    return f"""
        WITH grown AS (
            UPDATE sessions AS s SET next_seq = n.next_seq, last_activity = n.last_activity,
            bytes = s.bytes + n.size, stale = n.stale, info = n.info, lease_until = {now} + $1
            FROM {grown}
            WHERE s.session = n.session AND s.token = n.token AND s.next_seq = n.expected
            RETURNING s.session
        ), gone AS (
            DELETE FROM chunks AS c USING {gone}
            WHERE c.session = n.session AND c.first = n.first AND n.{_MINE}
            RETURNING c.first
        ), added AS (
            INSERT INTO events ({EVENTS.names}) SELECT * FROM {events} WHERE n.{_MINE}
        ), packed AS (
            INSERT INTO chunks ({CHUNKS.names}) SELECT * FROM {chunks} WHERE n.{_MINE}
            AND (SELECT count(*) FROM gone) >= 0  -- so that they go before
        )
        SELECT session FROM grown
    """  # noqa: S608 - constants


def _rows(columns: Sequence[Column], marks: Iterator[int]) -> str:
    """A table of what is given for some columns."""
    arrays = (_array(column.kind, f"${next(marks)}") for column in columns)
    names = ", ".join(column.name for column in columns)
    return f"unnest({', '.join(arrays)}) AS n ({names})"


def _array(kind: Kind, mark: str) -> str:
    if kind in _AS_ARRAYS:
        return f"{mark}::{TYPES[kind]}[]"
    return rf"string_to_array({mark}::text, E'\n', '')::{TYPES[kind]}[]"


def values(
    grown: Sequence[Growth],
    lease: int,
    gone: Sequence[tuple[bytes, int]],
    events: Sequence[Sequence[Any]],
    chunks: Sequence[Sequence[Any]],
) -> Iterator[Any]:
    """What `Connection.grow` was given, column by column."""
    yield lease
    for columns, rows in zip(_PARTS, (grown, gone, events, chunks), strict=True):
        given = zip(*rows, strict=True) if rows else repeat(())
        yield from (_given(column.kind, some) for column, some in zip(columns, given, strict=False))


def _given(kind: Kind, some: Sequence[Any]) -> Any:
    """The values of one column; where all are NULL, none of them."""
    nothing = some.count(None)
    if nothing == len(some):
        some = ()
    if kind in _AS_ARRAYS:
        return some
    if nothing:
        some = ["" if value is None else value for value in some]
    lines = "\n".join(some if kind == "text" else map(str, some))
    if lines.count("\n") != max(len(some) - 1, 0):  # the rows would get each other's values
        raise AssertionError("a text with a line break")
    return lines
