"""Searching without an index: session by session, one in memory at a time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from heapq import heappush, heapreplace

from anyio import to_thread

from turnlog.errors import TurnlogError
from turnlog.events import AnyEvent, Replace, SessionHeader
from turnlog.stores.phrases import Matcher
from turnlog.stores.port import SessionEventStore, SessionInfo, Stored
from turnlog.stores.searching import Hit, Search, Searched, Shadows, hit_of, searched
from turnlog.upcasts import reread

# BM25 with the usual constants. Without an index nothing is known of all messages: their mean
# length is a guess, and a word that is everywhere counts as much as a rare one.
_K1, _B, _MEAN = 1.2, 0.75, 60.0


async def scan(backend: SessionEventStore, wanted: Search) -> list[Hit]:
    """Search by reading all sessions, one after the other; a bad one hides no other.

    Raises:
        NoSuchSession: the one to search in does not exist.
    """
    best = Best(wanted)
    if wanted.session is not None:
        stored = await backend.load(wanted.session)
        await to_thread.run_sync(best.look, await backend.info(wanted.session), stored, 0)
        return best.hits()
    async for info in backend.sessions():
        try:
            stored = await backend.load(info.id)
        except TurnlogError:
            continue  # the listing says what is wrong with it
        inherited = await _inherited(backend, stored.header)
        await to_thread.run_sync(best.look, info, stored, inherited)
    return best.hits()


async def _inherited(backend: SessionEventStore, header: SessionHeader) -> int:
    """How many events a fork shares with a parent that is here, where they are found.

    An import may name a parent, too, but has events of its own: its source is another one.
    """
    parent = header.parent_session
    if parent is None or not header.seed_length or not await backend.exists(parent):
        return 0
    if header.source is not None:
        try:
            if (await backend.header(parent)).source != header.source:
                return 0
        except TurnlogError:
            return 0  # nothing is found in a parent that cannot be read
    return header.seed_length


class Best:
    """The best hits so far, no more than are wanted."""

    def __init__(self, wanted: Search) -> None:
        self._wanted = wanted
        self._matcher = Matcher(wanted.phrases)
        self._room = wanted.skip + wanted.limit
        self._heap: list[tuple[float, int, int, int, Hit]] = []  # the worst first
        self._count = 0

    def look(self, info: SessionInfo, stored: Stored, first: int) -> None:
        """Search a session from an event on."""
        shadows = Shadows()
        for event in stored.events:
            if isinstance(event.surface_op, Replace):
                shadows.add(event.seq, event.surface_op.start, event.surface_op.end)
        source = stored.header.source_length or 0
        for event in stored.events:
            if event.seq < first or event.surface_op is None:
                continue
            read = reread(stored.header, event) if event.seq < source else event
            found = searched(read)
            if found is not None:
                self._weigh(info, read, found, shadows.by)

    def _weigh(
        self, info: SessionInfo, event: AnyEvent, found: Searched, by: Callable[[int], int | None]
    ) -> None:
        parts = found.parts(self._wanted)
        counted = self._matcher.count(parts) if parts else None
        if counted is None:
            return
        value = score(*counted)
        self._count += 1
        entry = (value, event.time, -self._count, event.seq)
        if len(self._heap) == self._room and entry <= self._heap[0][:4]:
            return
        shadowed_by = by(event.seq)
        if shadowed_by is not None and not self._wanted.shadowed:
            return
        where = (info.id, info.title)
        hit = hit_of(where, event, found, self._matcher, self._wanted, value, shadowed_by)
        if len(self._heap) < self._room:
            heappush(self._heap, (*entry, hit))
        else:
            heapreplace(self._heap, (*entry, hit))

    def hits(self) -> list[Hit]:
        """Those that are wanted, best first."""
        found = [entry[-1] for entry in sorted(self._heap, key=lambda e: e[:4], reverse=True)]
        return found[self._wanted.skip :]


def score(counts: Sequence[int], length: int) -> float:
    """How well a text of so many terms fits that holds the phrases so often."""
    norm = _K1 * (1 - _B + _B * length / _MEAN)
    return sum(count * (_K1 + 1) / (count + norm) for count in counts)
