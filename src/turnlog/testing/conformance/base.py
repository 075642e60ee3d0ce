"""What every test of a store stands on: new handles on one storage, and a reader beside them."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import ClassVar, TypeAlias

import pytest

from turnlog.events import AnyEvent, SessionHeader
from turnlog.stores.port import Batch, Claim, SessionEventStore, Stored
from turnlog.stores.store import Store
from turnlog.testing.conformance.samples import FIRST, header

Factory: TypeAlias = Callable[[], SessionEventStore]


class StoreSuite:
    """Base of the suites for stores; not collected by itself.

    Attributes:
        cannot: tests that the backend cannot express, by name, with the reason; they are skipped.
        patience: seconds after which something that must happen counts as never happening.
        large: characters of the largest string that a payload is tested with.
        many: how many chunks one message is made to cite.
    """

    pytestmark: ClassVar = [pytest.mark.anyio]
    cannot: ClassVar[Mapping[str, str]] = {}
    patience: ClassVar[float] = 60.0
    large: ClassVar[int] = 20_000_000
    many: ClassVar[int] = 10_000

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        for name in cls.cannot:
            if not callable(getattr(cls, name, None)):
                msg = f"{cls.__name__}.cannot excuses {name!r}, and there is no such test"
                raise TypeError(msg)

    def factory(self, folder: Path) -> Factory:
        """What makes a *new*, unopened handle on the *same* storage at each call.

        Args:
            folder: an empty folder, one for each test, for what the storage keeps.
        """
        raise NotImplementedError

    async def kill(self, handle: SessionEventStore) -> None:
        """End a handle as a dying process would: nothing is written or released on purpose."""
        await handle.close()

    async def spoil(self, folder: Path, session_id: str) -> None:
        """Damage a session so that it cannot be read at all, as a bad disk would."""
        raise NotImplementedError

    @asynccontextmanager
    async def opened(self, folder: Path) -> AsyncGenerator[Handles]:
        """The handles of one test, closed at its end."""
        handles = Handles(self, folder)
        try:
            yield handles
        finally:
            await handles.close()

    @pytest.fixture
    async def handles(
        self, request: pytest.FixtureRequest, tmp_path: Path
    ) -> AsyncIterator[Handles]:
        """`opened` as a fixture."""
        reason = self.cannot.get(request.node.originalname)
        if reason is not None:
            pytest.skip(reason)
        async with self.opened(tmp_path) as handles:
            yield handles


class Handles:
    """Opens handles on one storage, and does through handles of its own what tests share."""

    def __init__(self, suite: StoreSuite, folder: Path) -> None:
        self.folder = folder
        self._suite = suite
        self._factory = suite.factory(folder)
        self._open: list[SessionEventStore] = []

    async def open(self) -> SessionEventStore:
        """A new handle."""
        handle = self._factory()
        await handle.open()
        self._open.append(handle)
        return handle

    def store(self) -> Store:
        """A store on a new handle, for `async with`; it opens by records of any length."""
        return Store(self._factory(), whole=0)

    async def kill(self, handle: SessionEventStore) -> None:
        """End a handle as a dying process would."""
        self._open.remove(handle)
        await self._suite.kill(handle)

    async def close(self) -> None:
        """Close what is open."""
        while self._open:
            await self._open.pop().close()

    @asynccontextmanager
    async def another(self) -> AsyncGenerator[SessionEventStore]:
        """A new handle for the time of a `with`."""
        handle = await self.open()
        try:
            yield handle
        finally:
            self._open.remove(handle)
            await handle.close()

    async def load(self, session_id: str) -> Stored:
        """The session as a new handle reads it: in one piece, undamaged."""
        async with self.another() as reader:
            stored = await reader.load(session_id)
        assert list(stored.damage) == []
        return stored

    async def write(self, session: str | SessionHeader, *batches: Sequence[AnyEvent]) -> None:
        """Create a session with these events, a commit each, through a handle of its own."""
        made = header(session) if isinstance(session, str) else session
        async with self.another() as writer:
            await writer.create(made)
            if batches:
                claim = await writer.claim(made.id, FIRST)
                for events in batches:
                    await commit(writer, claim, events)
                await writer.release(claim)


async def commit(store: SessionEventStore, claim: Claim, events: Sequence[AnyEvent]) -> None:
    """Store a batch, or raise why it was not."""
    (error,) = await store.commit([Batch(claim, events)])
    if error is not None:
        raise error
