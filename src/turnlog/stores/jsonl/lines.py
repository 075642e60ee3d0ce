"""The bytes of a segment as pieces: each a stretch of lines that were read, or one that was not.

Lines are split on LF only and are bounded; what cannot be read is kept apart, with its place.
"""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING, NamedTuple

from turnlog import jsontext
from turnlog.codec import decode_line, decode_lines, encode_lines
from turnlog.errors import AdmissionError, InvalidHeader, StoreError
from turnlog.events import AnyEvent, SessionHeader
from turnlog.log import make_event
from turnlog.stores.files import read_at
from turnlog.stores.jsonl.frames import Frames
from turnlog.stores.jsonl.pieces import Piece, is_text, mend, piece_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

LINE_MAX = 80 << 20
"""Longest line, in bytes, that is read; a payload has at most 64 MiB."""
_BLOCK = 256 << 10  # stays in the processor's cache while it is read
_seq_of = attrgetter("seq")
_HEADER = b'{"format":'
_SHORTEST = len(b'{"type":"x","seq":0,"time":0,"data":0}')  # a record that says nothing
_NUL, _NO_RECORD = "NUL bytes", "no record: no JSON object of that kind"


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
    if not lines.strip():
        return
    events = decode_lines(lines) if joined else None
    if events and _follow(events):
        yield piece_of(place, offset, 0, len(lines) + 1, frame, events)
        return
    clean = is_text(lines)  # the decoder does not look into payloads
    events = []
    begin = following = -1  # where the lines in `events` begin, the seq after them
    for at, length, line, junk in _stretches(lines):
        found, header, fault = ([], None, None) if junk else _read(line, clean=clean)
        if found and joined and found[0].seq == following:
            events += found
            following += len(found)
            continue
        if events:
            yield piece_of(place, offset, begin, at - begin, frame, events)
            events, following = [], -1
        if junk is not None:
            yield piece_of(place, offset, at, length, frame, None, junk.fault, junk.records)
        elif fault is not None:
            yield from mend(line, place, offset, at, frame, fault)
        elif header is not None:
            yield piece_of(place, offset, at, length, frame, [])._replace(header=header)
        elif found:
            events, begin, following = found, at, found[-1].seq + 1
    if events:
        yield piece_of(place, offset, begin, len(lines) + 1 - begin, frame, events)


def _read(
    line: bytes, *, clean: bool
) -> tuple[list[AnyEvent], SessionHeader | None, Exception | None]:
    """The events of a line, or the header that it is, or why it is neither."""
    try:
        if line.startswith(_HEADER):
            return [], read_header(line), None
        if not clean:
            line.decode()
        return decode_line(line), None, None
    except (AdmissionError, InvalidHeader, ValueError) as error:
        return [], None, error


class _Junk(NamedTuple):
    """Lines next to each other that cannot be records: what is wrong, and how many they are."""

    fault: str
    records: int


def _stretches(lines: bytes) -> Iterator[tuple[int, int, bytes, _Junk | None]]:
    """Where it begins, its length, and each line that may be a record, or what is none.

    A file of line breaks, or of lines of one letter, must not cost an exception a line.
    """
    at = begin = end = count = 0
    fault = ""
    while at < len(lines):
        cut = lines.find(b"\n", at + _BLOCK)
        part = lines[at : None if cut < 0 else cut]
        if not part.strip():  # empty lines hold no record
            at += len(part) + 1
            continue
        for line in part.split(b"\n"):
            length = len(line) + 1
            if len(line) >= _SHORTEST and b"{" in line:
                if count:
                    yield begin, end - begin, b"", _Junk(fault, count)
                    count = 0
                yield at, length, line, None
            elif line and not line.isspace():
                if not count:
                    begin, fault = at, _NO_RECORD if line.strip(b"\0") else _NUL
                count += 1
                end = at + length
            at += length
    if count:
        yield begin, end - begin, b"", _Junk(fault, count)


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
