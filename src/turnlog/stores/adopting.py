"""Taking in what was made elsewhere: imports in batches, growing seeds, forks.

A session is created first, its header saying how long its seed is, and then filled; until it is
whole it is damaged (`loading.unfinished`), so that an interruption never looks like a session.
"""

from __future__ import annotations

import socket
from collections.abc import Iterable, Iterator
from itertools import chain, count, islice
from typing import Literal, TypeAlias

import anyio
import msgspec

from turnlog import _ambient
from turnlog.errors import ImportConflict, InvalidHeader, SessionExists
from turnlog.events import AnyEvent, SessionHeader
from turnlog.stores.port import Batch, Owner, Record, SessionEventStore

BATCH = 5_000  # events
BATCH_BYTES = 8 * 1024 * 1024

Adopted: TypeAlias = Literal["imported", "extended", "identical", "skipped"]
OnConflict: TypeAlias = Literal["error", "skip", "rename"]


def this_process() -> Owner:
    """Who claims a session here."""
    return Owner(_ambient.process_id(), socket.gethostname(), _ambient.clock())


async def adopt(
    backend: SessionEventStore,
    header: SessionHeader,
    events: Iterable[AnyEvent],
    on_conflict: OnConflict,
) -> tuple[str, Adopted]:
    """Import a session; see `Store.adopt`."""
    header.check()
    if header.seed_length is None:
        msg = "expected a header with the seed_length of what is imported"
        raise InvalidHeader(msg)
    for number in count(1):
        name = header.id if number == 1 else f"{header.id}-{number}"
        done = await _adopt(backend, msgspec.structs.replace(header, id=name), events)
        if done is None and on_conflict == "skip":
            done = "skipped"
        if done is not None:
            return name, done
        if on_conflict == "error":
            break
    msg = (
        f"session {header.id!r} exists in {backend.url} and holds something else: "
        "import with --on-conflict rename or skip"
    )
    raise ImportConflict(msg)


async def _adopt(
    backend: SessionEventStore, header: SessionHeader, events: Iterable[AnyEvent]
) -> Adopted | None:
    """Import under this id; None when it holds something else."""
    try:
        await backend.create(header)
    except SessionExists:
        return await _continue(backend, header, events)
    await fill(backend, header.id, events)
    return "imported"


async def _continue(
    backend: SessionEventStore, header: SessionHeader, events: Iterable[AnyEvent]
) -> Adopted | None:
    """Leave the stored session as it is, or append what the source has beyond it."""
    stored = await backend.load(header.id)
    old, seed, new = stored.header, stored.header.seed_length, header.seed_length or 0
    if old.source_format is None:  # it is at home here; the source may be what it gave out
        here = {event.seq: event for event in stored.events}
        known = bool(here) and all(_same(event, here.get(event.seq)) for event in events)
        return "identical" if known else None
    if seed is None or old.source_format != header.source_format:
        return None
    coming = iter(events)
    for event in stored.events:
        if event.seq < seed and not _same(event, next(coming, None)):
            return None
    rest = list(islice(coming, 1))
    if not rest and new == seed:
        return "identical"
    end = stored.events[-1].seq + 1 if stored.events else 0
    if end > seed or new < seed:
        return None
    await fill(backend, header.id, chain(rest, coming), after=end, header=header)
    return "extended" if new != seed else "imported"


async def fill(
    backend: SessionEventStore,
    session_id: str,
    events: Iterable[AnyEvent],
    *,
    after: int = 0,
    header: SessionHeader | None = None,
    record: Record | None = None,
) -> None:
    """Append to a session whose last event is right before seq `after`.

    Args:
        backend: where it is.
        session_id: which.
        events: what follows, in order of seq.
        after: see above.
        header: the new header, of a seed that grows.
        record: an opening record of all of it.

    Raises:
        SessionInUse: someone else writes to it.
        ImportConflict: someone else wrote to it meanwhile.
    """
    claim = await backend.claim(session_id, this_process())
    try:
        if header is not None:
            if await backend.read(session_id, after):
                msg = f"session {session_id!r} was written to while it was being imported"
                raise ImportConflict(msg)
            await backend.reseed(claim, header)
        after = await backend.next_seq(session_id)
        start = after
        for batch in _batches(event for event in events if event.seq >= start):
            (error,) = await backend.commit([Batch(claim, batch, after)])
            if error is not None:
                raise error
            after = batch[-1].seq + 1
        if record is not None and record.seq == after:
            await backend.commit([Batch(claim, (), after, record)])
    finally:
        with anyio.CancelScope(shield=True):
            await backend.release(claim)


def _batches(events: Iterable[AnyEvent]) -> Iterator[list[AnyEvent]]:
    """Events in the portions in which they are committed."""
    batch: list[AnyEvent] = []
    size = 0
    for event in events:
        batch.append(event)
        size += len(event.raw)
        if len(batch) >= BATCH or size >= BATCH_BYTES:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def _same(mine: AnyEvent, other: AnyEvent | None) -> bool:
    """Whether an event is the same, down to the bytes of its payload."""
    return other is not None and mine.raw == other.raw and mine == other
