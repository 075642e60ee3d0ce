"""Waiting for what is written: at once for this handle's commits, by looking for those of others.

However many wait, one of them looks, several times a second, whether the file has changed at all;
only then the sessions that are waited for are read. Who stops waiting hands the looking on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import anyio

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

_POLL = 0.04


class _Waiter:
    """Who waits for a session's next seq to be greater than `after + 1`."""

    __slots__ = ("after", "grown", "session_id", "woken")

    def __init__(self, session_id: str, after: int) -> None:
        self.session_id = session_id
        self.after = after
        self.grown = False
        self.woken = anyio.Event()

    def look(self, next_seq: int) -> None:
        """Wake if that is enough."""
        if next_seq > self.after + 1:
            self.grown = True
            self.woken.set()


class Waiting:
    """All who wait on one handle.

    Args:
        next_seqs: reads the next seqs of sessions.
        changes: gives a number that is another one when the file has changed.
    """

    def __init__(
        self,
        next_seqs: Callable[[Sequence[str]], Awaitable[Sequence[int]]],
        changes: Callable[[], Awaitable[int]],
    ) -> None:
        self._next_seqs = next_seqs
        self._changes = changes
        self._waiters: set[_Waiter] = set()
        self._seen: int | None = None
        self._looking = False

    async def wait(self, session_id: str, after: int, timeout: float) -> None:  # noqa: ASYNC109 - the port's
        """Return when the session's next seq is greater than `after + 1`, or after `timeout` s."""
        mine = _Waiter(session_id, after)
        self._waiters.add(mine)
        try:
            mine.look(*await self._next_seqs([session_id]))
            with anyio.move_on_after(timeout):
                while not mine.grown:
                    if self._looking:
                        await mine.woken.wait()  # there is more, or it is our turn to look
                        mine.woken = anyio.Event()
                    else:
                        await self._look(mine)
        finally:
            self._waiters.discard(mine)

    def grown(self, session_id: str, next_seq: int) -> None:
        """Wake who waits for what this handle has written to a session."""
        for waiter in self._waiters:
            if waiter.session_id == session_id:
                waiter.look(next_seq)

    async def _look(self, mine: _Waiter) -> None:
        self._looking = True
        try:
            while not mine.grown:
                changes = await self._changes()
                if changes != self._seen:
                    self._seen = changes
                    await self._look_at_all()
                with anyio.move_on_after(_POLL):
                    await mine.woken.wait()
        finally:
            self._looking = False
            for other in self._waiters - {mine}:
                other.woken.set()
                break

    async def _look_at_all(self) -> None:
        waiters = list(self._waiters)
        ids = list(dict.fromkeys(waiter.session_id for waiter in waiters))
        found = dict(zip(ids, await self._next_seqs(ids), strict=True))
        for waiter in waiters:
            waiter.look(found[waiter.session_id])
