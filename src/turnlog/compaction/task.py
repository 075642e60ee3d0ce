"""What an engine looks at before it does anything: the next request, and what its model takes."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

import msgspec

from turnlog.compaction.meter import Gauge, measure, meter_of
from turnlog.compaction.ranges import Nodes, closed
from turnlog.compaction.state import COMPACTIONS, CompactionState
from turnlog.compaction.tally import MeterState
from turnlog.compaction.window import DEFAULT_WINDOW, Window, window_of
from turnlog.views.loop import LoopState, loop_fold

if TYPE_CHECKING:
    from turnlog.compaction.estimate import Estimator
    from turnlog.compaction.port import Ahead
    from turnlog.events import Header
    from turnlog.session import Session


class ModelPolicy(msgspec.Struct, frozen=True):
    """How much of a model is used; what is None is as the engine has it.

    Attributes:
        threshold: how full its window may be: a part of it, or tokens.
        retain: how much of the most recent stays verbatim: a part of what messages may take, or
            tokens.
        window: tokens that it takes, whatever it says of itself.
        output: tokens that its answer may take and that stay free.
        bytes, media: what its provider takes of these in one request.
    """

    threshold: float | None = None
    retain: float | None = None
    window: int | None = None
    output: int | None = None
    bytes: int | None = None
    media: int | None = None

    def over(self, other: ModelPolicy) -> ModelPolicy:
        """What it says, and where it says nothing, what the other does."""
        values = {
            name: getattr(other if getattr(self, name) is None else self, name)
            for name in self.__struct_fields__
        }
        return ModelPolicy(**values)


class Task:
    """One session and its next request.

    Attributes:
        session: the session.
        header: of the next request, as far as it is known.
        is_switch: it goes to another model than the last one.
    """

    def __init__(
        self,
        session: Session,
        ahead: Ahead,
        header: Header | None,
        policy: ModelPolicy,
        window: int | None,
        estimator: Estimator,
    ) -> None:
        self.session = session
        self.header = header
        self._ahead = ahead
        self._policy = policy
        self._window = window  # tokens, None when nobody said
        self._estimator = estimator
        last = self.loop.header
        self.is_switch = (
            last is not None
            and header is not None
            and (last.config.provider, last.config.model)
            != (header.config.provider, header.config.model)
        )

    @property
    def state(self) -> CompactionState:
        """What the log says of compactions."""
        return self.session.fold(COMPACTIONS)

    @property
    def loop(self) -> LoopState:
        """What the log says of turns and steps."""
        return self.session.fold(loop_fold)

    @property
    def turn(self) -> int | None:
        """The open turn."""
        return self.loop.turn if self.loop.open else None

    @property
    def meter(self) -> MeterState:
        """What the meter knows."""
        return self.session.fold(meter_of(self._estimator))

    @cached_property
    def window(self) -> Window:
        """What the next request may take."""
        return self._of(*window_of(self.session, self._window))

    def _of(self, tokens: int, is_default: bool) -> Window:  # noqa: FBT001 - as `window_of` has it
        policy = self._policy
        output = policy.output
        if output is None and self.header is not None:
            output = self.header.config.max_tokens
        return Window(
            tokens,
            policy.threshold if policy.threshold is not None else 0.8,
            policy.retain if policy.retain is not None else 0.25,
            None if output is None else min(output, tokens // 2),
            policy.bytes,
            policy.media,
            is_default,
        )

    def is_close(self) -> bool:
        """Whether the request could be too large; before that nobody need know the window."""
        if self._window is not None or self.meter.window is not None:
            return True
        gauge, assumed = self.gauge(), self._of(DEFAULT_WINDOW, is_default=True)
        return gauge.tokens * 2 > assumed.limit or bool(assumed.over(gauge))

    def is_in_step(self) -> bool:
        """Whether a step runs; one that waits for an approval does not."""
        waits = any(self.loop.decision(call_id) is None for call_id in self.loop.asked)
        return self.meter.open_step is not None and not waits

    def holds_media(self) -> bool:
        """Whether the next request has no more bytes and images than its provider takes."""
        return {"media", "bytes"}.isdisjoint(self.window.over(self.gauge()))

    def gauge(self) -> Gauge:
        """How large the next request is, now."""
        return measure(
            self.session, self.header, estimator=self._estimator, extra=self._ahead.messages
        )

    def nodes(self) -> Nodes:
        """The surface, now."""
        return Nodes(self.session, self.meter.nodes)

    def closed(self) -> tuple[int, ...]:
        """The nodes that come before the open step."""
        return closed(self.session, self.meter.open_step)
