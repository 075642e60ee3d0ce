"""Rows that were fetched, as events: what needs no server, and may be done in a thread."""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter
from typing import Any, NamedTuple

from anyio import to_thread

from turnlog.events import AnyEvent
from turnlog.stores.sql.chunks import from_chunks
from turnlog.stores.sql.holes import Lost
from turnlog.stores.sql.packing import BadRow
from turnlog.stores.sql.rows import from_row, from_rows

Row = Sequence[Any]

_MANY_ROWS = 400  # so many, or so many bytes, are worth a thread
_MANY_BYTES = 1 << 18
_seq = attrgetter("seq")


class Fetched(NamedTuple):
    """The rows of one session that hold its own events with `start <= seq < stop`.

    Attributes:
        events: rows of events, in order of seq.
        chunks: rows of chunks, in order; the first and the last may hold more.
        blobs: what the rows need, by hash.
        leaned_on: the rows of the messages that chunks lean on, by seq.
    """

    start: int
    stop: int
    events: Sequence[Row]
    chunks: Sequence[Row] = ()
    blobs: dict[bytes, bytes] = {}  # noqa: RUF012 - nobody changes it
    leaned_on: dict[int, Row] = {}  # noqa: RUF012

    @property
    def is_much(self) -> bool:
        """Whether to leave it to a thread."""
        rows = len(self.events) + len(self.chunks)
        return rows > _MANY_ROWS or sum(len(row[3]) for row in self.events) > _MANY_BYTES


async def decoded(fetched: Fetched, lost: list[Lost]) -> list[AnyEvent]:
    """The events, as far as they can be read; what cannot is added to `lost`."""
    if fetched.is_much:
        return await to_thread.run_sync(_decoded, fetched, lost)
    return _decoded(fetched, lost)


def _decoded(fetched: Fetched, lost: list[Lost]) -> list[AnyEvent]:
    lean = _Lean(fetched)
    try:
        events = from_rows(map(tuple, fetched.events), lean.blob)
        for row in fetched.chunks:
            events += from_chunks(_run(row), lean.payload_of)
    except BadRow:
        events = _salvaged(fetched, lean, lost)
    if fetched.chunks:
        events = [event for event in events if fetched.start <= event.seq < fetched.stop]
        events.sort(key=_seq)
    return events


class _Lean:
    """What rows lean on."""

    def __init__(self, fetched: Fetched) -> None:
        self._fetched = fetched
        self.blob = fetched.blobs.__getitem__
        self._payloads: dict[int, bytes] = {}

    def payload_of(self, seq: int) -> bytes:
        """The payload of a message.

        Raises:
            BadRow: it is not there, or not what was written.
        """
        if seq not in self._payloads:
            row = self._fetched.leaned_on.get(seq)
            if row is None:
                raise BadRow(f"event {seq}, on which chunks lean, is missing", seq)
            payload = from_row(tuple(row), self.blob).raw
            self._payloads = {seq: payload}  # the runs that lean on one follow on each other
        return self._payloads[seq]


def _salvaged(fetched: Fetched, lean: _Lean, lost: list[Lost]) -> list[AnyEvent]:
    """What can be read, row by row."""
    found: dict[int, AnyEvent] = {}
    for row in fetched.events:
        try:
            found[row[0]] = from_row(tuple(row), lean.blob)
        except BadRow as error:
            lost.append(Lost(row[0], row[0], str(error)))
    for row in fetched.chunks:
        try:
            for event in from_chunks(_run(row), lean.payload_of):
                found.setdefault(event.seq, event)
        except BadRow as error:
            lost.append(Lost(row[0], row[1], str(error)))
    return [found[seq] for seq in sorted(found)]


def _run(row: Row) -> tuple[int, int, int | None, bytes, int]:
    first, last, message, data, total = row
    return first, last, message, data, total
