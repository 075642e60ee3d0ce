"""How long to wait before a request that failed is sent again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from turnlog.content import Failure


class Backoff(Protocol):
    """How long to wait before a retry."""

    def __call__(self, retry: int, failure: Failure) -> float:
        """Milliseconds before retry number `retry` (from 1)."""
        ...


def backoff(retry: int, failure: Failure) -> float:
    """The provider's own delay, else half a second doubled each time, at most half a minute."""
    if failure.provider_retry_after_ms is not None:
        return failure.provider_retry_after_ms
    return min(500.0 * 2.0 ** (retry - 1), 30_000.0)
