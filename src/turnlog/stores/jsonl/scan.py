"""A session's log, read: every readable event in order, and damage for the rest."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from turnlog.errors import InvalidHeader, UnsupportedVersion
from turnlog.events import AnyEvent, SessionHeader
from turnlog.log import Damage
from turnlog.stores.files import opened
from turnlog.stores.jsonl.lines import Reading, read_header
from turnlog.stores.jsonl.names import Segment, folder_name, id_of
from turnlog.stores.jsonl.order import Order, longest_rise, rises
from turnlog.stores.jsonl.pieces import Piece
from turnlog.stores.jsonl.segments import Link, chain_of, read_head

if TYPE_CHECKING:
    from pathlib import Path


class Mark(msgspec.Struct, frozen=True):
    """How far a session was read: what follows can be read from there.

    Attributes:
        segment: the last one that counts.
        end: where its last complete record ended.
        size: how long it was.
        next_seq: the seq of the next event.
        header: the last header before it.
    """

    segment: Segment
    end: int
    size: int
    next_seq: int
    header: SessionHeader


class Scan(msgspec.Struct):
    """What was read.

    Attributes:
        events: in order; where seqs are missing `damage` says so.
        damage: in log order.
        torn: (place, offset, length) of what follows the last complete record.
        mark: where it ended.
    """

    events: list[AnyEvent]
    damage: list[Damage]
    torn: tuple[str, int, int] | None
    mark: Mark


def scan(folder: Path, session_id: str | None) -> Scan:
    """Read a session from its beginning.

    Args:
        folder: the session's.
        session_id: whose it must be; None for whoever's folder it is.

    Raises:
        NoSuchSession: there is none.
        InvalidHeader, UnsupportedVersion: its header cannot be read, or is another session's.
    """
    if session_id is None:
        session_id = id_of(folder.name)
    links = chain_of(folder, session_id)
    first, head = links[0].segment, read_head(links[0].segment)
    if first.token != 1 or head is None:
        msg = f"session {session_id!r}: {folder.name}/1.jsonl, which holds its header, is lost"
        raise InvalidHeader(msg)
    try:
        header = read_header(head.line)
    except (InvalidHeader, UnsupportedVersion) as error:
        msg = f"session {session_id!r}: its header in {first.place} cannot be read: {error}"
        raise type(error)(msg) from None
    for joined in (True, False):  # faults are looked into line by line
        pieces: list[Piece] = []
        ends = [_read_link(link, pieces, joined=joined) for link in links]
        if rises(pieces):
            break
    else:
        pieces = longest_rise(pieces)
    found = _resolved(pieces, header, ends[-1], 0)
    for owner in (header.id, found.mark.header.id):
        if folder_name(owner) != folder.name:
            msg = f"the folder of session {session_id!r} holds session {owner!r}"
            raise InvalidHeader(msg)
    return found


def scan_on(mark: Mark) -> Scan | None:
    """Read on from a mark; None if that needs a look at what lies before."""
    pieces: list[Piece] = []
    try:
        end = _read_link(Link(mark.segment, mark.end, None), pieces, joined=True)
    except FileNotFoundError:
        return None
    if end.size < mark.size or not rises(pieces, mark.next_seq):
        return None
    if any(piece.events is None for piece in pieces):
        return None
    return _resolved(pieces, mark.header, end, mark.next_seq)


class _End(NamedTuple):
    """Where a segment's last complete record ended, and how long it was."""

    link: Link
    end: int
    size: int


def _read_link(link: Link, pieces: list[Piece], *, joined: bool) -> _End:
    """Read what counts of a segment."""
    segment = link.segment
    if link.fault:
        pieces.append(Piece(segment.place, 0, link.start, None, link.fault))
    with opened(segment.path) as fd:
        size = os.fstat(fd).st_size
        known = link.stop is not None and link.stop >= 0
        stop = link.stop if link.stop is not None and known else size
        reading = Reading(
            fd, segment.place, link.start, min(stop, size), packed=segment.packed, joined=joined
        )
        pieces.extend(reading)
    if stop > size:
        fault = f"the file ends at {size}, {stop} bytes of it count"
        pieces.append(Piece(segment.place, size, 0, None, fault))
    return _End(link, reading.end, size)


def _resolved(pieces: list[Piece], header: SessionHeader, end: _End, start: int) -> Scan:
    """Events and damage of pieces, from seq `start` on; `end` is the last segment's."""
    order = Order(start)
    for piece in pieces:
        if piece.header is not None:
            header = piece.header
        elif piece.events is None:
            order.lose(piece)
        elif piece.events[0].seq == order.expected and not order.lost:
            order.events += piece.events
            order.expected = piece.events[-1].seq + 1
        else:
            order.add(piece, piece.events)
    order.close()
    segment, torn = end.link.segment, None
    if end.link.stop is None and end.end < end.size:
        torn = (segment.place, end.end, end.size - end.end)
    mark = Mark(segment, end.end, end.size, order.expected, header)
    return Scan(order.events, order.damage, torn, mark)
