"""The body of one call: a coroutine here, a plain function in a thread that may outlive us."""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable
from typing import Any, TypeAlias

import anyio.to_thread

from turnlog.agent.tools import Tool, as_content
from turnlog.content import Block

Late: TypeAlias = Callable[[Any, BaseException | None], None]


async def run_body(tool: Tool, args: dict[str, Any], late: Late) -> tuple[Block, ...]:
    """Run a body and return what it said; whatever it raises is raised.

    A plain function cannot be stopped. When its call is cancelled it runs on in its thread, and
    `late` gets what it returns or raises, in that thread.
    """
    if tool.is_async:
        return as_content(await tool.function(**args))
    thread = _Thread(tool, args)
    try:
        await anyio.to_thread.run_sync(thread.run, abandon_on_cancel=True)
    except BaseException:
        if not thread.abandon(late):
            raise
    said = thread.result()
    return as_content(await said if inspect.isawaitable(said) else said)


class _Thread:
    """A plain function in a thread."""

    def __init__(self, tool: Tool, args: dict[str, Any]) -> None:
        self._tool = tool
        self._args = args
        self._lock = threading.Lock()
        self._done = False
        self._said: Any = None
        self._error: BaseException | None = None
        self._late: Late | None = None

    def run(self) -> None:
        said, error = None, None
        try:
            said = self._tool.function(**self._args)
        except BaseException as raised:  # noqa: BLE001 - carried to whoever waits
            error = raised
        with self._lock:
            self._done, self._said, self._error = True, said, error
            late = self._late
        if late is not None:
            late(said, error)

    def abandon(self, late: Late) -> bool:
        """Stop waiting; whether it had finished already. If not, `late` gets what it brings."""
        with self._lock:
            if not self._done:
                self._late = late
            return self._done

    def result(self) -> Any:
        if self._error is not None:
            raise self._error
        return self._said
