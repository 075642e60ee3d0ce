"""How much a model takes, and how much of that a conversation may fill."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal, TypeAlias
from weakref import WeakSet

import msgspec

from turnlog import _ambient
from turnlog.compaction.meter import METER

if TYPE_CHECKING:
    from turnlog.compaction.meter import Gauge
    from turnlog.session import Session

DEFAULT_WINDOW: Final = 32_768
"""Tokens that a model is taken to have when nobody says: few enough for almost any."""

Unit: TypeAlias = Literal["tokens", "bytes", "media"]

_warned: WeakSet[Session] = WeakSet()


class Window(msgspec.Struct, frozen=True):
    """What a request may take, and what of it compaction leaves alone.

    Attributes:
        tokens: the model's window, the answer included.
        threshold: how full it may be before compaction is due: a part of the window, or tokens.
        retain: how much of the most recent is kept verbatim: a part of what messages may take
            below the threshold, or tokens.
        output: tokens that the answer may take and that must stay free, if that is known.
        bytes, media: what the provider takes of these in one request, if that is known.
        is_default: nobody said how large the window is.
    """

    tokens: int
    threshold: float = 0.8
    retain: float = 0.25
    output: int | None = None
    bytes: int | None = None
    media: int | None = None
    is_default: bool = False

    def __post_init__(self) -> None:
        if self.tokens <= 0 or self.threshold <= 0 or self.retain < 0:
            msg = (
                "expected tokens and threshold above zero and retain not below it, got "
                f"{self.tokens}, {self.threshold}, {self.retain}"
            )
            raise ValueError(msg)

    @property
    def limit(self) -> int:
        """Tokens above which compaction is due."""
        limit = min(_tokens(self.threshold, self.tokens), self.tokens)
        return limit if self.output is None else min(limit, max(self.tokens - self.output, 0))

    def over(self, gauge: Gauge) -> tuple[Unit, ...]:
        """In which respects a request is too large: in none, it may be sent as it is."""
        found: list[Unit] = []
        if gauge.tokens > self.limit:
            found.append("tokens")
        if self.bytes is not None and gauge.bytes > self.bytes:
            found.append("bytes")
        if self.media is not None and gauge.media > self.media:
            found.append("media")
        return tuple(found)

    def room(self, gauge: Gauge) -> int:
        """Tokens below the limit that are left for messages once the fixed part is in.

        Not above zero: compaction cannot help, for what it cannot shrink is already too much.
        """
        return self.limit - gauge.fixed

    def retained(self, gauge: Gauge) -> int:
        """Tokens of the most recent messages that stay verbatim."""
        room = max(self.room(gauge), 0)
        return min(_tokens(self.retain, room), room)


def _tokens(share: float, whole: int) -> int:
    """A share of a whole when it is at most one, else tokens."""
    return int(share * whole) if share <= 1 else int(share)


def window_of(session: Session, model_window: int | None = None) -> tuple[int, bool]:
    """The window in tokens, and whether it is only the default.

    What the model says counts first, then the last `request/context` of the model that is asked,
    then `DEFAULT_WINDOW`, of which the `turnlog` logger is warned once a session.

    Args:
        session: the session.
        model_window: what the model says of itself; None (or nothing above zero): it does not.
    """
    if model_window is not None and model_window > 0:
        return model_window, False
    logged = session.fold(METER).window
    if logged is not None:
        return logged, False
    if session not in _warned:
        _warned.add(session)
        _ambient.report_unknown_window(session.id, DEFAULT_WINDOW)
    return DEFAULT_WINDOW, True
