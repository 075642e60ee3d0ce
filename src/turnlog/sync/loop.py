"""An event loop in a thread of its own, and how other threads have things done in it."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Iterator
from concurrent.futures import CancelledError, Future
from contextlib import (
    AbstractAsyncContextManager,
    AsyncExitStack,
    ExitStack,
    contextmanager,
    suppress,
)
from functools import partial
from typing import Generic, ParamSpec, TypeVar

import anyio
from anyio.abc import TaskStatus
from anyio.from_thread import BlockingPortal, start_blocking_portal

from turnlog import _ambient
from turnlog.errors import ForkedProcess, StoreClosed

P = ParamSpec("P")
T = TypeVar("T")

AHEAD = 256  # items of an iteration that are fetched before they are asked for


class Loop:
    """Runs in its thread from `open` to `close`, inside an async context manager that it holds.

    Args:
        name: of what it holds, for errors.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._process = _ambient.process_id()
        self._thread = 0
        self._stack = ExitStack()
        self._outer: BlockingPortal | None = None
        self._inner: BlockingPortal | None = None  # its tasks end before what is held is left
        self._held: Future[None] | None = None

    @property
    def is_open(self) -> bool:
        """Whether it runs."""
        return self._inner is not None

    def open(self, held: AbstractAsyncContextManager[object]) -> None:
        """Start the thread and enter `held` in it; raises what that raises."""
        with ExitStack() as stack:
            outer = stack.enter_context(start_blocking_portal())
            self._held, self._inner = outer.start_task(self._hold, held)
            self._outer, self._process = outer, _ambient.process_id()
            self._stack = stack.pop_all()

    async def _hold(
        self,
        held: AbstractAsyncContextManager[object],
        *,
        task_status: TaskStatus[BlockingPortal],
    ) -> None:
        self._thread = threading.get_ident()
        async with held, BlockingPortal() as inner:
            task_status.started(inner)
            await inner.sleep_until_stopped()

    def close(self) -> None:
        """Cancel what still runs, leave what is held, end the thread; raises what leaving raises.

        An interrupt is raised when that is done; a second one at once.
        """
        self._check_process()
        outer, inner, held = self._outer, self._inner, self._held
        self._outer = self._inner = self._held = None
        if outer is not None and inner is not None and held is not None:

            def leave() -> None:
                outer.start_task_soon(inner.stop, True)
                held.result()

            with self._stack:
                _insisting(leave)

    # -- what other threads ask for ------------------------------------------------------------

    def call(self, function: Callable[P, Awaitable[T]], *args: P.args, **kwargs: P.kwargs) -> T:
        """What the function returns or raises in the event loop.

        An interrupt cancels it, and is raised once it has ended; a second one at once.

        Raises:
            StoreClosed: the loop is not open, or was closed meanwhile.
            ForkedProcess: called in a child of the process that opened it.
        """
        task = self._start(partial(function, *args, **kwargs))
        try:
            return self._result(task.future)
        except BaseException:
            task.end()
            raise

    @contextmanager
    def entered(self, held: AbstractAsyncContextManager[T]) -> Generator[T]:
        """Be inside an async context manager for the time of a `with`.

        It is left whatever happens, at the latest when the loop is closed. An interrupt while it is
        left is raised when that is done; a second one at once.
        """
        inside: Future[tuple[T, anyio.Event]] = Future()

        async def hold() -> None:
            async with held as value:
                leave = anyio.Event()
                inside.set_result((value, leave))
                await leave.wait()

        task = self._start(hold)
        task.future.add_done_callback(lambda _: inside.cancel())
        try:
            value, leave = inside.result()
        except CancelledError:
            self._result(task.future)  # why it was not entered
            raise
        except BaseException:
            task.end()
            raise
        try:
            yield value
        finally:
            self._leave(task, leave)

    def _leave(self, task: _Task[None], leave: anyio.Event) -> None:
        self._check_process()

        def done() -> None:
            if self._inner is not None:
                with suppress(RuntimeError):  # it was closed just now
                    self._inner.start_task_soon(leave.set)
            task.future.result()

        with suppress(CancelledError):  # it was closed, and left what it was in
            _insisting(done)

    def iterate(self, items: AsyncIterator[T]) -> Iterator[T]:
        """The items, fetched a little ahead; raises as `call` and the iterator do."""
        feed = self.call(_feed, items)
        task = self._start(feed.run)
        try:
            while batch := self.call(feed.take):
                yield from batch
            self._result(task.future)
        finally:
            if _ambient.process_id() == self._process:
                task.cancel()

    # -- inside --------------------------------------------------------------------------------

    def _start(self, work: Callable[[], Awaitable[T]]) -> _Task[T]:
        self._check_process()
        if threading.get_ident() == self._thread:
            msg = f"{self._name}: called from its own event loop, which it would block for ever"
            raise RuntimeError(msg)
        if self._inner is None:
            raise self._closed()
        try:
            return _Task(self._inner, work)
        except RuntimeError as error:  # closed just now
            raise self._closed() from error

    def _result(self, future: Future[T]) -> T:
        try:
            return future.result()
        except CancelledError:
            raise self._closed() from None

    def _closed(self) -> StoreClosed:
        return StoreClosed(f"{self._name} is not open: use `with open_store(…) as store`")

    def _check_process(self) -> None:
        if _ambient.process_id() != self._process:
            msg = (
                f"{self._name} was opened by process {self._process}: a child made by fork() must "
                "open its own store"
            )
            raise ForkedProcess(msg)


