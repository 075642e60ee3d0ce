"""From what a backend holds to a session's log: by its opening record, else by reading all of it.

Also what is read of a log that is not in memory: in pages, holding no more than the surface.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any, Literal, TypeAlias

from turnlog import opening
from turnlog.content import Message
from turnlog.errors import AdmissionError
from turnlog.events import AnyEvent, SessionHeader
from turnlog.log import SessionLog
from turnlog.stores.loading import build_log, unfinished
from turnlog.stores.port import SessionEventStore
from turnlog.upcasts import reread
from turnlog.views.transcript import said

PAGE = 2_000
"""How many seqs are read at once."""

Load: TypeAlias = Literal["surface", "all"]


WHOLE = 5_000
"""Logs with fewer events are held whole: reading them takes no time that anyone notices."""


async def open_log(
    backend: SessionEventStore, session_id: str, load: Load, whole: int = WHOLE
) -> tuple[SessionLog, dict[str, Any] | None]:
    """A session's log, and what the standing folds made of that part which it does not hold.

    Args:
        backend: where it is.
        session_id: which.
        load: see `Store.session`.
        whole: see `WHOLE`.

    Raises:
        NoSuchSession: there is none.
    """
    if load == "surface":
        found = await _from_record(backend, session_id, whole)
        if found is not None:
            return found
    return build_log(await backend.load(session_id)), None


async def _from_record(
    backend: SessionEventStore, session_id: str, whole: int
) -> tuple[SessionLog, dict[str, Any]] | None:
    """The log by its record; None when there is none that can be used, or no need of one."""
    record = await backend.record(session_id)
    if record is None or record.seq < whole:
        return None
    known = opening.read(record.data)
    if known is None or known.next_seq != record.seq:
        return None
    header = await backend.header(session_id)
    end = await backend.next_seq(session_id)
    if end < record.seq or unfinished(header, end) is not None:
        return None
    events = await backend.read_seqs(session_id, [*known.seqs(), record.seq - 1])
    tail = await backend.read(session_id, record.seq)
    log = opening.open_log(header, known, events, tail)
    if log is None or log.next_seq < end:
        return None
    return log, known.folds


async def pages(
    backend: SessionEventStore,
    header: SessionHeader,
    stop: int,
    *,
    start: int = 0,
    chunks: bool = True,
) -> AsyncIterator[list[AnyEvent]]:
    """The events with `start <= seq < stop`, some at a time, each read as its format asks for.

    Args:
        backend: where they are.
        header: the session's.
        stop: see above.
        start: see above.
        chunks: whether `assistant/chunk` events are wanted.
    """
    source = header.source_length or 0
    while start < stop:
        end = min(start + PAGE, stop)
        found = await backend.read(header.id, start, end, chunks=chunks)
        yield [reread(header, e) if e.seq < source else e for e in found]
        start = end if found else await beyond(backend, header.id, end, stop, chunks=chunks)


async def beyond(
    backend: SessionEventStore, session_id: str, start: int, stop: int, *, chunks: bool = True
) -> int:
    """The first seq from `start` on that can be read, else `stop`; gaps may be of any length."""
    width = PAGE
    while start < stop:
        events = await backend.read(session_id, start, min(start + width, stop), chunks=chunks)
        if events:
            return events[0].seq
        start += width
        width *= 2
    return stop


async def log_at(backend: SessionEventStore, header: SessionHeader, at: int) -> SessionLog:
    """A log that shows what the model saw after event `at`, and holds nothing else.

    Raises:
        NoSuchSession: there is none.
    """
    log = SessionLog(header)
    try:
        async for page in pages(backend, header, at + 1, chunks=False):
            for event in page:
                log.skip(event.seq)
                log.load(event)
            log = SessionLog(header, log.rebase())
    except AdmissionError:  # there is damage, around which only the whole log finds the way
        stored = await backend.load(header.id)
        stored.events = [event for event in stored.events if event.seq <= at]
        return build_log(stored)
    return log


async def said_before(
    backend: SessionEventStore, header: SessionHeader, stop: int, *, tools: bool, context: bool
) -> list[Message]:
    """What a person reads of the events before `stop`."""
    found: list[Message] = []
    async for page in pages(backend, header, stop, chunks=False):
        each = (said(event, tools=tools, context=context) for event in page)
        found += [message for message in each if message is not None]
    return found
