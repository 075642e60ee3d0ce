"""A line between a client and a server on this machine, that fails at a message of one's choice.

It numbers the messages of all connections, in both directions, from the moment when it is told at
which to fail. How:

- `cut`: the connection ends before the message
- `torn`: the connection ends within the message
- `deaf`: neither this message nor anything after it comes through; the connection stays
- `held`: the message, and what follows it, waits until `let_go`
- `asleep`: whatever a client says from then on comes through, no answer does until `let_go`: to the
  server the client is one that was stopped
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Literal, TypeAlias

from tests.servers.between import Between
from tests.servers.wire import Messages, Size, Wire

How: TypeAlias = Literal["cut", "torn", "deaf", "held", "asleep"]
_SPREAD = 7919  # a prime: messages are torn at other bytes each


class Line(Between):
    """Forwards to a port.

    Attributes:
        count: messages since it was told at which to fail.
        hits: how often it failed.
        failed: set when it fails.
    """

    def __init__(self, target: int, wire: Callable[[], Wire]) -> None:
        super().__init__()
        self.count = 0
        self.hits = 0
        self.failed = asyncio.Event()
        self._target = target
        self._wire = wire
        self._how: How = "cut"
        self._number = 0
        self._for_good = False
        self._gone = asyncio.Event()

    def fail(self, how: How, number: int, *, for_good: bool = False) -> None:
        """Fail at a message, counted from 1 on from now.

        Args:
            how: see the module.
            number: of the message.
            for_good: let nobody connect from then on, until `mend`.
        """
        self.count, self.hits = 0, 0
        self._how, self._number, self._for_good = how, number, for_good
        self.failed, self._gone = asyncio.Event(), asyncio.Event()

    def mend(self) -> None:
        """Fail no more."""
        self._number, self._for_good = 0, False

    def let_go(self) -> None:
        """Forward what was held."""
        self._gone.set()

    @property
    def _refuses(self) -> bool:
        return self._for_good and self.hits > 0

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        back: asyncio.StreamWriter | None = None
        try:
            if not self._refuses:
                there, back = await asyncio.open_connection("127.0.0.1", self._target)
                wire = self._wire()
                ways = [
                    asyncio.create_task(self._forward(reader, back, wire.asked)),
                    asyncio.create_task(self._forward(there, writer, wire.answered, heard=True)),
                ]
                try:
                    await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
                finally:
                    for way in ways:
                        way.cancel()
                    await asyncio.gather(*ways, return_exceptions=True)
        except (ConnectionError, asyncio.CancelledError):
            pass  # an end of the line is gone: so is the other
        finally:
            self._tasks.discard(task)
            for end in (writer, back):
                if end is not None:
                    end.close()  # what was forwarded before arrives

    async def _forward(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        size: Size,
        *,
        heard: bool = False,
    ) -> None:
        """One direction of one connection, until its end or a cut; the client hears what is so."""
        messages = Messages(size)
        while data := await reader.read(1 << 16):
            for message in messages.of(data):
                self.count += 1
                if self.count == self._number or self._refuses:
                    await self._fail(message, reader, writer)
                    if self._how not in ("held", "asleep"):
                        return
                if heard and self.hits and self._how == "asleep":
                    await self._gone.wait()
                writer.write(message)
            await writer.drain()

    async def _fail(
        self, message: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self.hits += 1
        self.failed.set()
        if self._how == "torn":
            writer.write(message[: self._number * _SPREAD % len(message)])
            await writer.drain()
        elif self._how == "held":
            await self._gone.wait()
        elif self._how == "deaf":
            while await reader.read(1 << 16):
                pass

    @classmethod
    @asynccontextmanager
    async def before(cls, target: int, wire: Callable[[], Wire]) -> AsyncGenerator[Line]:
        """A line to the server at a port, for the time of a `with`."""
        async with cls(target, wire).listening() as it:
            yield it
