"""What the suite says of a store and its sessions holds for `turnlog.sync`, on every store."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Sequence
from contextlib import AbstractContextManager, asynccontextmanager
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, ClassVar, Self, TypeVar, cast

import anyio
import anyio.to_thread

from tests.store_urls import forget, url_of
from turnlog import sync
from turnlog.commands import Command
from turnlog.events import AnyEvent
from turnlog.stores import open_store
from turnlog.stores.live import StoredSession
from turnlog.stores.port import Queued, SessionInfo
from turnlog.stores.store import Store
from turnlog.testing import Factory
from turnlog.testing.conformance.base import Handles
from turnlog.testing.conformance.facade import FacadeTests

T = TypeVar("T")


async def _called(call: Callable[[], T]) -> T:
    """What it returns in a thread, where it may wait."""
    return await anyio.to_thread.run_sync(call)


async def _iterated(items: Iterator[T]) -> AsyncIterator[T]:
    while (item := await _called(partial(next, items, None))) is not None:
        yield item


@asynccontextmanager
async def _entered(held: AbstractContextManager[T]) -> AsyncGenerator[T]:
    value = await _called(held.__enter__)
    try:
        yield value
    finally:
        with anyio.CancelScope(shield=True):
            await _called(partial(held.__exit__, None, None, None))


class AwaitedSession:
    """A sync session whose calls are awaited, which is what the suite's tests do."""

    def __init__(self, session: sync.Session) -> None:
        self._session = session

    def __getattr__(self, name: str) -> Any:
        return getattr(self._session, name)

    async def flush(self) -> None:
        """Make it durable."""
        await _called(self._session.flush)

    async def commands(self) -> list[Queued]:
        """What waits."""
        return await _called(self._session.commands)

    async def accept(self, positions: Sequence[int]) -> None:
        """Take commands out."""
        await _called(partial(self._session.accept, positions))

    async def read_events(self, start: int = 0, stop: int | None = None) -> list[AnyEvent]:
        """Read a range."""
        return await _called(partial(self._session.read_events, start, stop))

    async def view(self, at: int | None = None) -> Any:
        """What the model saw."""
        return await _called(partial(self._session.view, at))

    async def transcript(self, **options: bool) -> Any:
        """What a person reads."""
        return await _called(partial(self._session.transcript, **options))


class AwaitedInbox:
    """A sync inbox, likewise."""

    def __init__(self, inbox: sync.Inbox) -> None:
        self._inbox = inbox

    async def post(self, command: Command) -> str:
        """Queue a command."""
        return await _called(partial(self._inbox.post, command))

    async def waiting(self) -> list[Queued]:
        """What waits."""
        return await _called(self._inbox.waiting)


class AwaitedStore:
    """A sync store, likewise."""

    def __init__(self, store: sync.Store) -> None:
        self._store = store

    async def __aenter__(self) -> Self:
        await _called(self._store.__enter__)
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        with anyio.CancelScope(shield=True):
            await _called(partial(self._store.__exit__, exc_type, exc, traceback))

    @asynccontextmanager
    async def session(self, *args: Any, **options: Any) -> AsyncGenerator[StoredSession]:
        """Own a session."""
        async with _entered(self._store.session(*args, **options)) as session:
            yield cast("StoredSession", AwaitedSession(session))

    async def read(self, session_id: str) -> StoredSession:
        """A reader."""
        session = await _called(partial(self._store.read, session_id))
        return cast("StoredSession", AwaitedSession(session))

    async def fork(self, session_id: str, **options: Any) -> str:
        """A child."""
        return await _called(partial(self._store.fork, session_id, **options))

    async def pending(self, **options: Any) -> list[str]:
        """Who has something to do."""
        return await _called(partial(self._store.pending, **options))

    def sessions(self) -> AsyncIterator[SessionInfo]:
        """The listing."""
        return _iterated(self._store.sessions())

    def tail(self, session_id: str, after: int | None = None) -> AsyncIterator[AnyEvent]:
        """Follow a session."""
        return _iterated(self._store.tail(session_id, after))

    def inbox(self, session_id: str) -> AwaitedInbox:
        """An inbox."""
        return AwaitedInbox(self._store.inbox(session_id))


class SyncHandles(Handles):
    """Handles whose stores are sync ones."""

    def store(self) -> Store:
        """A sync store on a new handle, its calls awaited."""
        store: Any = AwaitedStore(sync.Store(super().store()))
        return store


class TestSyncOnMemory(FacadeTests):
    """`turnlog.sync` on `memory:`."""

    name: ClassVar = "memory"

    def factory(self, folder: Path) -> Factory:
        """Handles on one URL."""
        url = url_of(self.name, folder)
        return lambda: open_store(url).backend

    @asynccontextmanager
    async def opened(self, folder: Path) -> AsyncGenerator[Handles]:
        """The handles of one test."""
        handles = SyncHandles(self, folder)
        try:
            yield handles
        finally:
            await handles.close()
            forget(folder)


class TestSyncOnJsonl(TestSyncOnMemory):
    """`turnlog.sync` on `jsonl:DIR`."""

    name: ClassVar = "jsonl"


class TestSyncOnJsonlZstd(TestSyncOnMemory):
    """`turnlog.sync` on `jsonl:DIR?compress=zstd`."""

    name: ClassVar = "jsonl-zstd"


class TestSyncOnSqlite(TestSyncOnMemory):
    """`turnlog.sync` on `sqlite:FILE`."""

    name: ClassVar = "sqlite"


def test_the_suite_is_run_on_every_store() -> None:
    """Each store that the tests know has its class here."""
    from tests.store_urls import STORES  # noqa: PLC0415 - nobody else here needs it

    made = {case.name for case in (TestSyncOnMemory, *TestSyncOnMemory.__subclasses__())}
    assert made == set(STORES)
