"""One compaction as an engine does it: of what, why, what it used, and how its bracket closes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from turnlog import _ambient
from turnlog.compaction.port import Compacted
from turnlog.events import CompactionEnd
from turnlog.records import flatten
from turnlog.views.usage import add_usage

if TYPE_CHECKING:
    from turnlog.compaction.meter import Gauge
    from turnlog.compaction.port import Reason
    from turnlog.compaction.task import Task
    from turnlog.content import Failure, Usage

_GAINED: Final = 10  # the part of a request that shortening results must save to be enough


class Spent:
    """What the requests of one compaction took.

    Attributes:
        attempts: how many there were.
        usages: each one's.
        shown: tokens of the conversation that the last one showed, by estimate.
    """

    def __init__(self) -> None:
        self.attempts = 0
        self.shown = 0
        self.usages: list[Usage | None] = []

    @property
    def usage(self) -> Usage | None:
        """All of them together, bucket by bucket; unknown where any part is."""
        return add_usage(self.usages) if self.usages else None


class Plan:
    """One compaction: of what, why, and what it has used."""

    def __init__(
        self,
        task: Task,
        reason: Reason,
        gauge: Gauge,
        retain: int,
        pruned: tuple[int, ...],
        wish: str | None = None,
    ) -> None:
        self.id = _ambient.new_id()
        self.task = task
        self.reason: Reason = reason
        self.gauge = gauge
        self.retain = retain
        self.pruned = pruned
        self.wish = wish
        self.spent = Spent()

    def end(self, done: Compacted | None, failure: Failure | None) -> CompactionEnd:
        """What closes the bracket."""
        return CompactionEnd(
            self.id,
            self.task.turn,
            None if failure is None else flatten(failure),
            None if done is None else done.start,
            None if done is None else done.end,
            self.gauge.tokens,
            None if done is None else done.tokens_after,
            None if done is None else done.policy,
            self.spent.attempts,
            self.spent.usage,
        )


def pruned_only(reason: Reason, pruned: tuple[int, ...], before: Gauge, after: Gauge) -> Compacted:
    """What was done when shortening results was enough."""
    return Compacted(
        compaction_id=None,
        reason=reason,
        pruned=pruned,
        tokens_before=before.tokens,
        tokens_after=after.tokens,
        policy="prune",
    )


def has_shrunk(kind: str, before: Gauge, after: Gauge) -> bool:
    """Whether enough went for the request to be sent again, in the respect that was complained of.

    What the provider counts is not known, so this is a guess; it is sent once more, not for ever.
    """
    if kind == "media":
        return after.media < before.media
    was, now = (before.bytes, after.bytes) if kind == "bytes" else (before.tokens, after.tokens)
    return (was - now) * _GAINED >= was
