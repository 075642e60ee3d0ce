"""The memory store: the fake beside the real ones, and what they are compared with.

Handles of one storage may be used in different threads, each in an event loop of its own: a lock is
held while anything is looked at or changed. An event loop can only be woken from its own thread, so
who waits looks from time to time what others wrote.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import AsyncIterator, Sequence
from copy import deepcopy
from itertools import count
from operator import attrgetter
from threading import RLock, get_ident
from typing import ClassVar

import anyio

from turnlog.commands import Command, Prompt, wakes
from turnlog.errors import (
    NoSuchSession,
    SessionExists,
    SessionInUse,
    StaleWriter,
    StoreClosed,
    StoreError,
)
from turnlog.events import AnyEvent, SessionHeader
from turnlog.stores.info import InfoFold
from turnlog.stores.port import Batch, Claim, Durability, Owner, Queued, Record, SessionInfo, Stored

_POLL = 0.05  # seconds between looks at what other event loops wrote

_seq = attrgetter("seq")


class _Kept:
    """One session in memory."""

    def __init__(self, header: SessionHeader) -> None:
        self.header = header
        self.events: list[AnyEvent] = []
        self.next_seq = 0
        self._listed: tuple[int, SessionHeader, SessionInfo] | None = None
        self.token = 0
        self.owner: Owner | None = None  # of a live claim
        self.queue: list[Queued] = []
        self.posted: set[str] = set()
        self.record: Record | None = None
        self.waiting: list[tuple[int, anyio.Event]] = []  # with the thread of its event loop

    def info(self) -> SessionInfo:
        """The line of a listing, made anew when something was added."""
        known = self._listed
        if known is None or known[0] != len(self.events) or known[1] is not self.header:
            fold = InfoFold.of(self.header, self.events)
            self._listed = known = (len(self.events), self.header, fold.info())
        return known[2]


class MemoryStorage:
    """What several handles share; lives as long as someone holds it."""

    named: ClassVar[dict[str, MemoryStorage]] = {}

    def __init__(self) -> None:
        self.lock = RLock()
        self.sessions: dict[str, _Kept] = {}
        self.positions = count()  # of commands, across all sessions: who waits longest is first


class MemoryStore:
    """A backend that forgets: `memory:` for one store, `memory:NAME` shared in the process."""

    def __init__(self, storage: MemoryStorage | None = None, url: str = "memory:") -> None:
        self.url = url
        self.durability: Durability = "none"
        self.keeps_records = True
        self._storage = storage or MemoryStorage()
        self._lock = self._storage.lock
        self._claims: dict[str, int] = {}
        self._closed = False

    async def open(self) -> None:
        """Nothing to do."""
        self._closed = False

    async def close(self) -> None:
        """Give up what this handle had claimed."""
        with self._lock:
            for session_id, token in self._claims.items():
                kept = self._storage.sessions.get(session_id)
                if kept is not None and kept.token == token:
                    kept.owner = None
            self._claims = {}
            self._closed = True

    def _kept(self, session_id: str) -> _Kept:
        self._check_open()
        kept = self._storage.sessions.get(session_id)
        if kept is None:
            msg = f"no session {session_id!r} in {self.url}"
            raise NoSuchSession(msg)
        return kept

    def _check_open(self) -> None:
        if self._closed:
            msg = f"the store {self.url} is closed"
            raise StoreClosed(msg)

    async def create(self, header: SessionHeader) -> None:
        """Add an empty session."""
        self._check_open()
        with self._lock:
            if header.id in self._storage.sessions:
                msg = f"session {header.id!r} exists already in {self.url}"
                raise SessionExists(msg)
            self._storage.sessions[header.id] = _Kept(deepcopy(header))

    async def fork(self, header: SessionHeader, parent_id: str, boundary: int) -> bool:
        """Nothing to do: events are shared anyway."""
        del header, parent_id, boundary
        return False

    async def exists(self, session_id: str) -> bool:
        """Whether there is a session with that id."""
        self._check_open()
        return session_id in self._storage.sessions

    async def claim(self, session_id: str, owner: Owner, *, steal: bool = False) -> Claim:
        """Become the one writer; every claim has the next token."""
        kept = self._kept(session_id)
        with self._lock:
            if kept.owner is not None and not steal:
                msg = f"session {session_id!r} is in use by {kept.owner} since {kept.owner.since}"
                raise SessionInUse(msg, owner=kept.owner)
            kept.token += 1
            kept.owner = owner
            self._claims[session_id] = kept.token
            return Claim(session_id, kept.token)

    async def release(self, claim: Claim) -> None:
        """Give it back, if it still is ours."""
        with self._lock:
            kept = self._storage.sessions.get(claim.session_id)
            if kept is not None and kept.token == claim.token:
                kept.owner = None
            if self._claims.get(claim.session_id) == claim.token:
                del self._claims[claim.session_id]

    async def reseed(self, claim: Claim, header: SessionHeader) -> None:
        """Exchange the header."""
        with self._lock:
            kept = self._owned(claim)
            kept.header, kept.record = deepcopy(header), None

    async def commit(self, batches: Sequence[Batch]) -> list[StoreError | None]:
        """Store each batch whole, or say why not."""
        self._check_open()
        with self._lock:
            return [self._commit(batch) for batch in batches]

    def _commit(self, batch: Batch) -> StoreError | None:
        try:
            kept = self._owned(batch.claim)
        except StoreError as error:
            return error
        if batch.expected_seq != kept.next_seq:
            msg = (
                f"session {batch.claim.session_id!r}: expected the log to end before seq "
                f"{batch.expected_seq}, it ends before {kept.next_seq}"
            )
            return StaleWriter(msg)
        kept.events.extend(batch.events)
        kept.next_seq = batch.next_seq
        kept.record = batch.record or kept.record
        for thread, grown in kept.waiting:
            if thread == get_ident():
                grown.set()
        return None

    def _owned(self, claim: Claim) -> _Kept:
        kept = self._kept(claim.session_id)
        if kept.token != claim.token:
            msg = f"session {claim.session_id!r} was taken over by {kept.owner or 'another writer'}"
            raise StaleWriter(msg, owner=kept.owner)
        return kept

    async def load(self, session_id: str) -> Stored:
        """The whole session."""
        kept = self._kept(session_id)
        with self._lock:
            return Stored(deepcopy(kept.header), tuple(kept.events))

    async def next_seq(self, session_id: str) -> int:
        """The seq that the next event will have."""
        return self._kept(session_id).next_seq

    async def read(
        self, session_id: str, start: int, stop: int | None = None, *, chunks: bool = True
    ) -> list[AnyEvent]:
        """The events with `start <= seq < stop`."""
        events = self._kept(session_id).events
        with self._lock:
            first = bisect_left(events, start, key=_seq)
            found = events[first : None if stop is None else bisect_left(events, stop, key=_seq)]
        return found if chunks else [e for e in found if e.type != "assistant/chunk"]

    async def read_seqs(self, session_id: str, seqs: Sequence[int]) -> list[AnyEvent]:
        """The events with these seqs."""
        events = self._kept(session_id).events
        wanted = sorted(set(seqs))
        places = [(seq, bisect_left(events, seq, key=_seq)) for seq in wanted]
        return [events[at] for seq, at in places if at < len(events) and events[at].seq == seq]

    async def record(self, session_id: str) -> Record | None:
        """The last opening record."""
        return self._kept(session_id).record

    async def header(self, session_id: str) -> SessionHeader:
        """What was written before the first event."""
        return deepcopy(self._kept(session_id).header)

    async def sessions(self) -> AsyncIterator[SessionInfo]:
        """All sessions, the last active first."""
        self._check_open()
        with self._lock:
            found = [kept.info() for kept in self._storage.sessions.values()]
        for info in sorted(found, key=lambda info: (-info.last_activity, info.id)):
            yield info

    async def info(self, session_id: str) -> SessionInfo:
        """One session's line."""
        kept = self._kept(session_id)
        with self._lock:
            return kept.info()

    async def wait(self, session_id: str, after: int, timeout: float) -> None:  # noqa: ASYNC109 - the port's
        """Return when there is more, or after `timeout` seconds."""
        kept = self._kept(session_id)
        waiting = (get_ident(), anyio.Event())
        with self._lock:
            kept.waiting.append(waiting)
        try:
            with anyio.move_on_after(timeout):
                while kept.next_seq <= after + 1 and not waiting[1].is_set():
                    with anyio.move_on_after(_POLL):
                        await waiting[1].wait()
        finally:
            with self._lock:
                kept.waiting.remove(waiting)

    async def post(self, session_id: str, command: Command) -> bool:
        """Queue a command; False when its id was posted before."""
        kept = self._kept(session_id)
        with self._lock:
            if command.id in kept.posted:
                return False
            kept.posted.add(command.id)
            kept.queue.append(Queued(next(self._storage.positions), command))
            return True

    async def inbox(self, session_id: str) -> list[Queued]:
        """The commands that wait."""
        return list(self._kept(session_id).queue)

    async def accept(self, claim: Claim, positions: Sequence[int]) -> None:
        """Take commands out of the inbox."""
        kept = self._kept(claim.session_id)
        done = set(positions)
        with self._lock:
            kept.queue = [queued for queued in kept.queue if queued.position not in done]

    async def pending(self, *, only_prompts: bool = True, only_free: bool = False) -> list[str]:
        """Sessions whose inbox holds a prompt, or anything to do."""
        self._check_open()
        oldest: dict[str, int] = {}
        with self._lock:
            for session_id, kept in self._storage.sessions.items():
                if only_free and kept.owner is not None:
                    continue
                for queued in kept.queue:
                    if type(queued.command) is Prompt or (
                        not only_prompts and wakes(queued.command)
                    ):
                        oldest[session_id] = queued.position
                        break
        return sorted(oldest, key=oldest.__getitem__)
