"""Faults in our own words: what is wrong with a server, and what to do about it."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from turnlog.errors import StoreError
from turnlog.stores.server.driver import Fault, Trouble

if TYPE_CHECKING:
    from collections.abc import Generator

_SAID = {
    Trouble.LOST: "the server cannot be reached, or went away: see that it runs, and try again",
    Trouble.BUSY: "another process holds what is needed: try again when it is done, or end it",
    Trouble.TAKEN: "a row is there that should not be: the tables were changed by someone else",
    Trouble.TOO_LARGE: "more than the server takes at once: raise its limit",
    Trouble.FULL: "the server has no room left: see its disk, memory and limits, and try again",
    Trouble.REFUSED: "the server refuses it: see the user, the password, the database and what "
    "the user may do there",
    Trouble.READ_ONLY: "the server is read-only, a standby perhaps: name its primary",
    Trouble.OTHER: "",
}


def failure(fault: Fault, doing: str, kind: type[StoreError] = StoreError) -> StoreError:
    """The error of ours that says the same, to be raised from the fault.

    Args:
        fault: what the driver raised.
        doing: what was being done, at least to which store.
        kind: the class of the error that is returned.
    """
    said = fault.hint or _SAID[fault.trouble]
    return kind(f"{doing}: {said} [{fault}]" if said else f"{doing}: {fault}")


@contextmanager
def translated(doing: str) -> Generator[None]:
    """Turn faults into a `StoreError`."""
    try:
        yield
    except Fault as fault:
        raise failure(fault, doing) from fault
