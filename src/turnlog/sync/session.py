"""A durable session for synchronous code."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Concatenate, ParamSpec, TypeVar

from turnlog.content import Message
from turnlog.errors import ReentrantAppend
from turnlog.events import AnyEvent
from turnlog.stores.live import StoredSession
from turnlog.stores.port import Queued
from turnlog.sync.loop import Loop
from turnlog.views.sequence import MessageList

P = ParamSpec("P")
T = TypeVar("T")


class Session(StoredSession):
    """The session of an async store itself, with what is awaited there called here.

    Appending, reading and observing are what they are in `turnlog.Session`. An observer is called
    in the thread that appends. While an agent runs that is the event loop's, where nothing that
    waits can be called.

    For what takes an async session, an agent above all, there is `run`.
    """

    # It shares the attributes of the async session, so whoever appends, here or there, appends to
    # the same log under the same lock. What is its own is in slots.
    __slots__ = ("_loop", "_stored")

    def __init__(self, stored: StoredSession, loop: Loop) -> None:
        """`Store.session` and `Store.read` make them."""
        self.__dict__ = stored.__dict__
        self._stored = stored
        self._loop = loop

    def run(
        self,
        work: Callable[Concatenate[StoredSession, P], Awaitable[T]],
        /,
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> T:
        """Have something asynchronous done with the session, and return what that returns.

        As in `result = session.run(agent.run, "What's the weather in Oslo?")`. An interrupt
        (Ctrl-C) cancels it, and is raised once it has ended: of a turn everything that had arrived
        is kept. To follow a turn, `observe` the session.
        """
        return self._call(work, self._stored, *args, **kwargs)

    def _call(self, function: Callable[P, Awaitable[T]], *args: P.args, **kwargs: P.kwargs) -> T:
        """What the function returns or raises in the event loop.

        Raises:
            ReentrantAppend: an observer of the session calls, while whoever appends holds its lock.
        """
        with self._lock:
            if self._publishing:
                msg = f"session {self.id!r}: an observer cannot wait for its session's store"
                raise ReentrantAppend(msg)
        return self._loop.call(function, *args, **kwargs)

    # -- writing -------------------------------------------------------------------------------

    def flush(self) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Wait until everything appended so far is durable, at the store's durability.

        Raises:
            WriteFailed: it is not; it is kept, and the next flush tries again.
            StaleWriter: it never will be: another process owns the session now.
            ForkedProcess: called in a child of the process that opened the session.
        """
        self._call(self._stored.flush)

    def room(self) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Wait while too much waits to become durable; a loop does this before it goes on."""
        self._call(self._stored.room)

    def commands(self) -> list[Queued]:  # pyright: ignore[reportIncompatibleMethodOverride]
        """What waits in the session's inbox, in order of posting."""
        return self._call(self._stored.commands)

    def accept(  # pyright: ignore[reportIncompatibleMethodOverride]
        self, positions: Sequence[int]
    ) -> None:
        """Take commands out of the inbox: after their `inbox/accepted` was flushed."""
        self._call(self._stored.accept, positions)

    def detach(  # pyright: ignore[reportIncompatibleMethodOverride]
        self, path: str | Path
    ) -> Path:
        """Save the whole log, what no store took included, as one JSONL file; returns its path.

        For when the store is broken: `turnlog import PATH` takes the file.
        """
        return self._call(self._stored.detach, path)

    # -- reading -------------------------------------------------------------------------------

    def read_events(  # pyright: ignore[reportIncompatibleMethodOverride]
        self, start: int = 0, stop: int | None = None
    ) -> list[AnyEvent]:
        """The events with `start <= seq < stop`."""
        return self._call(self._stored.read_events, start, stop)

    def view(  # pyright: ignore[reportIncompatibleMethodOverride]
        self, at: int | None = None
    ) -> MessageList:
        """What the model saw after event `at`; see `derive_messages`."""
        return self._call(self._stored.view, at)

    def transcript(  # pyright: ignore[reportIncompatibleMethodOverride]
        self, *, include_tools: bool = False, include_context: bool = False
    ) -> tuple[Message, ...]:
        """What a person reads; see `extract_chat_messages`."""
        return self._call(
            self._stored.transcript, include_tools=include_tools, include_context=include_context
        )
