"""The listing: lines out of the table of sessions, which every commit keeps current.

A line whose commit could not tell (`InfoFold.follow`) is stale; it is made again when someone
lists, and kept.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Any, Generic, NamedTuple, TypeVar

from turnlog import jsontext
from turnlog.errors import AdmissionError, TurnlogError
from turnlog.events import AnyEvent
from turnlog.log import SessionLog
from turnlog.stores.info import InfoFold
from turnlog.stores.loading import unfinished
from turnlog.stores.port import SessionInfo
from turnlog.stores.sql.heads import line_of, read_header, unreadable

Key = TypeVar("Key")

PAGE = 100
"""Sessions that are read at once."""
LOG_PAGE = 5_000
"""Seqs of a log that are read at once."""
COLUMNS = "id, header, sum, next_seq, last_activity, bytes, stale, info"
"""Those of a `Row`, behind the key."""


class Row(NamedTuple, Generic[Key]):
    """A session's row, as far as the listing needs it; `key` is what its events are found by."""

    key: Key
    id: bytes
    header: bytes
    sum: int
    next_seq: int
    last_activity: int
    bytes: int
    stale: int
    info: bytes | None

    @property
    def line(self) -> SessionInfo:
        """What the row itself says."""
        return line_of(self.id, (self.header, self.sum), self.last_activity, self.bytes, self.info)

    def unreadable(self, error: TurnlogError) -> SessionInfo:
        """The line of a session that cannot be read."""
        return unreadable(self.id, self.last_activity, self.bytes, error)


def keep(column: str) -> str:
    """The statement that keeps a line that was made again, if the session is as it was then.

    Args:
        column: the name of the key's.
    """
    return f"""
        UPDATE sessions SET info = ?, last_activity = ?, stale = 0
        WHERE {column} = ? AND next_seq = ? AND sum = ?
    """  # noqa: S608 - a constant


def kept(row: Row[Key], fold: InfoFold) -> tuple[bytes, int, Key, int, int]:
    """What to bind in `keep`, for the line of all events of the row."""
    fold.next_seq = row.next_seq
    state = fold.state()
    return jsontext.encode(state), state["lastActivity"], row.key, row.next_seq, row.sum


class Wanted(NamedTuple):
    """The events with `start <= seq < stop`, or those of them that are no chunks."""

    start: int
    stop: int
    chunks: bool


def followed(row: Row[Any]) -> Generator[Wanted, Sequence[AnyEvent], InfoFold | None]:
    """The line, made of the last one that was kept and what follows, a page in memory at a time.

    None where that cannot tell: there is damage, or an acknowledgement of damage.

    Raises:
        InvalidHeader, UnsupportedVersion: the header cannot be read.
    """
    header = read_header(row.header, row.sum)
    if header.source_damage or unfinished(header, row.next_seq) is not None:
        return None
    state: Any = None if row.info is None else jsontext.decode(row.info)
    if state is not None and state["damage"]:
        return None
    fold = InfoFold(header, state)
    log = SessionLog(header)
    try:
        for start in range(0, row.next_seq, LOG_PAGE):
            stop = min(start + LOG_PAGE, row.next_seq)
            middle = min(max(fold.next_seq, start), stop)
            for event in (yield Wanted(start, middle, chunks=False)):
                log.skip(event.seq)
                log.load(event)
            events = yield Wanted(middle, stop, chunks=True)
            if len(events) != stop - middle or not fold.follow(events, log):
                return None
            log = SessionLog(header, log.rebase())
    except AdmissionError:
        return None
    return fold
