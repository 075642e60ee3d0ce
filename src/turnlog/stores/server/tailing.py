"""Waiting for what is written: by this handle, which knows, and by others, who ring a bell.

However many wait, one task looks, at all of their sessions with one query: at once after a bell,
and now and then in case one was missed, or where there is none. Who commits rings after the commit,
outside its transaction, and not more often than anyone could hear: a bell within would make all
commits of a database wait for each other.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from turnlog.stores.server.driver import Fault

if TYPE_CHECKING:
    from collections.abc import Sequence

    from turnlog.stores.server.dialect import Dialect
    from turnlog.stores.server.driver import Bell, Driver
    from turnlog.stores.server.pool import Pool

RING_EVERY = 0.05
"""Seconds between two rings of one handle at least; the first one comes at once."""
LISTEN_ON = 5.0
"""Seconds for which one listens on when nobody waits any more: who follows waits again soon."""


class Pace(NamedTuple):
    """How often to look, in seconds: between two looks at least, and at most."""

    least: float
    most: float


WITH_BELL = Pace(0.02, 1.0)
WITHOUT = Pace(0.5, 0.5)
_AGAIN = 1.0  # seconds until a server that went away is tried again


class _Waiter:
    """Who waits for a session's next seq to be greater than `after + 1`."""

    __slots__ = ("after", "grown", "key", "looked", "woken")

    def __init__(self, key: bytes, after: int) -> None:
        self.key = key
        self.after = after
        self.grown = False
        self.looked = False  # since it waits
        self.woken = asyncio.Event()

    def look(self, next_seq: int) -> None:
        """Wake if that is enough."""
        self.looked = True
        if next_seq > self.after + 1:
            self.grown = True
            self.woken.set()


class Tailing:
    """All who wait on one handle, and its bell.

    Args:
        driver: makes the bell.
        pool: of connections that read.
    """

    def __init__(self, driver: Driver, pool: Pool) -> None:
        self._driver = driver
        self._pool = pool
        self._dialect: Dialect = driver.dialect
        self._waiters: dict[bytes, set[_Waiter]] = {}
        self._due: set[bytes] = set()  # sessions to look at
        self._call = asyncio.Event()  # there are some
        self._grown: set[bytes] = set()  # sessions to ring for
        self._ringing: asyncio.Task[None] | None = None
        self._watching: asyncio.Task[None] | None = None
        self._bell: Bell | None = None
        self._no_bell = False  # the database has none
        self._connecting = asyncio.Lock()

    # -- for this handle -----------------------------------------------------------------------

    async def wait(self, key: bytes, after: int, timeout: float) -> bool | None:  # noqa: ASYNC109 - the port's
        """Return when a session's next seq is greater than `after + 1`, or after `timeout` s.

        False then, if it has been looked at since; None if it could not be.
        """
        mine = _Waiter(key, after)
        self._waiters.setdefault(key, set()).add(mine)
        try:
            self._hear([key])
            if self._watching is None or self._watching.done():
                self._watching = asyncio.create_task(self._watch(), name="turnlog tails")
            try:
                async with asyncio.timeout(timeout):
                    await mine.woken.wait()
            except TimeoutError:
                return False if mine.looked else None
            return True
        finally:
            waiters = self._waiters[key]
            waiters.discard(mine)
            if not waiters:
                del self._waiters[key]
                self._due.discard(key)

    def grown(self, key: bytes, next_seq: int) -> None:
        """Tell everyone what this handle has committed."""
        for waiter in self._waiters.get(key, ()):
            waiter.look(next_seq)
        self._grown.add(key)
        if not self._no_bell and (self._ringing is None or self._ringing.done()):
            self._ringing = asyncio.create_task(self._ring(), name="turnlog bell")

    # -- others' bells -------------------------------------------------------------------------

    def _hear(self, keys: Sequence[bytes]) -> None:
        due = self._waiters.keys() & set(keys)
        if due:
            self._due |= due
            self._call.set()

    async def _bell_that_rings(self) -> Bell | None:
        async with self._connecting:
            if self._bell is not None and not self._bell.alive:
                self._bell = None
            if self._bell is None and not self._no_bell:
                self._bell = await self._driver.bell(self._hear)
                self._no_bell = self._bell is None
            return self._bell

    async def _ring(self) -> None:
        while self._grown:
            keys, self._grown = list(self._grown), set()
            try:
                bell = await self._bell_that_rings()
                if bell is not None:
                    await bell.ring(keys)
            except Fault:
                return  # who waits looks by itself in a second; the next commit tries again
            await asyncio.sleep(RING_EVERY)

    # -- looking -------------------------------------------------------------------------------

    async def _watch(self) -> None:
        """Look while anyone waits, and listen a little longer."""
        while True:
            await self._watch_on()
            self._call.clear()
            try:
                async with asyncio.timeout(LISTEN_ON):
                    await self._call.wait()
            except TimeoutError:
                with suppress(Fault):  # then it is gone, and listens no more either
                    if self._bell is not None:
                        await self._bell.listen(on=False)
                if not self._waiters:
                    return

    async def _watch_on(self) -> None:
        loop = asyncio.get_running_loop()
        all_at = loop.time()  # when all were looked at, whoever calls meanwhile
        while self._waiters:
            try:
                bell = await self._bell_that_rings()
                if bell is not None:
                    await bell.listen(on=True)
                pace = WITHOUT if bell is None else WITH_BELL
                await self._look()
                await asyncio.sleep(pace.least)
                try:
                    async with asyncio.timeout_at(all_at + pace.most):
                        await self._call.wait()
                except TimeoutError:
                    pass  # nobody called
                if loop.time() >= all_at + pace.most:
                    self._due |= self._waiters.keys()
                    all_at = loop.time()
            except Fault:
                self._pool.forget()
                self._due |= self._waiters.keys()
                await asyncio.sleep(_AGAIN)

    async def _look(self) -> None:
        keys = sorted(self._due)
        self._due.clear()
        self._call.clear()
        if not keys:
            return
        condition, values = self._dialect.among("session", "key", keys)
        query = f"SELECT session, next_seq FROM sessions WHERE {condition}"  # noqa: S608
        async with self._pool.connection() as db:
            rows = await db.fetch(query, *values)
        for key, next_seq in rows:
            for waiter in self._waiters.get(key, ()):
                waiter.look(next_seq)

    async def close(self) -> None:
        """Ring for what was committed, and end. Idempotent."""
        if self._ringing is not None:
            await asyncio.wait([self._ringing], timeout=1.0)
        await self._end()
        bell, self._bell = self._bell, None
        if bell is not None:
            await bell.close()

    async def abort(self) -> None:
        """End at once."""
        await self._end()
        bell, self._bell = self._bell, None
        if bell is not None:
            bell.abort()

    async def _end(self) -> None:
        tasks = [task for task in (self._ringing, self._watching) if task is not None]
        self._ringing = self._watching = None
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
