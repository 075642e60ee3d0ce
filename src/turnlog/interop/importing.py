"""Finding what to import: files, folders and homes, one bad one hiding no other.

A folder is searched for sessions of DeepSeek Harness, whole homes included, and for those of its
`*.jsonl` files that turnlog exported; `turnlog` as the kind takes every `*.jsonl`, `openai` and
`anthropic` every `*.json`. Nothing is executed, fetched, or opened by a name that stands inside a
file.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias

from turnlog.errors import ImportFailed
from turnlog.interop.dsh import discover
from turnlog.interop.from_dsh import FromDsh
from turnlog.interop.from_messages import FromMessages
from turnlog.interop.from_turnlog import FromTurnlog, first_line, first_object
from turnlog.interop.incoming import FORMATS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from turnlog.interop.incoming import Incoming, Progress

Kind: TypeAlias = Literal["auto", "dsh", "turnlog", "openai", "anthropic"]


class Found(NamedTuple):
    """A place where a session is or should be; `read` reads it through or raises ImportFailed."""

    path: Path
    read: Callable[[Progress | None], Incoming]


def find(path: Path, kind: Kind = "auto") -> Iterator[Found]:
    """Every session at or below `path`; what cannot be read raises when it is read.

    Raises:
        ImportFailed: there is nothing at all.
    """
    empty = True
    for item in _in_folder(path, kind) if path.is_dir() else _in_file(path, kind):
        empty = False
        yield item
    if empty:
        raise ImportFailed(f"{path}: no session found; {FORMATS}")


def _in_folder(path: Path, kind: Kind) -> Iterator[Found]:
    if kind in ("auto", "turnlog"):
        for item in _files(path, "*.jsonl"):
            if kind == "turnlog" or _is_ours(item):
                yield Found(item, partial(FromTurnlog, item))
    if kind in ("auto", "dsh"):
        yield from _dsh_sessions(path)
    if kind in ("openai", "anthropic"):
        for item in _files(path, "*.json"):
            yield Found(item, partial(FromMessages, item, kind))


def _files(path: Path, pattern: str) -> list[Path]:
    return sorted(item for item in path.glob(pattern) if not item.is_symlink())


def _in_file(path: Path, kind: Kind) -> Iterator[Found]:
    try:
        header = first_object(first_line(path)) if kind == "auto" else {}
    except ImportFailed as error:
        yield Found(path, partial(_fail, path, error))
        return
    wire = header or {}
    if kind == "turnlog" or wire.get("format") == "turnlog":
        yield Found(path, partial(FromTurnlog, path))
    elif kind == "dsh" or wire.get("type") == "session":
        yield from _dsh_sessions(path)
    else:
        yield Found(path, partial(FromMessages, path, None if kind == "auto" else kind))


def _is_ours(path: Path) -> bool:
    try:
        return (first_object(first_line(path)) or {}).get("format") == "turnlog"
    except ImportFailed:
        return False


def _dsh_sessions(path: Path) -> Iterator[Found]:
    for place, session, error in discover(path):
        if session is None:
            yield Found(place, partial(_fail, place, error))
        else:
            yield Found(place, partial(FromDsh, session))


def _fail(path: Path, error: ImportFailed | None, _: Progress | None) -> Incoming:
    raise error or ImportFailed(f"{path}: no session")
