"""A backend of another event loop, for what runs in this one."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from inspect import iscoroutinefunction
from typing import Any, cast

import anyio.to_thread

from turnlog.stores.port import SessionEventStore
from turnlog.sync.loop import Loop


def elsewhere(backend: SessionEventStore, loop: Loop) -> SessionEventStore:
    """The same backend, each call made in its own loop while this one goes on."""
    return cast("SessionEventStore", _Elsewhere(backend, loop))


class _Elsewhere:
    def __init__(self, backend: SessionEventStore, loop: Loop) -> None:
        self._backend = backend
        self._loop = loop

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._backend, name)
        return partial(self._call, found) if iscoroutinefunction(found) else found

    async def _call(self, method: Callable[..., Awaitable[Any]], *args: Any, **options: Any) -> Any:
        there = partial(self._loop.call, method, *args, **options)
        return await anyio.to_thread.run_sync(there)
