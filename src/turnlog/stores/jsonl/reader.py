"""Reading sessions again and again: what was read before is not read twice."""

from __future__ import annotations

from bisect import bisect_left
from operator import attrgetter
from threading import Lock as Guard
from typing import TYPE_CHECKING, TypeVar

from turnlog.errors import StoreError
from turnlog.stores.jsonl.names import folder_name, segments_in
from turnlog.stores.jsonl.scan import Mark, Scan, scan, scan_on
from turnlog.stores.jsonl.segments import complete

if TYPE_CHECKING:
    from pathlib import Path

    from turnlog.events import AnyEvent, SessionHeader

K = TypeVar("K")

_MARKS_MAX = 1024
_seq = attrgetter("seq")


class Reader:
    """Reads the sessions below a folder; remembers how far it came with each."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._guard = Guard()
        self._marks: dict[str, Mark] = {}
        self._followed: dict[tuple[str, int], Mark] = {}  # where reads ended, by next seq
        self._paged: tuple[str, Scan] | None = None  # a session that is read page by page

    def folder(self, session_id: str) -> Path:
        """The session's folder.

        Raises:
            StoreError: there is a link in its place: a listing does not follow it either.
        """
        folder = self._root / folder_name(session_id)
        if folder.is_symlink():
            msg = f"session {session_id!r}: {folder.name} is a link, which a store does not follow"
            raise StoreError(msg)
        return folder

    def mark(self, session_id: str) -> Mark | None:
        """How far the session was read, if it was."""
        return self._marks.get(session_id)

    def remember(self, session_id: str, mark: Mark | None) -> None:
        """Take note of how far a session is known; None forgets it."""
        with self._guard:
            _keep(self._marks, session_id, mark)

    def scan(self, session_id: str) -> Scan:
        """The whole session; raises as `scan.scan`."""
        found = scan(self.folder(session_id), session_id)
        self.remember(session_id, found.mark)
        return found

    def next_seq(self, session_id: str) -> int:
        """The seq that the session's next event will have."""
        mark = self.mark(session_id)
        found = self._scan_on(session_id, mark) if mark else None
        return (found or self.scan(session_id)).mark.next_seq

    def header(self, session_id: str) -> SessionHeader:
        """What was written before the first event, as it is now."""
        mark = self.mark(session_id)
        found = self._scan_on(session_id, mark) if mark else None
        return (found or self.scan(session_id)).mark.header

    def read(self, session_id: str, start: int, stop: int | None) -> list[AnyEvent]:
        """The events with `start <= seq < stop`.

        Who follows a log is given what is new. Who reads it page by page has it read from the file
        once: it is held until the last page was given, or another session's.
        """
        found = None if stop is None else self._next_page(session_id)
        if found is None:
            mark = self.mark(session_id)
            if mark is None or start < mark.next_seq:  # another has come further by now
                mark = self._followed.get((session_id, start))
            found = self._scan_on(session_id, mark) if mark else None
            whole = found is None
            found = found or self.scan(session_id)
        else:
            whole = True
        with self._guard:
            _keep(self._followed, (session_id, found.mark.next_seq), found.mark)
            goes_on = whole and stop is not None and start < stop < found.mark.next_seq
            self._paged = (session_id, found) if goes_on else None
        events = found.events
        end = len(events) if stop is None else bisect_left(events, stop, key=_seq)
        return events[bisect_left(events, start, key=_seq) : end]

    def _next_page(self, session_id: str) -> Scan | None:
        """The whole session, if the last page was of it, with what was added since."""
        paged = self._paged
        if paged is None or paged[0] != session_id:
            return None
        held = paged[1]
        more = self._scan_on(session_id, held.mark)
        if more is not None and more.events:
            more.events = held.events + more.events
        return more if more is None or more.events else held

    def _scan_on(self, session_id: str, mark: Mark) -> Scan | None:
        """What was added since a mark; None if the session must be read again."""
        segments = segments_in(self.folder(session_id))
        if segments[-1:] != [mark.segment]:
            top = complete(segments)
            if top is None or top[0] != mark.segment:
                return None
        found = scan_on(mark)
        if found is not None:
            self.remember(session_id, found.mark)
        return found


def _keep(marks: dict[K, Mark], key: K, mark: Mark | None) -> None:
    """Keep a mark as the newest one; None takes it out."""
    marks.pop(key, None)
    if mark is not None:
        while len(marks) >= _MARKS_MAX:
            del marks[next(iter(marks))]
        marks[key] = mark
