"""NOTIFY and LISTEN: on one connection a handle, however many sessions it follows.

Every process that listens is woken by every ring, so that one only listens while someone waits.

A notification holds keys of sessions, one behind the other, in base64. The channel's name holds
that of the schema, so that the stores of one database do not wake each other.
"""

from __future__ import annotations

import asyncio
import binascii
from base64 import b64decode, b64encode
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from turnlog.stores.postgres.faults import faults
from turnlog.stores.server.schema import KEY_SIZE

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_AT_ONCE = 300  # keys: a notification has less than 8,000 bytes


class PostgresBell:
    """A connection that rings, and listens while it is asked to; one after the other."""

    def __init__(self, raw: Any, channel: str, heard: Callable[[Sequence[bytes]], None]) -> None:
        self._raw = raw
        self._channel = channel
        self._heard = heard
        self._listens = False
        self._one_at_a_time = asyncio.Lock()  # a connection does one thing, and refuses a second

    @classmethod
    async def made(cls, raw: Any, heard: Callable[[Sequence[bytes]], None]) -> PostgresBell:
        """A bell on a connection that is its own from now on."""
        with faults():
            schema = await raw.fetchval("SELECT current_schema()")
        return cls(raw, f"turnlog_{sha256(str(schema).encode()).hexdigest()[:16]}", heard)

    async def listen(self, *, on: bool) -> None:
        """Listen from now on, or no more."""
        async with self._one_at_a_time:
            if on == self._listens:
                return
            self._listens = False  # asyncpg forgets who hears before it asks the server
            with faults():
                if on:
                    await self._raw.add_listener(self._channel, self._hear)
                else:
                    await self._raw.remove_listener(self._channel, self._hear)
            self._listens = on

    def _hear(self, _raw: Any, _pid: int, _channel: str, said: str) -> None:
        try:
            keys = b64decode(said, validate=True)
        except binascii.Error:
            return  # someone else's
        self._heard([keys[i : i + KEY_SIZE] for i in range(0, len(keys), KEY_SIZE)])

    @property
    def alive(self) -> bool:
        """Whether it is still connected."""
        return not self._raw.is_closed()

    async def ring(self, keys: Sequence[bytes]) -> None:
        """Tell who listens."""
        async with self._one_at_a_time:
            with faults():
                for start in range(0, len(keys), _AT_ONCE):
                    said = b64encode(b"".join(keys[start : start + _AT_ONCE])).decode()
                    await self._raw.execute("SELECT pg_notify($1, $2)", self._channel, said)

    async def close(self) -> None:
        """Stop listening."""
        from turnlog.stores.postgres.driver import close  # noqa: PLC0415 - it imports this one

        await close(self._raw, polite=self.alive)

    def abort(self) -> None:
        """Cut it."""
        self._raw.terminate()
