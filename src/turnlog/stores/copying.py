"""Copying sessions from one store to another: exact, resumable, a page at a time.

A copy has the header, the events and the waiting commands of its source, byte for byte. It is
written to from its first event on, so that one that was killed goes on where it stopped: what the
target holds is compared with the source, event by event, and only what it lacks is appended.

- **Forks** that the target can keep by reference are kept so, if it holds the parent and the events
  before the boundary are the same there. So parents come first.
- **Damage** stays damage: the seqs of what cannot be read stay empty in the copy, whose header
  says why, under `sourceDamage`, as that of an import does. Nothing else makes a header differ.
- **Commands** are read before the events. One that is accepted meanwhile is in the copy twice, as
  after a crash: in the inbox and as `inbox/accepted`. Posting again is free: commands have ids.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Literal, TypeAlias

import anyio
import msgspec

from turnlog.codec import encode_event
from turnlog.errors import CopyConflict, CopyFailed, StoreError, TurnlogError
from turnlog.events import AnyEvent, SessionHeader
from turnlog.log import Damage
from turnlog.stores.adopting import this_process
from turnlog.stores.loading import MISSING, range_of, source_damage
from turnlog.stores.port import Batch, Claim, Queued, SessionEventStore
from turnlog.stores.resuming import beyond

PAGE = 1024  # seqs that are read at once, at most
FIRST_PAGE = 64  # and at first, where nothing is known of their size
PAGE_BYTES = 8 * 1024 * 1024  # what a page should weigh

Done: TypeAlias = Literal["copied", "continued", "identical", "failed"]


class Copied(msgspec.Struct, frozen=True):
    """What became of one session.

    Attributes:
        id: the session's.
        done: "copied": it is new in the target. "continued": the target held its beginning.
            "identical": the target held all of it. "failed": see `problem`.
        events: how many were appended to the target.
        shared: how many it has by reference to its parent.
        commands: how many were posted to its inbox.
        problem: why it failed.
    """

    id: str
    done: Done
    events: int = 0
    shared: int = 0
    commands: int = 0
    problem: TurnlogError | None = None


class CopyProgress(msgspec.Struct, frozen=True):
    """How far a copy is.

    Attributes:
        id: the session that it is at.
        number: which one that is, from 1.
        sessions: how many there are.
        seq: every event before it was compared or copied.
        end: the seq at which the session ends.
        copied: what became of the session, once it is done.
    """

    id: str
    number: int
    sessions: int
    seq: int = 0
    end: int = 0
    copied: Copied | None = None


OnProgress: TypeAlias = Callable[[CopyProgress], object]


async def copy(
    source: SessionEventStore,
    target: SessionEventStore,
    ids: Iterable[str] | None = None,
    *,
    on_progress: OnProgress | None = None,
) -> list[Copied]:
    """Copy sessions; see `Store.copy_to`. Both backends are open."""
    parents, results = await _parents(source, ids)
    ordered = parents_first(parents)
    for number, session_id in enumerate(ordered, 1):

        def tell(seq: int, end: int, at: int = number, name: str = session_id) -> None:
            if on_progress is not None:
                on_progress(CopyProgress(name, at, len(ordered), seq, end))

        copied = results.get(session_id)
        if copied is None:
            copied = results[session_id] = await _Copy(source, target, session_id, tell).run()
        if on_progress is not None:
            on_progress(CopyProgress(session_id, number, len(ordered), copied=copied))
    done = [results[session_id] for session_id in ordered]
    failed = [copied for copied in done if copied.problem is not None]
    if failed:
        others = f" (and {len(failed) - 1} more were not copied)" if len(failed) > 1 else ""
        msg = f"{failed[0].problem}{others}"
        raise CopyFailed(msg, copied=done) from failed[0].problem
    return done


async def _parents(
    source: SessionEventStore, ids: Iterable[str] | None
) -> tuple[dict[str, str | None], dict[str, Copied]]:
    """Each session with its parent, and those that cannot even be looked at."""
    if ids is None:
        return {info.id: info.parent async for info in source.sessions()}, {}
    parents: dict[str, str | None] = {}
    failed: dict[str, Copied] = {}
    for session_id in ids:
        parents[session_id] = None
        try:
            parents[session_id] = (await source.header(session_id)).parent_session
        except TurnlogError as error:
            failed[session_id] = Copied(session_id, "failed", problem=error)
    return parents, failed


def parents_first(parents: Mapping[str, str | None]) -> list[str]:
    """The ids in their order, but each after its parent; a circle of parents is cut somewhere."""
    ordered: dict[str, None] = {}
    for session_id in parents:
        line: dict[str, None] = {}
        at: str | None = session_id
        while at is not None and at in parents and at not in ordered and at not in line:
            line[at] = None
            at = parents[at]
        ordered.update(dict.fromkeys(reversed(line)))
    return list(ordered)


class _Copy:
    """The copy of one session."""

    def __init__(
        self,
        source: SessionEventStore,
        target: SessionEventStore,
        session_id: str,
        tell: Callable[[int, int], None],
    ) -> None:
        self._source = source
        self._target = target
        self._id = session_id
        self._tell = tell
        self._page = min(PAGE, FIRST_PAGE)
        self._end = 0  # of the source, when the copy began
        self._gaps = False  # whether there is what cannot be read

    async def run(self) -> Copied:
        """Copy it; what goes wrong is in what is returned."""
        try:
            return await self._run()
        except TurnlogError as error:
            return Copied(self._id, "failed", problem=error)

    async def _run(self) -> Copied:
        source, target = self._source, self._target
        header = await source.header(self._id)
        waiting = await self._waiting()
        await self._look()
        new = not await target.exists(self._id)
        shared = await self._create(header) if new else 0
        held = header if new else await target.header(self._id)
        there = await target.next_seq(self._id)
        grown = self._has_grown(held, header, there)
        if not new:
            await self._check_prefix(there)
        events = await self._append(there, header if grown else None)
        told = await self._tell_damage(header if grown else held)
        if isinstance(waiting, TurnlogError):
            raise waiting  # its events are safe by now
        commands = [await target.post(self._id, queued.command) for queued in waiting]
        changed = events or grown or told
        done = "copied" if new else "continued" if changed else "identical"
        return Copied(self._id, done, events, shared, sum(commands))

    async def _waiting(self) -> list[Queued] | TurnlogError:
        """What waits in the source's inbox, or why that cannot be read."""
        try:
            return await self._source.inbox(self._id)
        except StoreError as error:
            return error

    async def _look(self) -> None:
        """Where the source ends now, and how large its events are."""
        self._end = await self._source.next_seq(self._id)
        info = await self._source.info(self._id)
        self._gaps = info.damage > 0
        if info.bytes and info.events:
            self._page = max(1, min(PAGE, PAGE_BYTES // max(1, info.bytes // info.events)))

    # -- what the target holds -----------------------------------------------------------------

    async def _create(self, header: SessionHeader) -> int:
        """Make the session; returns how many events it has by reference."""
        parent, boundary = header.parent_session, header.seed_length or 0
        by_reference = (
            parent is not None
            and 0 < boundary <= self._end
            and await self._is_shared(parent, boundary)
            and await self._target.fork(header, parent, boundary)
        )
        if by_reference:
            return boundary
        await self._target.create(header)
        return 0

    async def _is_shared(self, parent: str, boundary: int) -> bool:
        """Whether the target's parent has the events that the source has before the boundary."""
        if parent == self._id or not await self._target.exists(parent):
            return False
        if await self._target.next_seq(parent) < boundary:
            return False
        return await self._difference(parent, boundary) is None

    def _has_grown(self, held: SessionHeader, header: SessionHeader, there: int) -> bool:
        """Whether the target's header is that of the same import, when its source was shorter.

        Raises:
            CopyConflict: it is another session's.
        """
        if _is_same(held, header):
            return False
        if not _is_shorter_import(held, header):
            raise self._conflict("its header differs")
        if there > (held.seed_length or 0):
            raise self._conflict("the import has grown, and the target has events behind it")
        return True

    async def _check_prefix(self, there: int) -> None:
        """Raise CopyConflict unless the source begins with what the target holds."""
        seq = await self._difference(self._id, min(there, self._end))
        if seq is not None:
            raise self._conflict(f"event {seq} differs")
        if there > self._end:
            more = there - self._end
            raise self._conflict(f"the target has {more} events more than the source")

    async def _difference(self, other_id: str, stop: int) -> int | None:
        """The first seq before `stop` where a session of the target differs from the source."""
        start = 0
        while start < stop:
            upto, events = await self._read(start, stop)
            others = await self._target.read(other_id, start, upto)
            for mine, other in zip(events, others, strict=False):
                if not _same(mine, other):
                    return min(mine.seq, other.seq)
            if len(events) != len(others):
                longer = max(events, others, key=len)
                return longer[min(len(events), len(others))].seq
            start = upto
        return None

    def _conflict(self, why: str) -> CopyConflict:
        msg = f"session {self._id!r} in {self._target.url} is not the one in {self._source.url}"
        return CopyConflict(f"{msg}: {why}")

    # -- moving --------------------------------------------------------------------------------

    async def _read(self, start: int, stop: int) -> tuple[int, list[AnyEvent]]:
        """The source's next page before `stop`: where it ends, and its events."""
        upto = min(stop, start + self._page)
        events = await self._source.read(self._id, start, upto)
        self._gaps |= len(events) < upto - start
        if not events:
            upto = await beyond(self._source, self._id, upto, stop)
        weight = sum(len(event.raw) for event in events)
        self._page = max(1, min(PAGE, 2 * self._page, self._page * PAGE_BYTES // max(1, weight)))
        self._tell(upto, self._end)
        return upto, events

    async def _append(self, there: int, grown: SessionHeader | None) -> int:
        """Append what the target lacks from seq `there` on; returns how many events."""
        claim: Claim | None = None
        count, start = 0, there
        try:
            if grown is not None:
                claim = await self._target.claim(self._id, this_process())
                await self._check_unchanged(there)
                await self._target.reseed(claim, grown)
            while start < self._end:
                start, events = await self._read(start, self._end)
                if not events:
                    continue
                if claim is None:
                    claim = await self._target.claim(self._id, this_process())
                    await self._check_unchanged(there)
                (error,) = await self._target.commit([Batch(claim, events, there)])
                if error is not None:
                    raise error
                there = events[-1].seq + 1
                count += len(events)
        finally:
            if claim is not None:
                with anyio.CancelScope(shield=True):
                    await self._target.release(claim)
        return count

    async def _tell_damage(self, held: SessionHeader) -> bool:
        """Add to the copy's header why seqs are missing; whether it did not say so before."""
        if not self._gaps:
            return False
        lost = (await self._source.load(self._id)).damage
        more = [range_of(damage) for damage in lost if not _is_told(damage, held)]
        if not more:
            return False
        told = (*(held.source_damage or ()), *more)
        claim = await self._target.claim(self._id, this_process())
        try:
            await self._target.reseed(claim, msgspec.structs.replace(held, source_damage=told))
        finally:
            with anyio.CancelScope(shield=True):
                await self._target.release(claim)
        return True

    async def _check_unchanged(self, there: int) -> None:
        """Raise CopyConflict if someone wrote to the target since it was looked at."""
        if await self._target.next_seq(self._id) != there:
            raise self._conflict("it was written to meanwhile")


def _is_told(damage: Damage, header: SessionHeader) -> bool:
    """Whether a reader of the copy learns of the damage from its header, or from the gap alone."""
    if range_of(damage) in (header.source_damage or ()):
        return True
    first, last = damage.first_seq, damage.last_seq
    if first is None or last is None:
        return False
    if damage.reason == MISSING:
        return True
    return any(
        known.first_seq is not None
        and known.last_seq is not None
        and known.first_seq <= first
        and last <= known.last_seq
        for known in source_damage(header)
    )


def _is_same(held: SessionHeader, header: SessionHeader) -> bool:
    """Whether the target's header is the source's, but for damage that a copy added."""
    told, damage = held.source_damage or (), header.source_damage or ()
    same = msgspec.structs.replace(header, source_damage=held.source_damage)
    return told[: len(damage)] == damage and same.to_dict() == held.to_dict()


def _is_shorter_import(held: SessionHeader, header: SessionHeader) -> bool:
    """Whether both are headers of one import, whose source was longer the second time."""
    if held.seed_length is None or held.source_format is None:
        return False
    same = msgspec.structs.replace(
        header,
        seed_length=held.seed_length,
        source_length=held.source_length,
        source=held.source,
        source_damage=held.source_damage,
    )
    longer = (header.seed_length or 0) > held.seed_length
    return longer and same.to_dict() == held.to_dict()


def _same(mine: AnyEvent, other: AnyEvent) -> bool:
    """Whether two events are the same, down to the bytes."""
    if mine.extra or other.extra:
        return encode_event(mine) == encode_event(other)
    cited, others = mine.source_event_seqs, other.source_event_seqs
    return (
        mine.raw == other.raw
        and (mine.type, mine.seq, mine.time) == (other.type, other.seq, other.time)
        and (mine.surface_op, mine.ignorable) == (other.surface_op, other.ignorable)
        and (cited is None) == (others is None)
        and list(cited or ()) == list(others or ())
    )
