"""What becomes of messages that an index named: it may have named too many."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Any, NamedTuple

from turnlog.events import AnyEvent
from turnlog.stores.phrases import Matcher
from turnlog.stores.searching import Hit, Search, Searched, Shadows, hit_of, searched


class Fit(NamedTuple):
    """A message that is wanted; see `Hit.shadowed_by`."""

    event: AnyEvent
    found: Searched
    shadowed_by: int | None


class Judge:
    """Looks into messages, for one search."""

    def __init__(self, wanted: Search) -> None:
        self._wanted = wanted
        self._matcher = Matcher(wanted.phrases)

    def fit(self, event: AnyEvent | None, shadows: Shadows) -> Fit | None:
        """The message, if it is there, says what was asked for, and is to be shown."""
        found = None if event is None else searched(event)
        if event is None or found is None:
            return None
        shadowed_by = shadows.by(event.seq)
        if shadowed_by is not None and not self._wanted.shadowed:
            return None
        if self._matcher.count(found.parts(self._wanted)) is None:
            return None
        return Fit(event, found, shadowed_by)

    def hit(self, where: tuple[str, str], fit: Fit, score: float) -> Hit:
        """The hit; `where` is its session's id and title."""
        event, found, shadowed_by = fit
        return hit_of(where, event, found, self._matcher, self._wanted, score, shadowed_by)


def answered(wanted: Search) -> Generator[int, tuple[Sequence[Any], list[Hit]], list[Hit]]:
    """The hits that are wanted; asks for so many messages that are named, and the hits in them."""
    most = room = wanted.skip + wanted.limit
    while True:
        named, hits = yield most
        if len(hits) >= room or len(named) < most:
            return hits[wanted.skip : room]
        most *= 4  # some were not to be shown
