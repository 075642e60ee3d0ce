"""A store that is away now and then: a backend that fails at the port."""

from __future__ import annotations

from collections.abc import Sequence

from turnlog.errors import StoreError, WriteFailed
from turnlog.stores.memory import MemoryStore
from turnlog.stores.port import Batch, Queued


class AwayStore(MemoryStore):
    """Fails to commit, and to read the inbox, while `fail` says so."""

    def fail(self, kind: type[StoreError]) -> StoreError | None:
        """The error that is due, if one is."""
        raise NotImplementedError

    async def commit(self, batches: Sequence[Batch]) -> list[StoreError | None]:
        """Store, unless it is away."""
        error = self.fail(WriteFailed)
        return await super().commit(batches) if error is None else [error] * len(batches)

    async def inbox(self, session_id: str) -> list[Queued]:
        """What waits, unless it is away."""
        if (error := self.fail(StoreError)) is not None:
            raise error
        return await super().inbox(session_id)
