"""Server-Sent Events from bytes, however they are cut."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator


class ServerEvent(NamedTuple):
    """One event: its name ("message" when it has none) and its data lines, joined."""

    name: str
    data: str


class SseDecoder:
    """Feed it bytes, read events; comments, ids and unknown fields are passed over.

    Lines end at CR LF, LF or CR and nowhere else: U+2028 inside JSON is text. An event that no
    blank line completed is given by `close`, since servers forget the last one.
    """

    def __init__(self) -> None:
        self._rest = b""
        self._name = ""
        self._data: list[str] = []

    def feed(self, piece: bytes) -> Iterator[ServerEvent]:
        """The events that `piece` completes."""
        lines = (self._rest + piece).splitlines(keepends=True)
        # A CR at the very end may be half of a CR LF, so it waits as an unfinished line does.
        complete = not lines or lines[-1].endswith(b"\n")
        self._rest = b"" if complete else lines.pop()
        for line in lines:
            yield from self._line(line)

    def close(self) -> Iterator[ServerEvent]:
        """The event that the end of the stream completes, if any."""
        rest, self._rest = self._rest, b""
        if rest:
            yield from self._line(rest)
        yield from self._line(b"")

    @property
    def waiting(self) -> int:
        """Bytes of the line that is not complete."""
        return len(self._rest)

    def _line(self, line: bytes) -> Iterator[ServerEvent]:
        text = line.rstrip(b"\r\n").decode("utf-8", errors="replace")
        if not text:
            if self._data:
                yield ServerEvent(self._name or "message", "\n".join(self._data))
            self._name, self._data = "", []
            return
        field, _, value = text.partition(":")
        value = value.removeprefix(" ")
        if field == "data":
            self._data.append(value)
        elif field == "event":
            self._name = value
