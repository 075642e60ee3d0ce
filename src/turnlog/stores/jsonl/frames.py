"""zstd frames: each holds whole lines, carries its size and a checksum, and is unpacked bounded.

Where a frame ends is found by its structure: the headers of its blocks are read, their contents
skipped. A damaged frame costs only itself: reading goes on at the next one that is whole.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import zstandard

from turnlog.stores.files import read_at

if TYPE_CHECKING:
    from collections.abc import Iterator

MAGIC = b"\x28\xb5\x2f\xfd"
PACK_SIZE = 8 << 20
"""Lines that go into one frame, in bytes; a longer line has a frame of its own."""
UNPACKED_MAX = 96 << 20
"""What a frame may unpack to: a line at its limit, and what `PACK_SIZE` may add."""
_WINDOW_MAX = 128 << 20
_LEVEL = 3
_BLOCK_MAX = 128 << 10
_RLE, _RESERVED = 1, 3
_CHECKSUM = 4  # bytes at the end of a frame
_SMALLEST = 6  # bytes: magic, descriptor, and one more
_CHUNK = 1 << 20
_SEARCHES_MAX = 10_000  # hostile files: how often a frame may be looked for


def pack(lines: bytes) -> bytes:
    """Whole lines as frames, as few as `PACK_SIZE` allows."""
    packer = zstandard.ZstdCompressor(level=_LEVEL, write_checksum=True)
    frames: list[bytes] = []
    at = 0
    while at < len(lines):
        end = len(lines)
        if end - at > PACK_SIZE:
            end = lines.rfind(b"\n", at, at + PACK_SIZE) + 1 or lines.index(b"\n", at) + 1
        frames.append(packer.compress(lines[at:end]))
        at = end
    return b"".join(frames)


class Frame(NamedTuple):
    """A stretch of a packed file: lines, or why there are none."""

    offset: int
    end: int
    lines: bytes = b""
    fault: str | None = None
    records: int = 0
    """Of a faulty one: how many records were in there, as far as can be told."""


class _Damaged(Exception):
    """These bytes are no whole frame."""


class Frames:
    """The frames of `fd` from `start` to `size`; `end` is where the last whole one ended."""

    def __init__(self, fd: int, start: int, size: int) -> None:
        self.end = start
        self._fd = fd
        self._size = size
        self._window = b""
        self._window_at = 0
        self._searches = 0
        self._unpacker = zstandard.ZstdDecompressor(max_window_size=_WINDOW_MAX)

    def __iter__(self) -> Iterator[Frame]:
        at = self.end
        while at < self._size:
            frame = self._frame(at)
            if frame is None:
                return  # the rest is torn
            yield frame
            at = self.end = frame.end

    def _frame(self, at: int) -> Frame | None:
        """What begins at `at`; None if that is the torn tail."""
        end: int | None = None
        fault = "a frame that is cut off"
        try:
            end = self._end_of(at)
            if end is not None:
                return Frame(at, end, self._unpack(at, end))
        except _Damaged as error:
            fault = str(error)
        following = self._next_whole(at + 1)
        if following is not None:
            return Frame(at, following, b"", fault, self._records(at, following))
        if end is None or self._is_nul(end - _CHECKSUM):
            return None  # cut off, or never written: the system only made the file longer
        return Frame(at, end, b"", fault, self._records(at, end))

    def _end_of(self, at: int) -> int | None:
        """Where the frame at `at` ends; None if that lies beyond the file."""
        head = self._bytes(at, _SMALLEST)
        if not MAGIC.startswith(head[:4]):
            raise _Damaged("bytes that are no frame")
        if len(head) < _SMALLEST:
            return None
        descriptor = head[4]
        if descriptor & 0x08:
            raise _Damaged("a frame with a reserved bit set")
        single = descriptor >> 5 & 1
        sizes = (single, 2, 4, 8)[descriptor >> 6]
        at += 5 + (1 - single) + (0, 1, 2, 4)[descriptor & 3] + sizes
        while True:
            block = int.from_bytes(self._bytes(at, 3), "little")
            if at + 3 > self._size:
                return None
            kind, length = block >> 1 & 3, block >> 3
            if kind == _RESERVED or length > _BLOCK_MAX or not block:
                raise _Damaged("a frame with an impossible block")
            at += 3 + (1 if kind == _RLE else length)
            if block & 1:
                at += 4 if descriptor & 0x04 else 0
                return at if at <= self._size else None

    def _unpack(self, at: int, end: int) -> bytes:
        if end - at > UNPACKED_MAX + _CHUNK:
            raise _Damaged(f"a frame of {end - at} bytes, at most {UNPACKED_MAX} are unpacked")
        packed = read_at(self._fd, at, end - at)
        try:
            size = zstandard.frame_content_size(packed)
            if size > UNPACKED_MAX:
                raise _Damaged(f"a frame that unpacks to {size} bytes, at most {UNPACKED_MAX} may")
            if size >= 0:
                return self._unpacker.decompress(packed)
            return self._unpack_blindly(packed)
        except zstandard.ZstdError as error:
            raise _Damaged(f"a frame that does not unpack: {error}") from None

    def _unpack_blindly(self, packed: bytes) -> bytes:
        """Unpack what does not say how large it is, up to the limit."""
        parts: list[bytes] = []
        size = 0
        with self._unpacker.stream_reader(packed) as reader:
            while part := reader.read(_CHUNK):
                parts.append(part)
                size += len(part)
                if size > UNPACKED_MAX:
                    raise _Damaged(f"a frame that unpacks to more than {UNPACKED_MAX} bytes")
        return b"".join(parts)

    def _records(self, at: int, end: int) -> int:
        """How many lines a damaged stretch held, from what of it still unpacks; at least one."""
        packed = read_at(self._fd, at, min(end - at - _CHECKSUM, _CHUNK))
        count = left = 0
        try:
            with self._unpacker.stream_reader(packed) as reader:
                left = UNPACKED_MAX
                while left > 0 and (part := reader.read(_CHUNK)):
                    count += part.count(b"\n")
                    left -= len(part)
        except zstandard.ZstdError:
            pass  # as expected: what came before it was counted
        return max(1, count)

    def _next_whole(self, at: int) -> int | None:
        """Where the next frame begins that is whole; None if there is none."""
        while (found := self._find_magic(at)) is not None:
            self._searches += 1
            if self._searches > _SEARCHES_MAX:
                return None
            try:
                end = self._end_of(found)
                if end is not None:
                    self._unpack(found, end)
                    return found
            except _Damaged:
                pass  # it only looked like one: its bytes belong to the damage
            at = found + 1
        return None

    def _find_magic(self, at: int) -> int | None:
        while at < self._size:
            chunk = self._bytes(at, _CHUNK)
            found = chunk.find(MAGIC)
            if found >= 0:
                return at + found
            at += max(1, len(chunk) - len(MAGIC) + 1)
        return None

    def _is_nul(self, at: int) -> bool:
        """Whether the rest of the file is NUL bytes."""
        while at < self._size and (chunk := self._bytes(at, _CHUNK)):
            if chunk.strip(b"\0"):
                return False
            at += len(chunk)
        return True

    def _bytes(self, at: int, count: int) -> bytes:
        """Bytes of the file through a window, so that block headers cost no read each."""
        count = max(0, min(count, self._size - at))
        start = at - self._window_at
        if start < 0 or start + count > len(self._window):
            self._window = read_at(self._fd, at, min(max(count, 1 << 16), self._size - at))
            self._window_at, start = at, 0
        return self._window[start : start + count]
