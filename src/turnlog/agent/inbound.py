"""The loop's side of the inbox: what other processes ask of the session that it runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Generic, Protocol, TypeVar, runtime_checkable

import msgspec

from turnlog.commands import Approve, Cancel, Command, Compact, Deny, Prompt, Steer
from turnlog.events import InboxAccepted
from turnlog.records import flatten
from turnlog.session import Session
from turnlog.stores.port import Queued
from turnlog.views.loop import loop_fold

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


C = TypeVar("C", bound=Command)


class Waiting(msgspec.Struct, Generic[C], frozen=True):
    """A command of a known kind, and its place in the inbox."""

    position: int
    command: C


class Inbound:
    """Commands that wait for a session; nothing ever waits for one in memory.

    Attributes:
        durable: whether the session has an inbox at all.
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        self._durable = session if isinstance(session, Durable) else None
        self._to_accept: list[int] = []  # what the log says is accepted, at the next rest
        self.durable = self._durable is not None

    async def flush(self) -> None:
        """Make everything durable."""
        if self._durable is not None:
            await self._durable.flush()

    async def settle(self) -> None:
        """Make everything durable, then take accepted commands out of the inbox.

        Only where no turn runs any more: as long as one does, its commands keep the session among
        those that are pending, so that somebody finds it if this process dies.
        """
        await self.flush()
        if self._durable is not None and self._to_accept:
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
        commands = await self._durable.commands()
        accepted = self._session.fold(loop_fold).accepted
        fresh: list[Queued] = []
        for queued in commands:
            if queued.command.id not in accepted:
                fresh.append(queued)
            elif queued.position not in self._to_accept:
                self._to_accept.append(queued.position)  # a crash came before `accept`
        return fresh

    async def begun(self) -> list[Command]:
        """Commands that were accepted, but for which no loop came to rest since."""
        if self._durable is None:
            return []
        accepted = self._session.fold(loop_fold).accepted
        commands = [queued.command for queued in await self._durable.commands()]
        return [command for command in commands if command.id in accepted]

    async def of(self, *kinds: type[C]) -> list[Waiting[C]]:
        """Those of some kinds."""
        return [
            Waiting(queued.position, queued.command)
            for queued in await self.waiting()
            if isinstance(queued.command, kinds)
        ]

    def accept(self, queued: Queued | Waiting[Any]) -> None:
        """Log that a command was accepted; its effect must be appended right after."""
        command = flatten(queued.command)
        self._session.append("inbox/accepted", InboxAccepted(command))
        self._to_accept.append(queued.position)

    async def next_prompt(self) -> Waiting[Prompt] | None:
        """The prompt that has waited longest; one that says nothing has no effect."""
        for queued in await self.of(Prompt):
            if queued.command.text.strip():
                return queued
            self.accept(queued)
        return None

    async def steering(self, turn: int) -> list[Waiting[Steer]]:
        """Steering for that turn; what is for an earlier one, or says nothing, has no effect."""
        found: list[Waiting[Steer]] = []
        for queued in await self.of(Steer):
            steer = queued.command
            if _is_later(steer, turn):
                continue
            if steer.turn in (None, turn) and steer.text.strip():
                found.append(queued)
            else:
                self.accept(queued)
        return found

    async def cancel_of(self, turn: int) -> Cancel | None:
        """A cancel of that turn; one of an earlier turn has no effect."""
        for queued in await self.of(Cancel):
            if _is_later(queued.command, turn):
                continue
            self.accept(queued)
            if queued.command.turn in (None, turn):
                return queued.command
        return None

    async def accept_compactions(self) -> None:
        """Accept compactions that were asked for: the log then says that one is wanted."""
        for queued in await self.of(Compact):
            self.accept(queued)

    async def discard_stale(self) -> None:
        """Before a turn starts: what was meant for one that is over has no effect."""
        turn = self._session.fold(loop_fold).turn + 1
        for queued in await self.waiting():
            if _is_stale(queued.command, turn):
                self.accept(queued)


def _is_later(command: Steer | Cancel, turn: int) -> bool:
    return command.turn is not None and command.turn > turn


def _is_stale(command: Command, turn: int) -> bool:
    """Whether the command can mean nothing to turn number `turn`, which has not started yet."""
    if isinstance(command, Cancel):
        return command.turn is None or command.turn < turn
    if isinstance(command, Steer):
        return command.turn is not None and command.turn < turn
    return isinstance(command, (Approve, Deny))
