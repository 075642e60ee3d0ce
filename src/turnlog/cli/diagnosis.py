"""What `doctor` looks at."""

from __future__ import annotations

import os
import platform
import re
import sys
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Literal, NamedTuple

from turnlog.cli.sessions import run_async
from turnlog.errors import TurnlogError

OLDEST = (3, 11)


class Check(NamedTuple):
    """One thing that was looked at, and what to do about it."""

    name: str
    state: Literal["ok", "warning", "missing", "failed"]
    detail: str


def diagnose(url: str) -> list[Check]:
    """Everything, in the order in which a person would ask."""
    return [*_python(), *_packages(), *_store(url)]


def _python() -> Iterator[Check]:
    version = platform.python_version()
    fits = sys.version_info[:2] >= OLDEST
    detail = version if fits else f"{version}, turnlog needs 3.11 or later"
    yield Check("python", "ok" if fits else "failed", detail)
    yield Check("turnlog", "ok", metadata.version("turnlog"))


def _packages() -> Iterator[Check]:
    """What turnlog needs, and each extra that is not whole."""
    for extra, names in _requirements().items():
        missing = [name for name in names if not _installed(name)]
        if not extra:
            state = "failed" if missing else "ok"
            detail = f"missing: {', '.join(missing)}" if missing else ", ".join(names)
            yield Check("packages", state, detail)
        elif missing:
            detail = f"lacks {', '.join(missing)}: pip install 'turnlog[{extra}]'"
            yield Check(f"extra {extra}", "missing", detail)
        else:
            yield Check(f"extra {extra}", "ok", ", ".join(names))


def _requirements() -> dict[str, list[str]]:
    """Distribution names by extra, "" for what is always needed."""
    found: dict[str, list[str]] = {"": []}
    for requirement in metadata.requires("turnlog") or []:
        name = re.match(r"[\w.-]+", requirement)
        extra = re.search(r"""extra\s*==\s*['"]([\w-]+)""", requirement)
        group = extra[1] if extra else ""
        if name and name[0] != "turnlog" and group not in ("dev", "all"):
            found.setdefault(group, []).append(name[0])
    return found


def _installed(name: str) -> bool:
    try:
        metadata.version(name)
    except metadata.PackageNotFoundError:
        return False
    return True


def _store(url: str) -> Iterator[Check]:
    from turnlog.stores import open_store

    async def work() -> tuple[int, int, str]:
        async with open_store(url) as store:
            infos = [info async for info in store.sessions()]
        bad = sum(info.health in ("damaged", "unreadable") for info in infos)
        return len(infos), bad, store.durability

    try:
        count, bad, durability = run_async(work)
    except TurnlogError as error:
        yield Check("store", "failed", f"{url}: {error}")
        return
    yield Check("store", "ok", f"{url}, {count} sessions")
    if bad:
        detail = f"{bad} of {count} are damaged: turnlog ls names them, turnlog repair helps"
        yield Check("sessions", "warning", detail)
    if durability == "none":
        detail = "none: what is appended may be lost when the machine stops"
        yield Check("durability", "warning", detail)
    else:
        yield Check("durability", "ok", f"{durability}: what was flushed survives a power cut")
    yield from _permissions(url)


def _permissions(url: str) -> Iterator[Check]:
    """Whether anyone but the user can read the store's folder."""
    scheme, _, place = url.partition(":")
    folder = Path(place.partition("?")[0]).expanduser()
    if scheme != "jsonl" or os.name != "posix" or not folder.exists():
        return
    mode = folder.stat().st_mode & 0o777
    if mode & 0o077:
        detail = f"{folder} can be entered by others (mode {mode:o}): chmod 700 it"
        yield Check("permissions", "warning", detail)
    else:
        yield Check("permissions", "ok", f"{folder} is private")
