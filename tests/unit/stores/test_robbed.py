"""An owner that is robbed while it opens its session."""

from __future__ import annotations

import pytest

from turnlog.errors import StaleWriter
from turnlog.stores.memory import MemoryStorage, MemoryStore
from turnlog.stores.port import Stored
from turnlog.stores.store import Store
from turnlog.testing.conformance.base import commit
from turnlog.testing.conformance.samples import SECOND, assert_same, notes


class Robbed(MemoryStore):
    """A store in which a thief takes a session and writes, as soon as its owner has read it."""

    def __init__(self, storage: MemoryStorage) -> None:
        super().__init__(storage)
        self._thief = MemoryStore(storage)

    async def load(self, session_id: str) -> Stored:
        """The session, as it was before."""
        stored = await super().load(session_id)
        claim = await self._thief.claim(session_id, SECOND, steal=True)
        await commit(self._thief, claim, notes(0, 3))
        return stored


async def late(store: Store, durable: list[int]) -> None:
    """Own a session, append, and note what counts as durable then."""
    async with store.session("a") as session:
        for number in range(3):
            session.add_user(f"late {number}")
        durable.append(session.durable_seq)
        await session.flush()


async def test_what_a_thief_wrote_is_not_durable_of_the_owner() -> None:
    """Nothing that the owner appends counts as durable, and its flush is refused."""
    storage = MemoryStorage()
    durable: list[int] = []
    async with Store(Robbed(storage)) as store:
        with pytest.raises(StaleWriter):
            await late(store, durable)
    assert durable == [0]
    assert_same((await MemoryStore(storage).load("a")).events, notes(0, 3))
