"""asyncmy as the stores on servers use it."""

from __future__ import annotations

import asyncio
from functools import cache
from typing import TYPE_CHECKING, Any

from asyncmy import errors
from asyncmy.connection import Connection

from turnlog.stores.mysql.dialect import MySqlDialect
from turnlog.stores.mysql.faults import faults
from turnlog.stores.mysql.literals import filled, joined, row
from turnlog.stores.server.driver import Fault, Trouble
from turnlog.stores.server.pool import undone
from turnlog.stores.server.schema import CHUNKS, EVENTS

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from turnlog.stores.server.dialect import Dialect, Table
    from turnlog.stores.server.driver import Growth

CONNECT_TIMEOUT = 10
READ_TIMEOUT = 90  # the server's own limit should be the first

MODE = (
    "STRICT_ALL_TABLES,NO_ZERO_IN_DATE,NO_ZERO_DATE,ERROR_FOR_DIVISION_BY_ZERO,"
    "NO_ENGINE_SUBSTITUTION"
)
# What is in comments is for MariaDB, or for MySQL. An owner that was stopped in the middle of a
# commit keeps its rows locked until the server ends its connection: MariaDB does so before the
# patience of those ends who wait for them. Of a long list of keys MariaDB would make a table, and
# look through all sessions for what is in it.
SETTINGS = f"""
    SET NAMES utf8mb4 COLLATE utf8mb4_bin;
    SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED, READ WRITE;
    SET sql_mode = '{MODE}', time_zone = '+00:00', autocommit = 1, sql_notes = 0,
        innodb_lock_wait_timeout = 10, lock_wait_timeout = 60, wait_timeout = 30
        /*M!100300 , max_statement_time = 60, idle_transaction_timeout = 5 */
        /*M!100500 , in_predicate_conversion_threshold = 0 */
        /*!80000 , max_execution_time = 60000 */;
    SELECT @@sql_mode, @@max_allowed_packet
""".encode()
_BEGIN, _COMMIT = b"START TRANSACTION", b"COMMIT"
_GROW = f"""
    UPDATE sessions SET next_seq = ?, last_activity = ?, bytes = bytes + ?, stale = ?, info = ?,
    lease_until = {MySqlDialect.now} + ? WHERE session = ? AND token = ? AND next_seq = ?
"""  # noqa: S608 - a constant
_GONE = "DELETE FROM chunks WHERE session = ? AND first = ?"
_OVERHEAD = 1024  # bytes of a packet that are not the statement's, and more
_AT_ONCE = 4 << 20  # bytes of one statement, where there is a choice


@cache
def _head(table: Table) -> bytes:
    return f"INSERT INTO {table.name} ({table.names}) VALUES ".encode()  # noqa: S608


