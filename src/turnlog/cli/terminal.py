"""What a person types: lines, one at a time, to whoever asks; and the answer to an approval."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from importlib import import_module
from typing import TYPE_CHECKING, Any

from turnlog.cli import screen

if TYPE_CHECKING:
    import anyio

    from turnlog.agent import ApprovalRequest

_kept: list[Any] = []  # the terminal's settings before anyone read from it


def is_interactive() -> bool:
    """Whether a person can be asked."""
    return sys.stdin is not None and sys.stdin.isatty()


class Lines:
    """Reads lines in a thread. A question that was withdrawn leaves its line to the next one."""

    def __init__(self) -> None:
        self._came: anyio.Event | None = None  # set when the line that is being read is there
        self._line: str | None = None
        self._closed = False

    async def ask(self, question: str, *, discard: bool = False) -> str | None:
        """The next line without its end; None when there is none any more, or after `close`.

        Args:
            question: shown on a terminal only.
            discard: drop what was typed before the question was seen.
        """
        import anyio

        if self._closed:
            return None
        if discard:
            _discard_typed()
        if self._came is None:
            self._came = anyio.Event()
            self._start(question)
        elif is_interactive():
            print(question, end="", file=sys.stderr, flush=True)  # the read began long ago
        await self._came.wait()
        if self._closed:
            return None
        self._came = None
        return self._line

    def _start(self, question: str) -> None:
        import asyncio

        loop = asyncio.get_running_loop()

        def read() -> None:
            line = _read(question)
            with suppress(RuntimeError):  # nobody waits any more: the loop is closed
                loop.call_soon_threadsafe(self._deliver, line)

        _keep_settings()
        threading.Thread(target=read, daemon=True, name="turnlog input").start()

    def _deliver(self, line: str | None) -> None:
        self._line = line
        if self._came is not None:
            self._came.set()

    def close(self) -> None:
        """Wake whoever waits; there are no more lines."""
        self._closed = True
        if self._came is not None:
            self._came.set()

    async def approve(self, request: ApprovalRequest) -> bool:
        """Ask whether a call may run; anything but y or yes denies."""
        call = f"{request.tool_name}({request.arguments})"
        question = f"Run {screen.printable_line(call)}? [y/N] "
        answer = await self.ask(question, discard=True)
        return (answer or "").strip().lower() in ("y", "yes")


def _read(question: str) -> str | None:
    if not is_interactive():
        line = sys.stdin.readline()
        return line.removesuffix("\n") if line else None
    _edit_lines()
    try:
        if sys.stdout.isatty():
            return input(question)
        print(question, end="", file=sys.stderr, flush=True)
        return input()
    except (EOFError, OSError, ValueError):  # closed, or not readable
        return None


def _edit_lines() -> None:
    with suppress(ImportError):  # without it, lines are as the terminal itself edits them
        import_module("readline")  # which input() uses once it is there


def _terminal(act: Callable[[Any, int], None]) -> None:
    """Act on the terminal's settings, where there are such."""
    try:
        import termios
    except ImportError:
        return
    with suppress(termios.error, OSError, ValueError, AttributeError):
        act(termios, sys.stdin.fileno())


def _keep_settings() -> None:
    def keep(termios: Any, fd: int) -> None:
        if not _kept:
            _kept.append(termios.tcgetattr(fd))

    _terminal(keep)


def restore() -> None:
    """Put the terminal back as it was: a read that is under way has changed its settings."""
    if _kept:
        _terminal(lambda termios, fd: termios.tcsetattr(fd, termios.TCSADRAIN, _kept[0]))


def _discard_typed() -> None:
    _terminal(lambda termios, fd: termios.tcflush(fd, termios.TCIFLUSH))
