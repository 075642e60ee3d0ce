"""What a compaction engine is, for those who ask for one or write another.

An engine changes a session only between `compaction/start` and `compaction/end`, which is the lock
(semantics.md §5). It appends `compaction/prune` with its `tool/result` replacements, for each
request `request/sent` and `compaction/summary`, and one `user/message` that replaces a range.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, Protocol, TypeAlias
from weakref import WeakSet

import msgspec

from turnlog.content import Message, Usage
from turnlog.events import Header

if TYPE_CHECKING:
    from turnlog.errors import ContextOverflow
    from turnlog.session import Session

compacting: WeakSet[Session] = WeakSet()
"""The sessions that an engine of this process is compacting now: no turn starts in them."""

SOURCE = "compaction"  # the kind of the source of a message that stands for a range

Reason: TypeAlias = Literal["threshold", "overflow", "manual", "switch"]
Policy: TypeAlias = Literal["model", "structural", "prune"]


class Ahead(msgspec.Struct, frozen=True):
    """The request that comes next, as far as the session does not say.

    Attributes:
        header: its header; None: the one in force.
        window: tokens that its model takes, the answer included; None: nobody said.
        messages: what it will bring that is not in the log yet.
    """

    header: Header | None = None
    window: int | None = None
    messages: tuple[Message, ...] = ()


class Compacted(msgspec.Struct, frozen=True, kw_only=True):
    """A compaction that was done.

    Attributes:
        compaction_id: as in its events; None when shortening tool results was enough.
        reason: why.
        seq: the message that stands for the range, if there is one.
        start, end: the first and last node that it replaced.
        shadowed: how many nodes that were.
        pruned: the tool results that were shortened, and the messages that lost images.
        tokens_before, tokens_after: estimates of the next request.
        policy: who made the summary; "prune" when there is none.
        attempts: requests that were sent.
        usage: of all of them together.
        summary: the text that was made.
    """

    compaction_id: str | None
    reason: Reason
    seq: int | None = None
    start: int | None = None
    end: int | None = None
    shadowed: int = 0
    pruned: tuple[int, ...] = ()
    tokens_before: int
    tokens_after: int
    policy: Policy
    attempts: int = 0
    usage: Usage | None = None
    summary: str = ""


class CompactionEngine(Protocol):
    """Keeps the next request of a session within what its model takes."""

    async def compact_if_needed(
        self, session: Session, ahead: Ahead | None = None
    ) -> Compacted | None:
        """Compact if the next request would be too large; None when it is not, or nothing helps.

        Called between steps only. What was asked for by `compact_now` inside a step is done now.

        Raises:
            CompactionFailed: it was tried, and failed; the log says why.
        """
        ...

    async def compact_now(
        self, session: Session, *, instruction: str | None = None, ahead: Ahead | None = None
    ) -> Compacted | None:
        """Compact because somebody asks for it; None inside a step: it waits for the step's end.

        Raises:
            CompactionBusy: another compaction runs.
            CompactionFailed: as above.
        """
        ...

    def is_wanted(self, session: Session) -> bool:
        """Whether somebody asked for a compaction that waits for `compact_if_needed`."""
        ...

    async def on_overflow(
        self, session: Session, error: ContextOverflow, ahead: Ahead | None = None
    ) -> Compacted:
        """Make the request smaller that a provider just refused, without touching its step.

        Raises:
            CompactionFailed: that cannot be done, and why.
        """
        ...
