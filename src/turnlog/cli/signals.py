"""Ctrl-C, in two steps: the first asks for an orderly end, the second leaves at once."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from types import FrameType

from turnlog.cli import terminal

INTERRUPTED = 130


@contextmanager
def on_interrupt(*acts: Callable[[], object]) -> Generator[None]:
    """Inside, each Ctrl-C or SIGTERM calls the next of `acts` in the running event loop.

    One more leaves the process at once, whatever it waits for; the log is then as a crash leaves
    it, and whoever opens the session next repairs it.
    """
    import asyncio

    if threading.current_thread() is not threading.main_thread():
        yield  # signals are the main thread's
        return
    loop = asyncio.get_running_loop()
    seen = 0

    def handle(number: int, frame: FrameType | None) -> None:
        nonlocal seen
        del number, frame
        seen += 1
        if seen > len(acts):
            terminal.restore()
            os.write(sys.__stderr__.fileno() if sys.__stderr__ else 2, _LEFT)
            os._exit(INTERRUPTED)
        loop.call_soon_threadsafe(acts[seen - 1])

    numbers = (signal.SIGINT, signal.SIGTERM)
    kept = {number: signal.signal(number, handle) for number in numbers}
    try:
        yield
    finally:
        for number, handler in kept.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)


_LEFT = b"\nturnlog: left at once; the session is repaired when it is opened again\n"


def leave(status: int) -> None:
    """End the process with that status, though a tool or a read may go on in a thread."""
    terminal.restore()
    for thread in threading.enumerate():
        if thread is not threading.current_thread():
            thread.join(_PATIENCE)
    if threading.active_count() > 1:
        with suppress(OSError, ValueError):  # nobody reads any more
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(status)
    sys.exit(status)


_PATIENCE = 0.2  # seconds for a thread that is about to end
