"""Opening the store and its sessions, with a word on what exists where something does not."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar, cast

from turnlog.cli.options import Options
from turnlog.cli.outcome import Misused
from turnlog.cli.screen import note_line
from turnlog.errors import NoSuchEvent, NoSuchSession, StoreError

if TYPE_CHECKING:
    from turnlog.session import Session
    from turnlog.stores.live import StoredSession
    from turnlog.stores.metrics import WriterMetrics
    from turnlog.stores.resuming import Load
    from turnlog.stores.store import Store

T = TypeVar("T")
LISTED = 5
LEAST = 4  # characters of an id that stand for it, if no other begins with them


def run_async(work: Callable[[], Awaitable[T]]) -> T:
    """Run a command's coroutine to its end."""
    import anyio

    try:
        return anyio.run(work)
    except BaseExceptionGroup as group:  # of tasks that ran beside each other: the first error
        raise _first(group) from None


def _first(error: BaseException) -> BaseException:
    while isinstance(error, BaseExceptionGroup):
        error = cast("BaseExceptionGroup[BaseException]", error).exceptions[0]
    return error


def path_of(url: str) -> Path | None:
    """The folder or file of a store that has one."""
    scheme, _, place = url.partition(":")
    place = place.partition("?")[0]
    return Path(place).expanduser() if scheme in ("jsonl", "sqlite") and place else None


def is_missing(options: Options) -> bool:
    """Whether the store is a folder or file that is not there.

    Raises:
        StoreError: it cannot be told, or the URL is none.
    """
    from turnlog.stores import open_store

    open_store(options.url)
    path = path_of(options.url)
    try:
        return path is not None and not path.exists()
    except OSError as error:
        raise StoreError(f"{path}: {error.strerror or error}") from error


@asynccontextmanager
async def store_of(
    options: Options, *, make: bool = False, metrics: WriterMetrics | None = None
) -> AsyncGenerator[Store]:
    """The store that the options name, open; what only reads makes none.

    Raises:
        StoreError: there is none, and it is not to be made.
    """
    from turnlog.stores import open_store

    if not make and is_missing(options):
        hint = " yet: turnlog run and turnlog import make it" if options.is_default else ""
        raise StoreError(f"no store at {path_of(options.url)}{hint}")
    opening = open_store(options.url, metrics=metrics)
    if not make and path_of(options.url) is None and await _has_no_tables(opening):
        msg = f"no store at {opening.url}: it has no tables yet"
        raise StoreError(f"{msg}; turnlog run, import, copy and migrate make them")
    async with opening as store:
        yield store


async def _has_no_tables(store: Store) -> bool:
    """Whether a store on a server, which is not open yet, is still to be made."""
    from turnlog.stores.upkeep import Migratable

    backend = store.backend
    return isinstance(backend, Migratable) and not (await backend.migrate(dry_run=True)).before


async def read_session(store: Store, session_id: str, load: Load = "all") -> StoredSession:
    """A reader of a session.

    Args:
        store: where it is.
        session_id: which, as for `find`.
        load: as for `Store.session`; "surface" where what the model sees now is enough.

    Raises:
        NoSuchSession: as `find` does.
    """
    try:
        return await store.read(session_id, load=load)
    except NoSuchSession:
        return await store.read(await find(store, session_id), load=load)


async def find(store: Store, name: str) -> str:
    """The id of a session that is there: the name itself, or the one id that begins with it.

    Says which that is, where it is not the name.

    Raises:
        NoSuchSession: none, and what there is; or several, and which.
    """
    if await store.backend.exists(name):
        return name
    ids = [info.id async for info in store.sessions()]
    meant = [known for known in ids if known.startswith(name)] if len(name) >= LEAST else []
    if not meant:
        raise NoSuchSession(f"no session {name!r} in {store.url}: {instead(name, ids)}")
    if len(meant) > 1:
        many = f"{len(meant)} sessions in {store.url} begin with {name!r}"
        raise NoSuchSession(f"{many}: {_listed(meant)}")
    note_line(f"session {meant[0]}")
    return meant[0]


async def no_session(store: Store, session_id: str) -> NoSuchSession:
    """The error that says which sessions exist instead."""
    ids = [info.id async for info in store.sessions()]
    return NoSuchSession(f"no session {session_id!r} in {store.url}: {instead(session_id, ids)}")


def instead(name: str, names: Iterable[str]) -> str:
    """What exists instead of a name: what is spelt nearly so, else the first few."""
    from difflib import get_close_matches

    known = list(names)
    if not known:
        return "there is none"
    close = get_close_matches(name, known, n=3, cutoff=0.6)
    close = close or [each for each in known if name and each.startswith(name)][:3]
    if close:
        return f"did you mean {' or '.join(map(repr, close))}?"
    return f"there is {_listed(known)}"


def _listed(names: list[str]) -> str:
    more = len(names) - LISTED
    return ", ".join(map(repr, names[:LISTED])) + (f" and {more} more" if more > 0 else "")


def no_number(session_id: str, what: str, number: int, count: int) -> NoSuchEvent:
    """The error that says which numbers, from 0, there are."""
    if not count:
        return NoSuchEvent(f"session {session_id!r} has no {what}s")
    there = "the only one is 0" if count == 1 else f"there are 0 to {count - 1}"
    return NoSuchEvent(f"session {session_id!r} has no {what} {number}: {there}")


def check_seq(option: str, seq: int | None) -> None:
    """Refuse what can be no seq.

    Raises:
        Misused: it is negative.
    """
    if seq is not None and seq < 0:
        raise Misused(f"{option}: expected a seq, 0 or more, got {seq}")


def read_sync(options: Options, session_id: str) -> Session:
    """A session as it is stored now, for commands that look at one."""

    async def work() -> Session:
        async with store_of(options) as store:
            return await read_session(store, session_id)

    return run_async(work)
