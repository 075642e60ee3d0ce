"""The bytes of a session file as lines, bounded in memory, damaged stretches stepped over.

A file is plain lines, or many zstd frames one after the other, each of which ends on a newline when
DeepSeek Harness wrote it. Nothing is held but one line and one chunk; a frame is unpacked twice,
first to see that it is whole (its checksum comes last), then to hand out its lines.
"""

from __future__ import annotations

from typing import IO, TYPE_CHECKING, BinaryIO, NamedTuple, cast

import zstandard

from turnlog.interop.dsh.scan import MAGIC, Frame, Scanner

if TYPE_CHECKING:
    from collections.abc import Iterator

_CHUNK = 256 * 1024


class Limits(NamedTuple):
    """How much a hostile file may make us hold or unpack, in bytes."""

    line: int = 64 * 1024 * 1024
    """Longest line that is read into memory; a longer one is damage."""
    frame: int = 256 * 1024 * 1024
    """What any frame may unpack to."""
    ratio: int = 1000
    """A frame may unpack to more than `frame` if that is at most `ratio` times its own size."""
    window: int = 128 * 1024 * 1024
    """Largest zstd window, which is the decoder's memory."""


LIMITS = Limits()


class Span(NamedTuple):
    """A byte range of the file; of a packed file, the frames that hold the line."""

    offset: int
    length: int
    within: tuple[int, int] | None = None
    """Offset and length in what those frames unpack to."""


class Line(NamedTuple):
    """One line without its newline."""

    data: bytes
    span: Span


class Lost(NamedTuple):
    """Bytes that are not readable as records."""

    span: Span
    reason: str
    records: int = 1
    """How many records were there at least."""


class Torn(NamedTuple):
    """The bytes after the last complete record or frame, which is what a crash leaves."""

    span: Span


def read_lines(file: BinaryIO, size: int, limits: Limits = LIMITS) -> Iterator[Line | Lost | Torn]:
    """The lines of the first `size` bytes of `file`; at most one `Torn`, and that last."""
    file.seek(0)
    if file.read(len(MAGIC)) == MAGIC:
        return _packed_lines(file, size, limits)
    return _plain_lines(file, size, limits)


class _Splitter:
    """Chunks to lines, split on LF only; remembers where the unfinished line began."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.position = 0
        """Bytes seen so far."""
        self.start = 0
        """Position where the unfinished line began."""
        self._parts: list[bytes] = []
        self._too_long = False

    def feed(self, chunk: bytes) -> Iterator[tuple[int, int, bytes | None]]:
        """Start, length and text of each line the chunk ends; None for one beyond the limit."""
        at = 0
        while (newline := chunk.find(b"\n", at)) >= 0:
            self._keep(chunk[at:newline])
            self.position += 1
            at = newline + 1
            yield self.flush()
        self._keep(chunk[at:])

    def _keep(self, part: bytes) -> None:
        self.position += len(part)
        self._too_long = self.position - self.start > self.limit
        if self._too_long:
            self._parts.clear()
        else:
            self._parts.append(part)

    def flush(self) -> tuple[int, int, bytes | None]:
        """Start, length and text of what has been kept since the last newline."""
        start, length = self.start, self.position - self.start
        text = None if self._too_long else b"".join(self._parts)
        self._parts.clear()
        self.start = self.position
        return start, length, text


def _as_line(text: bytes | None, span: Span, limits: Limits) -> Line | Lost:
    if text is None:
        return Lost(span, f"a line longer than {limits.line} bytes")
    return Line(text, span)


def _plain_lines(file: BinaryIO, size: int, limits: Limits) -> Iterator[Line | Lost | Torn]:
    splitter = _Splitter(limits.line)
    file.seek(0)
    while splitter.position < size:
        chunk = file.read(min(_CHUNK, size - splitter.position))
        if not chunk:
            break
        for start, length, text in splitter.feed(chunk):
            yield _as_line(text, Span(start, length), limits)
    if splitter.start < size:
        yield Torn(Span(splitter.start, size - splitter.start))


def _packed_lines(file: BinaryIO, size: int, limits: Limits) -> Iterator[Line | Lost | Torn]:
    splitter = _Splitter(limits.line)
    began = 0, 0
    """File offset of the frame where the unfinished line began, and what came before it."""
    for frame in Scanner(file, size).frames(lambda frame: _fault_of(file, frame, limits)):
        end = size if frame.end is None else frame.end
        if frame.fault is not None:
            if splitter.start < splitter.position:
                start, length, text = splitter.flush()
                span = Span(began[0], frame.offset - began[0], (start - began[1], length))
                yield _as_line(text, span, limits)
            yield Lost(Span(frame.offset, end - frame.offset), frame.fault)
            continue
        frame_start = splitter.position
        if splitter.start == frame_start:
            began = frame.offset, frame_start
        for chunk in _unpack(file, frame, size, limits):
            for start, length, text in splitter.feed(chunk):
                span = Span(began[0], end - began[0], (start - began[1], length))
                yield _as_line(text, span, limits)
                began = frame.offset, frame_start
        if frame.end is None:
            yield Torn(Span(began[0], size - began[0]))
            return
    if splitter.start < splitter.position:
        yield Torn(Span(began[0], size - began[0]))


class _Slice:
    """A byte range of a file, as a source that the decoder cannot read past."""

    def __init__(self, file: BinaryIO, offset: int, end: int) -> None:
        self._file = file
        self._at = offset
        self._end = end

    def read(self, count: int = -1) -> bytes:
        left = self._end - self._at
        self._file.seek(self._at)
        data = self._file.read(left if count < 0 else min(count, left))
        self._at += len(data)
        return data


def _unpack(file: BinaryIO, frame: Frame, size: int, limits: Limits) -> Iterator[bytes]:
    """What the frame unpacks to, in chunks; of one that is cut off, what can be had.

    Raises:
        zstandard.ZstdError: a frame that is not whole, or unpacks to more than it may.
    """
    decoder = zstandard.ZstdDecompressor(max_window_size=limits.window)
    end = size if frame.end is None else frame.end
    left = max(limits.frame, limits.ratio * (end - frame.offset))
    source = cast("IO[bytes]", _Slice(file, frame.offset, end))
    with decoder.stream_reader(source, read_size=_CHUNK, closefd=False) as reader:
        while True:
            try:
                chunk = reader.read(_CHUNK)
            except zstandard.ZstdError:
                if frame.end is None:
                    return
                raise
            left -= len(chunk)
            if left < 0 and frame.end is not None:
                raise zstandard.ZstdError("it unpacks to more than it may")
            if left < 0 or not chunk:
                return
            yield chunk


def _fault_of(file: BinaryIO, frame: Frame, limits: Limits) -> str | None:
    """What is wrong with a frame whose structure is whole, found by unpacking it once."""
    try:
        for _ in _unpack(file, frame, frame.offset, limits):
            pass
    except zstandard.ZstdError as error:
        return f"a frame that does not unpack ({error})"
    return None
