"""A proxy between a client and a server, both on this machine, that can be told to cut the line."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Literal

from tests.servers.between import Between


class Proxy(Between):
    """Forwards to a port; what it was told to do, it does once.

    Attributes:
        cuts: how often it has cut a connection.
        was_cut: set from the first time on.
        refusing: whether new connections are cut at once.
    """

    def __init__(self, target: int) -> None:
        super().__init__()
        self.cuts = 0
        self.was_cut = asyncio.Event()
        self.refusing = False
        self._target = target
        self._words: tuple[bytes, ...] = ()
        self._when: Literal["before", "after"] = "after"
        self._for_good = False
        self._lines: set[asyncio.StreamWriter] = set()

    def cut(self, when: Literal["before", "after"], *words: bytes, for_good: bool = False) -> None:
        """Cut the connection whose client says one of some words next.

        Args:
            when: "before" the server hears it; "after" it answered, and nobody hears the answer.
            words: what the client says.
            for_good: whether to be `refusing` from then on.
        """
        self._when, self._words, self._for_good = when, words, for_good

    def cut_all(self) -> None:
        """Cut every connection."""
        for writer in list(self._lines):
            writer.transport.abort()
            self._count()

    def _count(self) -> None:
        self.cuts += 1
        self.was_cut.set()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self._lines.add(writer)
        try:
            if not self.refusing:
                there, back = await asyncio.open_connection("127.0.0.1", self._target)
                try:
                    await self._forward(reader, writer, there, back)
                finally:
                    back.transport.abort()
        except (ConnectionError, asyncio.CancelledError):
            pass  # an end of the line is gone: so is the other
        finally:
            self._lines.discard(writer)
            self._tasks.discard(task)
            writer.transport.abort()

    async def _forward(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        there: asyncio.StreamReader,
        back: asyncio.StreamWriter,
    ) -> None:
        deaf = False  # what the server says from now on is not heard

        async def asked() -> None:
            nonlocal deaf
            while said := await reader.read(1 << 16):
                if any(word in said for word in self._words):
                    self._words = ()
                    self.refusing |= self._for_good
                    self._count()
                    if self._when == "before":
                        return
                    deaf = True
                back.write(said)
                await back.drain()

        async def answered() -> None:
            while said := await there.read(1 << 16):
                if deaf:
                    return
                writer.write(said)
                await writer.drain()

        tasks = [asyncio.create_task(asked()), asyncio.create_task(answered())]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    @classmethod
    @asynccontextmanager
    async def before(cls, target: int) -> AsyncGenerator[Proxy]:
        """A proxy before the server at a port, for the time of a `with`."""
        async with cls(target).listening() as it:
            yield it
