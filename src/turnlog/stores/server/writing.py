"""Writing: new sessions, claims, and batches of any number of sessions in one transaction.

What lost its connection is done again. Whether it had been done, and only the answer was lost, is
seen from what is stored then: a batch by its events, a session or a claim by its holder.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, NamedTuple
from zlib import crc32

from anyio import to_thread

from turnlog import jsontext
from turnlog.errors import (
    NoSuchSession,
    SessionExists,
    StaleWriter,
    StoreError,
    TurnlogError,
    WriteFailed,
)
from turnlog.stores.info import InfoFold
from turnlog.stores.owners import taken_over
from turnlog.stores.port import Batch, Claim
from turnlog.stores.server.changes import Changes
from turnlog.stores.server.driver import Fault, Trouble
from turnlog.stores.server.failures import failure
from turnlog.stores.server.leases import owner_in
from turnlog.stores.server.schema import SESSIONS, key_of
from turnlog.stores.sql.heads import line_after, read_header, stored_id
from turnlog.stores.sql.runs import Attempt, Plan, plan

if TYPE_CHECKING:
    from collections.abc import Sequence

    from turnlog.events import SessionHeader
    from turnlog.stores.port import Owner
    from turnlog.stores.server.dialect import Dialect
    from turnlog.stores.server.driver import Connection
    from turnlog.stores.server.leases import Leases
    from turnlog.stores.server.pool import Pool
    from turnlog.stores.server.reading import Reader

_MADE = "SELECT id, header, holder, token FROM sessions WHERE session = ?"
_HELD = """
    SELECT session, token, next_seq, owner, sum, last_activity, stale, info FROM sessions WHERE
"""
_HEADER = "SELECT header FROM sessions WHERE session = ?"
_RESEED = "UPDATE sessions SET header = ?, sum = ?, stale = 1 WHERE session = ?"
_FORGET_RECORD = "DELETE FROM records WHERE session = ?"
_GUILTY = (Trouble.TOO_LARGE, Trouble.TAKEN, Trouble.OTHER)
_WORTH_A_THREAD = 1 << 17  # bytes of payloads


class Tenure:
    """One claim of this handle's.

    Attributes:
        key: the session's.
        root: of its family.
        attempt: the chunks of the attempt that is running.
        unsettled: the last commit failed, and it is not known whether it was done all the same.
        header: the session's, with its sum, once it was needed.
    """

    __slots__ = ("attempt", "header", "key", "root", "session_id", "token", "unsettled")

    def __init__(self, key: bytes, root: bytes, session_id: str, token: int) -> None:
        self.key = key
        self.root = root
        self.session_id = session_id
        self.token = token
        self.attempt = Attempt()
        self.unsettled = False
        self.header: tuple[int, SessionHeader] | None = None


class _Held(NamedTuple):
    """A session's row, locked."""

    key: bytes
    token: int
    next_seq: int
    owner: bytes | None
    sum: int
    last_activity: int
    stale: int
    info: bytes | None


class _Due(NamedTuple):
    """A batch that is to be stored; `place` is its place in the answer."""

    place: int
    batch: Batch
    tenure: Tenure
    plan: Plan


