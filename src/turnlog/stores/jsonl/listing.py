"""What a listing says of a session, kept beside it: derived, disposable, never trusted.

`info.json` says how far the log was read and what was found. If it fits the file, that is all; if
the log has grown, only the rest is read; if it is missing, or nonsense, the log is read again.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

import msgspec

from turnlog import jsontext
from turnlog.errors import NoSuchSession, TurnlogError
from turnlog.events import SessionHeader
from turnlog.stores.files import opened, read_at
from turnlog.stores.info import InfoFold
from turnlog.stores.jsonl.files import publish
from turnlog.stores.jsonl.inbox import inbox_fault
from turnlog.stores.jsonl.lines import read_header
from turnlog.stores.jsonl.names import Segment, folder_name, id_of, segments_in
from turnlog.stores.jsonl.scan import Mark, Scan, scan, scan_on
from turnlog.stores.jsonl.segments import chain_of, complete
from turnlog.stores.port import SessionInfo

if TYPE_CHECKING:
    from pathlib import Path

_FILE = "info.json"
_VERSION = 2
_MAX = 64 << 20
_WORTH_KEEPING = 64 << 10  # bytes that were read, after which a reader keeps what it found


class _Kept(msgspec.Struct):
    """What `info.json` holds: the log up to byte `end` of segment `token`.

    The segment had `size` bytes then, and was changed at `changed`, in nanoseconds.
    """

    version: int
    token: int
    end: int
    size: int
    changed: int
    header: dict[str, Any]
    state: dict[str, Any]


def info_of(folder: Path) -> SessionInfo | None:
    """A session's line, whatever state it is in; None if the folder holds no session."""
    try:
        if not segments_in(folder):
            chain_of(folder, id_of(folder.name))
        return _with_problem(_info(folder), inbox_fault(folder))
    except NoSuchSession:
        return None
    except (TurnlogError, OSError, ValueError) as error:
        return SessionInfo(id=id_in(folder), health="unreadable", problem=str(error))


def _with_problem(info: SessionInfo, problem: str | None) -> SessionInfo:
    if problem is None:
        return info
    problems = filter(None, (info.problem, problem))
    return msgspec.structs.replace(info, problem="; ".join(problems))


def id_in(folder: Path) -> str:
    """The id of the session in a folder, whose name tells it unless it is long."""
    if folder_name(id_of(folder.name)) != folder.name:
        with suppress(TurnlogError, OSError):  # nameless: its folder's name is what is left
            head = complete(segments_in(folder)[:1])
            if head is not None:
                return read_header(head[1].line).id
    return id_of(folder.name)


def keep_info(folder: Path) -> None:
    """Write what a listing will need, where that is possible."""
    with suppress(TurnlogError, OSError, ValueError):  # derived: the listing reads the log then
        _info(folder, always=True)


def _info(folder: Path, *, always: bool = False) -> SessionInfo:
    top = complete(segments_in(folder))
    changed = 0 if top is None else top[0].path.stat().st_mtime_ns  # before it is read
    known = None if top is None else _known(folder, top[0])
    found: Scan | None = None
    if known is not None and not known.fits(changed):
        found = scan_on(known.mark) if known.has_grown() else None
        if found is None or found.damage:
            known = None
    begun = 0 if known is None else known.mark.end
    if known is not None and found is not None:
        known = known.and_then(found)
    if known is None:
        begun, found = 0, scan(folder, None)
        known = _Known.from_scan(found)
    if found is not None and (always or found.mark.end - begun > _WORTH_KEEPING):
        _keep(folder, known, changed)
    return known.fold.info(size=_bytes_of(folder))


class _Known:
    """The line as far as the log was read.

    Args:
        fold: of the events up to `mark`.
        mark: how far that is.
        changed: when the segment was last changed, in nanoseconds, if it was looked up.
    """

    def __init__(self, fold: InfoFold, mark: Mark, changed: int | None = None) -> None:
        self.fold = fold
        self.mark = mark
        self._changed = changed
        fold.next_seq = mark.next_seq

    @classmethod
    def from_scan(cls, found: Scan) -> _Known:
        """What a whole log says."""
        return cls(InfoFold.of(found.mark.header, found.events, found.damage), found.mark)

    def and_then(self, found: Scan) -> _Known | None:
        """What is known when more was read; None if that takes the whole log."""
        fold = self.fold
        if found.mark.header != fold.header or not fold.follow(found.events):
            return None
        return _Known(fold, found.mark)

    def fits(self, changed: int) -> bool:
        """Whether the segment is still as it was."""
        return changed == self._changed and self._size() == self.mark.size

    def has_grown(self) -> bool:
        """Whether the segment is longer than it was: else what was read may have changed."""
        return self._size() > self.mark.size

    def _size(self) -> int:
        return self.mark.segment.path.stat().st_size


def _known(folder: Path, top: Segment) -> _Known | None:
    """What was kept of a log that ends in the segment `top`, if it can be used."""
    try:
        with opened(folder / _FILE) as fd:
            kept = _read_kept(read_at(fd, 0, _MAX))
        header = SessionHeader.from_dict(kept.header)
        fold = InfoFold(header, kept.state)
    except (OSError, ValueError, TurnlogError):
        return None
    if (kept.version, kept.token) != (_VERSION, top.token) or not 0 <= kept.end <= kept.size:
        return None
    if folder_name(header.id) != folder.name:
        return None
    mark = Mark(top, kept.end, kept.size, fold.next_seq, header)
    return _Known(fold, mark, kept.changed)


def _read_kept(raw: bytes) -> _Kept:
    return msgspec.convert(jsontext.decode(raw), _Kept)  # not msgspec.json: lone surrogates


def _keep(folder: Path, known: _Known, changed: int) -> None:
    mark = known.mark
    kept = _Kept(
        _VERSION,
        mark.segment.token,
        mark.end,
        mark.size,
        changed,
        mark.header.to_dict(),
        known.fold.state(),
    )
    with suppress(OSError):  # a folder that cannot be written is read again each time
        publish(folder / _FILE, jsontext.encode(kept), durable=False)


def _bytes_of(folder: Path) -> int:
    """How many bytes the session's segments take."""
    return sum(segment.path.stat().st_size for segment in segments_in(folder))
