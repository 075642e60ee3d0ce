"""Becoming a session's one writer: resuming a segment, or taking over from a live owner.

The owner of a segment is whoever holds its lock, and only the highest segment's owner may write.
A takeover first makes the next segment's file, empty, and only then looks how far the segment
before it goes; its first line, which says so, completes it. An owner looks for a higher segment
after each write: if there is none, every later takeover sees that write and counts it.

- Two takeovers at once take different tokens; the higher one wins.
- One that died before its first line was complete leaves a file whose lock is free: it never
  happened, and whoever meets the file removes it, under that lock.
- An owner that was stopped finds the higher segment after its write, which nobody ever reads.
"""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING

import msgspec

from turnlog.errors import InvalidHeader, NoSuchSession, StoreError
from turnlog.stores.files import open_file, opened, write_at
from turnlog.stores.jsonl.files import sync, sync_folder
from turnlog.stores.jsonl.frames import pack
from turnlog.stores.jsonl.names import Segment, lock_path, segment_of, segments_in
from turnlog.stores.jsonl.segments import complete, complete_end, head_line, read_head
from turnlog.stores.locks import Lock, locked, owner_of
from turnlog.stores.owners import in_use

if TYPE_CHECKING:
    from pathlib import Path

    from turnlog.stores.port import Owner

_TRIES = 100
_PATIENCE = 2.0  # seconds that a takeover waits for a write that is under way


def take(
    folder: Path, session_id: str, owner: Owner, *, steal: bool, packed: bool
) -> tuple[Segment, Lock]:
    """The segment to write to, and the lock that makes its holder the owner.

    Args:
        folder: the session's.
        session_id: for messages.
        owner: who asks.
        steal: take over from a live owner.
        packed: whether a new segment is compressed.

    Raises:
        NoSuchSession, SessionInUse: as the port says.
        InvalidHeader: the session has a file without a header.
        OSError: the folder cannot be written.
    """
    for _ in range(_TRIES):
        segments = segments_in(folder)
        if not segments:
            msg = f"no session {session_id!r} in jsonl:{folder.parent}"
            raise NoSuchSession(msg)
        top = segments[-1]
        lock = acquire(folder, top.token, owner)
        if lock is None:
            if not steal:
                raise in_use(session_id, owner_of(lock_path(folder, top.token)))
            taken = _take_over(folder, top.token, owner, packed=packed)
            if taken is not None:
                return taken
            continue
        try:
            if segments_in(folder)[-1:] == [top]:
                if read_head(top) is not None:
                    mine, lock = (top, lock), None
                    return mine
                if top.token == 1:
                    msg = f"session {session_id!r}: the header in {top.place} is cut off"
                    raise InvalidHeader(msg)
                top.path.unlink(missing_ok=True)  # a takeover that never happened
        finally:
            if lock is not None:
                lock.release()
    msg = f"session {session_id!r}: its owner changed {_TRIES} times while it was claimed"
    raise StoreError(msg)


def acquire(folder: Path, token: int, owner: Owner) -> Lock | None:
    """The lock of a token, or None if it is held."""
    named = msgspec.structs.replace(owner, token=token)
    return Lock.acquire(lock_path(folder, token), named)


def _take_over(
    folder: Path, token: int, owner: Owner, *, packed: bool
) -> tuple[Segment, Lock] | None:
    """A segment of its own above `token`; None if others were faster."""
    lock = None
    while lock is None:  # a token whose lock is held is another takeover's
        token += 1
        lock = acquire(folder, token, owner)
    segment = segment_of(folder, token, packed=packed)
    done = False
    try:
        with suppress(FileExistsError):
            fd = open_file(segment.path, os.O_RDWR | os.O_CREAT | os.O_EXCL)
            try:
                done = _complete(folder, segment, fd, owner)
            finally:
                os.close(fd)
                if not done:
                    segment.path.unlink(missing_ok=True)
    finally:
        if not done:
            lock.release()
    return (segment, lock) if done else None


def _complete(folder: Path, segment: Segment, fd: int, owner: Owner) -> bool:
    """Write the first line of a new segment, which makes it count; False if it is not the last."""
    segments = segments_in(folder)
    if segments[-1] != segment:
        return False
    before = complete(segments[:-1])
    if before is None:
        return False
    with opened(before[0].path, os.O_RDWR) as previous, locked(previous, _PATIENCE):
        # whoever holds that lock for so long is stopped, and will look here before it goes on
        size = complete_end(previous, before[1].end, packed=before[0].packed)
        line = head_line(segment.token, before[0].token, size, owner)
        write_at(fd, pack(line) if segment.packed else line, 0)
    sync(fd)
    sync_folder(folder)
    return True
