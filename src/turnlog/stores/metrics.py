"""What a store's writer tells of its work: a port for whoever measures it.

`turnlog.telemetry` hands it on to OpenTelemetry.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import msgspec

from turnlog.errors import StoreError

_ALIASES = {"postgres": "postgresql", "mariadb": "mysql"}


class Queue(msgspec.Struct, frozen=True, eq=False):
    """What waits to become durable in one open store.

    Attributes:
        kind: of the store, as its URL begins: "sqlite", "postgresql" …; never more of the URL.
        bound: bytes that may wait; an append past it is refused.
        waiting: how many events, and how many bytes, wait now; from any thread.
    """

    kind: str
    bound: int
    waiting: Callable[[], tuple[int, int]]


class Commit(msgspec.Struct, frozen=True):
    """One commit of a store's writer: due batches of any number of sessions.

    Attributes:
        seconds: how long the backend took.
        events: how many it made durable.
        bytes: of their payloads, as they were appended.
        lags: for each session whose batch was stored, seconds since its oldest event was appended.
        errors: for each session whose batch was not stored, why. What failed is kept and tried
            again by the next flush; a `StaleWriter` says that the session was lost for good.
    """

    seconds: float
    events: int
    bytes: int
    lags: Sequence[float]
    errors: Sequence[StoreError]


class WriterMetrics(Protocol):
    """Is told what writers do; one may serve any number of stores.

    An exception is reported to the `turnlog` logger, and hurts no write.
    """

    def opened(self, queue: Queue) -> None:
        """A store was opened."""
        ...

    def closed(self, queue: Queue) -> None:
        """It was closed; nothing more is told of it."""
        ...

    def committed(self, queue: Queue, commit: Commit) -> None:
        """A commit is over, well or badly; before any flush that waited for it returns.

        Called in the store's event loop, which it holds up.
        """
        ...

    def refused(self, queue: Queue) -> None:
        """An append was refused because too much waits (`QueueFull`); in the thread of that append.

        To be called by many threads at once.
        """
        ...


def kind_of(url: str) -> str:
    """The kind of store that a URL names, each by one name."""
    scheme = url.partition(":")[0]
    return _ALIASES.get(scheme, scheme)
