"""The store port: what a backend must do, and the values that cross it.

A backend keeps sessions: a header and events whose payloads are bytes (`Event.raw`), which it never
interprets. It is async, knows nothing of views or agents, and is used by one `Writer` per store.
`Store` (in `store.py`) is what applications use.

Rules of the port:

- `commit` takes due batches of any number of sessions at once: one transaction and at most one
  fsync where the medium can do that, else one write and one fsync a session. Each batch is stored
  whole or not at all, and only if its claim's token is still the session's and the session's next
  seq is the batch's `expected_seq`.
- When `commit` returns, what it stored survives what the backend's durability promises.
- Readers take no lock and never wait for a writer.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Any, Literal, Protocol, TypeAlias

import msgspec

from turnlog.commands import Command
from turnlog.errors import StoreError
from turnlog.events import AnyEvent, SessionHeader
from turnlog.log import Damage

Durability: TypeAlias = Literal["event", "turn", "none"]
"""event: every append is made durable at once; turn: every 200 ms and at each flush; both survive
power loss. none: written, not fsynced: survives the process, not the machine."""


class Owner(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """Who owns a session, for the person who is refused: process, host, since when (epoch ms)."""

    pid: int
    host: str
    since: int
    token: int = 0

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host}"


class Claim(msgspec.Struct, frozen=True):
    """The right to write to one session.

    Attributes:
        session_id: whose.
        token: the fencing token; grows with every `steal` or takeover.
        handle: the backend's own (an open lock, a lease).
    """

    session_id: str
    token: int
    handle: Any = None


class Record(msgspec.Struct, frozen=True):
    """An opening record: what `turnlog.opening` made of all events before `seq`, as bytes.

    Derived and disposable: it only saves the time to read those events again.
    """

    seq: int
    data: bytes


class Batch(msgspec.Struct, frozen=True):
    """Events of one session, in order.

    Attributes:
        claim: by which right.
        events: their seqs rise; a seq that is left out was lost to damage in what is imported, and
            what is loaded has the same gap. None at all when only a record is to be kept.
        after: where the stored log ends, when that is not right before the first event: its last
            records were lost, and the gap comes between the batches.
        record: an opening record that covers these events at most; a backend keeps the last one,
            or none.
    """

    claim: Claim
    events: Sequence[AnyEvent]
    after: int | None = None
    record: Record | None = None

    @property
    def expected_seq(self) -> int:
        """What the stored session's next seq must be for the batch to be stored."""
        return self.events[0].seq if self.after is None else self.after

    @property
    def next_seq(self) -> int:
        """The stored session's next seq once the batch is stored."""
        return self.events[-1].seq + 1 if self.events else self.expected_seq


class Stored(msgspec.Struct):
    """A session as a backend holds it, read at one moment.

    Attributes:
        events: in order, densely, but for the seqs that `damage` lists. A backend never raises
            for a record that it cannot read: it lists it.
        damage: what cannot be read, in log order; records after it are in `events`.
        torn: (place, offset, length) of the bytes after the last complete record, if any.
    """

    header: SessionHeader
    events: Sequence[AnyEvent]
    damage: Sequence[Damage] = ()
    torn: tuple[str, int, int] | None = None


class Queued(msgspec.Struct, frozen=True):
    """A command in an inbox; `position` orders commands as they were posted."""

    position: int
    command: Command


