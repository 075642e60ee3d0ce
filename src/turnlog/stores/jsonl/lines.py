"""The bytes of a segment as pieces: each a stretch of lines that were read, or one that was not.

Lines are split on LF only and are bounded; what cannot be read is kept apart, with its place.
"""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING

from turnlog import jsontext
from turnlog.codec import decode_line, decode_lines, encode_lines
from turnlog.errors import AdmissionError, InvalidHeader, StoreError
from turnlog.events import AnyEvent, SessionHeader
from turnlog.log import make_event
from turnlog.stores.jsonl.files import read_at
from turnlog.stores.jsonl.frames import Frames
from turnlog.stores.jsonl.pieces import Piece, is_text, mend, piece_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

LINE_MAX = 80 << 20
"""Longest line, in bytes, that is read; a payload has at most 64 MiB."""
_BLOCK = 256 << 10  # stays in the processor's cache while it is read
_seq_of = attrgetter("seq")
_HEADER = b'{"format":'


# -- reading -----------------------------------------------------------------------------------


class Reading:
    """Reads a segment's pieces from `start`; afterwards `end` is where its last record ended.

    Args:
        fd: the open segment.
        place: its name, for a person.
        start: where its first record begins.
        stop: where what counts of it ends.
        packed: whether it consists of zstd frames.
        joined: whether lines whose seqs follow on each other make one piece.
    """

    def __init__(
        self, fd: int, place: str, start: int, stop: int, *, packed: bool, joined: bool
    ) -> None:
        self.end = start
        self._fd = fd
        self._place = place
        self._stop = stop
        self._packed = packed
        self._joined = joined

    def __iter__(self) -> Iterator[Piece]:
        return self._frames() if self._packed else self._lines()

    def _frames(self) -> Iterator[Piece]:
        frames = Frames(self._fd, self.end, self._stop)
        for frame in frames:
            length = frame.end - frame.offset
            if frame.fault is None:
                lines = frame.lines.removesuffix(b"\n")
                yield from _pieces(lines, self._place, frame.offset, length, joined=self._joined)
            else:
                yield Piece(self._place, frame.offset, length, None, frame.fault, frame.records)
            self.end = frame.end

    def _lines(self) -> Iterator[Piece]:
        at, kept = self.end, b""
        while at < self._stop and (block := read_at(self._fd, at, min(_BLOCK, self._stop - at))):
            at += len(block)
            cut = block.rfind(b"\n")
            if cut < 0:
                kept += block
                if len(kept) > LINE_MAX:
                    at, piece = self._skip(at)
                    kept = b""
                    if piece is None:
                        return
                    yield piece
                continue
            lines = kept + block[:cut]
            yield from _pieces(lines, self._place, self.end, None, joined=self._joined)
            kept = block[cut + 1 :]
            self.end = at - len(kept)

    def _skip(self, at: int) -> tuple[int, Piece | None]:
        """Step over a line that is too long; no piece if it never ends."""
        while at < self._stop and (block := read_at(self._fd, at, min(_BLOCK, self._stop - at))):
            cut = block.find(b"\n")
            if cut >= 0:
                at += cut + 1
                fault = f"a line of {at - self.end} bytes, at most {LINE_MAX} are read"
                piece = Piece(self._place, self.end, at - self.end, None, fault, 1)
                self.end = at
                return at, piece
            at += len(block)
        return at, None


def _pieces(
    lines: bytes, place: str, offset: int, frame: int | None, *, joined: bool
) -> Iterator[Piece]:
    """The pieces of whole lines, the last LF left out, that begin at `offset`.

    Args:
        lines: the lines.
        place: their segment.
        offset: of the first line; of the frame that they were packed in, if `frame` is given.
        frame: the length of that frame.
        joined: whether lines whose seqs follow on each other make one piece.
    """
    events = decode_lines(lines) if joined else None
    if events and _follow(events):
        yield piece_of(place, offset, 0, len(lines) + 1, frame, events)
        return
    clean = is_text(lines)  # the decoder does not look into payloads
    events = []
    begin = at = 0  # of the lines in `events`, of this line
    following = -1
    for line in lines.split(b"\n"):
        try:
            if line.startswith(_HEADER):
                found, header = [], read_header(line)
            else:
                if not clean:
                    line.decode()
                found, header = decode_line(line), None
        except (AdmissionError, InvalidHeader, ValueError) as error:
            fault, header = error, None
            found = None
        else:
            fault = None
            if found and joined and found[0].seq == following:
                events += found
                following += len(found)
                at += len(line) + 1
                continue
        if events:
            yield piece_of(place, offset, begin, at - begin, frame, events)
            events, following = [], -1
        length = len(line) + 1
        if fault is not None:
            yield from mend(line, place, offset, at, frame, fault)
        elif header is not None:
            yield piece_of(place, offset, at, length, frame, [])._replace(header=header)
        elif found:
            events, begin, following = found, at, found[-1].seq + 1
        at += length
    if events:
        yield piece_of(place, offset, begin, at - begin, frame, events)


def _follow(events: list[AnyEvent]) -> bool:
    """Whether each event's seq is one more than the one before."""
    first = events[0].seq
    return list(map(_seq_of, events)) == list(range(first, first + len(events)))


def read_header(line: bytes) -> SessionHeader:
    """The session's header in a line.

    Raises:
        InvalidHeader, UnsupportedVersion: as they say.
    """
    try:
        return SessionHeader.from_dict(jsontext.decode(line))
    except ValueError:
        msg = "session header: expected a JSON object"
        raise InvalidHeader(msg) from None


# -- writing -----------------------------------------------------------------------------------


def lines_of(events: Sequence[AnyEvent]) -> bytes:
    """Events as lines, LF after each.

    Raises:
        StoreError: a line is longer than what is read back.
    """
    if any(b"\n" in event.raw for event in events):
        events = list(map(_on_one_line, events))
    lines = encode_lines(events)
    if len(lines) > LINE_MAX:
        _check_lengths(lines.split(b"\n"))
    return lines


def _on_one_line(event: AnyEvent) -> AnyEvent:
    """The event, its payload's JSON without line feeds: they can only stand between tokens."""
    if b"\n" not in event.raw:
        return event
    return make_event(
        event.type,
        event.seq,
        event.time,
        event.raw.replace(b"\n", b" "),
        event.surface_op,
        event.source_event_seqs,
        ignorable=event.ignorable,
        extra=event.extra,
    )


def _check_lengths(lines: Iterable[bytes]) -> None:
    longest = max(map(len, lines))
    if longest > LINE_MAX:
        msg = f"a record of {longest} bytes: at most {LINE_MAX} are read back"
        raise StoreError(msg)