class MySqlConnection:
    """One connection of asyncmy's."""

    def __init__(self, raw: Any) -> None:
        self._raw = raw
        self._good = True
        self._room = 1 << 20  # bytes of a statement; the server says what they are

    async def set_up(self) -> None:
        """Make the session what all of ours are."""
        ((mode, packet),) = await self._do(self._rows, SETTINGS)
        if set(MODE.split(",")) != set(str(mode).split(",")):
            said = f"it does not keep the session's settings: expected sql_mode {MODE}, got {mode}"
            raise Fault(Trouble.OTHER, said)
        self._room = packet - _OVERHEAD

    @property
    def alive(self) -> bool:
        """Whether it can still be used."""
        return self._good and self._raw.connected and not self._raw._stream_broken  # noqa: SLF001

    async def _do(self, call: Callable[[bytes], Any], statement: bytes) -> Any:
        with faults():
            try:
                return await call(statement)
            except errors.MySQLError as error:
                # After the server's own errors, which have numbers, it goes on.
                self._good &= bool(error.args) and isinstance(error.args[0], int)
                raise
            except BaseException:
                self._good = False  # who knows what the server is doing
                raise

    async def _rows(self, statement: bytes) -> Sequence[Sequence[Any]]:
        """Run it; the rows of the last query in it."""
        async with self._raw.cursor() as cursor:
            await cursor.execute(statement)
            while await cursor.nextset():
                pass
            return await cursor.fetchall()

    async def _count(self, statement: bytes) -> int:
        async with self._raw.cursor() as cursor:
            return await cursor.execute(statement)

    async def _counts(self, statement: bytes) -> list[int]:
        """Run it; how many rows each statement in it changed."""
        async with self._raw.cursor() as cursor:
            counts = [await cursor.execute(statement)]
            while await cursor.nextset():
                counts.append(cursor.rowcount)
            return counts

    def _fitting(self, statement: bytes) -> bytes:
        """The statement, if the server takes it: it would cut the connection otherwise."""
        if len(statement) > self._room:
            said = f"a statement of {len(statement):,} bytes, where its max_allowed_packet is "
            raise Fault(Trouble.TOO_LARGE, f"{said}{self._room + _OVERHEAD:,}")
        return statement

    async def fetch(self, query: str, *values: Any) -> Sequence[Sequence[Any]]:
        """The rows of a query."""
        return await self._do(self._rows, self._fitting(filled(query, values)))

    async def execute(self, query: str, *values: Any) -> int:
        """Run a statement; how many rows it changed."""
        return await self._do(self._count, self._fitting(filled(query, values)))

    async def many(self, query: str, rows: Iterable[Sequence[Any]]) -> None:
        """Run a statement with each of the values, as many at once as fit."""
        await self._all((filled(query, values) for values in rows), b";", b"")

    async def insert(self, table: Table, rows: Sequence[Sequence[Any]]) -> None:
        """Insert rows, as many at once as fit."""
        await self._all(map(row, rows), b",", _head(table))

    async def _all(self, pieces: Iterable[bytes], between: bytes, head: bytes) -> None:
        for some in joined(pieces, between, min(self._room - len(head), _AT_ONCE)):
            await self._do(self._rows, self._fitting(head + some))

    async def grow(
        self,
        grown: Sequence[Growth],
        lease: int,
        gone: Sequence[tuple[bytes, int]],
        events: Sequence[Sequence[Any]],
        chunks: Sequence[Sequence[Any]],
    ) -> Collection[bytes]:
        """Store what sessions grew by, with two packets: one changes their rows, one adds rows.

        Where a session's row is not as expected, nothing is stored.
        """
        first = [filled(_GROW, (*one[3:], lease, *one[:3])) for one in grown]
        second = [filled(_GONE, key) for key in gone]
        for table, rows in ((EVENTS, events), (CHUNKS, chunks)):
            if rows:
                second.append(_head(table) + b",".join(map(row, rows)))
        packets = [b";".join((_BEGIN, *first)), b";".join((*second, _COMMIT))]
        if max(map(len, packets)) > self._room:
            return ()
        try:
            if await self._do(self._counts, packets[0]) != [0, *(1 for _ in grown)]:
                await self.rollback()
                return ()
            await self._do(self._rows, packets[1])
        except BaseException:
            await undone(self)
            raise
        return [one.session for one in grown]

    async def begin(self) -> None:
        """Begin a transaction, as isolated as the session says."""
        await self._do(self._count, _BEGIN)

    async def commit(self) -> None:
        """End it."""
        await self._do(self._count, _COMMIT)

    async def rollback(self) -> None:
        """Undo it."""
        await self._do(self._count, b"ROLLBACK")

    async def close(self) -> None:
        """Say goodbye, if there still is someone."""
        if self.alive:
            try:
                async with asyncio.timeout(2.0):
                    await self._raw.ensure_closed()
            except (errors.Error, OSError, TimeoutError):
                pass  # it does not matter to us what it cannot say any more
        self.abort()

    def abort(self) -> None:
        """Cut it."""
        self._good = False
        transport = self._raw._transport  # noqa: SLF001 - its close waits for what was not sent
        if transport is not None:
            transport.abort()
        self._raw.close()


class MySqlDriver:
    """Connects to one database.

    Args:
        options: as `asyncmy.connection.Connection` takes them.
        url: for messages.
    """

    def __init__(self, options: Mapping[str, Any], url: str) -> None:
        self.dialect: Dialect = MySqlDialect()
        self.url = url
        self._options = options

    async def connect(self) -> MySqlConnection:
        """A new connection."""
        raw: Any = Connection(
            **self._options,
            charset="utf8mb4",
            autocommit=True,
            read_timeout=READ_TIMEOUT,
            connect_timeout=CONNECT_TIMEOUT,
            program_name="turnlog",
        )
        db = MySqlConnection(raw)
        try:
            with faults():
                async with asyncio.timeout(CONNECT_TIMEOUT):  # to the end of the greeting
                    await raw.connect()
            await db.set_up()
        except BaseException:
            db.abort()
            raise
        return db

    async def bell(self, heard: Callable[[Sequence[bytes]], None]) -> None:
        """None: MySQL has no such thing."""
        del heard
