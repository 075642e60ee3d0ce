"""Finding what to import: files, folders and homes, one bad one hiding no other.

A folder is searched for sessions of DeepSeek Harness, whole homes included. Files of turnlog's own
are named one by one, or by `turnlog` as the kind, which takes each `*.jsonl` of a folder. Nothing
is executed, fetched, or opened by a name that stands inside a file.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias

from turnlog.errors import ImportFailed
from turnlog.interop.dsh import discover
from turnlog.interop.from_dsh import FromDsh
from turnlog.interop.from_turnlog import FromTurnlog, is_turnlog_file

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from turnlog.interop.incoming import Incoming, Progress

Kind: TypeAlias = Literal["auto", "dsh", "turnlog"]


class Found(NamedTuple):
    """A place where a session is or should be; `read` reads it through or raises ImportFailed."""

    path: Path
    read: Callable[[Progress | None], Incoming]


def find(path: Path, kind: Kind = "auto") -> Iterator[Found]:
    """Every session at or below `path`; what cannot be read raises when it is read.

    Raises:
        ImportFailed: there is nothing at all.
    """
    found = _turnlog_files(path, kind)
    if found is None:
        found = _dsh_sessions(path)
    empty = True
    for item in found:
        empty = False
        yield item
    if empty:
        hint = "" if kind == "turnlog" else "; --from turnlog takes the *.jsonl files of a folder"
        raise ImportFailed(f"{path}: no session found{hint}")


def _turnlog_files(path: Path, kind: Kind) -> Iterator[Found] | None:
    """The files of ours, or None where DeepSeek Harness is to be looked for."""
    if kind == "dsh":
        return None
    if path.is_dir():
        if kind == "auto":
            return None
        files = sorted(item for item in path.glob("*.jsonl") if not item.is_symlink())
        return (Found(item, partial(FromTurnlog, item)) for item in files)
    if kind == "auto":
        try:
            if not is_turnlog_file(path):
                return None
        except ImportFailed as error:
            return iter([Found(path, partial(_fail, path, error))])
    return iter([Found(path, partial(FromTurnlog, path))])


def _dsh_sessions(path: Path) -> Iterator[Found]:
    for place, session, error in discover(path):
        if session is None:
            yield Found(place, partial(_fail, place, error))
        else:
            yield Found(place, partial(FromDsh, session))


def _fail(path: Path, error: ImportFailed | None, _: Progress | None) -> Incoming:
    raise error or ImportFailed(f"{path}: no session")
