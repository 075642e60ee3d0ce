"""What an import takes in: a session that was made elsewhere, as a header and events of ours."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Protocol

from turnlog import jsontext
from turnlog.errors import AdmissionError, ImportFailed

if TYPE_CHECKING:
    from pathlib import Path

    from turnlog.events import AnyEvent, SessionHeader

KEPT_BYTES = 64 * 1024  # of one damaged stretch
KEPT_BYTES_IN_ALL = 1024 * 1024

Progress = Callable[[int], object]  # is told how many events were read since it was told last


class Incoming(Protocol):
    """A session in a file, read through once; iterating it reads its events anew.

    Attributes:
        path: the file.
        header: as the session will have it: `seed_length` is the next seq after all of the source,
            `source_damage` what could not be read, with the bytes as far as they are kept.
        notes: what is worth knowing and no damage, such as a torn tail; one line each.
    """

    path: Path
    header: SessionHeader
    notes: list[str]

    def __iter__(self) -> Iterator[AnyEvent]:
        """The events that can be read, in order of seq.

        Raises:
            ImportFailed: the file cannot be read, or changed since it was opened.
        """
        ...


FORMATS = (
    "turnlog takes its own exports (JSON lines, plain or zstd), sessions of DeepSeek Harness "
    "(session*.jsonl, plain or zstd) and message lists of OpenAI or Anthropic (JSON)"
)
_PACKED = {b"\x1f\x8b": "gzip", b"PK\x03\x04": "zip", b"BZh": "bzip2", b"\xfd7zXZ": "xz"}


def preview(data: bytes) -> str:
    """The beginning of a file, for the person who is told that it is no session."""
    for magic, name in _PACKED.items():
        if data.startswith(magic):
            return f"bytes that {name} packed; unpack them first"
    try:
        text = data[:80].decode("utf-8", "ignore" if len(data) > 80 else "strict")
    except UnicodeDecodeError:
        text = "\0"
    if not text:
        return "nothing"
    if not text.isprintable():
        return "bytes that are no text"
    return f'"{text[:60]}…"' if len(text) > 60 else f'"{text}"'


class DamageKeeper:
    """Damage as a header keeps it, the bytes bounded in all."""

    def __init__(self, place: Path) -> None:
        self._place = str(place)
        self._left = KEPT_BYTES_IN_ALL
        self.kept: list[dict[str, Any]] = []

    def add(
        self,
        reason: str,
        first_seq: int | None,
        last_seq: int | None,
        *,
        offset: int | None = None,
        length: int | None = None,
        data: bytes = b"",
    ) -> None:
        """Keep one stretch; `data` are its bytes, as far as they are at hand."""
        stretch = {
            "reason": reason,
            "firstSeq": first_seq,
            "lastSeq": last_seq,
            "offset": offset,
            "length": length,
            "place": self._place,
        }
        data = data[: min(KEPT_BYTES, self._left)]
        self._left -= len(data)
        if data:
            stretch["bytes"] = b64encode(data).decode()
        self.kept.append({key: value for key, value in stretch.items() if value is not None})


def checked_header(path: Path, header: SessionHeader) -> SessionHeader:
    """The header, if it can be kept.

    Raises:
        ImportFailed: something in it is not what a payload may be.
    """
    try:
        jsontext.admit(header.to_dict())
    except AdmissionError as error:
        raise ImportFailed(f"{path}: a header that cannot be kept: {error.detail}") from None
    return header


def counted(events: Iterator[AnyEvent], progress: Progress | None) -> Iterator[AnyEvent]:
    """The events, with progress told now and then."""
    if progress is None:
        yield from events
        return
    count = 0
    for count, event in enumerate(events, 1):
        if count % 1000 == 0:
            progress(1000)
        yield event
    progress(count % 1000)
