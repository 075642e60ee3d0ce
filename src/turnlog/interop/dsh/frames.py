"""The bytes of a session file as lines, bounded in memory, damaged stretches stepped over.

A file is plain lines, or many zstd frames one after the other, each of which ends on a newline when
DeepSeek Harness wrote it. Nothing is held but one line and one chunk; a frame is unpacked twice,
first to see that it is whole (its checksum comes last), then to hand out its lines.
"""

from __future__ import annotations

from typing import IO, TYPE_CHECKING, BinaryIO, NamedTuple, cast

import zstandard

if TYPE_CHECKING:
    from collections.abc import Iterator

MAGIC = b"\x28\xb5\x2f\xfd"
_CHUNK = 256 * 1024
_BLOCK_MAX = 128 * 1024
_HEADER_MAX = 18
_RLE, _COMPRESSED = 1, 2


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


class _Frame(NamedTuple):
    offset: int
    end: int | None
    """None: cut off by the end of the file."""
    fault: str | None = None


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
    for frame in _Scanner(file, size).frames():
        end = size if frame.end is None else frame.end
        fault = frame.fault or (_fault_of(file, frame, limits) if frame.end is not None else None)
        if fault is not None:
            if splitter.start < splitter.position:
                start, length, text = splitter.flush()
                span = Span(began[0], frame.offset - began[0], (start - began[1], length))
                yield _as_line(text, span, limits)
            yield Lost(Span(frame.offset, end - frame.offset), fault)
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


class _Scanner:
    """Finds frames by their structure alone: headers are read, contents skipped."""

    def __init__(self, file: BinaryIO, size: int) -> None:
        self._file = file
        self._size = size
        self._effort = size + 2**16
        """What we are willing to do, in blocks looked at; a healthy file takes a third of it."""

    def frames(self) -> Iterator[_Frame]:
        """Every frame of the file in order, and what lies between."""
        offset = 0
        while offset < self._size:
            frame = self._scan(offset)
            if frame.end is None or frame.fault is not None:
                following = self._next_frame(offset + 1)
                if following is not None:
                    fault = frame.fault or "a frame that does not end where the next one begins"
                    frame = _Frame(offset, following, fault)
                elif frame.fault is not None and self._is_padding(offset):
                    frame = _Frame(offset, None)
            yield frame
            offset = self._size if frame.end is None else frame.end

    def _scan(self, offset: int) -> _Frame:
        """The frame at `offset`: its end, or why it is none."""
        cut = _Frame(offset, None)
        head = self._read(offset, _HEADER_MAX)
        if not head.startswith(MAGIC) and not MAGIC.startswith(head):
            return _Frame(offset, None, "bytes that are no frame")
        if len(head) <= len(MAGIC):
            return cut
        descriptor = head[len(MAGIC)]
        if descriptor & 0x08:
            return _Frame(offset, None, "a frame header with a reserved bit")
        single = descriptor >> 5 & 1
        content_size = (single, 2, 4, 8)[descriptor >> 6]
        at = offset + 5 + (1 - single) + (0, 1, 2, 4)[descriptor & 3] + content_size
        last = 0
        while not last:
            self._effort -= 1
            head = self._read(at, 3)
            if len(head) < 3:  # noqa: PLR2004 - the size of a block header
                return cut
            block = int.from_bytes(head, "little")
            last, kind, length = block & 1, block >> 1 & 3, block >> 3
            if not block and self._is_padding(at):
                return cut
            if not block or kind > _COMPRESSED or length > _BLOCK_MAX or self._effort < 0:
                return _Frame(offset, None, "a frame with an impossible block")
            at += 3 + (1 if kind == _RLE else length)
        at += 4 if descriptor & 0x04 else 0
        return cut if at > self._size else _Frame(offset, at)

    def _next_frame(self, offset: int) -> int | None:
        """Where the next thing that may be a frame begins."""
        while (found := self._find_magic(offset)) is not None and self._scan(found).fault:
            offset = found + 1
            self._effort -= 64
            if self._effort < 0:
                return None
        return found

    def _find_magic(self, offset: int) -> int | None:
        kept = b""
        while chunk := self._read(offset, _CHUNK):
            window = kept + chunk
            at = window.find(MAGIC)
            if at >= 0:
                return offset - len(kept) + at
            kept = window[1 - len(MAGIC) :]
            offset += len(chunk)
        return None

    def _is_padding(self, offset: int) -> bool:
        """Whether nothing but NUL bytes follows, as after a crash that extended the file."""
        while chunk := self._read(offset, _CHUNK):
            if chunk.strip(b"\0"):
                return False
            offset += len(chunk)
        return True

    def _read(self, offset: int, count: int) -> bytes:
        self._file.seek(offset)
        return self._file.read(max(0, min(count, self._size - offset)))


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


def _unpack(file: BinaryIO, frame: _Frame, size: int, limits: Limits) -> Iterator[bytes]:
    """What the frame unpacks to, in chunks; of one that is cut off, what can be had.

    Raises:
        zstandard.ZstdError: a frame that is not whole.
    """
    decoder = zstandard.ZstdDecompressor(max_window_size=limits.window)
    end = size if frame.end is None else frame.end
    source = cast("IO[bytes]", _Slice(file, frame.offset, end))
    with decoder.stream_reader(source, read_size=_CHUNK, closefd=False) as reader:
        while True:
            try:
                chunk = reader.read(_CHUNK)
            except zstandard.ZstdError:
                if frame.end is None:
                    return
                raise
            if not chunk:
                return
            yield chunk


def _fault_of(file: BinaryIO, frame: _Frame, limits: Limits) -> str | None:
    """What is wrong with a frame whose structure is whole, found by unpacking it once."""
    end = frame.end or frame.offset
    allowed = max(limits.frame, limits.ratio * (end - frame.offset))
    unpacked = 0
    try:
        for chunk in _unpack(file, frame, end, limits):
            unpacked += len(chunk)
            if unpacked > allowed:
                return f"a frame that unpacks to more than {allowed} bytes"
    except zstandard.ZstdError as error:
        return f"a frame that does not unpack ({error})"
    return None