class Writing:
    """What one handle writes.

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
        tenures: set[Tenure],
        url: str,
    ) -> None:
        self._pool = pool
        self._dialect = dialect
        self._reader = reader
        self._leases = leases
        self._tenures = tenures
        self._url = url
        self._committing = asyncio.Lock()

    # -- sessions ------------------------------------------------------------------------------

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
        tenure = self._tenure_of(claim)
        raw = jsontext.encode(header.to_dict())

        async def work() -> None:
            async with self._pool.transaction() as db:
                held = await self._lock(db, [tenure])
                self._check_token(held, tenure)
                await db.execute(_RESEED, raw, crc32(raw), tenure.key)
                await db.execute(_FORGET_RECORD, tenure.key)

        try:
            await self._pool.patiently(work)
        except Fault as fault:
            raise failure(fault, f"session {claim.session_id!r}", WriteFailed) from fault

    def _tenure_of(self, claim: Claim) -> Tenure:
        tenure = claim.handle
        if tenure not in self._tenures:
            msg = f"session {claim.session_id!r}: the claim was given back"
            raise StaleWriter(msg)
        return tenure

    async def _lock(self, db: Connection, tenures: Sequence[Tenure]) -> dict[bytes, _Held]:
        """The rows of sessions, locked in the order of their keys, as everyone does."""
        keys = sorted({tenure.key for tenure in tenures})
        condition, values = self._dialect.among("session", "key", keys)
        query = f"{_HELD}{condition} ORDER BY session FOR UPDATE"
        return {row[0]: _Held(*row) for row in await db.fetch(query, *values)}

    def _check_token(self, held: dict[bytes, _Held], tenure: Tenure) -> _Held:
        """The session's row, as long as the claim holds.

        Raises:
            StaleWriter: it does not.
        """
        row = held.get(tenure.key)
        if row is None:
            msg = f"no session {tenure.session_id!r} in {self._url}"
            raise NoSuchSession(msg)
        if row.token != tenure.token:
            raise taken_over(tenure.session_id, owner_in(row.owner))
        return row

    # -- batches -------------------------------------------------------------------------------

    async def commit(self, batches: Sequence[Batch]) -> list[StoreError | None]:
        """Store batches in one transaction; for each None, or why nothing of it was stored."""
        async with self._committing:
            results: list[StoreError | None] = [None] * len(batches)
            due: list[_Due] = []
            size = sum(len(event.raw) for batch in batches for event in batch.events)
            if size > _WORTH_A_THREAD:
                await to_thread.run_sync(self._plan, batches, due, results)
            else:
                self._plan(batches, due, results)
            await self._store(due, results)
            return results

    def _plan(
        self, batches: Sequence[Batch], due: list[_Due], results: list[StoreError | None]
    ) -> None:
        for i, batch in enumerate(batches):
            try:
                tenure = self._tenure_of(batch.claim)
                _check_seqs(batch)
                due.append(_Due(i, batch, tenure, plan(batch.events, tenure.attempt.runs)))
            except StoreError as error:
                results[i] = error
            except TurnlogError as error:
                results[i] = StoreError(str(error))

    async def _store(self, due: list[_Due], results: list[StoreError | None]) -> None:
        if not due:
            return

        async def work() -> tuple[list[_Due], dict[int, StoreError]]:
            try:
                return await self._transaction(due)
            except BaseException:
                for one in due:
                    one.tenure.unsettled = True
                raise

        try:
            done, refused = await self._pool.patiently(work)
        except Fault as fault:
            if fault.trouble in _GUILTY and len(due) > 1:  # one of them: let the others in
                for one in due:
                    await self._store([one], results)
                return
            for one in due:
                doing = f"session {one.tenure.session_id!r}"
                results[one.place] = failure(fault, doing, WriteFailed)
            return
        for place, error in refused.items():
            results[place] = error
        for one in done:
            one.tenure.unsettled = False
            one.tenure.attempt.follow(one.plan)

    async def _transaction(self, due: list[_Due]) -> tuple[list[_Due], dict[int, StoreError]]:
        """Write what is due, together; what was written or was there, and what was refused."""
        done: list[_Due] = []
        refused: dict[int, StoreError] = {}
        changes = Changes(self._dialect, self._leases.length)
        async with self._pool.transaction() as db:
            held = await self._lock(db, [one.tenure for one in due])
            for one in due:
                try:
                    if await self._is_due(db, one, held):
                        held[one.tenure.key] = await self._add(db, one, held, changes)
                    done.append(one)
                except StoreError as error:
                    refused[one.place] = error
            await changes.write(db)
        return done, refused

    async def _is_due(self, db: Connection, one: _Due, held: dict[bytes, _Held]) -> bool:
        """Whether to write a batch; False if it is there, since a commit went unnoticed.

        Raises:
            StaleWriter: token or seq is not the session's.
        """
        batch, tenure = one.batch, one.tenure
        row = self._check_token(held, tenure)
        if row.next_seq == batch.expected_seq:
            return True
        if tenure.unsettled and await self._is_there(db, batch, row.next_seq):
            return False
        msg = (
            f"session {tenure.session_id!r}: expected the log to end before seq "
            f"{batch.expected_seq}, it ends before {row.next_seq}"
        )
        raise StaleWriter(msg)

    async def _is_there(self, db: Connection, batch: Batch, next_seq: int) -> bool:
        """Whether exactly these events are stored from the expected seq on."""
        if next_seq != batch.next_seq:
            return False
        session_id = batch.claim.session_id
        stored = await self._reader.read(db, session_id, batch.expected_seq, next_seq)
        return [(e.seq, e.raw) for e in stored] == [(e.seq, e.raw) for e in batch.events] and all(
            mine == theirs for mine, theirs in zip(batch.events, stored, strict=True)
        )

    async def _add(
        self, db: Connection, one: _Due, held: dict[bytes, _Held], changes: Changes
    ) -> _Held:
        """Add a batch to what is to be written; the session's row as it will be."""
        batch, tenure = one.batch, one.tenure
        row = held[tenure.key]
        changes.add(tenure.key, tenure.root, one.plan)
        if batch.record is not None:
            changes.record(tenure.key, batch.record)
        if not batch.events:
            return row
        last_activity, stale, info = row.last_activity, 1, row.info
        try:
            header = await self._header(db, tenure, row.sum)
        except TurnlogError:
            last_activity = max(last_activity, batch.events[-1].time)  # the listing says so
        else:
            last_activity, stale, info = line_after(
                batch, lambda: header, last_activity, row.stale, info
            )
        changes.grow(tenure.key, batch.next_seq, last_activity, stale, info)
        return row._replace(
            next_seq=batch.next_seq, last_activity=last_activity, stale=stale, info=info
        )

    async def _header(self, db: Connection, tenure: Tenure, total: int) -> SessionHeader:
        """The header as it is stored, read once."""
        if tenure.header is None or tenure.header[0] != total:
            ((raw,),) = await db.fetch(_HEADER, tenure.key)
            tenure.header = (total, read_header(raw, total))
        return tenure.header[1]


def _check_seqs(batch: Batch) -> None:
    if batch.next_seq > jsontext.INT_MAX:
        session_id = batch.claim.session_id
        msg = f"session {session_id!r}: expected seqs below {jsontext.INT_MAX}, got one beyond"
        raise StoreError(msg)
