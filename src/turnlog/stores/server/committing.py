"""Batches of any number of sessions, in one transaction: at once, or with a look at each before.

A handle knows how its last commit left a session's row, and nobody else writes what a commit looks
at while the token is its. So what is due can be sent at once, on the condition that token and seq
are as expected: one round trip on PostgreSQL, two on MySQL. Whatever is not stored so is written
with care: the rows are locked and read, and what cannot be stored is refused by name.

What lost its connection is done again. Whether it had been done, and only the answer was lost, is
seen from what is stored then: of a batch that has grown since, what is not there yet is stored.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, NamedTuple

from anyio import to_thread

from turnlog import jsontext
from turnlog.errors import StaleWriter, StoreError, TurnlogError, WriteFailed
from turnlog.stores.port import Batch
from turnlog.stores.server.changes import Changes
from turnlog.stores.server.driver import Fault, Trouble
from turnlog.stores.server.failures import failure
from turnlog.stores.sql.heads import line_after, read_header
from turnlog.stores.sql.runs import Attempt, Plan, plan

if TYPE_CHECKING:
    from collections.abc import Sequence

    from turnlog.events import SessionHeader
    from turnlog.stores.server.dialect import Dialect
    from turnlog.stores.server.driver import Connection
    from turnlog.stores.server.pool import Pool
    from turnlog.stores.server.reading import Reader
    from turnlog.stores.server.tenures import Held, Tenure, Tenures

_HEADER = "SELECT header FROM sessions WHERE session = ?"
_GUILTY = (Trouble.TOO_LARGE, Trouble.TAKEN, Trouble.OTHER)
_WORTH_A_THREAD = 1 << 17  # bytes of payloads
_AT_ONCE = 1 << 20  # bytes of payloads: more of them are not worth being sent twice


class _Due(NamedTuple):
    """A batch that is to be stored; `place` is its place in the answer."""

    place: int
    batch: Batch
    tenure: Tenure
    plan: Plan


class Committing:
    """The commits of one handle, one after the other.

    Args:
        pool: of connections that write.
        dialect: the database's.
        reader: of the same handle.
        tenures: the claims of the same handle.
        lease: microseconds for which whoever commits keeps the session.
    """

    def __init__(
        self, pool: Pool, dialect: Dialect, reader: Reader, tenures: Tenures, lease: int
    ) -> None:
        self._pool = pool
        self._dialect = dialect
        self._reader = reader
        self._tenures = tenures
        self._lease = lease
        self._one_at_a_time = asyncio.Lock()

    async def commit(self, batches: Sequence[Batch]) -> list[StoreError | None]:
        """Store batches in one transaction; for each None, or why nothing of it was stored."""
        async with self._one_at_a_time:
            results: list[StoreError | None] = [None] * len(batches)
            due: list[_Due] = []
            size = sum(len(event.raw) for batch in batches for event in batch.events)
            if size > _WORTH_A_THREAD:
                await to_thread.run_sync(self._plan, batches, due, results)
            else:
                self._plan(batches, due, results)
            if due:
                await self._store(due, results, may_be_at_once=size <= _AT_ONCE)
            return results

    def _plan(
        self, batches: Sequence[Batch], due: list[_Due], results: list[StoreError | None]
    ) -> None:
        for i, batch in enumerate(batches):
            try:
                tenure = self._tenures.of(batch.claim)
                _check_seqs(batch)
                due.append(_Due(i, batch, tenure, plan(batch.events, tenure.attempt.runs)))
            except StoreError as error:
                results[i] = error
            except TurnlogError as error:
                results[i] = StoreError(str(error))

    async def _store(
        self, due: list[_Due], results: list[StoreError | None], *, may_be_at_once: bool = False
    ) -> None:
        async def work() -> tuple[dict[int, StoreError], set[int]]:
            try:
                left = due
                if may_be_at_once and _known(due):
                    left = await self._at_once(due)
                return await self._with_care(left) if left else ({}, set())
            except BaseException:
                for one in due:
                    one.tenure.unsettled = True
                raise

        try:
            refused, found = await self._pool.patiently(work)
        except Fault as fault:
            if fault.trouble in _GUILTY and len(due) > 1:  # one of them: let the others in
                for one in due:
                    await self._store([one], results)
                return
            for one in due:
                doing = f"session {one.tenure.session_id!r}"
                results[one.place] = failure(fault, doing, WriteFailed)
            return
        for one in due:
            if one.place in refused:
                results[one.place] = refused[one.place]
            else:
                one.tenure.unsettled = False
                if one.place in found:  # in which rows its chunks are is not known
                    one.tenure.attempt = Attempt()
                else:
                    one.tenure.attempt.follow(one.plan)

    # -- at once -------------------------------------------------------------------------------

    async def _at_once(self, due: list[_Due]) -> list[_Due]:
        """Store what is as expected; returns the rest."""
        changes = Changes(self._dialect, self._lease)
        after: list[tuple[_Due, Held]] = []
        for one in due:
            left, header = one.tenure.left, one.tenure.header
            if left is None or header is None:
                raise AssertionError("not known, see _known")
            changes.add(one.tenure.key, one.tenure.root, one.plan)
            row = _after(one.batch, left, header[1])
            changes.grow(left, row)
            after.append((one, row))
        async with self._pool.connection() as db:
            stored = await changes.write_at_once(db)
        rest: list[_Due] = []
        for one, row in after:
            if one.tenure.key in stored:
                one.tenure.left = row
            else:
                one.tenure.left = None
                rest.append(one)
        return rest

    # -- with care -----------------------------------------------------------------------------

    async def _with_care(self, due: list[_Due]) -> tuple[dict[int, StoreError], set[int]]:
        """Write what is due, together.

        Returns:
            what was refused, by its place; the places of what was found there, all or some of it.
        """
        refused: dict[int, StoreError] = {}
        found: set[int] = set()
        changes = Changes(self._dialect, self._lease)
        for one in due:
            one.tenure.left = None
        async with self._pool.transaction() as db:
            held = await self._tenures.lock(db, [one.tenure for one in due])
            for one in due:
                try:
                    rest = await self._rest(db, one, held)
                    if rest is not one:
                        found.add(one.place)
                    if rest is not None:
                        held[one.tenure.key] = await self._add(db, rest, held, changes)
                except StoreError as error:
                    refused[one.place] = error
            await changes.write(db)
        for one in due:
            if one.place not in refused:
                one.tenure.left = held[one.tenure.key]
        return refused, found

    async def _rest(self, db: Connection, one: _Due, held: dict[bytes, Held]) -> _Due | None:
        """What to write of a batch: all, but for what is there, since a commit went unnoticed.

        Raises:
            StaleWriter: token or seq is not the session's.
        """
        batch, tenure = one.batch, one.tenure
        row = self._tenures.check(held, tenure)
        if row.next_seq == batch.expected_seq:
            return one
        count = await self._count_there(db, batch, row.next_seq) if tenure.unsettled else 0
        if not count:
            msg = (
                f"session {tenure.session_id!r}: expected the log to end before seq "
                f"{batch.expected_seq}, it ends before {row.next_seq}"
            )
            raise StaleWriter(msg)
        if count == len(batch.events):
            return None
        rest = Batch(batch.claim, batch.events[count:], row.next_seq, batch.record)
        return one._replace(batch=rest, plan=plan(rest.events, ()))

    async def _count_there(self, db: Connection, batch: Batch, next_seq: int) -> int:
        """How many of these events are stored, if nothing else is from the expected seq on."""
        session_id = batch.claim.session_id
        stored = await self._reader.read(db, session_id, batch.expected_seq, next_seq)
        mine = batch.events[: len(stored)]
        if not mine or mine[-1].seq + 1 != next_seq:
            return 0
        if [(e.seq, e.raw) for e in stored] != [(e.seq, e.raw) for e in mine]:
            return 0
        return len(mine) if all(a == b for a, b in zip(mine, stored, strict=True)) else 0

    async def _add(
        self, db: Connection, one: _Due, held: dict[bytes, Held], changes: Changes
    ) -> Held:
        """Add a batch to what is to be written; the session's row as it will be."""
        batch, tenure = one.batch, one.tenure
        row = held[tenure.key]
        changes.add(tenure.key, tenure.root, one.plan)
        if batch.record is not None:
            changes.record(tenure.key, batch.record)
        if not batch.events:
            return row
        try:
            header = await self._header(db, tenure, row.sum)
        except TurnlogError:  # the listing says so
            last_activity = max(row.last_activity, batch.events[-1].time)
            grown = row._replace(next_seq=batch.next_seq, last_activity=last_activity, stale=1)
        else:
            grown = _after(batch, row, header)
        changes.grow(row, grown)
        return grown

    async def _header(self, db: Connection, tenure: Tenure, total: int) -> SessionHeader:
        """The header as it is stored, read once."""
        if tenure.header is None or tenure.header[0] != total:
            ((raw,),) = await db.fetch(_HEADER, tenure.key)
            tenure.header = (total, read_header(raw, total))
        return tenure.header[1]


def _known(due: Sequence[_Due]) -> bool:
    """Whether it is known how to store batches without a look before: as nearly all are."""
    return len({one.tenure.key for one in due}) == len(due) and all(
        one.tenure.left is not None
        and one.tenure.left.next_seq == one.batch.expected_seq
        and not one.tenure.left.stale  # else the listing may have mended it
        and not one.tenure.unsettled
        and one.tenure.header is not None
        and one.tenure.header[0] == one.tenure.left.sum
        and one.batch.record is None
        and one.batch.events
        and not one.plan.rows.blobs
        for one in due
    )


def _after(batch: Batch, row: Held, header: SessionHeader) -> Held:
    """A session's row once a batch is stored."""
    last_activity, stale, info = line_after(
        batch, lambda: header, row.last_activity, row.stale, row.info
    )
    return row._replace(
        next_seq=batch.next_seq, last_activity=last_activity, stale=stale, info=info
    )


def _check_seqs(batch: Batch) -> None:
    if batch.next_seq > jsontext.INT_MAX:
        session_id = batch.claim.session_id
        msg = f"session {session_id!r}: expected seqs below {jsontext.INT_MAX}, got one beyond"
        raise StoreError(msg)
