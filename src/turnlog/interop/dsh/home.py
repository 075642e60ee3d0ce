"""Finding sessions: in one file, one session's folder, a whole home, or any tree of folders.

Nothing is opened through a link, and no name that stands inside a file is ever used as a path.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from turnlog.errors import ImportFailed
from turnlog.interop.dsh.frames import LIMITS, Limits
from turnlog.interop.dsh.source import DshSource, open_file

if TYPE_CHECKING:
    from collections.abc import Iterator

_SESSION = re.compile(r"session(?:\.v(?P<version>[0-9]{1,9}))?\.jsonl(?P<packed>\.zstd)?")


class Found(NamedTuple):
    """A place where a session is or should be: either the session or why it cannot be read."""

    path: Path
    session: DshSource | None
    error: ImportFailed | None


def discover(path: Path, limits: Limits = LIMITS) -> Iterator[Found]:
    """Every session at or below `path`, by path; what cannot be read comes as an error value.

    In each folder the highest generation counts (`session.jsonl` is 0, `session.v4.jsonl.zstd` 4);
    older ones are what the program kept when it migrated. Links are named, not followed; `path`
    itself may be one. A tree without sessions gives nothing.
    """
    if not path.is_dir():
        yield _open(path, limits)
        return
    folders = [path]
    while folders:
        folder = folders.pop()
        try:
            with os.scandir(folder) as entries:
                listed = sorted(entries, key=lambda entry: entry.name)
        except OSError as error:
            yield Found(folder, None, ImportFailed(f"{folder}: {error.strerror or error}"))
            continue
        for entry in listed:
            if entry.is_symlink() and (_SESSION.fullmatch(entry.name) or entry.is_dir()):
                here = Path(entry.path)
                yield Found(here, None, ImportFailed(f"{here}: a link, which is not followed"))
        yield from _newest(folder, listed, limits)
        below = [Path(e.path) for e in listed if e.is_dir(follow_symlinks=False)]
        folders.extend(reversed(below))


def _newest(folder: Path, listed: list[os.DirEntry[str]], limits: Limits) -> Iterator[Found]:
    """The newest generation of the session in one folder."""
    generations: dict[int, list[Path]] = {}
    for entry in listed:
        name = _SESSION.fullmatch(entry.name)
        if name and not entry.is_symlink() and not entry.is_dir():
            generations.setdefault(int(name["version"] or 0), []).append(Path(entry.path))
    if not generations:
        return
    newest = generations[max(generations)]
    if len(newest) > 1:
        names = " and ".join(path.name for path in newest)
        error = ImportFailed(f"{folder}: {names} are the same generation; name the one to read")
        yield Found(folder, None, error)
    else:
        yield _open(newest[0], limits)


def _open(path: Path, limits: Limits) -> Found:
    try:
        return Found(path, open_file(path, limits), None)
    except ImportFailed as error:
        return Found(path, None, error)
