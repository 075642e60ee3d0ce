"""The only place of the core that reads the clock, makes random ids, and speaks to a logger.

Clock and ids can be injected wherever they are used.
"""

from __future__ import annotations

import logging
import os
import uuid
from time import time_ns


def clock() -> int:
    """Epoch milliseconds."""
    return time_ns() // 1_000_000


def new_id() -> str:
    """A random id that sorts by its time of creation (48 bits of milliseconds, 80 random bits)."""
    return f"{clock():012x}{uuid.uuid4().hex[:20]}"


def process_id() -> int:
    """By which a session notices that its process was forked.

    It is kept, because every append asks and a call of the system's takes longer than the rest.
    """
    return _process_id


def _look_who_we_are() -> None:
    global _process_id  # noqa: PLW0603 - there is one process
    _process_id = os.getpid()


_process_id = os.getpid()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_look_who_we_are)


def report_observer(session_id: str, seq: int) -> None:
    """Tell the `turnlog` logger of the exception that an observer just raised."""
    logging.getLogger("turnlog").exception(  # noqa: LOG004 - called where it was caught
        "an observer of session %r failed at event %d", session_id, seq
    )


def report_metrics(kind: str) -> None:
    """Tell the `turnlog` logger of the exception that whoever measures a writer just raised."""
    logging.getLogger("turnlog").exception(  # noqa: LOG004 - called where it was caught
        "what measures the writer of a store of kind %r failed", kind
    )


def report_late_result(session_id: str, call_id: str) -> None:
    """Tell the `turnlog` logger that a result came when its session took no more."""
    logging.getLogger("turnlog").warning(
        "session %r: the result of call %r came after the session was closed", session_id, call_id
    )


def report_unknown_window(session_id: str, assumed: int) -> None:
    """Tell the `turnlog` logger that nobody said how large the model's window is."""
    logging.getLogger("turnlog").warning(
        "session %r: the model's window is not known, %d tokens are assumed", session_id, assumed
    )
