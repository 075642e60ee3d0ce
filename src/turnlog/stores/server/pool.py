"""Connections to one server: few, made when needed, one task each at a time; and patience.

A server that restarts, or a connection that broke, is nothing that a caller learns of while it is
back within `PATIENCE`: what was being done is done again from its beginning on a new connection.
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, TypeVar

from turnlog.stores.server.driver import Fault, Trouble

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable

    from turnlog.stores.server.driver import Connection, Driver

T = TypeVar("T")

PATIENCE = 10.0
"""Seconds for which a server may be away."""
TRIES = 8
"""How often what met a deadlock, or another's lock, is done."""
_FIRST_PAUSE, _LONGEST_PAUSE = 0.05, 1.0


class Pool:
    """At most so many connections.

    Args:
        driver: makes them.
        size: how many there may be.
        patience: see `PATIENCE`.
    """

    def __init__(self, driver: Driver, size: int, patience: float = PATIENCE) -> None:
        self._driver = driver
        self._room = asyncio.Semaphore(size)
        self._idle: list[Connection] = []
        self._used: set[Connection] = set()
        self._patience = patience

    @asynccontextmanager
    async def connection(self) -> AsyncGenerator[Connection]:
        """A connection, for the time of a `with`.

        Raises:
            Fault: none is to be had.
        """
        async with self._room:
            db = await self._taken()
            self._used.add(db)
            try:
                yield db
            finally:
                self._used.discard(db)
                if db.alive:
                    self._idle.append(db)
                else:
                    db.abort()

    async def _taken(self) -> Connection:
        while self._idle:
            db = self._idle.pop()
            if db.alive:
                return db
            db.abort()
        return await self._driver.connect()

    @asynccontextmanager
    async def transaction(self) -> AsyncGenerator[Connection]:
        """A connection in a transaction, which is committed at the end, or undone."""
        async with self.connection() as db:
            await db.begin()
            try:
                yield db
                await db.commit()
            except BaseException:
                # Also where it was cancelled: that ends within the connection's time limits.
                await undone(db)
                raise

    async def patiently(self, work: Callable[[], Awaitable[T]]) -> T:
        """Do it, again where it lost its connection or met a lock.

        Args:
            work: must be right to do again, also when it was done and nobody was told.

        Raises:
            Fault: the last one.
        """
        deadline = asyncio.get_running_loop().time() + self._patience
        pause, tries = _FIRST_PAUSE, 0
        while True:
            try:
                return await work()
            except Fault as fault:
                tries += 1
                late = asyncio.get_running_loop().time() + pause > deadline
                if fault.trouble is Trouble.LOST:
                    self.forget()
                    if late:
                        raise
                elif fault.trouble is not Trouble.BUSY or not (
                    await self._end_sleepers() or (not late and tries < TRIES)
                ):
                    raise
            await asyncio.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)

    def inherit(self, other: Pool) -> None:
        """Take what another pool of the same driver has idle."""
        self._idle += other._idle
        other._idle = []

    async def _end_sleepers(self) -> int:
        """How many are ended that kept locks asleep: what they kept is worth another try."""
        try:
            async with self.connection() as db:
                return await self._driver.dialect.end_sleepers(db)
        except Fault:
            return 0  # what speaks like this database does not have that: the lock is told of

    def forget(self) -> None:
        """Cut what is idle: where one connection broke, the others may have."""
        idle, self._idle = self._idle, []
        for db in idle:
            db.abort()

    async def close(self) -> None:
        """Close all connections. Idempotent."""
        idle, self._idle = self._idle, []
        for db in idle:
            await db.close()
        self.abort()
        await asyncio.sleep(0)  # the loop closes what was cut

    def abort(self) -> None:
        """Cut all connections, also those in use."""
        self.forget()
        for db in list(self._used):
            db.abort()


async def undone(db: Connection) -> None:
    """End a transaction that went wrong: undo it, or cut the connection, which does so too."""
    if not db.alive:
        db.abort()
        return
    try:
        await db.rollback()
    except Fault:
        db.abort()
    except BaseException:
        db.abort()
        raise
