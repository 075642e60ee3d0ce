"""A session's inbox: a file of its own, to which any process may add, under a lock of its own.

A line posts a command, `{"post":POSITION,"at":NANOSECONDS,"command":{…}}`, or takes some out,
`{"done":[POSITION…]}`. Nothing is ever removed from the file: the ids that were posted are what
makes a second post of the same id harmless.
"""

from __future__ import annotations

import os
import time
from threading import Lock as Guard
from typing import TYPE_CHECKING, Any

import msgspec

from turnlog import jsontext
from turnlog.commands import Command, Prompt, decode_command, encode_command, wakes
from turnlog.stores.files import open_file, opened, read_at, write_at
from turnlog.stores.jsonl.files import sync, sync_folder
from turnlog.stores.locks import holding
from turnlog.stores.port import Queued

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

_FILE = "inbox.jsonl"
_PATIENCE = 10.0
_CLOSE = 256


class Waiting(msgspec.Struct):
    """What waits in an inbox.

    Attributes:
        queued: the commands that wait, in order.
        prompt_since: when the first prompt that waits was posted, in nanoseconds; None without.
        since: when the first command was that a loop is to do something about.
    """

    queued: list[Queued]
    prompt_since: int | None = None
    since: int | None = None


class _Inbox(msgspec.Struct):
    """An inbox as far as it was read; lines are only ever added, so the rest can be read on.

    Attributes:
        inode: of the file.
        end: where the last complete line ends.
        close: the last bytes before that: if others stand there, it is another file.
        last: the greatest position.
        posted: every id that was ever posted.
        queued: the commands that wait, by position.
        since: when they were posted, in nanoseconds.
    """

    inode: int = -1
    end: int = 0
    close: bytes = b""
    last: int = -1
    posted: set[str] = msgspec.field(default_factory=set[str])
    queued: dict[int, Queued] = msgspec.field(default_factory=dict[int, Queued])
    since: dict[int, int] = msgspec.field(default_factory=dict[int, int])

    def take(self, data: bytes) -> None:
        """Read on: `data` is what follows `end`."""
        size = data.rfind(b"\n") + 1
        for raw in data[:size].split(b"\n"):
            if not (raw.startswith(b"{") and raw.endswith(b"}")):
                continue
            line = _line(raw)
            for position in line.done:
                self.queued.pop(position, None)
                self.since.pop(position, None)
            if line.command is not None:
                self.last = max(self.last, line.post)
                self.posted.add(str(line.command.get("id")))
                command = _command(line.command)
                if command is not None:
                    self.queued[line.post] = Queued(line.post, command)
                    self.since[line.post] = line.at
        self.end += size
        self.close = (self.close + data[max(0, size - _CLOSE) : size])[-_CLOSE:]


class Inboxes:
    """The inboxes of a store's sessions; what was read is kept, and read on from there."""

    def __init__(self, *, durable: bool) -> None:
        self._durable = durable
        self._guard = Guard()  # of what was read: calls come from any thread
        self._read: dict[Path, _Inbox] = {}

    def waiting(self, folder: Path) -> Waiting:
        """What waits in a session's inbox."""
        with self._guard:
            inbox = self._inbox(folder)
            queued = [inbox.queued[position] for position in sorted(inbox.queued)]
            prompts = (inbox.since[q.position] for q in queued if type(q.command) is Prompt)
            work = (inbox.since[q.position] for q in queued if wakes(q.command))
            return Waiting(queued, min(prompts, default=None), min(work, default=None))

    def _inbox(self, folder: Path) -> _Inbox:
        try:
            with opened(folder / _FILE) as fd:
                stat = os.fstat(fd)
                inbox = self._read.get(folder) or _Inbox(stat.st_ino)
                begin = inbox.end - len(inbox.close)
                data = read_at(fd, begin, stat.st_size - begin)
                if inbox.inode != stat.st_ino or not data.startswith(inbox.close):
                    inbox, begin = _Inbox(stat.st_ino), 0
                    data = read_at(fd, 0, stat.st_size)
        except FileNotFoundError:
            self._read.pop(folder, None)
            return _Inbox()
        inbox.take(data[inbox.end - begin :])
        self._read[folder] = inbox
        return inbox

    def post(self, folder: Path, command: Command) -> bool:
        """Add a command, unless its id was posted before."""
        wire = encode_command(command)
        with holding(folder / "inbox.lock", _PATIENCE, "inbox"):
            with self._guard:
                inbox = self._inbox(folder)
                position, end, known = inbox.last + 1, inbox.end, command.id in inbox.posted
            if known:
                return False
            line = b'{"post":%d,"at":%d,"command":%s}\n' % (position, time.time_ns(), wire)
            self._append(folder, line, end)
        return True

    def accept(self, folder: Path, positions: Sequence[int]) -> None:
        """Take commands out."""
        line = b'{"done":%s}\n' % jsontext.encode(list(positions))
        with holding(folder / "inbox.lock", _PATIENCE, "inbox"):
            with self._guard:
                end = self._inbox(folder).end
            self._append(folder, line, end)

    def _append(self, folder: Path, line: bytes, end: int) -> None:
        """Write behind the last complete line; what a crash left there was never acknowledged."""
        path = folder / _FILE
        new = not path.exists()
        fd = open_file(path, os.O_RDWR | os.O_CREAT)
        try:
            if os.fstat(fd).st_size > end:
                os.ftruncate(fd, end)
            write_at(fd, line, end)
            if self._durable:
                sync(fd)
        finally:
            os.close(fd)
        if new and self._durable:
            sync_folder(folder)


def inbox_fault(folder: Path) -> str | None:
    """Why a session's inbox cannot be read, if so."""
    try:
        with opened(folder / _FILE):
            return None
    except FileNotFoundError:
        return None
    except OSError as error:
        return f"its {_FILE} cannot be read: {error.strerror}"


class _Line(msgspec.Struct):
    post: int = 0
    at: int = 0
    command: dict[str, Any] | None = None
    done: list[int] = []


def _line(raw: bytes) -> _Line:
    """The line; an empty one if it cannot be read: nothing of it could be carried out."""
    try:
        return msgspec.convert(jsontext.decode(raw), _Line)
    except ValueError:
        return _Line()


def _command(wire: dict[str, Any]) -> Command | None:
    """The command; None for one of a newer turnlog, which stays in the file."""
    try:
        return decode_command(jsontext.encode(wire))
    except ValueError:
        return None
