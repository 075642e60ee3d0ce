"""How large the next request will be: what was last reported, and what changed since.

A pure fold. Sizes are kept by node, so an event costs what it adds, and a replacement what it
shadows. Which nodes a replacement shadows follows from the event alone: it cites them all, and of
what it cites those between its ends by anchor (see `surface`) leave.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from hashlib import blake2b
from typing import Any, Final

import msgspec

from turnlog import events as ev
from turnlog.compaction.estimate import DEFAULT, Estimator, Size, header_size, message_size
from turnlog.content import Message, Reasoning, Usage, user_message
from turnlog.records import encode
from turnlog.session import Session

BIG: Final = 8192
"""Characters from which on the meter keeps a list of tool results, for whoever shortens them."""
PLAUSIBLE: Final = 3
"""By what factor an estimate may be too high: a report below that left something out."""


class Mark(msgspec.Struct):
    """What a request covered: its header, and all nodes up to `seq` (and the node `answer`).

    Attributes:
        header: the key of its header.
        fixed: estimated tokens of its header.
        tokens: estimated tokens of the nodes it had.
        left: those of the nodes that are still on the surface.
        reported: what the provider said it was, in tokens; 0 before it said anything.
        at: the event that said so.
    """

    seq: int
    header: str | None
    fixed: int
    tokens: int
    left: int
    answer: int = -1
    reported: int = 0
    at: int = -1


class MeterState:
    """What the meter knows.

    Attributes:
        nodes: the size of every node of the surface, by seq.
        total: their sum.
        standing: tokens of system text on the surface (imported logs keep it there).
        results: characters of text of each tool result on the surface that is still as it was, in
            order; a replaced one is not listed.
        big: those with more than `BIG`.
        header, fixed: the key and the size of the request header in force.
        window: tokens of the window, as the last `request/context` of the model in force says.
        open_step: the seq of the `step/start` whose step has not ended, or None.
        seq: the last event that was seen; -1 before the first.
    """

    def __init__(self) -> None:
        self.nodes: dict[int, Size] = {}
        self.anchors: dict[int, int] = {}  # of replacement nodes only
        self.total = Size()
        self.standing = 0
        self.system: set[int] = set()
        self.results: dict[int, int] = {}
        self.big: dict[int, int] = {}
        self.header: str | None = None
        self.fixed = Size()
        self.model: tuple[str, str] | None = None
        self.windows: dict[tuple[str, str], int] = {}
        self.asked: Mark | None = None
        self.report: Mark | None = None
        self.open_step: int | None = None
        self.seq = -1

    @property
    def window(self) -> int | None:
        """Tokens of the window of the model in force, if the log says."""
        return None if self.model is None else self.windows.get(self.model)


class Gauge(msgspec.Struct, frozen=True):
    """How large the next request will be.

    Attributes:
        tokens: its tokens; bytes: its bytes on the wire, roughly; media: its images.
        fixed: tokens of system text and tool schemas, which compaction cannot shrink.
        reported: the provider's number that `tokens` builds on, or None when it is all estimated.
        reported_at: the seq of the event that brought it.
        seq: the last event that was counted: the gauge is valid for this seq.
    """

    tokens: int
    bytes: int
    media: int
    fixed: int
    reported: int | None
    reported_at: int | None
    seq: int


class MeterFold:
    """The fold behind `measure`; use it as `session.fold(METER)`."""

    def __init__(self, estimator: Estimator = DEFAULT) -> None:
        self.estimator = estimator

    def start(self) -> MeterState:
        """Before the first event."""
        return MeterState()

    def step(self, state: MeterState, event: ev.AnyEvent, /) -> MeterState:
        """After one more event."""
        state.seq = event.seq
        if event.surface_op is not None:
            self._node(state, event)
        else:
            self._record(state, event)
        return state

    def _node(self, state: MeterState, event: ev.AnyEvent) -> None:
        raise NotImplementedError

    def _record(self, state: MeterState, event: ev.AnyEvent) -> None:
        raise NotImplementedError

    def dump(self, state: MeterState) -> dict[str, Any]:
        """The state as JSON, for `restore`; as long as the surface, whatever the log."""
        raise NotImplementedError

    def restore(self, value: Any) -> MeterState:
        """The state that `dump` made JSON of.

        Raises:
            KeyError, TypeError, ValueError: it did not, or with another estimator.
        """
        raise NotImplementedError


METER: Final = MeterFold()


def measure(
    session: Session,
    header: ev.Header | None = None,
    *,
    estimator: Estimator = DEFAULT,
    instruction: str | None = None,
    extra: Sequence[Message] = (),
) -> Gauge:
    """How large the next request would be; costs what is new since the last call.

    Args:
        session: the session.
        header: the header of that request; None: the one in force.
        estimator: how tokens are estimated.
        instruction: a trailing instruction that the request will have.
        extra: messages that it will have and the surface does not.
    """
    raise NotImplementedError
