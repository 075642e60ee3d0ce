"""What the owner of a session does with its segment: write at its end, and nowhere else.

After a write that failed, the file is cut back to its last good end before the next one, so there
is never half a batch. The same holds after a failed fsync: its pages may be marked clean without
being on disk, so nothing is believed about them; the retry writes them again.
"""

from __future__ import annotations

import os
import time
from contextlib import suppress
from itertools import count
from threading import Lock as Guard
from typing import TYPE_CHECKING, Literal

from turnlog import jsontext
from turnlog.errors import StaleWriter, WriteFailed
from turnlog.stores.files import open_file, write_at
from turnlog.stores.jsonl.files import copy_range, sync
from turnlog.stores.jsonl.frames import pack
from turnlog.stores.jsonl.lines import lines_of
from turnlog.stores.jsonl.names import Segment, lock_path, segments_in, torn_path
from turnlog.stores.jsonl.ownership import acquire
from turnlog.stores.jsonl.scan import Mark, scan
from turnlog.stores.jsonl.segments import Head, chain_of, owner_in, read_head
from turnlog.stores.locks import Lock, locked, owner_of
from turnlog.stores.owners import describe

if TYPE_CHECKING:
    from pathlib import Path

    from turnlog.events import SessionHeader
    from turnlog.stores.port import Batch, Owner

_PATIENCE = 10.0
_POLL = 0.01


