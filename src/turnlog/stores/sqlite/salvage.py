"""Reading around damage: pages that SQLite refuses, rows that are not what was written.

It is slow and never gives up; `reading` comes here only when the fast way met damage.
"""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, Any

import apsw

from turnlog.stores.sql.chunks import from_chunks
from turnlog.stores.sql.holes import Lost
from turnlog.stores.sql.packing import BadRow
from turnlog.stores.sql.rows import from_row
from turnlog.stores.sqlite.schema import SEQ_BITS, SEQ_MASK

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from turnlog.events import AnyEvent
    from turnlog.stores.sqlite.driver import Connection

UNREADABLE = (apsw.CorruptError, apsw.IOError, apsw.NotADBError, UnicodeDecodeError)
"""What a bad page raises."""

_STEPS = 4096  # ids that are tried one by one behind a bad page; then in growing leaps


def scan(
    db: Connection, query: str, low: int, high: int, lost: list[Lost]
) -> Iterator[tuple[Any, ...]]:
    """The rows of a table whose ids are from `low` to `high`, as far as their pages can be read.

    Args:
        db: where.
        query: gives rows that begin with the id, for two bounds, in ascending order.
        low: the first id.
        high: the last id.
        lost: where stretches of ids are added in which a page cannot be read.
    """
    begin = low
    while low <= high:
        try:
            for row in db.execute(query, (low, high)):
                if begin <= row[0] <= high:  # else the page says nonsense
                    yield row
                    low = max(low, row[0] + 1)
        except UNREADABLE as error:
            after = _beyond(db, query, low, high)
            lost.append(Lost(low, after - 1, _reason(error)))
            low = after
        else:
            return


def _beyond(db: Connection, query: str, low: int, high: int) -> int:
    """The first id behind `low` from where rows can be read again, `high + 1` if there is none."""
    failed, step = low, 1
    while True:
        at = min(failed + step, high + 1)
        if at > high or _readable(db, query, at, high):
            break
        failed = at
        step = 1 if at - low < _STEPS else 2 * step
    while at - failed > 1:
        middle = (failed + at) // 2
        if _readable(db, query, middle, high):
            at = middle
        else:
            failed = middle
    return at


def _readable(db: Connection, query: str, low: int, high: int) -> bool:
    try:
        db.execute(f"{query} LIMIT 1", (low, high)).fetchall()
    except UNREADABLE:
        return False
    return True


def _reason(error: Exception) -> str:
    if isinstance(error, UnicodeDecodeError):
        return "a row holds text that is not UTF-8"
    return f"a page of the file cannot be read: {error}"


# -- a session's events ------------------------------------------------------------------------


def salvage(
    db: Connection,
    queries: Sequence[str],
    no: int,
    bounds: tuple[int, int],
    blob: Callable[[bytes], bytes],
    payload_of: Callable[[int], bytes],
) -> tuple[list[AnyEvent], list[Lost]]:
    """A session's own events with `bounds[0] <= seq < bounds[1]`, and the seqs that are lost.

    Args:
        db: where.
        queries: of the rows of `events`, and of each table of chunks, by ids.
        no: the session's number.
        bounds: see above.
        blob: gives the stored bytes of a hash.
        payload_of: gives the payload of the session's event with a seq.
    """
    found: dict[int, AnyEvent] = {}
    lost: list[Lost] = []
    _collect(db, queries, no, bounds, (blob, payload_of), found, lost)
    expected = bounds[0]
    for seq in [*sorted(found), bounds[1]]:
        at = expected
        while (at := _hidden(db, queries, no, at, seq)) < seq:
            _collect(db, queries, no, (at, seq), (blob, payload_of), found, lost)
            at = max([one for one in found if at <= one < seq], default=at) + 1
        expected = max(expected, seq + 1)
    return [found[seq] for seq in sorted(found)], list(dict.fromkeys(lost))


def _hidden(db: Connection, queries: Sequence[str], no: int, start: int, stop: int) -> int:
    """The first seq at which there is a row all the same, found by its id; else `stop`.

    A page in a wrong place ends a scan early: what stands behind it is only found when asked for.
    """
    base = no << SEQ_BITS
    for one in range(base + start, base + min(stop, start + _STEPS)):
        for query in queries:
            try:
                if db.execute(query, (one, one)).fetchall():
                    return one - base
            except UNREADABLE:
                continue
    return stop


def _collect(
    db: Connection,
    queries: Sequence[str],
    no: int,
    bounds: tuple[int, int],
    lean: tuple[Callable[[bytes], bytes], Callable[[int], bytes]],
    found: dict[int, AnyEvent],
    lost: list[Lost],
) -> None:
    """Add to `found` what can be read between the bounds, and to `lost` what cannot."""
    base, (start, stop) = no << SEQ_BITS, bounds
    unread: list[Lost] = []
    for row in scan(db, queries[0], base + start, base + stop - 1, unread):
        seq = row[0] & SEQ_MASK
        try:
            found[seq] = from_row((seq, *row[1:]), lean[0])
        except BadRow as error:
            lost.append(Lost(seq, seq, str(error)))
        except UNREADABLE as error:
            lost.append(Lost(seq, seq, _reason(error)))
    for row in chain.from_iterable(
        scan(db, query, base, base + stop - 1, unread) for query in queries[1:]
    ):
        first, last = row[0] & SEQ_MASK, row[1] if type(row[1]) is int else row[0] & SEQ_MASK
        if last < start:
            continue
        try:
            for event in from_chunks((first, *row[1:]), lean[1]):
                if start <= event.seq < stop:
                    found.setdefault(event.seq, event)
        except BadRow as error:
            lost.append(Lost(first, last, str(error)))
        except UNREADABLE as error:
            lost.append(Lost(first, last, _reason(error)))
    lost += [Lost(one.first & SEQ_MASK, one.last & SEQ_MASK, one.reason) for one in unread]
