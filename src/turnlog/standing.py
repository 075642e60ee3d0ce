"""The folds that a resumed session needs at once, whatever it has in memory.

Their states are kept in the opening record (`turnlog.opening`). A fold that is not listed here
reads the log from its first event.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from turnlog.compaction.meter import METER
from turnlog.compaction.pins import PINS
from turnlog.compaction.state import COMPACTIONS
from turnlog.views.loop import loop_fold

if TYPE_CHECKING:
    from collections.abc import Mapping

    from turnlog.events import AnyEvent

S = TypeVar("S")


class StandingFold(Protocol[S]):
    """A fold whose state can be kept: `restore(dump(state))` goes on as `state` would.

    What `dump` gives is JSON, bounded by what is on the surface, not by the log.
    """

    def start(self) -> S:
        """The state for an empty log."""
        ...

    def step(self, state: S, event: AnyEvent, /) -> S:
        """The state after one more event."""
        ...

    def dump(self, state: S) -> Any:
        """The state as JSON."""
        ...

    def restore(self, value: Any) -> S:
        """The state that was dumped; raises KeyError, TypeError or ValueError for anything else."""
        ...


STANDING: Mapping[str, StandingFold[Any]] = {
    "compactions@1": COMPACTIONS,
    "loop@2": loop_fold,
    "meter@2": METER,
    "pins@1": PINS,
}
"""By name and version: a record that lacks one, or has another version of it, is made anew."""


def name_of(fold: object) -> str | None:
    """The name under which a fold stands, if it does."""
    return next((name for name, each in STANDING.items() if each is fold), None)
