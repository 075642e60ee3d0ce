"""Which rows a batch makes: chunks as they come, and again once their attempt is finished.

The chunks of the attempt that is running are kept in memory, so that they can be packed anew with
the message that they became, in the transaction that stores it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from turnlog.stores.sql.chunks import CHUNK, ChunkRow, is_packable, repack
from turnlog.stores.sql.rows import Rows, to_rows

if TYPE_CHECKING:
    from collections.abc import Sequence

    from turnlog.events import AnyEvent

MAX_KEPT = 8 << 20
"""Bytes of the payloads that are kept of an attempt; a longer one stays as it was stored."""

_ENDS = frozenset({"assistant/message", "assistant/attempt", "step/end", "turn/end"})


class Run(NamedTuple):
    """Chunk events that are stored in one row."""

    row: ChunkRow
    events: Sequence[AnyEvent]


class Plan(NamedTuple):
    """What a batch does to the tables.

    Attributes:
        rows: what is inserted.
        repacked: rows of chunks that were stored before and are now in `rows`: they go.
        ended: the attempt that was running before the batch is over.
        runs: what the batch adds to the attempt that is running after it; they are in `rows`, too.
    """

    rows: Rows
    repacked: list[ChunkRow]
    ended: bool
    runs: list[Run]

    @property
    def settled(self) -> list[ChunkRow]:
        """The rows of chunks that no later plan puts others in the place of."""
        running = {run.row.first for run in self.runs}
        return [row for row in self.rows.chunks if row.first not in running]


class Attempt:
    """The runs of the attempt that is running, unless they are too many to be kept."""

    __slots__ = ("_size", "runs")

    def __init__(self) -> None:
        self.runs: list[Run] = []
        self._size = 0

    def follow(self, done: Plan) -> None:
        """Take in a batch that was stored."""
        if done.ended:
            self.runs, self._size = [], 0
        for run in done.runs:
            self.runs.append(run)
            self._size += sum(len(event.raw) for event in run.events)
        if self._size > MAX_KEPT:
            self.runs, self._size = [], 0


def plan(events: Sequence[AnyEvent], kept: Sequence[Run]) -> Plan:
    """The rows of a batch.

    Args:
        events: the batch.
        kept: the runs of the attempt that was running before it.
    """
    ended = False
    plain: list[AnyEvent] = []
    fresh: list[AnyEvent] = []  # chunks of the attempt that is running
    made: list[ChunkRow] = []
    gone: list[ChunkRow] = []
    for event in events:
        kind = event.type
        if kind == CHUNK and is_packable(event):
            fresh.append(event)
            continue
        plain.append(event)
        if kind in _ENDS:
            if kind == "assistant/message" and (fresh or kept):
                fresh = _finish(event, fresh, kept, made, gone)
            plain += fresh
            kept, fresh, ended = (), [], True
    rows = to_rows([*plain, *fresh] if fresh else plain)
    runs: list[Run] = []
    if fresh:
        at = {event.seq: i for i, event in enumerate(fresh)}
        for row in rows.chunks:
            start = at.get(row.first)
            if start is not None:
                runs.append(Run(row, fresh[start : start + row.last - row.first + 1]))
    rows.chunks.extend(made)
    return Plan(rows, gone, ended, runs)


def _finish(
    message: AnyEvent,
    fresh: list[AnyEvent],
    kept: Sequence[Run],
    made: list[ChunkRow],
    gone: list[ChunkRow],
) -> list[AnyEvent]:
    """Pack what the message cites with it; returns the fresh chunks that it does not cite."""
    cited = message.source_event_seqs
    if not cited:
        return fresh
    if type(cited) is not range:
        cited = frozenset(cited)
    whole = [run for run in kept if all(event.seq in cited for event in run.events)]
    mine = [event for event in fresh if event.seq in cited]
    made += repack([*(event for run in whole for event in run.events), *mine], message)
    gone += [run.row for run in whole]
    return [event for event in fresh if event.seq not in cited]
