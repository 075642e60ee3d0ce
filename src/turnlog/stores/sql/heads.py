"""What a row of the table `sessions` says: id, header, and the listing's line."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from zlib import crc32

from turnlog import jsontext
from turnlog.errors import InvalidHeader, NoSuchSession, TurnlogError
from turnlog.events import SessionHeader
from turnlog.stores.info import InfoFold
from turnlog.stores.port import Batch, SessionInfo


def stored_id(session_id: str) -> bytes:
    """An id as it is stored: any two differ."""
    return session_id.encode("utf-8", "surrogatepass")


def read_id(stored: bytes) -> str:
    """The id that is stored so."""
    return stored.decode("utf-8", "surrogatepass")


def unknown(session_id: str, url: str) -> NoSuchSession:
    """The refusal of an id that nobody created."""
    return NoSuchSession(f"no session {session_id!r} in {url}")


def read_header(raw: bytes, total: int) -> SessionHeader:
    """The header as it is stored, with the CRC-32 beside it.

    Raises:
        InvalidHeader, UnsupportedVersion: it cannot be read.
    """
    try:
        if crc32(raw) != total:
            raise InvalidHeader("session header: its sum is wrong")
        wire = jsontext.decode(raw)
    except (ValueError, TypeError) as error:
        raise InvalidHeader("session header: not what was written") from error
    return SessionHeader.from_dict(wire)


# -- the listing's line ------------------------------------------------------------------------


def line_after(
    batch: Batch,
    header: Callable[[], SessionHeader],
    last_activity: int,
    stale: int,
    info: bytes | None,
) -> tuple[int, int, bytes | None]:
    """What the row says once a batch is stored: last activity, stale, info.

    Args:
        batch: it has events.
        header: reads the session's.
        last_activity: as the row has it before, and so are the others.
        stale: whether `info` cannot be gone on from.
        info: the state of the line.
    """
    if not stale and info is not None:
        try:
            fold = InfoFold(header(), jsontext.decode(info))
            fold.next_seq = batch.expected_seq
            if fold.follow(batch.events):
                state = fold.state()
                return state["lastActivity"], 0, jsontext.encode(state)
        except (TurnlogError, ValueError):
            pass  # a header or line that cannot be read: the listing says so
    return max(last_activity, batch.events[-1].time), 1, info


def line_of(
    stored: bytes,
    header: tuple[bytes, int],
    last_activity: int,
    size: int,
    info: bytes | None,
) -> SessionInfo:
    """The line that the row itself gives.

    Args:
        stored: the id, as it is stored.
        header: as it is stored, and its sum.
        last_activity: as it is stored.
        size: the session's, in bytes.
        info: the state of the line.
    """
    try:
        state: Any = None if info is None else jsontext.decode(info)
        return InfoFold(read_header(*header), state).info(size=size)
    except (TurnlogError, ValueError) as error:
        return unreadable(stored, last_activity, size, error)


def unreadable(stored: bytes, last_activity: int, size: int, error: Exception) -> SessionInfo:
    """The line of a session that cannot be read, and why."""
    return SessionInfo(
        id=read_id(stored),
        last_activity=last_activity,
        bytes=size,
        health="unreadable",
        problem=str(error),
    )
