"""`Patience`: what a session does while its store is away.

A store tries for a while by itself (a database server: ten seconds). Then it says that it failed,
and keeps what waits to be written. Whoever runs a session, and is not in a hurry, tries again until
the store is back: nothing that had been done is lost then, and nothing is done twice.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

import anyio

from turnlog.errors import StoreError, WriteFailed

T = TypeVar("T")

_FIRST_PAUSE, _LONGEST_PAUSE = 0.25, 5.0


def may_pass(error: Exception) -> bool:
    """Whether a store failed in a way that may pass: not one that says what is wrong for good.

    A session that another process owns by now, one that is damaged, a store that was closed have
    classes of their own.
    """
    return type(error) in (StoreError, WriteFailed)


class Patience:
    """Tries again what a store could not do.

    When it is over, it is over for good: what fails then fails at once.

    Args:
        seconds: how long a store may be away before that is so.
        on_wait: called with the error and the seconds until the next try, once each time that the
            store goes away.

    Attributes:
        is_over: whether nothing is tried again any more.
    """

    def __init__(self, seconds: float, on_wait: Callable[[StoreError, float], object]) -> None:
        self._seconds = seconds
        self._on_wait = on_wait
        self._over = anyio.Event()
        self._away_since: float | None = None

    @property
    def is_over(self) -> bool:
        """Whether nothing is tried again any more."""
        return self._over.is_set()

    def end(self) -> None:
        """Try nothing again; whoever waits for the next try is told of the failure at once."""
        self._over.set()

    async def keep(self, work: Callable[[], Awaitable[T]]) -> T:
        """Do it, again while the store is away.

        Args:
            work: must be right to do again, also when it was done and nobody was told.

        Raises:
            StoreError: it is over, or the failure is not one that may pass.
        """
        pause = _FIRST_PAUSE
        while True:
            try:
                done = await work()
            except StoreError as error:
                if not may_pass(error) or not self._is_worth_it(error, pause):
                    raise
                with anyio.move_on_after(pause):
                    await self._over.wait()
                    raise
            else:
                self._away_since = None
                return done
            pause = min(2 * pause, _LONGEST_PAUSE)

    def _is_worth_it(self, error: StoreError, pause: float) -> bool:
        """Whether to try again after a pause."""
        now = anyio.current_time()
        since = now if self._away_since is None else self._away_since
        if now + pause > since + self._seconds:
            self.end()
        if self.is_over:
            return False
        if self._away_since is None:
            self._away_since = now
            self._on_wait(error, pause)
        return True
