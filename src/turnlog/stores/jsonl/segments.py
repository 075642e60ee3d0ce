"""A session's log as a chain of segments: which of them count, and how much of each.

The first line of segment 1 is the session's header, that of segment t says which segment it
follows and how many bytes of that one count. The highest segment whose first line is complete is
the log's end; what none of its predecessors leads to never counted. An incomplete first line is a
takeover that has not happened, or never will.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, NamedTuple

from turnlog import jsontext
from turnlog.errors import InvalidHeader, NoSuchSession
from turnlog.stores.files import opened, read_at
from turnlog.stores.jsonl.frames import Frames
from turnlog.stores.jsonl.lines import LINE_MAX
from turnlog.stores.jsonl.names import Segment, remnants_in, segments_in
from turnlog.stores.port import Owner

if TYPE_CHECKING:
    from pathlib import Path

_CHUNK = 1 << 16


class Head(NamedTuple):
    """The first line of a segment, without its LF, and where what follows it begins."""

    line: bytes
    end: int


class Link(NamedTuple):
    """A segment that counts.

    Attributes:
        segment: which one.
        start: where its records begin.
        stop: how many of its bytes count; None for all, -1 when that cannot be read any more.
        fault: why the way to its predecessor is not known.
    """

    segment: Segment
    start: int
    stop: int | None
    fault: str = ""


def read_head(segment: Segment) -> Head | None:
    """The segment's first line; None when it is not complete, or the segment is gone."""
    try:
        with opened(segment.path) as fd:
            size = os.fstat(fd).st_size
            if segment.packed:
                for frame in Frames(fd, 0, size):
                    return Head(frame.lines.removesuffix(b"\n"), frame.end)
                return None
            return _first_line(fd)
    except FileNotFoundError:
        return None


def _first_line(fd: int) -> Head | None:
    line = b""
    while len(line) < LINE_MAX and (chunk := read_at(fd, len(line), max(_CHUNK, len(line)))):
        found = chunk.find(b"\n")
        if found >= 0:
            line += chunk[:found]
            return Head(line, len(line) + 1)
        line += chunk
    return None


def head_line(token: int, after: int, size: int, owner: Owner) -> bytes:
    """The first line of a segment that takes over."""
    line = {
        "segment": token,
        "after": {"token": after, "bytes": size},
        "owner": {"pid": owner.pid, "host": owner.host, "since": owner.since},
    }
    return jsontext.encode(line) + b"\n"


def owner_in(head: Head | None) -> Owner | None:
    """Who made a segment, by its first line."""
    match {} if head is None else _object(head.line):
        case {
            "segment": int(token),
            "owner": {"pid": int(pid), "host": str(host), "since": int(t)},
        }:
            return Owner(pid, host, t, token)
        case _:
            return None


def _object(line: bytes) -> dict[str, Any]:
    try:
        wire = jsontext.decode(line)
    except ValueError:
        return {}
    return wire if isinstance(wire, dict) else {}  # pyright: ignore[reportUnknownVariableType]


def complete(segments: list[Segment]) -> tuple[Segment, Head] | None:
    """The highest of the segments whose first line is complete."""
    for segment in reversed(segments):
        head = read_head(segment)
        if head is not None:
            return segment, head
    return None


def chain_of(folder: Path, session_id: str) -> list[Link]:
    """The segments that count, first to last; the last one counts as far as it goes.

    Raises:
        NoSuchSession: there is none.
        InvalidHeader: there is a file, and not even its first line is complete; or the files are
            gone, and what stood beside them is not.
    """
    segments = segments_in(folder)
    top = complete(segments)
    if top is not None:
        return _chain(segments, *top)
    if segments:
        msg = f"session {session_id!r}: the header in {segments[0].place} is cut off"
        raise InvalidHeader(msg)
    left = remnants_in(folder)
    if left:
        msg = (
            f"session {session_id!r}: its log is gone, no {folder.name}/1.jsonl (only "
            f"{', '.join(left)} is left)"
        )
        raise InvalidHeader(msg)
    msg = f"no session {session_id!r} in jsonl:{folder.parent}"
    raise NoSuchSession(msg)


def _chain(segments: list[Segment], segment: Segment, head: Head) -> list[Link]:
    by_token = {other.token: other for other in segments}
    links: list[Link] = []
    stop: int | None = None
    while True:
        after = None if segment.token == 1 else _after(segment, head)
        fault = ""
        if segment.token == 1:
            links.append(Link(segment, head.end, stop))
            break
        before = None if after is None else by_token.get(after[0])
        before_head = None if before is None else read_head(before)
        if before is None or before_head is None:
            fault = (
                "it does not say what it follows" if after is None else "what it follows is lost"
            )
            lower = [other for other in segments if other.token < segment.token]
            fallback = complete(lower)
            links.append(Link(segment, head.end, stop, fault))
            if fallback is None:
                break
            before, before_head = fallback
            stop = -1
        else:
            links.append(Link(segment, head.end, stop))
            stop = after[1] if after is not None else None
        segment, head = before, before_head
    return links[::-1]


def _after(segment: Segment, head: Head) -> tuple[int, int] | None:
    """Token and bytes of what the segment follows."""
    match _object(head.line):
        case {"segment": token, "after": {"token": int(after), "bytes": int(size)}} if (
            token == segment.token and 0 < after < segment.token and size >= 0
        ):
            return after, size
        case _:
            return None


def complete_end(fd: int, start: int, *, packed: bool) -> int:
    """Where the last complete record of an open segment ends."""
    size = os.fstat(fd).st_size
    if packed:
        frames = Frames(fd, start, size)
        for _ in frames:
            pass
        return frames.end
    at = size
    while at > start:
        low = max(start, at - _CHUNK)
        found = read_at(fd, low, at - low).rfind(b"\n")
        if found >= 0:
            return low + found + 1
        at = low
    return start
