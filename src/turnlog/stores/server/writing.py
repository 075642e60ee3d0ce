"""Writing: new sessions, claims, new headers; `committing` has the batches.

What lost its connection is done again. Whether it had been done, and only the answer was lost, is
seen from what is stored then: a session or a claim by its holder.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from zlib import crc32

from turnlog import jsontext
from turnlog.errors import SessionExists, StoreError, WriteFailed
from turnlog.stores.info import InfoFold
from turnlog.stores.port import Claim
from turnlog.stores.server.driver import Fault
from turnlog.stores.server.failures import failure
from turnlog.stores.server.schema import SESSIONS, key_of
from turnlog.stores.server.tenures import Tenure
from turnlog.stores.sql.heads import stored_id

if TYPE_CHECKING:
    from collections.abc import Sequence

    from turnlog.events import SessionHeader
    from turnlog.stores.port import Owner
    from turnlog.stores.server.dialect import Dialect
    from turnlog.stores.server.leases import Leases
    from turnlog.stores.server.pool import Pool
    from turnlog.stores.server.reading import Reader
    from turnlog.stores.server.tenures import Tenures

_MADE = "SELECT id, header, holder, token FROM sessions WHERE session = ?"
_RESEED = "UPDATE sessions SET header = ?, sum = ?, stale = 1 WHERE session = ?"
_FORGET_RECORD = "DELETE FROM records WHERE session = ?"


class Writing:
    """What one handle writes besides events.

    Args:
        pool: of connections that write.
        dialect: the database's.
        reader: of the same handle.
        leases: of the same handle.
        tenures: the claims of the same handle; kept here.
        url: for messages.
    """

    def __init__(
        self,
        pool: Pool,
        dialect: Dialect,
        reader: Reader,
        leases: Leases,
        tenures: Tenures,
        url: str,
    ) -> None:
        self._pool = pool
        self._dialect = dialect
        self._reader = reader
        self._leases = leases
        self._tenures = tenures
        self._url = url

    async def create(
        self, header: SessionHeader, parent_id: str | None = None, boundary: int = 0
    ) -> None:
        """Add a session; with a parent, one whose events before `boundary` are the parent's.

        Raises:
            SessionExists, NoSuchSession: the id is taken; there is no such parent.
        """
        stored = stored_id(header.id)
        key = key_of(stored)
        raw = jsontext.encode(header.to_dict())
        info = jsontext.encode(InfoFold(header).state())
        tried = False

        async def work() -> None:
            nonlocal tried
            again, tried = tried, True
            async with self._pool.transaction() as db:
                root, parent = key, None
                if parent_id is not None:
                    head = await self._reader.head(db, parent_id)
                    root, parent = head.root, head.key
                    if not 0 <= boundary <= head.next_seq:
                        msg = f"session {parent_id!r} ends before seq {head.next_seq}"
                        raise StoreError(f"{msg}, not {boundary}")
                row: list[Any] = [header.created_at, int(boundary > 0), boundary, boundary, 0, 0, 0]
                row += [crc32(raw), key, stored, raw, root, parent, self._leases.holder, None, info]
                if not await db.execute(self._dialect.add(SESSIONS), *row):
                    (there,) = await db.fetch(_MADE, key)
                    if again and tuple(there) == (stored, raw, self._leases.holder, 0):
                        return  # that was us, and the answer was lost
                    if there[0] != stored:
                        msg = f"{self._url}: the key of session {header.id!r} is another one's"
                        raise StoreError(f"{msg}: choose another id")
                    msg = f"session {header.id!r} exists already in {self._url}"
                    raise SessionExists(msg)

        await self._pool.patiently(work)

    async def claim(self, session_id: str, owner: Owner, *, steal: bool) -> Claim:
        """Become the session's one writer; the claim's handle is a `Tenure`."""

        async def work() -> Tenure:
            async with self._pool.transaction() as db:
                head = await self._reader.head(db, session_id)
                mine = any(tenure.key == head.key for tenure in self._tenures)
                token = await self._leases.take(
                    db, head.key, session_id, owner, steal=steal, mine=mine
                )
            return Tenure(head.key, head.root, session_id, token)

        tenure = await self._pool.patiently(work)
        self._tenures.add(tenure)
        return Claim(session_id, tenure.token, tenure)

    async def release(self, claim: Claim) -> None:
        """Give a session back, unless the claim was lost."""
        tenure = claim.handle
        if tenure in self._tenures:
            self._tenures.discard(tenure)
            await self._give_back([tenure])

    async def release_all(self) -> None:
        """Give back what was claimed; tried once."""
        tenures = sorted(self._tenures, key=lambda tenure: tenure.key)
        self._tenures.clear()
        if tenures:
            async with self._pool.connection() as db:
                for tenure in tenures:
                    await self._leases.give_back(db, tenure.key, tenure.token)

    async def _give_back(self, tenures: Sequence[Tenure]) -> None:
        async def work() -> None:
            async with self._pool.connection() as db:
                for tenure in tenures:
                    await self._leases.give_back(db, tenure.key, tenure.token)

        await self._pool.patiently(work)

    async def reseed(self, claim: Claim, header: SessionHeader) -> None:
        """Exchange the header; what was derived from the old one goes."""
        tenure = self._tenures.of(claim)
        raw = jsontext.encode(header.to_dict())

        async def work() -> None:
            async with self._pool.transaction() as db:
                held = await self._tenures.lock(db, [tenure])
                self._tenures.check(held, tenure)
                await db.execute(_RESEED, raw, crc32(raw), tenure.key)
                await db.execute(_FORGET_RECORD, tenure.key)

        try:
            await self._pool.patiently(work)
        except Fault as fault:
            raise failure(fault, f"session {claim.session_id!r}", WriteFailed) from fault
        finally:
            tenure.left = None  # also where a commit came between
