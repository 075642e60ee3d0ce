"""What was read and what was lost, put into one order of seqs.

Of records whose seqs do not rise, those count that form the rising chain with the most events (of
two with the same seq the first), so that one garbled number costs one record and not all that
follow it. The next seq is the greatest readable one + 1 + the records that were lost after it.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from typing import TYPE_CHECKING

from turnlog.log import Damage
from turnlog.stores.jsonl.pieces import Piece
from turnlog.stores.loading import MISSING

if TYPE_CHECKING:
    from turnlog.events import AnyEvent


class Order:
    """Puts what was read and what was lost into one order of seqs."""

    def __init__(self, start: int) -> None:
        self.expected = start
        self.events: list[AnyEvent] = []
        self.damage: list[Damage] = []
        self.lost: list[Piece] = []  # since the last event

    def lose(self, piece: Piece) -> None:
        """Take note of what could not be read; stretches that touch become one."""
        last = self.lost[-1] if self.lost else None
        if (
            last is not None
            and last.place == piece.place
            and bool(last.records) == bool(piece.records)
        ):
            same = (last.offset, last.length) == (piece.offset, piece.length)
            if same or last.offset + last.length == piece.offset:
                length = last.length if same else last.length + piece.length
                records = last.records + piece.records
                self.lost[-1] = last._replace(length=length, records=records)
                return
        self.lost.append(piece)

    def add(self, piece: Piece, events: list[AnyEvent]) -> None:
        """Take events that follow on what was lost, or on seqs that are missing."""
        first = events[0].seq
        self._blame(first - self.expected, piece)
        self.events += events
        self.expected = events[-1].seq + 1

    def close(self) -> None:
        """The log ends here: each record that was lost at its end takes a seq."""
        self._blame(sum(piece.records for piece in self.lost), None)

    def _blame(self, count: int, following: Piece | None) -> None:
        """Turn what was lost into damage that holds `count` seqs."""
        held = [piece for piece in self.lost if piece.records]
        exact = sum(piece.records for piece in held) == count
        for piece in self.lost:
            share = 0
            if piece.records and count:
                share = piece.records if exact or piece is not held[-1] else count
                share = min(share, count)
            count -= share
            self._damage(piece, share)
        if count and following is not None:
            missing = Piece(following.place, following.offset, 0, None, MISSING)
            self._damage(missing, count)
        self.lost = []

    def _damage(self, piece: Piece, count: int) -> None:
        first = self.expected if count else None
        last = self.expected + count - 1 if count else None
        self.expected += count
        self.damage.append(
            Damage(piece.fault, first, last, piece.offset, piece.length, piece.place)
        )


def rises(pieces: list[Piece], start: int = 0) -> bool:
    """Whether each piece's seqs are greater than those before."""
    for piece in pieces:
        if piece.events:
            if piece.events[0].seq < start:
                return False
            start = piece.events[-1].seq + 1
    return True


def longest_rise(pieces: list[Piece]) -> list[Piece]:
    """The pieces, those taken out that do not belong to the chain with the most events."""
    lasts: list[int] = []  # where chains end: by last seq, and the longer the higher that is
    chains: list[tuple[int, int]] = []  # how many events they have, and their last piece
    before: dict[int, int] = {}
    for i, piece in enumerate(pieces):
        if not piece.events:
            continue
        shorter = bisect_left(lasts, piece.events[0].seq)
        count = len(piece.events)
        if shorter:
            count += chains[shorter - 1][0]
            before[i] = chains[shorter - 1][1]
        last = piece.events[-1].seq
        at = bisect_right(lasts, last)
        if at and chains[at - 1][0] >= count:
            continue
        end = at
        while end < len(chains) and chains[end][0] <= count:
            end += 1
        at -= bool(at and lasts[at - 1] == last)
        lasts[at:end], chains[at:end] = [last], [(count, i)]
    kept: set[int] = set()
    link = chains[-1][1] if chains else None
    while link is not None:
        kept.add(link)
        link = before.get(link)
    there = {event.seq: event for k in kept for event in pieces[k].events or ()}
    return [
        _taken_out(piece, there) if piece.events and k not in kept else piece
        for k, piece in enumerate(pieces)
    ]


def _taken_out(piece: Piece, there: dict[int, AnyEvent]) -> Piece:
    """A piece that is out of order, as damage; one that is there a second time holds no record."""
    events = piece.events or []
    again = all(event == there.get(event.seq) for event in events)
    seqs = str(events[0].seq) if len(events) == 1 else f"{events[0].seq}-{events[-1].seq}"
    fault = f"seq {seqs} a second time" if again else f"seq {seqs} where it cannot be"
    return piece._replace(events=None, fault=fault, records=0 if again else len(events))