class _Task(Generic[T]):
    """Work in the event loop; `future` is how it ends, cancelled if it was cancelled."""

    def __init__(self, portal: BlockingPortal, work: Callable[[], Awaitable[T]]) -> None:
        self._portal = portal
        self._work = work
        self._scope: anyio.CancelScope | None = None
        self._ended = threading.Event()
        self.future: Future[T] = Future()
        try:
            portal.start_task_soon(self._run)
        except KeyboardInterrupt:  # it may have been started all the same
            self.end()
            raise

    async def _run(self) -> None:
        try:
            with anyio.CancelScope() as self._scope:
                self.future.set_result(await self._work())
        except anyio.get_cancelled_exc_class():
            raise
        except BaseException as error:  # noqa: BLE001 - it is raised where the work was asked for
            self.future.set_exception(error)
        finally:
            self.future.cancel()
            self._ended.set()

    def cancel(self) -> None:
        """Cancel it if it still runs."""
        if not self.future.done():
            with suppress(RuntimeError):  # the portal was closed, which cancels it
                self._portal.start_task_soon(self._cancel)

    def _cancel(self) -> bool:
        """Cancel it, from the event loop; False if it was never started: tasks start in order."""
        if self._scope is not None:
            self._scope.cancel()
        return self._scope is not None

    def end(self) -> None:
        """Cancel it if it still runs, and wait until it has ended."""
        started = True
        if not self.future.done():
            with suppress(RuntimeError):
                started = self._portal.call(self._cancel)
        if started:
            self._ended.wait()


class _Feed(Generic[T]):
    """Fetches the items of an iterator until `AHEAD` of them wait to be taken."""

    def __init__(self, items: AsyncIterator[T]) -> None:
        self._items = items
        self._ready: list[T] = []
        self._filled = anyio.Event()
        self._room = anyio.Event()
        self._ended = False

    async def run(self) -> None:
        """Fetch them all."""
        try:
            async with AsyncExitStack() as stack:
                aclose: Callable[[], Awaitable[None]] | None = getattr(self._items, "aclose", None)
                if aclose is not None:  # a generator, which ends here and not some time later
                    stack.push_async_callback(aclose)
                async for item in self._items:
                    self._ready.append(item)
                    self._filled.set()
                    if len(self._ready) >= AHEAD:
                        self._room = anyio.Event()
                        await self._room.wait()
        finally:
            self._ended = True
            self._filled.set()

    async def take(self) -> list[T]:
        """What was fetched, as soon as that is something; nothing when there is no more."""
        if not self._ended:
            await self._filled.wait()
        ready, self._ready = self._ready, []
        self._filled = anyio.Event()
        self._room.set()
        return ready


async def _feed(items: AsyncIterator[T]) -> _Feed[T]:
    return _Feed(items)


def _insisting(call: Callable[[], T]) -> T:
    """What a call returns that is made again if it is interrupted; the interrupt is raised then."""
    try:
        return call()
    except KeyboardInterrupt:
        call()
        raise
