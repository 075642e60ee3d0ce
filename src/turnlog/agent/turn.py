"""`Turn`: a turn that runs, as its caller holds it."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Generator
from contextlib import contextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Self, cast
from weakref import WeakSet

import anyio
import anyio.abc

from turnlog.agent.drive import Drive
from turnlog.compaction.port import compacting
from turnlog.errors import TurnlogError

if TYPE_CHECKING:
    from turnlog.agent.loop import ReactLoopAgent, ToolChoice
    from turnlog.agent.results import TurnResult
    from turnlog.content import Content
    from turnlog.events import AnyEvent
    from turnlog.session import Session


class AgentBusy(TurnlogError):
    """The session is in a turn already, or is being compacted."""


_running: WeakSet[Session] = WeakSet()


@contextmanager
def idle(session: Session) -> Generator[bool]:
    """Keep turns from starting in a session while inside; False when one runs already."""
    if session in _running:
        yield False
        return
    _running.add(session)
    try:
        yield True
    finally:
        _running.discard(session)


class Turn:
    """A running turn: `async with agent.stream(session, …) as turn`, then iterate its events.

    Leaving the block early cancels the turn and keeps what had arrived.

    Attributes:
        result: what became of it, once it has ended; None when there was nothing to run.
    """

    def __init__(
        self,
        agent: ReactLoopAgent,
        session: Session,
        prompt: Content | None,
        choice: ToolChoice,
        *,
        one: bool = False,
        go_on: bool = False,
    ) -> None:
        self._session = session
        self._prompt = prompt
        self._choice: ToolChoice = choice
        self._one = one
        self._go_on = go_on
        self._drive = Drive(agent, session)
        self._events: deque[AnyEvent] = deque()
        self._more = anyio.Event()
        self._ended = anyio.Event()
        self._thread = 0
        self._tasks: anyio.abc.TaskGroup | None = None
        self._unobserve: Callable[[], None] = lambda: None
        self._error: BaseException | None = None
        self.result: TurnResult | None = None

    async def __aenter__(self) -> Self:
        session = self._session
        if session in compacting:
            msg = f"session {session.id!r} is being compacted: wait for its end"
            raise AgentBusy(msg)
        if session in _running:
            msg = f"session {session.id!r} is in a turn already: post a Steer or wait for its end"
            raise AgentBusy(msg)
        _running.add(session)
        self._thread = threading.get_ident()
        self._unobserve = session.observe(self._observe)
        self._tasks = anyio.create_task_group()
        await self._tasks.__aenter__()
        self._tasks.start_soon(self._run)
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            self.stop("left")
            if self._tasks is not None:
                if not isinstance(exc, anyio.get_cancelled_exc_class()):
                    exc_type = exc = traceback = None  # the body's own error comes out as it is
                await self._tasks.__aexit__(exc_type, exc, traceback)
            if self._error is not None:
                raise self._error
        finally:
            self._unobserve()
            _running.discard(self._session)

    async def _run(self) -> None:
        try:
            if self._one:
                self.result = await self._drive.run_one(go_on=self._go_on)
            else:
                self.result = await self._drive.run(self._prompt, self._choice)
        except Exception as error:  # noqa: BLE001 - raised again where the block is left
            self._error = _first(error)
        finally:
            self._ended.set()
            self._more.set()

    def _observe(self, event: AnyEvent) -> None:
        self._events.append(event)
        if threading.get_ident() == self._thread:
            self._more.set()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> AnyEvent:
        if self._tasks is None:
            msg = "enter the turn first: `async with agent.stream(…) as turn`, then iterate"
            raise TurnlogError(msg)
        while not self._events:
            if self._ended.is_set():
                raise StopAsyncIteration
            if self._more.is_set():
                self._more = anyio.Event()
            await self._more.wait()
        return self._events.popleft()

    def stop(self, cause: str = "user") -> None:
        """Ask the turn to stop, as `cancel` does, without waiting: for a signal's callback."""
        self._drive.stop(cause)

    async def cancel(self, cause: str = "user") -> TurnResult | None:
        """Cancel the turn, wait until it is closed in the log, and return what became of it.

        The events that nobody has iterated yet, those that close the turn among them, stay there.
        Prompts that wait in the inbox stay there too.
        """
        self.stop(cause)
        await self._ended.wait()
        return self.result


def _first(error: BaseException) -> BaseException:
    """The first error inside nested groups."""
    while isinstance(error, BaseExceptionGroup):
        error = cast("BaseExceptionGroup[BaseException]", error).exceptions[0]
    return error
