"""Opening the store and its sessions, with a word on what exists where something does not."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, TypeVar, cast

from turnlog.cli.options import Options
from turnlog.errors import NoSuchSession

if TYPE_CHECKING:
    from turnlog.session import Session
    from turnlog.stores.live import StoredSession
    from turnlog.stores.store import Store

T = TypeVar("T")
LISTED = 5


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


@asynccontextmanager
async def store_of(options: Options) -> AsyncGenerator[Store]:
    """The store that the options name, open."""
    from turnlog.stores import open_store

    async with open_store(options.url) as store:
        yield store


async def read_session(store: Store, session_id: str) -> StoredSession:
    """A reader of a session.

    Raises:
        NoSuchSession: there is none; says what there is.
    """
    try:
        return await store.read(session_id)
    except NoSuchSession:
        raise await no_session(store, session_id) from None


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
    if close:
        return f"did you mean {' or '.join(map(repr, close))}?"
    listed = ", ".join(map(repr, known[:LISTED]))
    more = len(known) - LISTED
    return f"there is {listed}" + (f" and {more} more" if more > 0 else "")


def read_sync(options: Options, session_id: str) -> Session:
    """A session as it is stored now, for commands that look at one."""

    async def work() -> Session:
        async with store_of(options) as store:
            return await read_session(store, session_id)

    return run_async(work)
