"""What a log lacks when rows of it could not be read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from turnlog.events import AnyEvent
from turnlog.log import Damage


class Lost(NamedTuple):
    """Seqs, or other numbers of rows, that could not be read, `first` to `last`, and why."""

    first: int
    last: int
    reason: str


def holes(
    events: Sequence[AnyEvent], stop: int, lost: Sequence[Lost], *, place: str
) -> list[Damage]:
    """What a log that was read from seq 0 lacks, as far as something was lost there.

    A gap without a loss is one that was imported, but behind the last event there is none.

    Args:
        events: what could be read.
        stop: the seq that the next event will have.
        lost: the seqs that could not be read.
        place: of the damage.
    """
    damage: list[Damage] = []
    by_first = sorted(lost)
    expected = 0
    for seq in [*(event.seq for event in events), stop]:
        if seq > expected:
            damage += _hole(expected, seq - 1, by_first, place, tail=seq == stop)
        expected = max(expected, seq + 1)
    return damage


def _hole(first: int, last: int, lost: Sequence[Lost], place: str, *, tail: bool) -> list[Damage]:
    found: list[Damage] = []
    for one in lost:
        if one.first <= last and one.last >= first and one.last >= one.first:
            begin, end = max(one.first, first), min(one.last, last)
            if found and begin <= (found[-1].last_seq or 0) + 1 and found[-1].reason == one.reason:
                end = max(end, found[-1].last_seq or 0)
                begin = found.pop().first_seq or 0
            elif found and begin <= (found[-1].last_seq or 0):
                begin = (found[-1].last_seq or 0) + 1
                if begin > end:
                    continue
            found.append(Damage(one.reason, begin, end, place=place))
    if tail and (not found or found[-1].last_seq != last):
        begin = (found[-1].last_seq or 0) + 1 if found else first
        found.append(Damage("records are missing", begin, last, place=place))
    return found
