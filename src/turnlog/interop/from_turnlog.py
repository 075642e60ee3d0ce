"""A session in a JSONL file of turnlog's own (`export --to jsonl`, `session.detach`) as an import.

The file is a header line and one line for each event or packed run, plain or zstd. In the store
that takes it, all of it is a seed: nothing in it authorises anything, and the first native event
ends it.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, cast

import msgspec
import zstandard

from turnlog import jsontext
from turnlog.codec import decode_line
from turnlog.errors import (
    AdmissionError,
    ImportFailed,
    InvalidHeader,
    UnsupportedVersion,
    why_unreadable,
)
from turnlog.events import AnyEvent, SessionHeader
from turnlog.interop.dsh.frames import LIMITS, Limits, Line, Lost, Torn, read_lines
from turnlog.interop.dsh.rows import SAFE_INT
from turnlog.interop.dsh.source import open_regular
from turnlog.interop.incoming import (
    FORMATS,
    DamageKeeper,
    Progress,
    checked_header,
    counted,
    preview,
)

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


class FromTurnlog:
    """The session, read through once to know its length and its damage; see `Incoming`."""

    def __init__(
        self, path: Path, progress: Progress | None = None, limits: Limits = LIMITS
    ) -> None:
        self.path = path
        self._progress = progress
        self._limits = limits
        self._wire: Any = None
        self.notes: list[str] = []
        self.header = self._survey()

    def __iter__(self) -> Iterator[AnyEvent]:
        """The events that can be read, in order of seq."""
        return counted(self._events(), self._progress)

    def _survey(self) -> SessionHeader:
        damage = DamageKeeper(self.path)
        length = 0
        for event in counted(self._events(damage), self._progress):
            length = event.seq + 1
        header = _header(self.path, self._wire)
        stretches = (*(header.source_damage or ()), *damage.kept)
        ends = [stretch.get("lastSeq") for stretch in stretches] + [(header.seed_length or 0) - 1]
        length = max([length, *(end + 1 for end in ends if type(end) is int and end < SAFE_INT)])
        known = {"source_format": f"turnlog/v{header.version}", "source": self._wire}
        if header.source_format:  # it was an import already: its seed is still read as what it is
            source_length = None
            if header.source_length is not None:
                source_length = min(header.source_length, length)
            known = {"source_length": source_length}
        return checked_header(
            self.path,
            msgspec.structs.replace(
                header,
                seed_length=length,
                imported_length=None,
                source_damage=stretches or None,
                **known,
            ),
        )

    def _events(self, damage: DamageKeeper | None = None) -> Iterator[AnyEvent]:
        try:
            with open_regular(self.path) as file:
                lines = read_lines(file, os.fstat(file.fileno()).st_size, self._limits)
                wire = _header_wire(self.path, next(lines, None))
                if self._wire not in (None, wire):
                    raise ImportFailed(f"{self.path}: it was exchanged while it was being read")
                self._wire = wire
                yield from self._read(lines, damage)
        except OSError as error:
            raise ImportFailed(f"{self.path}: {error.strerror or error}") from error
        except zstandard.ZstdError as error:
            raise ImportFailed(f"{self.path}: it changed while it was being read") from error

    def _read(
        self, lines: Iterator[Line | Lost | Torn], damage: DamageKeeper | None
    ) -> Iterator[AnyEvent]:
        """Events whose seqs rise; what lies between them is told to `damage`."""
        expected = 0
        lost: list[tuple[str, Line | Lost]] = []
        for line in lines:
            if isinstance(line, Torn):
                if damage is not None:
                    self.notes.append(f"a torn tail of {line.span.length} bytes was left out")
                break
            if isinstance(line, Lost):
                lost.append((line.reason, line))
                continue
            try:
                events = decode_line(line.data)
                if not expected <= events[0].seq <= SAFE_INT:
                    raise ValueError(f"seq {events[0].seq} where {expected} was expected")  # noqa: TRY301
            except (AdmissionError, ValueError) as error:
                lost.append((why_unreadable(error)[:200], line))
                continue
            found = events[0].seq
            if damage is not None and lost:
                _keep(damage, lost, (expected, found - 1) if found > expected else (None, None))
            lost = []
            yield from events
            expected = events[-1].seq + 1
        if damage is not None and lost:
            _keep(damage, lost, (expected, expected + len(lost) - 1))


def _keep(
    damage: DamageKeeper,
    lost: list[tuple[str, Line | Lost]],
    seqs: tuple[int, int] | tuple[None, None],
) -> None:
    """Neighbouring unreadable lines as one damaged stretch."""
    (reason, first), (_, last) = lost[0], lost[-1]
    offset, end = first.span.offset, last.span.offset + last.span.length
    data = b"\n".join(line.data for _, line in lost if isinstance(line, Line))
    damage.add(reason, *seqs, offset=offset, length=end - offset, data=data)


def _header_wire(path: Path, line: Line | Lost | Torn | None) -> Any:
    wire = first_object(line)
    if wire is None:
        raise ImportFailed(_no_header(path, line))
    return wire


def _header(path: Path, wire: Any) -> SessionHeader:
    try:
        return SessionHeader.from_dict(wire)
    except (InvalidHeader, UnsupportedVersion) as error:
        raise ImportFailed(f"{path}: {error}") from None


def _no_header(path: Path, line: Line | Lost | Torn | None) -> str:
    if line is None:
        got = "nothing: the file is empty"
    elif isinstance(line, Line):
        got = preview(line.data)
    else:
        got = "one that is damaged or cut off"
    return f"{path}: expected a session header in the first line, got {got}; {FORMATS}"


def first_object(line: Line | Lost | Torn | None) -> dict[str, Any] | None:
    """The JSON object in a file's first line, if that is what is there."""
    try:
        wire = jsontext.decode(line.data) if isinstance(line, Line) else None
    except ValueError:
        return None
    return cast("dict[str, Any]", wire) if isinstance(wire, dict) else None


def first_line(path: Path) -> Line | Lost | Torn | None:
    """The first line of a file, plain or zstd; None if it is empty.

    Raises:
        ImportFailed: it cannot be read.
    """
    try:
        with open_regular(path) as file:
            return next(read_lines(file, os.fstat(file.fileno()).st_size, LIMITS), None)
    except (OSError, zstandard.ZstdError) as error:
        raise ImportFailed(f"{path}: {getattr(error, 'strerror', None) or error}") from None
