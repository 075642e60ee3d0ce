"""What `doctor` looks at."""

from __future__ import annotations

import os
import platform
import re
import sys
from collections.abc import Iterator
from importlib import metadata
from importlib.util import find_spec
from typing import TYPE_CHECKING, Literal, NamedTuple

from turnlog.cli.options import older_folder
from turnlog.cli.screen import counted, size
from turnlog.cli.sessions import path_of, run_async
from turnlog.errors import TurnlogError

if TYPE_CHECKING:
    from turnlog.cli.options import Options
    from turnlog.stores.port import SessionInfo

OLDEST = (3, 11)
NAMED = 5  # sessions
MOST = 256 * 1024 * 1024  # bytes of a file that is looked through without being asked
# Extra -> the module that needs it, which a version of turnlog may not have yet.
_USES = {
    "anthropic": "models.anthropic",
    "local": "models.local",
    "mcp": "agent.mcp",
    "mysql": "stores.mysql",
    "openai": "models.openai",
    "postgres": "stores.postgres",
    "server": "server",
}


class Check(NamedTuple):
    """One thing that was looked at, and what to do about it."""

    name: str
    state: Literal["ok", "warning", "missing", "failed"]
    detail: str


def diagnose(options: Options, *, deep: bool = False) -> list[Check]:
    """Everything, in the order in which a person would ask.

    Args:
        options: which store.
        deep: look through a file of any size.
    """
    return [*_python(), *_packages(), *_store(options, None if deep else MOST)]


def _python() -> Iterator[Check]:
    version = platform.python_version()
    fits = sys.version_info[:2] >= OLDEST
    detail = version if fits else f"{version}, turnlog needs 3.11 or later"
    yield Check("python", "ok" if fits else "failed", detail)
    yield Check("turnlog", "ok", metadata.version("turnlog"))


def _packages() -> Iterator[Check]:
    """What turnlog needs, and what each extra needs that this turnlog has a use for."""
    for extra, names in _requirements().items():
        if extra in _USES and find_spec(f"turnlog.{_USES[extra]}") is None:
            continue
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


def _store(options: Options, most: int | None) -> Iterator[Check]:
    from turnlog.cli.sessions import is_missing, path_of, store_of
    from turnlog.stores.server.urls import shown
    from turnlog.stores.upkeep import Diagnosable, Inspectable

    url = shown(options.url)
    if options.is_default and is_missing(options):
        detail = f"{url} is not there yet: turnlog run and turnlog import make it"
        yield Check("store", "missing", detail)
        return

    async def work() -> tuple[list[SessionInfo], str, list[Check]]:
        on_server = path_of(options.url) is None  # where it shows whether tables can be made
        async with store_of(options, make=on_server) as store:
            backend, infos = store.backend, [info async for info in store.sessions()]
            more: list[Check] = []
            if isinstance(backend, Diagnosable):
                more += [Check(*found) for found in await backend.diagnose()]
            if isinstance(backend, Inspectable):
                more.append(_file(url, await backend.inspect(most=most)))
            return infos, store.durability, more

    try:
        infos, durability, more = run_async(work)
    except TurnlogError as error:
        said = str(error)
        yield Check("store", "failed", said if url in said else f"{url}: {said}")
        return
    yield Check("store", "ok", f"{url}, {counted(len(infos), 'session')}")
    yield from _bad(infos)
    if durability == "none":
        detail = "none: what is appended may be lost when the machine stops"
        yield Check("durability", "warning", detail)
    else:
        yield Check("durability", "ok", f"{durability}: what was flushed survives a power cut")
    yield from more
    yield from _permissions(url)
    if options.is_default:
        yield from _older(url)


def _file(url: str, found: list[str] | None) -> Check:
    """Whether the file is whole, also where nobody has read it yet."""
    path = path_of(url)
    if found is None:
        large = "" if path is None else f", {size(path.stat().st_size)}"
        return Check("file", "ok", f"not looked through{large}: turnlog doctor --deep does that")
    if not found:
        return Check("file", "ok", "SQLite finds no damage in it; turnlog verify reads the events")
    more = f" and {len(found) - 1} more" if len(found) > 1 else ""
    help_ = (
        "turnlog verify --all says which sessions that is; put a backup in its place, or bring "
        f"what can be read to a new file: turnlog copy {url} NEW-URL"
    )
    return Check("file", "failed", f"damaged ({found[0]}{more}): {help_}")


def _bad(infos: list[SessionInfo]) -> Iterator[Check]:
    """The sessions that are damaged, or cannot be read at all, and what helps."""
    for health, help_ in (
        ("damaged", "can be read; turnlog repair ID --accept-damage lets it be written to again"),
        ("unreadable", "turnlog ls says why; a copy of its files in a backup is what helps"),
    ):
        names = [repr(info.id) for info in infos if info.health == health]
        if names:
            more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
            listed = ", ".join(names[:NAMED]) + more
            detail = f"{len(names)} of {len(infos)} {health} ({listed}): {help_}"
            yield Check("sessions", "warning", detail)


def _permissions(url: str) -> Iterator[Check]:
    """Whether anyone but the user can read the store's folder or file."""
    path = path_of(url)
    if path is None or os.name != "posix" or not path.exists():
        return
    mode = path.stat().st_mode & 0o777
    if mode & 0o077:
        what, wanted = ("entered", "700") if path.is_dir() else ("read", "600")
        detail = f"{path} can be {what} by others (mode {mode:o}): chmod {wanted} it"
        yield Check("permissions", "warning", detail)
    else:
        yield Check("permissions", "ok", f"{path} is private")


def _older(url: str) -> Iterator[Check]:
    """The folder from before, if there is one."""
    folder = older_folder()
    if folder is None:
        return
    older = f"jsonl:{folder}"
    if url == older:
        newer = f"sqlite:{folder.with_name('sessions.db')}"
        detail = f"a folder, as before; one file is faster: turnlog copy {older} {newer}"
        yield Check("store from before", "ok", detail)
    else:
        detail = f"{older} is there too: turnlog copy {older} {url} brings what is only in it"
        yield Check("store from before", "warning", detail)
