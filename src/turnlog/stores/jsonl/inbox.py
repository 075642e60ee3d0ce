"""A session's inbox: a file of its own, to which any process may add, under a lock of its own.

A line posts a command, `{"post":POSITION,"at":NANOSECONDS,"command":{…}}`, or takes some out,
`{"done":[POSITION…]}`. Nothing is ever removed from the file: the ids that were posted are what
makes a second post of the same id harmless.
"""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Any

import msgspec

from turnlog import jsontext
from turnlog.commands import Command, Prompt, decode_command, encode_command
from turnlog.stores.jsonl.files import open_file, opened, read_at, sync, sync_folder, write_at
from turnlog.stores.jsonl.locks import holding
from turnlog.stores.port import Queued

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

_FILE = "inbox.jsonl"
_PATIENCE = 10.0


class Waiting(msgspec.Struct):
    """An inbox as it was read.

    Attributes:
        queued: the commands that wait, in order.
        posted: every id that was ever posted.
        last: the greatest position.
        prompt_since: when the first prompt that waits was posted, in nanoseconds; None without.
        end: where the last complete line ends.
    """

    queued: list[Queued]
    posted: set[str]
    last: int = -1
    prompt_since: int | None = None
    end: int = 0


class Inboxes:
    """The inboxes of a store's sessions; what was read is kept until the file changes."""

    def __init__(self, *, durable: bool) -> None:
        self._durable = durable
        self._read: dict[Path, tuple[tuple[int, int, int], Waiting]] = {}

    def waiting(self, folder: Path) -> Waiting:
        """What waits in a session's inbox."""
        try:
            with opened(folder / _FILE) as fd:
                return self._waiting(folder, fd)
        except FileNotFoundError:
            return Waiting([], set())

    def _waiting(self, folder: Path, fd: int) -> Waiting:
        stat = os.fstat(fd)
        known = (stat.st_ino, stat.st_size, stat.st_mtime_ns)
        cached = self._read.get(folder)
        if cached is not None and cached[0] == known:
            return cached[1]
        waiting = _parse(read_at(fd, 0, stat.st_size))
        self._read[folder] = known, waiting
        return waiting

    def post(self, folder: Path, command: Command) -> bool:
        """Add a command, unless its id was posted before."""
        wire = encode_command(command)
        with holding(folder / "inbox.lock", _PATIENCE, "inbox"):
            waiting = self.waiting(folder)
            if command.id in waiting.posted:
                return False
            line = b'{"post":%d,"at":%d,"command":%s}\n' % (waiting.last + 1, time.time_ns(), wire)
            self._append(folder, line, waiting.end)
        return True

    def accept(self, folder: Path, positions: Sequence[int]) -> None:
        """Take commands out."""
        line = b'{"done":%s}\n' % jsontext.encode(list(positions))
        with holding(folder / "inbox.lock", _PATIENCE, "inbox"):
            self._append(folder, line, self.waiting(folder).end)

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


def _parse(data: bytes) -> Waiting:
    end = data.rfind(b"\n") + 1
    queued: dict[int, Queued] = {}
    since: dict[int, int] = {}
    waiting = Waiting([], set(), end=end)
    for raw in data[:end].split(b"\n"):
        line = _line(raw)
        for position in line.done:
            queued.pop(position, None)
        if line.command is not None:
            waiting.last = max(waiting.last, line.post)
            waiting.posted.add(str(line.command.get("id")))
            command = _command(line.command)
            if command is not None:
                queued[line.post] = Queued(line.post, command)
                since[line.post] = line.at
    waiting.queued = [queued[position] for position in sorted(queued)]
    prompts = (since[q.position] for q in waiting.queued if type(q.command) is Prompt)
    waiting.prompt_since = min(prompts, default=None)
    return waiting


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
