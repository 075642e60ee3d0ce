"""What one transaction writes, gathered from all its batches, so that few statements do it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from turnlog.stores.server.driver import Growth
from turnlog.stores.server.schema import BLOBS, CHUNKS, EVENTS, RECORDS

if TYPE_CHECKING:
    from collections.abc import Collection

    from turnlog.stores.port import Record
    from turnlog.stores.server.dialect import Dialect
    from turnlog.stores.server.driver import Connection
    from turnlog.stores.server.tenures import Held
    from turnlog.stores.sql.runs import Plan

_OVERHEAD = 40  # bytes of a row besides its payload, roughly
_UNPACK = "DELETE FROM chunks WHERE session = ? AND first = ?"


class Changes:
    """Rows to delete, insert and update.

    Args:
        dialect: the database's.
        lease: microseconds for which whoever commits keeps the session.
    """

    def __init__(self, dialect: Dialect, lease: int) -> None:
        self._dialect = dialect
        self._lease = lease
        self._gone: list[tuple[bytes, int]] = []
        self._events: list[tuple[Any, ...]] = []
        self._chunks: list[tuple[Any, ...]] = []
        self._blobs: dict[tuple[bytes, bytes], tuple[bytes, bytes]] = {}  # -> whose, data
        self._records: dict[bytes, Record] = {}
        self._grown: dict[bytes, tuple[Held, Held]] = {}  # before, after
        self._sizes: dict[bytes, int] = {}

    def add(self, key: bytes, root: bytes, planned: Plan) -> None:
        """The rows of a batch of the session `key`, of the family of `root`."""
        events, chunks, blobs = planned.rows
        self._gone += [(key, row.first) for row in planned.repacked]
        self._events += [(key, *row) for row in events]
        self._chunks += [(key, *row) for row in chunks]
        for name, data in blobs.items():
            self._blobs.setdefault((root, name), (key, data))
        size = sum(len(row.data) + _OVERHEAD for row in events)
        size += sum(len(row.data) + _OVERHEAD for row in chunks)
        size -= sum(len(row.data) + _OVERHEAD for row in planned.repacked)
        self._sizes[key] = self._sizes.get(key, 0) + size

    def record(self, key: bytes, record: Record) -> None:
        """A session's opening record."""
        self._records[key] = record

    def grow(self, before: Held, after: Held) -> None:
        """A session's row as it was found, and as it will be."""
        self._grown[before.key] = before, after

    async def write_at_once(self, db: Connection) -> Collection[bytes]:
        """Write what is as expected, in a transaction of its own; the keys of what was written."""
        grown = [
            Growth(
                key,
                before.token,
                before.next_seq,
                after.next_seq,
                after.last_activity,
                self._sizes[key],
                after.stale,
                after.info,
            )
            for key, (before, after) in sorted(self._grown.items())
        ]
        return await db.grow(grown, self._lease, self._gone, self._events, self._chunks)

    async def write(self, db: Connection) -> None:
        """Write it all; to be called in a transaction, by which the sessions' rows are locked."""
        if self._gone:
            await db.many(_UNPACK, self._gone)
        if self._events:
            await db.insert(EVENTS, self._events)
        if self._chunks:
            await db.insert(CHUNKS, self._chunks)
        for (root, name), (key, data) in sorted(self._blobs.items()):  # one order for everyone
            if await db.execute(self._dialect.add(BLOBS), root, name, data):
                self._sizes[key] += len(data)
        if self._records:
            rows = [(key, record.seq, record.data) for key, record in self._records.items()]
            await db.many(self._dialect.put(RECORDS), rows)
        if self._grown:
            grow = f"""
                UPDATE sessions SET next_seq = ?, last_activity = ?, bytes = bytes + ?, stale = ?,
                info = ?, lease_until = {self._dialect.now} + ? WHERE session = ?
            """  # noqa: S608 - a constant
            await db.many(
                grow,
                [
                    (
                        after.next_seq,
                        after.last_activity,
                        self._sizes[key],
                        after.stale,
                        after.info,
                        self._lease,
                        key,
                    )
                    for key, (_, after) in self._grown.items()
                ],
            )
