"""What stands between a client and a server, both on this machine: it listens, and ends cleanly."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Self


class Between(ABC):
    """Listens on a port of its own.

    Attributes:
        port: to connect to.
    """

    def __init__(self) -> None:
        self.port = 0
        self._tasks: set[asyncio.Task[None]] = set()

    @abstractmethod
    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one client; the task is in `_tasks` meanwhile."""

    async def end(self) -> None:
        """Cut what is left, and wait until all is done."""
        for task in list(self._tasks):
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    @asynccontextmanager
    async def listening(self) -> AsyncGenerator[Self]:
        """Listen for the time of a `with`."""
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        try:
            yield self
        finally:
            server.close()
            await self.end()
            await server.wait_closed()
