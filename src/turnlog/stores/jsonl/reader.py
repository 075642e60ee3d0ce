"""Reading sessions again and again: what was read before is not read twice."""

from __future__ import annotations

from typing import TYPE_CHECKING

from turnlog.stores.jsonl.names import folder_name, segments_in
from turnlog.stores.jsonl.scan import Mark, Scan, scan, scan_on
from turnlog.stores.jsonl.segments import complete

if TYPE_CHECKING:
    from pathlib import Path

    from turnlog.events import AnyEvent

_MARKS_MAX = 1024


class Reader:
    """Reads the sessions below a folder; remembers how far it came with each."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._marks: dict[str, Mark] = {}

    def folder(self, session_id: str) -> Path:
        """The session's folder."""
        return self._root / folder_name(session_id)

    def mark(self, session_id: str) -> Mark | None:
        """How far the session was read, if it was."""
        return self._marks.get(session_id)

    def remember(self, session_id: str, mark: Mark | None) -> None:
        """Take note of how far a session is known; None forgets it."""
        self._marks.pop(session_id, None)
        if mark is not None:
            while len(self._marks) >= _MARKS_MAX:
                self._marks.pop(next(iter(self._marks)), None)
            self._marks[session_id] = mark

    def scan(self, session_id: str) -> Scan:
        """The whole session; raises as `scan.scan`."""
        found = scan(self.folder(session_id), session_id)
        self.remember(session_id, found.mark)
        return found

    def next_seq(self, session_id: str) -> int:
        """The seq that the session's next event will have."""
        return (self._scan_on(session_id) or self.scan(session_id)).mark.next_seq

    def read(self, session_id: str, start: int, stop: int | None) -> list[AnyEvent]:
        """The events with `start <= seq < stop`."""
        mark = self.mark(session_id)
        found = self._scan_on(session_id) if mark is not None and start >= mark.next_seq else None
        events = (found or self.scan(session_id)).events
        return [e for e in events if start <= e.seq and (stop is None or e.seq < stop)]

    def _scan_on(self, session_id: str) -> Scan | None:
        """What was added since the session was read last; None if it must be read again."""
        mark = self.mark(session_id)
        if mark is None:
            return None
        segments = segments_in(self.folder(session_id))
        if segments[-1:] != [mark.segment]:
            top = complete(segments)
            if top is None or top[0] != mark.segment:
                return None
        found = scan_on(mark)
        if found is not None:
            self.remember(session_id, found.mark)
        return found
