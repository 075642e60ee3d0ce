"""Who may write to a session: a token, and a lease on the server's own clock.

Whoever claims takes the next token, and every commit compares it inside its transaction: that alone
keeps writers apart. The lease only says when a session whose owner is silent may be claimed; what
commits prolongs it, and one statement now and then does so for all sessions of a handle. A client's
clock is never asked.
"""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING

import msgspec

from turnlog import jsontext
from turnlog.stores.owners import in_use
from turnlog.stores.port import Owner
from turnlog.stores.server.driver import Fault
from turnlog.stores.server.schema import KEY_SIZE

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from turnlog.stores.server.dialect import Dialect
    from turnlog.stores.server.driver import Connection
    from turnlog.stores.server.pool import Pool

LEASE = 30.0
"""Seconds after which a session is free whose owner says nothing."""
MICRO = 1_000_000

_GIVE_BACK = """
    UPDATE sessions SET holder = NULL, lease_until = 0
    WHERE session = ? AND token = ? AND holder = ?
"""


class Leases:
    """The leases of one handle.

    Args:
        pool: of connections that write.
        dialect: the database's.
        keys: gives the keys of the sessions that this handle has.
        seconds: how long a lease is.
    """

    def __init__(
        self,
        pool: Pool,
        dialect: Dialect,
        keys: Callable[[], Sequence[bytes]],
        seconds: float = LEASE,
    ) -> None:
        self.holder = os.urandom(KEY_SIZE)
        self.length = int(seconds * MICRO)
        self._pool = pool
        self._dialect = dialect
        self._keys = keys
        self._pause = seconds / 3
        self._task: asyncio.Task[None] | None = None
        now = dialect.now
        self._held = f"""
            SELECT token, holder, lease_until, owner, {now} FROM sessions WHERE session = ?
            FOR UPDATE
        """  # noqa: S608 - constants
        self._take = f"""
            UPDATE sessions SET token = ?, holder = ?, lease_until = {now} + ?, owner = ?
            WHERE session = ?
        """  # noqa: S608

    # -- in a transaction ----------------------------------------------------------------------

    async def take(
        self, db: Connection, key: bytes, session_id: str, owner: Owner, *, steal: bool, mine: bool
    ) -> int:
        """Make this handle the owner; returns the token.

        Args:
            db: in a transaction.
            key: the session's.
            session_id: for messages.
            owner: who asks.
            steal: take it from a live owner.
            mine: whether this handle has a claim on it that it knows of.

        Raises:
            SessionInUse: another live handle has it.
        """
        (row,) = await db.fetch(self._held, key)
        token, holder, until, known, now = row
        forgotten = holder == self.holder and not mine  # a claim that nobody was told of
        if holder is not None and until > now and not steal and not forgotten:
            raise in_use(session_id, owner_in(known))
        named = msgspec.structs.replace(owner, token=token + 1)
        told = jsontext.encode(msgspec.to_builtins(named))
        await db.execute(self._take, token + 1, self.holder, self.length, told, key)
        return token + 1

    async def give_back(self, db: Connection, key: bytes, token: int) -> None:
        """Make a session free, unless its claim was lost."""
        await db.execute(_GIVE_BACK, key, token, self.holder)

    # -- meanwhile -----------------------------------------------------------------------------

    async def renew(self) -> None:
        """Prolong all leases of this handle by one statement.

        Raises:
            Fault: it could not.
        """
        keys = self._keys()
        if keys:
            statement, values = self._dialect.renew(keys, self.holder, self.length)
            async with self._pool.connection() as db:
                await db.execute(statement, *values)

    def start(self) -> None:
        """Renew from now on, whenever a third of the lease is over."""
        self._task = asyncio.create_task(self._renew_always(), name="turnlog leases")

    async def _renew_always(self) -> None:
        while True:
            await asyncio.sleep(self._pause)
            try:
                await self.renew()
            except Fault:
                # The next one may succeed; if not, whoever took a session over is told by its
                # token, and so is this handle at its next commit.
                self._pool.forget()

    async def stop(self) -> None:
        """Renew no more. Idempotent."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.wait([task])


def owner_in(known: bytes | None) -> Owner | None:
    """The owner as `sessions.owner` holds it; None where there is none, or nonsense."""
    if known is None:
        return None
    try:
        return msgspec.convert(jsontext.decode(known), Owner)
    except ValueError:
        return None