class SessionInfo(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """One line of a listing.

    Attributes:
        id: the session's id.
        title: the last `session/title`, else the start of the first prompt.
        events: how many there are; what was lost to damage is not counted.
        messages: how many of them a person reads (`Session.extract_chat_messages`).
        created_at, last_activity: epoch milliseconds.
        bytes: what it takes in the store, None where that is not known.
        health: "ok", "open" (an open turn, owned or interrupted), "damaged", "unreadable".
        damage: how many stretches cannot be read and were not accepted as lost.
        parent: the session it was forked from.
        source_format: what it was imported from.
        problem: one line, when health is not "ok", or an inbox cannot be read.
    """

    id: str
    title: str = ""
    events: int = 0
    messages: int = 0
    created_at: int = 0
    last_activity: int = 0
    bytes: int | None = None
    health: str = "ok"
    damage: int = 0
    parent: str | None = None
    source_format: str | None = None
    problem: str | None = None


class SessionEventStore(Protocol):
    """A backend. Every method raises only `TurnlogError`s; driver errors are translated.

    Attributes:
        url: what `open_store` took, without secrets.
        durability: see `Durability`.
        keeps_records: whether it keeps opening records; else nobody need make one.
    """

    url: str
    durability: Durability
    keeps_records: bool

    async def open(self) -> None:
        """Get ready; creates what is missing unless the medium is read-only.

        Raises:
            UnsupportedVersion: a newer schema.
            StoreError: it cannot be opened, and why.
        """
        ...

    async def close(self) -> None:
        """Release everything. Idempotent."""
        ...

    async def create(self, header: SessionHeader) -> None:
        """Add an empty session, durably.

        Raises:
            SessionExists: the id is taken.
        """
        ...

    async def fork(self, header: SessionHeader, parent_id: str, boundary: int) -> bool:
        """Add a session whose events before `boundary` are those of another, by reference.

        False, with nothing changed, where a backend has no such thing: the events are copied then.

        Raises:
            SessionExists: the id is taken.
            NoSuchSession: there is no such parent.
        """
        ...

    async def claim(self, session_id: str, owner: Owner, *, steal: bool = False) -> Claim:
        """Become the session's one writer.

        Raises:
            NoSuchSession: there is none.
            SessionInUse: another live writer has it (never with `steal`).
        """
        ...

    async def release(self, claim: Claim) -> None:
        """Give it back. Never raises for a claim that was lost."""
        ...

    async def reseed(self, claim: Claim, header: SessionHeader) -> None:
        """Write the header anew, durably and atomically: an imported seed grows.

        The caller sees to it that nothing native was appended and that the id is the same.

        Raises:
            StaleWriter: the session has another owner; nothing was changed.
            WriteFailed: the medium failed; the old header is still there.
        """
        ...

    async def commit(self, batches: Sequence[Batch]) -> Sequence[StoreError | None]:
        """Store batches; for each None when it is durable, or why nothing of it was stored.

        `StaleWriter`: token or expected seq is not the session's. `WriteFailed`: the medium failed;
        the batch may be tried again. One session's error does not hurt another's batch.
        """
        ...

    async def load(self, session_id: str) -> Stored:
        """The whole session.

        Raises:
            NoSuchSession: there is none.
            InvalidHeader, UnsupportedVersion: its header cannot be read.
        """
        ...

    async def next_seq(self, session_id: str) -> int:
        """The seq that the session's next event will have, as far as is stored.

        Raises:
            NoSuchSession: there is none.
        """
        ...

    async def read(
        self, session_id: str, start: int, stop: int | None = None, *, chunks: bool = True
    ) -> list[AnyEvent]:
        """The stored events with `start <= seq < stop`, as far as they can be read.

        Without `chunks` those of type assistant/chunk are left out.

        Raises:
            NoSuchSession: there is none.
        """
        ...

    async def read_seqs(self, session_id: str, seqs: Sequence[int]) -> list[AnyEvent]:
        """The events with these seqs, as far as they can be read, in order of seq.

        Raises:
            NoSuchSession: there is none.
        """
        ...

    async def record(self, session_id: str) -> Record | None:
        """The last opening record, if one is kept; nobody has checked what is in it.

        Raises:
            NoSuchSession: there is none.
        """
        ...

    async def header(self, session_id: str) -> SessionHeader:
        """What was written before the first event.

        Raises:
            NoSuchSession: there is none.
            InvalidHeader, UnsupportedVersion: it cannot be read.
        """
        ...

    def sessions(self) -> AsyncIterator[SessionInfo]:
        """All sessions, the last active first. One bad session hides no other."""
        ...

    async def info(self, session_id: str) -> SessionInfo:
        """One session's line of the listing.

        Raises:
            NoSuchSession: there is none.
        """
        ...

    async def exists(self, session_id: str) -> bool:
        """Whether there is a session with that id."""
        ...

    async def wait(self, session_id: str, after: int, timeout: float) -> bool | None:  # noqa: ASYNC109
        """Return when an event with a seq greater than `after` may be stored.

        Returns after `timeout` seconds at the latest, so that none is missed for longer. False says
        that there is none, for certain: nobody need look.
        """
        ...

    async def post(self, session_id: str, command: Command) -> bool:
        """Queue a command durably; False when its id was posted before.

        Raises:
            NoSuchSession: there is none.
        """
        ...

    async def inbox(self, session_id: str) -> list[Queued]:
        """The commands that wait, in order of posting."""
        ...

    async def accept(self, claim: Claim, positions: Sequence[int]) -> None:
        """Take commands out of the inbox, once their `inbox/accepted` is durable."""
        ...

    async def pending(self, *, only_prompts: bool = True, only_free: bool = False) -> list[str]:
        """The ids of sessions whose inbox holds a prompt, the longest waiting first.

        Without `only_prompts` whatever else a loop is to do something about counts, too: see
        `turnlog.commands.wakes`. With `only_free` those are left out that have a live owner, where
        the medium can tell without claiming them; never one that may be claimed.
        """
        ...
