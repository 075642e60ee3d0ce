"""Names of files and folders: a session's id as a folder name, a token as a segment's name.

An id is hostile input. Its folder's name holds lower-case ASCII letters, digits, "-" and "_" as
they are and every other byte of its UTF-8 as `%xx`, so that two ids never share a folder, not on a
file system that ignores case, blanks or dots either. The name of a long id ends in a digest of it.
"""

from __future__ import annotations

import hashlib
import re
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import unquote_to_bytes

if TYPE_CHECKING:
    from pathlib import Path

MAX_NAME = 180
_KEPT_OF_LONG = 100
_UNSAFE = re.compile(rb"[^a-z0-9_-]")
_RESERVED = re.compile(rb"(?:con|prn|aux|nul|com[0-9]|lpt[0-9])\Z")  # devices, on Windows
_REMNANT = re.compile(r"(?:[1-9][0-9]{0,17}\.lock|torn-.*|info\.json|inbox\.jsonl)\Z")
_SEGMENT = re.compile(r"([1-9][0-9]{0,17})\.jsonl(\.zst)?\Z")


def folder_name(session_id: str) -> str:
    """The name of the session's folder: no path, and no other id's."""
    raw = session_id.encode("utf-8", "surrogatepass")
    name = _UNSAFE.sub(lambda m: b"%%%02x" % m[0][0], raw)
    if _RESERVED.match(name):
        name = b"%%%02x" % name[0] + name[1:]
    if len(name) > MAX_NAME:
        name = name[:_KEPT_OF_LONG] + b"~" + hashlib.sha256(raw).hexdigest().encode()
    return name.decode("ascii")


def id_of(name: str) -> str:
    """The id that a folder's name stands for; the name itself where it tells none."""
    try:
        return unquote_to_bytes(name).decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        return name


class Segment(NamedTuple):
    """One file of a session's log: what the owner with this token wrote."""

    token: int
    path: Path
    packed: bool

    @property
    def place(self) -> str:
        """Where it is, for a person: its folder and name."""
        return f"{self.path.parent.name}/{self.path.name}"


def segment_of(folder: Path, token: int, *, packed: bool) -> Segment:
    """The segment of that token."""
    return Segment(token, folder / f"{token}.jsonl{'.zst' if packed else ''}", packed)


def segments_in(folder: Path) -> list[Segment]:
    """The segments that are there, by token; none if there is no folder."""
    try:
        names = [entry.name for entry in folder.iterdir()]
    except (FileNotFoundError, NotADirectoryError):
        return []
    found: dict[int, Segment] = {}
    for name in sorted(names, reverse=True):  # where both forms are there, the plain one counts
        match = _SEGMENT.match(name)
        if match:
            found[int(match[1])] = Segment(int(match[1]), folder / name, match[2] is not None)
    return [found[token] for token in sorted(found)]


def remnants_in(folder: Path) -> list[str]:
    """Names of what only a session that was there leaves behind besides its segments."""
    try:
        return sorted(entry.name for entry in folder.iterdir() if _REMNANT.match(entry.name))
    except (FileNotFoundError, NotADirectoryError):
        return []


def lock_path(folder: Path, token: int) -> Path:
    """The lock of the owner with that token; 0 is held while the session is made."""
    return folder / f"{token}.lock"


def torn_path(folder: Path, token: int, offset: int, attempt: int = 0) -> Path:
    """Where bytes that a crash left at `offset` of a segment are set aside."""
    return folder / f"torn-{token}-{offset}{f'-{attempt}' if attempt else ''}"
