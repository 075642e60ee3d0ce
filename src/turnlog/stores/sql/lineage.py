"""Whose rows hold which events: a fork's first ones are its ancestors' own."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Sequence
from itertools import groupby
from typing import Generic, NamedTuple, TypeVar

from turnlog.events import AnyEvent
from turnlog.stores.sql.chunks import CHUNK

Key = TypeVar("Key")


class Part(NamedTuple, Generic[Key]):
    """The events with `start <= seq < stop` of those that a session's own rows hold."""

    key: Key
    start: int
    stop: int


class Lineage(Generic[Key]):
    """Which session is the child of which; it never changes, and is remembered."""

    def __init__(self) -> None:
        self._known: dict[Key, tuple[Key | None, int]] = {}

    def learn(self, key: Key, parent: Key | None, boundary: int) -> None:
        """A session's parent, if it has one; events before `boundary` are the parent's."""
        self._known[key] = (parent, boundary)

    def knows(self, key: Key) -> bool:
        """Whether this was learned of a session."""
        return key in self._known

    def parts(
        self, key: Key, start: int, stop: int
    ) -> Generator[Key, tuple[Key | None, int] | None, list[Part[Key]]]:
        """Which session's rows hold which part of a range of one's events, in ascending order.

        Asks for parent and boundary of sessions that are not known; None where there is no row.
        """
        parts: list[Part[Key]] = []
        here: Key | None = key
        while here is not None and start < stop:
            if here not in self._known:
                self._known[here] = (yield here) or (None, 0)
            parent, boundary = self._known[here]
            if boundary < stop:
                parts.append(Part(here, max(start, boundary), stop))
                stop = boundary
            here = parent
        return parts[::-1]


def pages(
    parts: Iterable[Part[Key]], size: int
) -> Generator[tuple[Part[Key], Part[Key]], tuple[Sequence[AnyEvent], int], list[AnyEvent]]:
    """The events of parts; asks for a page of them, and what follows it in its part.

    To be answered with the page's events, and where to go on: behind the page, or further on where
    there is nothing.
    """
    events: list[AnyEvent] = []
    for key, start, stop in parts:
        begin = start
        while begin < stop:
            upto = min(begin + size, stop)
            found, begin = yield Part(key, begin, upto), Part(key, upto, stop)
            events += found
    return events


def wanted(seqs: Iterable[int], next_seq: int) -> list[int]:
    """Those that a log holds which ends before `next_seq`, each once, in ascending order."""
    return sorted({seq for seq in seqs if 0 <= seq < next_seq})


def stretches(seqs: Sequence[int], events: Iterable[AnyEvent], key: Key) -> Iterator[Part[Key]]:
    """Where the seqs are that no event has: they are those of chunks, or of damaged events."""
    there = {event.seq for event in events}
    missing = enumerate(seq for seq in seqs if seq not in there)
    for _, group in groupby(missing, key=lambda pair: pair[1] - pair[0]):
        stretch = [seq for _, seq in group]
        yield Part(key, stretch[0], stretch[-1] + 1)


def without_chunks(events: Iterable[AnyEvent]) -> list[AnyEvent]:
    """The others."""
    return [event for event in events if event.type != CHUNK]