class Tenure:
    """The time of one owner. Its calls block, and may come from any thread.

    Args:
        folder: the session's.
        session_id: whose.
        owner: who owns it.
        segment: what to write to.
        lock: the segment's.
        durable: whether a write is followed by an fsync.
        patience: seconds to wait for a takeover that is under way.
    """

    def __init__(
        self,
        folder: Path,
        session_id: str,
        owner: Owner,
        segment: Segment,
        lock: Lock,
        *,
        durable: bool,
        patience: float = _PATIENCE,
    ) -> None:
        self.folder = folder
        self.segment = segment
        self.next_seq = 0
        self.session_id = session_id
        self._owner = owner
        self._lock = lock
        self._durable = durable
        self._patience = patience
        self._guard = Guard()
        self._fd = -1
        self._header: SessionHeader | None = None
        self._size = 0
        self._rest: Literal["none", "torn", "ours"] = "none"  # what lies behind `_size`
        self._unsettled: int | None = None  # from which seq on it is not known whether it counts

    @property
    def mark(self) -> Mark | None:
        """Where the log ends, once something was written."""
        if self._header is None:
            return None
        return Mark(self.segment, self._size, self._size, self.next_seq, self._header)

    def commit(self, batch: Batch, known: Mark | None) -> None:
        """Store a batch; `known` is where the log was found to end.

        Raises:
            StaleWriter, WriteFailed: nothing of it was stored, as the port says.
        """
        with self._guard:
            self._prepare(known)
            events, expected = batch.events, batch.expected_seq
            begun = self._settle_rest()
            if begun is not None and begun == expected:  # a retry: its beginning is in the file
                events = [event for event in events if event.seq >= self.next_seq]
                expected = self.next_seq
                if not events:
                    return
            if expected != self.next_seq:
                msg = (
                    f"session {self.session_id!r}: expected the log to end before seq {expected}, "
                    f"it ends before {self.next_seq}"
                )
                raise StaleWriter(msg)
            self._append(lines_of(events), events[-1].seq + 1)

    def reseed(self, header: SessionHeader, known: Mark | None) -> None:
        """Store a header that takes the place of the one before; raises as `commit` does."""
        with self._guard:
            self._prepare(known)
            self._settle_rest()
            self._append(jsontext.encode(header.to_dict()) + b"\n", self.next_seq)
            self._header = header

    def release(self) -> None:
        """Give the session back. Idempotent."""
        with self._guard:
            if self._fd >= 0:
                os.close(self._fd)
                self._fd = -1
            self._lock.release()

    # -- before a write ------------------------------------------------------------------------

    def _prepare(self, known: Mark | None) -> None:
        if not self._lock.held:
            msg = f"session {self.session_id!r}: the claim was given back"
            raise StaleWriter(msg)
        if self._fd >= 0:
            return
        self._check_owner()
        fd = open_file(self.segment.path, os.O_RDWR)
        try:
            size = os.fstat(fd).st_size
            if known is None or (known.segment, known.size) != (self.segment, size):
                known = scan(self.folder, self.session_id).mark
        except BaseException:
            os.close(fd)
            raise
        if known.segment != self.segment:
            os.close(fd)
            self._check_owner()
            msg = f"session {self.session_id!r}: {self.segment.place} does not count any more"
            raise StaleWriter(msg)
        self._fd, self._size, self.next_seq = fd, known.end, known.next_seq
        self._header = known.header
        self._rest = "torn" if known.size > known.end else "none"

    def _check_owner(self) -> None:
        newer = self._newer()
        if newer is not None:
            raise self._stale(*newer)

    def _newer(self) -> tuple[Segment, Head] | None:
        """The segment of a later owner, if there is one.

        Raises:
            WriteFailed: a takeover is under way and stays so: nobody can tell yet.
        """
        deadline = time.monotonic() + self._patience
        while True:
            segments = segments_in(self.folder)
            if not segments or segments[-1].token <= self.segment.token:
                return None
            top = segments[-1]
            head = read_head(top)
            if head is not None:
                return top, head
            lock = acquire(self.folder, top.token, self._owner)
            if lock is not None:
                try:
                    if read_head(top) is None:
                        top.path.unlink(missing_ok=True)  # a takeover that never happened
                finally:
                    lock.release()
            elif time.monotonic() > deadline:
                who = describe(owner_of(lock_path(self.folder, top.token)))
                msg = f"session {self.session_id!r}: a takeover by {who} does not come to an end"
                raise WriteFailed(msg)
            else:
                time.sleep(_POLL)

    def _stale(self, segment: Segment, head: Head) -> StaleWriter:
        owner = owner_of(lock_path(self.folder, segment.token)) or owner_in(head)
        msg = f"session {self.session_id!r} was taken over by {describe(owner)}"
        return StaleWriter(msg, owner=owner)

    # -- writing -------------------------------------------------------------------------------

    def _append(self, lines: bytes, next_seq: int) -> None:
        """Write at the end, whole or not at all, and see whether it counts."""
        data = pack(lines) if self.segment.packed else lines
        self._check_owner()
        with locked(self._fd, self._patience) as got:
            if not got:
                msg = f"session {self.session_id!r}: {self.segment.place} is locked by a takeover"
                raise WriteFailed(msg)
            self._check_file()
            try:
                self._cut()
                self._rest = "ours"
                write_at(self._fd, data, self._size)
                if self._durable:
                    sync(self._fd)
            except OSError as error:
                self._undo()
                msg = (
                    f"session {self.session_id!r}: {self.segment.place} was not written: "
                    f"{error.strerror or error}"
                )
                raise WriteFailed(msg) from error
            self._rest = "none"
            self._size += len(data)
        self._unsettled, self.next_seq = self.next_seq, next_seq
        self._settle_rest()

    def _settle_rest(self) -> int | None:
        """Find out whether what was written counts; returns the seq from which that was unknown."""
        begun = self._unsettled
        if begun is None:
            return None
        newer = self._newer()
        if newer is not None and not self._counts():
            raise self._stale(*newer)
        self._unsettled = None
        return begun

    def _counts(self) -> bool:
        """Whether later owners found everything that is in this segment."""
        for link in chain_of(self.folder, self.session_id):
            if link.segment == self.segment:
                return link.stop is None or link.stop >= self._size
        return False

    def _check_file(self) -> None:
        """Refuse to write to a file that is not the one we know."""
        ours = os.fstat(self._fd)
        try:
            there = self.segment.path.lstat()
        except FileNotFoundError:
            there = None
        if there is None or (there.st_dev, there.st_ino) != (ours.st_dev, ours.st_ino):
            msg = f"session {self.session_id!r}: {self.segment.place} was removed or replaced"
            raise WriteFailed(msg)
        if ours.st_size < self._size or (ours.st_size > self._size and self._rest == "none"):
            msg = (
                f"session {self.session_id!r}: expected {self.segment.place} to have "
                f"{self._size} bytes, it has {ours.st_size}: something else wrote to it"
            )
            raise WriteFailed(msg)

    def _cut(self) -> None:
        """Take away what lies behind the last good end; what a crash left is set aside first."""
        if self._rest == "none":
            return
        size = os.fstat(self._fd).st_size
        if self._rest == "torn":
            for attempt in count():
                target = torn_path(self.folder, self.segment.token, self._size, attempt)
                with suppress(FileExistsError):
                    copy_range(self._fd, self._size, size, target)
                    break
            self._rest = "ours"
        os.ftruncate(self._fd, self._size)

    def _undo(self) -> None:
        """Take back a failed write; if that fails too, the next write does it first."""
        alone = segments_in(self.folder)[-1:] == [self.segment]  # else a takeover counts them
        if self._rest == "ours" and alone:
            with suppress(OSError):
                os.ftruncate(self._fd, self._size)
