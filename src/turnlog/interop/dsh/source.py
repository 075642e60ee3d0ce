"""One session file, opened: its header now, its events as they are asked for."""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING, Any, BinaryIO, cast

import zstandard

from turnlog import jsontext
from turnlog.errors import ImportFailed, brief
from turnlog.interop.dsh.frames import LIMITS, Limits, Line, read_lines
from turnlog.interop.dsh.records import Damage, Report, read_records
from turnlog.interop.incoming import FORMATS, preview

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from turnlog.interop.dsh.frames import Lost, Span, Torn
    from turnlog.interop.dsh.rows import SourceEvent

VERSIONS = range(5)
"""v1 and v2 were never seen by us: they are read by the rules of v0 and v3."""


class DshSource:
    """A session of DeepSeek Harness in one file; made by `open_dsh`. Holds no file open."""

    def __init__(self, path: Path, header: dict[str, Any], limits: Limits) -> None:
        self.path = path
        self.header = header
        """The header line as it stands in the file."""
        self._limits = limits
        self._report = Report()

    @property
    def id(self) -> str:
        """The session's id: a name from a foreign file, never a path."""
        return self.header["id"]

    @property
    def version(self) -> int:
        """The format's version, 0 to 4."""
        return self.header["version"]

    @property
    def source_format(self) -> str:
        """What our header says about where a session came from, such as `dsh/v4`."""
        return f"dsh/v{self.version}"

    @property
    def damage(self) -> list[Damage]:
        """Damage found by the latest `events()` up to where it has been read, in file order."""
        return self._report.damage

    @property
    def torn(self) -> Span | None:
        """The torn tail, known once `events()` is read to its end. It is no damage.

        In a packed file it is the last frame, and the whole lines in it are among the events.
        """
        return self._report.torn

    def events(self) -> Iterator[SourceEvent]:
        """Every readable event in order of seq, streamed; each call reads the file anew.

        Raises:
            ImportFailed: the file cannot be read, or is no longer the session that was opened.
        """
        self._report = Report()
        try:
            with open_regular(self.path) as file:
                items = read_lines(file, os.fstat(file.fileno()).st_size, self._limits)
                if _read_header(self.path, items) != self.header:
                    raise ImportFailed(
                        f"{self.path}: the session was exchanged while it was being read"
                    )
                for record in read_records(items, self._report):
                    yield from record.events()
        except OSError as error:
            raise _unreadable(self.path, error) from error
        except zstandard.ZstdError as error:
            raise ImportFailed(f"{self.path}: it changed while it was being read") from error

    def read_bytes(self, damage: Damage | Span) -> bytes:
        """The source's bytes of a damaged or torn range, to be kept; at most `Limits.line`.

        Raises:
            ImportFailed: the file cannot be read.
        """
        try:
            with open_regular(self.path) as file:
                file.seek(damage.offset)
                return file.read(min(damage.length, self._limits.line))
        except OSError as error:
            raise _unreadable(self.path, error) from error


def open_file(path: Path, limits: Limits = LIMITS) -> DshSource:
    """Read the header of one session file.

    Raises:
        ImportFailed: unreadable, no DeepSeek Harness session, or of a version we do not know.
    """
    try:
        with open_regular(path) as file:
            size = os.fstat(file.fileno()).st_size
            return DshSource(path, _read_header(path, read_lines(file, size, limits)), limits)
    except OSError as error:
        raise _unreadable(path, error) from error


def open_regular(path: Path) -> BinaryIO:
    """Open a regular file for reading; a pipe or device would be waited for.

    Raises:
        OSError: as `open`, or it is something else.
    """
    if not stat.S_ISREG(path.stat().st_mode):
        raise OSError("not a regular file")
    return path.open("rb")


def _read_header(path: Path, items: Iterator[Line | Lost | Torn]) -> dict[str, Any]:
    first = next(items, None)
    if not isinstance(first, Line):
        what = "the file is empty" if first is None else "that is damaged or cut off"
        raise ImportFailed(
            f"{path}: expected a session header in the first line, but {what}; {FORMATS}"
        )
    try:
        value = jsontext.decode(first.data)
    except ValueError:
        value = None
    if not isinstance(value, dict) or cast("dict[str, Any]", value).get("type") != "session":
        raise ImportFailed(
            f"{path}: expected a DeepSeek Harness session header in the first line, got "
            f"{preview(first.data)}; {FORMATS}"
        )
    header = cast("dict[str, Any]", value)
    version, name = header.get("version"), header.get("id")
    if type(version) is not int or version not in VERSIONS:
        raise ImportFailed(
            f"{path}: expected format version 0 to 4 of DeepSeek Harness, got {brief(version)}"
        )
    if not isinstance(name, str) or not name:
        raise ImportFailed(f"{path}: expected a session id in the header, got {brief(name)}")
    return header


def _unreadable(path: Path, error: OSError) -> ImportFailed:
    return ImportFailed(f"{path}: {error.strerror or error}")
