"""Where the zstd frames of a file begin and end, found by their structure alone.

A damaged frame costs only itself: the scan goes on at the next place where one begins.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, BinaryIO, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

MAGIC = b"\x28\xb5\x2f\xfd"
_CHUNK = 256 * 1024
_BLOCK_HEADER = 3
_BLOCK_MAX = 128 * 1024
_HEADER_MAX = 18
_NUL_TAIL = 8
_RLE, _COMPRESSED = 1, 2


class Frame(NamedTuple):
    """A stretch of a packed file: a frame, or what lies where one should be."""

    offset: int
    end: int | None
    """None: cut off by the end of the file."""
    fault: str | None = None


class Scanner:
    """Finds frames by their structure alone: headers are read, contents skipped."""

    def __init__(self, file: BinaryIO, size: int) -> None:
        self._file = file
        self._size = size
        self._effort = size + 2**16
        """What we are willing to do, in blocks looked at; a healthy file takes a third of it."""

    def frames(self, fault_of: Callable[[Frame], str | None]) -> Iterator[Frame]:
        """Every frame of the file in order, and what lies between, with its fault.

        `fault_of` judges a frame by its contents. The length of a faulty one is not believed: the
        frame that it seems to reach into is read as well.
        """
        offset = 0
        while offset < self._size:
            frame = self._scan(offset)
            if frame.end is not None:
                frame = frame._replace(fault=fault_of(frame))
            if frame.end is None or frame.fault is not None:
                following = self._next_frame(offset + 1)
                if following is not None:
                    fault = frame.fault or "a frame that does not end where the next one begins"
                    frame = Frame(offset, following, fault)
                elif frame.fault is not None and self._was_never_written(offset):
                    frame = Frame(offset, None)
                elif frame.fault is not None:
                    frame = Frame(offset, self._size, frame.fault)
            yield frame
            offset = self._size if frame.end is None else frame.end

    def _scan(self, offset: int) -> Frame:
        """The frame at `offset`: its end, or why it is none."""
        cut = Frame(offset, None)
        head = self._read(offset, _HEADER_MAX)
        if not head.startswith(MAGIC) and not MAGIC.startswith(head):
            return Frame(offset, None, "bytes that are no frame")
        if len(head) <= len(MAGIC):
            return cut
        descriptor = head[len(MAGIC)]
        if descriptor & 0x08:
            return Frame(offset, None, "a frame header with a reserved bit")
        single = descriptor >> 5 & 1
        content_size = (single, 2, 4, 8)[descriptor >> 6]
        at = offset + 5 + (1 - single) + (0, 1, 2, 4)[descriptor & 3] + content_size
        last = 0
        while not last:
            self._effort -= 1
            head = self._read(at, _BLOCK_HEADER)
            block = int.from_bytes(head, "little")
            last, kind, length = block & 1, block >> 1 & 3, block >> 3
            if len(head) < _BLOCK_HEADER:
                return cut
            if not block or kind > _COMPRESSED or length > _BLOCK_MAX or self._effort < 0:
                return Frame(offset, None, "a frame with an impossible block")
            at += _BLOCK_HEADER + (1 if kind == _RLE else length)
        at += 4 if descriptor & 0x04 else 0
        return cut if at > self._size else Frame(offset, at)

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

    def _was_never_written(self, offset: int) -> bool:
        """Whether the file, from `offset` on, ends in NUL bytes: a crash that only extended it."""
        count = min(_NUL_TAIL, self._size - offset)
        return self._read(self._size - count, count) == bytes(count)

    def _read(self, offset: int, count: int) -> bytes:
        self._file.seek(offset)
        return self._file.read(max(0, min(count, self._size - offset)))
