"""The loop's side of the inbox: what other processes ask of the session that it runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from turnlog.commands import Prompt, Steer
from turnlog.events import InboxAccepted
from turnlog.records import flatten
from turnlog.session import Session
from turnlog.stores.port import Queued
from turnlog.agent.state import loop_fold

POLL = 0.15  # seconds between looks into the inbox while a turn runs


@runtime_checkable
class Durable(Protocol):
    """What a durable session has besides a `Session`'s."""

    async def flush(self) -> None:
        """Wait until everything appended is durable."""
        ...

    async def room(self) -> None:
        """Wait while too much is queued."""
        ...

    async def commands(self) -> list[Queued]:
        """What waits in the inbox."""
        ...

    async def accept(self, positions: Sequence[int]) -> None:
        """Take commands out of the inbox."""
        ...


class Inbound:
    """Commands that wait for a session; nothing ever waits for one in memory."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._durable = session if isinstance(session, Durable) else None
        self._to_accept: list[int] = []

    async def flush(self) -> None:
        """Make everything durable, then take accepted commands out of the inbox."""
        if self._durable is None:
            return
        await self._durable.flush()
        if self._to_accept:
            positions, self._to_accept = self._to_accept, []
            await self._durable.accept(positions)

    async def room(self) -> None:
        """Wait while too much is queued to become durable."""
        if self._durable is not None:
            await self._durable.room()

    async def waiting(self) -> list[Queued]:
        """Commands that nobody accepted yet, in order of posting."""
        if self._durable is None:
            return []
        accepted = self._session.fold(loop_fold).accepted
        fresh: list[Queued] = []
        for queued in await self._durable.commands():
            if queued.command.id in accepted:
                if queued.position not in self._to_accept:
                    self._to_accept.append(queued.position)  # a crash came before `accept`
            else:
                fresh.append(queued)
        return fresh

    def accept(self, queued: Queued) -> None:
        """Log that a command was accepted; its effect must be appended right after."""
        command = flatten(queued.command)
        self._session.append("inbox/accepted", InboxAccepted(command))
        self._to_accept.append(queued.position)

    async def next_prompt(self) -> Queued | None:
        """The prompt that has waited longest."""
        return next((q for q in await self.waiting() if type(q.command) is Prompt), None)

    async def steering(self, turn: int) -> list[Queued]:
        """Steering for that turn; steering for another one is accepted without effect."""
        found: list[Queued] = []
        for queued in await self.waiting():
            command = queued.command
            if type(command) is not Steer:
                continue
            if command.turn is None or command.turn == turn:
                found.append(queued)
            else:
                self.accept(queued)
        return found
