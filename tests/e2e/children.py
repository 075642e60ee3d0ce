"""Commands in processes of their own: read what they say as they say it, interrupt, kill them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from codecs import getincrementaldecoder
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from threading import Timer
from typing import Any, cast

PATIENCE = 60.0  # seconds after which a child that hangs is killed, and its test fails

ON_TERMINAL = """
import fcntl, sys, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
from turnlog.cli import main
main(sys.argv[1:])
"""


class Child:
    """A running command.

    Attributes:
        text: what it has said so far, as far as it was read.
    """

    def __init__(self, process: subprocess.Popen[bytes], fd: int) -> None:
        self.process = process
        self.text = ""
        self._fd = fd
        self._decoder = getincrementaldecoder("utf-8")()

    def until(self, *words: str) -> str:
        """Read until each of the words was said, in this order; returns what was read."""
        start = at = len(self.text)
        for word in words:
            while (found := self.text.find(word, at)) < 0:
                assert self._read(), f"expected {word!r}; it ended and had said {self.text!r}"
            at = found + len(word)
        return self.text[start:]

    def event(self) -> dict[str, Any]:
        """The next line, as JSON."""
        return json.loads(self.until("\n"))

    def _read(self) -> bool:
        """Read one more byte; False at the end."""
        try:
            byte = os.read(self._fd, 1)
        except OSError:  # a terminal whose other end was closed
            byte = b""
        self.text += self._decoder.decode(byte)
        return bool(byte)

    def rest(self) -> str:
        """Read until it ends."""
        start = len(self.text)
        while self._read():
            pass
        return self.text[start:]

    def errors(self) -> str:
        """What it said on standard error, all of it, once it has ended."""
        assert self.process.stderr is not None
        return self.process.stderr.read().decode()

    def signal(self, number: int = signal.SIGINT) -> None:
        """Send it a signal."""
        self.process.send_signal(number)

    def status(self) -> int:
        """Its exit status."""
        return self.process.wait(PATIENCE)


def command(*words: object) -> list[str]:
    """A command's arguments for a process."""
    return [sys.executable, "-m", "turnlog", *map(str, words)]


@contextmanager
def child(*words: object, stdin: int = subprocess.DEVNULL) -> Generator[Child]:
    """A command whose standard output is read; standard error goes to a pipe of its own."""
    with _running(command(*words), stdin=stdin, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        yield Child(process, process.stdout.fileno())


@contextmanager
def on_terminal(*words: object) -> Generator[tuple[Child, int]]:
    """A command on a terminal of its own, and the end that a person types at."""
    ours, theirs = os.openpty()
    arguments = [sys.executable, "-c", ON_TERMINAL, *map(str, words)]
    try:
        with _running(
            arguments, stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True
        ) as process:
            os.close(theirs)
            yield Child(process, ours), ours
    finally:
        os.close(ours)


@contextmanager
def _running(arguments: Sequence[str], **options: Any) -> Generator[subprocess.Popen[bytes]]:
    options = {"stderr": subprocess.PIPE, **options}
    environment = {**os.environ, "PYTHONUNBUFFERED": "1", "TERM": "dumb"}
    process = cast(
        "subprocess.Popen[bytes]", subprocess.Popen(arguments, env=environment, **options)
    )
    watchdog = Timer(PATIENCE, process.kill)
    watchdog.start()
    try:
        yield process
    finally:
        watchdog.cancel()
        process.kill()
        process.communicate()
