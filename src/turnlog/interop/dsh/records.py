"""Lines to events in the order of the log, and what is missing between them.

A line that cannot be read, or a seq that is skipped, becomes `Damage`; every event that is there is
still yielded, those after the damage too.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from turnlog.interop.dsh.frames import Line, Lost, Span, Torn
from turnlog.interop.dsh.rows import NotARecord, PackedRow, SourceEvent, parse_row

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_ATTEMPTS = 32
"""How often one broken line is searched for a record that begins inside it."""
_RECORD_START = b'{"type":'
_object = json.JSONDecoder()


@dataclass(frozen=True, slots=True)
class Damage:
    """A byte range of the source that holds no readable record, or a place where records lack."""

    offset: int
    length: int
    """Bytes; 0 where nothing but a gap in the seqs shows that records are missing."""
    reason: str
    first_seq: int | None = None
    last_seq: int | None = None
    """The seqs that were lost here, both included; None if none is missing. At the end of a file
    there is nothing to count them by: each unreadable record counts as one."""
    within: tuple[int, int] | None = None
    """In a packed file, where in the unpacked frames the damage lies, if not everywhere."""


@dataclass(slots=True)
class Report:
    """What reading a file found beside its events; complete once all events are read."""

    damage: list[Damage] = field(default_factory=list[Damage])
    torn: Span | None = None


class _Found(NamedTuple):
    record: SourceEvent | PackedRow
    span: Span


def read_records(
    items: Iterable[Line | Lost | Torn], report: Report
) -> Iterator[SourceEvent | PackedRow]:
    """The readable records in order of seq; damage and the torn tail go to `report`.

    A record whose seq jumps ahead is believed unless the next one continues from before the jump:
    then it is the jumping record that is damaged.
    """
    expected = 0
    lost: Lost | None = None
    things = _Lookahead(_merge(_parse(items, report)))
    for thing in things:
        if isinstance(thing, Lost):
            lost = _join(lost, thing)
            continue
        record, span = thing
        following = things.record_after() if record.seq > expected else None
        astray = following is not None and expected <= following.record.seq < record.seq
        if record.seq < expected or astray:
            records = 1 if astray else 0
            reason = f"seq {record.seq} where {expected} was expected"
            lost = _join(lost, Lost(span, reason, records))
            continue
        _settle(report, lost, span, expected, record.seq)
        lost = None
        expected = record.last_seq + 1
        yield record
    if lost is not None:
        _settle(report, lost, lost.span, expected, expected + lost.records)


def _settle(report: Report, lost: Lost | None, at: Span, expected: int, found: int) -> None:
    """Report what lies before the record of seq `found`, if it is damaged or lacks records."""
    missing = (expected, found - 1) if found > expected else (None, None)
    if lost is not None:
        span = lost.span
        report.damage.append(Damage(span.offset, span.length, lost.reason, *missing, span.within))
    elif found > expected:
        report.damage.append(Damage(at.offset, 0, "missing records", *missing))


def _parse(items: Iterable[Line | Lost | Torn], report: Report) -> Iterator[_Found | Lost]:
    for item in items:
        if isinstance(item, Torn):
            report.torn = item.span
        elif isinstance(item, Lost):
            yield item
        elif item.data.strip():
            try:
                yield _Found(parse_row(item.data), item.span)
            except NotARecord as error:
                yield from _recover(item, str(error))


def _recover(line: Line, reason: str) -> list[_Found | Lost]:
    """What a line that is no record still holds: NUL padding, records glued together.

    A record that begins after a broken stretch is taken only if the line is whole from there on:
    else it may be a part of something larger that is broken.
    """
    pieces: list[_Found | Lost] = []
    data, at, broken_at = line.data, 0, None
    for _ in range(_ATTEMPTS):
        padding = len(data) - at - len(data[at:].lstrip(b"\0"))
        if padding:
            pieces.append(Lost(_part(line, at, at + padding), "NUL bytes", 0))
            at += padding
        if not data[at:].strip():
            return pieces
        end = _end_of_object(data, at)
        try:
            if end is not None:
                pieces.append(_Found(parse_row(data[at:end]), _part(line, at, end)))
                at = end
                continue
        except NotARecord as error:
            reason = str(error)
        if broken_at is None:
            broken_at = len(pieces), at
        following = data.find(_RECORD_START, at + 1)
        if following < 0:
            break
        pieces.append(Lost(_part(line, at, following), reason))
        at = following
    if broken_at is not None:
        kept, at = broken_at
        del pieces[kept:]
    pieces.append(Lost(_part(line, at, len(data)), reason))
    return pieces


def _end_of_object(data: bytes, at: int) -> int | None:
    """Where the JSON object that begins at `at` ends."""
    text = data[at:].decode("utf-8", "surrogateescape")
    blank = len(text) - len(text.lstrip())
    try:
        _, end = _object.raw_decode(text, blank)
    except (ValueError, RecursionError):
        return None
    return at + len(text[:end].encode("utf-8", "surrogateescape"))


def _part(line: Line, start: int, end: int) -> Span:
    """The span of a part of a line."""
    span = line.span
    if span.within is None:
        return Span(span.offset + start, end - start)
    return Span(span.offset, span.length, (span.within[0] + start, end - start))


def _join(first: Lost | None, second: Lost) -> Lost:
    """Two damaged stretches with no record between them as one."""
    if first is None:
        return second
    a, b = first.span, second.span
    offset, end = min(a.offset, b.offset), max(a.offset + a.length, b.offset + b.length)
    within = None
    if a.within and b.within and a[:2] == b[:2]:
        within = a.within[0], b.within[0] + b.within[1] - a.within[0]
    reason = first.reason
    if second.reason not in reason and len(reason) < 200:
        reason = f"{reason}; {second.reason}"
    return Lost(Span(offset, end - offset, within), reason, first.records + second.records)


def _merge(things: Iterable[_Found | Lost]) -> Iterator[_Found | Lost]:
    """The same with neighbouring losts as one, so that a look ahead needs to hold one only."""
    lost: Lost | None = None
    for thing in things:
        if isinstance(thing, Lost):
            lost = _join(lost, thing)
            continue
        if lost is not None:
            yield lost
            lost = None
        yield thing
    if lost is not None:
        yield lost


class _Lookahead:
    """An iterator that can tell which record comes next."""

    def __init__(self, things: Iterator[_Found | Lost]) -> None:
        self._things = things
        self._ahead: list[_Found | Lost] = []

    def __iter__(self) -> _Lookahead:
        return self

    def __next__(self) -> _Found | Lost:
        return self._ahead.pop(0) if self._ahead else next(self._things)

    def record_after(self) -> _Found | None:
        """The next record, without taking it."""
        for thing in self._ahead:
            if isinstance(thing, _Found):
                return thing
        for thing in self._things:
            self._ahead.append(thing)
            if isinstance(thing, _Found):
                return thing
        return None
