"""Driver errors in our own words: what went wrong with the file, and what to do about it."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

import apsw

from turnlog.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Generator

_BUSY = "another process holds the file's lock: try again when it is done, or end it"
_PERMISSION = "permission denied: see who owns the file and its folder"
_SAID: dict[type[apsw.Error], str] = {
    apsw.BusyError: _BUSY,
    apsw.LockedError: _BUSY,
    apsw.ProtocolError: _BUSY,
    apsw.FullError: "the disk is full: free some space, and try again",
    apsw.IOError: "an I/O error: look at the disk, and try again",
    apsw.ReadOnlyError: "the file or its folder is read-only: make it writable, or copy the store",
    apsw.CantOpenError: "the file cannot be opened: may you write in its folder?",
    apsw.PermissionsError: _PERMISSION,
    apsw.AuthError: _PERMISSION,
    apsw.NotADBError: "the file is no SQLite database: check the path, or take a backup",
    apsw.CorruptError: (
        "the file is damaged: export the sessions that can be read, or take a backup"
    ),
    apsw.SQLError: "its tables are not those of a store: it may be damaged",
    apsw.NoMemError: "out of memory",
    apsw.TooBigError: "a value of more than 1 GB",
    apsw.NoLFSError: "the file system keeps no files of that size",
}
"""Exception class -> what is said. Others are said as SQLite says them."""


def failure(
    error: apsw.Error | OSError, doing: str, kind: type[StoreError] = StoreError
) -> StoreError:
    """The error of ours that says the same, to be raised from the driver's.

    Args:
        error: the driver's, or the system's.
        doing: what was being done, at least to which store.
        kind: the class of the error that is returned.
    """
    if isinstance(error, OSError):
        return kind(f"{doing}: {error.strerror or error}")
    said = next((text for cls, text in _SAID.items() if isinstance(error, cls)), str(error))
    return kind(f"{doing}: {said}{_code(error)}")


def _code(error: apsw.Error) -> str:
    code: int = getattr(error, "extendedresult", -1)
    name = apsw.mapping_extended_result_codes.get(code) or apsw.mapping_result_codes.get(code)
    return "" if name is None else f" ({name})"


@contextmanager
def translated(doing: str) -> Generator[None]:
    """Turn the driver's and the system's errors into a `StoreError`."""
    try:
        yield
    except (apsw.Error, OSError) as error:
        raise failure(error, doing) from error
