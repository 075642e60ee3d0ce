"""P3: what planning costs: whether a compaction is due, with nothing new and after a message."""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Iterator
from typing import Any

from histories import add, history
from measure import Options, report, row

from turnlog import BasicCompactionEngine, Session
from turnlog.compaction.meter import METER
from turnlog.compaction.meter import measure as gauge_of
from turnlog.compaction.port import Ahead
from turnlog.compaction.pruner import Pruner
from turnlog.compaction.ranges import Nodes, choose
from turnlog.events import Header, ModelConfig
from turnlog.models.scripted import ScriptedModel

SIZES = (1_000, 10_000, 100_000)
WINDOW = 1_000_000_000  # tokens: nothing is ever due
AHEAD = Ahead(Header(ModelConfig("p", "m")), WINDOW)


async def planned(session: Session, samples: int, *, appending: bool) -> float:
    """The median microseconds of what the engine does before a step, when nothing is due."""
    engine = BasicCompactionEngine(ScriptedModel([], context_window=WINDOW))
    await engine.compact_if_needed(session, AHEAD)  # the folds are there now
    taken: list[int] = []
    for _ in range(samples):
        if appending:
            add(session, len(session))
        start = time.perf_counter_ns()
        compacted = await engine.compact_if_needed(session, AHEAD)
        taken.append(time.perf_counter_ns() - start)
        if compacted is not None:
            msg = "a compaction that was not due"
            raise ValueError(msg)
    return statistics.median(taken) / 1e3


def chosen(session: Session, samples: int) -> float:
    """The median microseconds of what it does after a message when one is due, up to the request.

    Measured, looked for results to shorten, and the range chosen that leaves 20,000 tokens.
    """
    pruner = Pruner()
    taken: list[int] = []
    for _ in range(samples):
        add(session, len(session))
        start = time.perf_counter_ns()
        gauge = gauge_of(session, AHEAD.header)
        long = pruner.plan(session)
        meter = session.fold(METER)
        found = choose(
            Nodes(session, meter.nodes),
            total=meter.total.tokens,
            open_step=meter.open_step,
            retain=min(20_000, gauge.tokens // 2),
            most=gauge.tokens,
            least=1,
        )
        taken.append(time.perf_counter_ns() - start)
        if long or found is None or len(found.nodes) < len(session) // 3:
            msg = f"expected a range and nothing to shorten, got {found}, {long}"
            raise ValueError(msg)
    return statistics.median(taken) / 1e3


def measure(options: Options) -> Iterator[dict[str, Any]]:
    """A row for each way to ask, from a thousand messages to a hundred thousand."""
    sizes = [options.size(size, size // 1000 * 3) for size in SIZES]
    samples = options.size(300, 9)
    sessions = [history(size) for size in sizes]
    for what, appending in (("nothing new", False), ("after a message", True)):
        taken = [
            min(asyncio.run(planned(s, samples, appending=appending)) for _ in range(3))
            for s in sessions
        ]
        yield _row(f"is a compaction due, {what}", sizes, taken, 2)
    yield _row(
        "choose what a compaction takes, after a message",
        sizes,
        [min(chosen(session, samples) for _ in range(3)) for session in sessions],
        None,
    )


def _row(what: str, sizes: list[int], taken: list[float], most: float | None) -> dict[str, Any]:
    ratio = taken[-1] / taken[0]
    each = " / ".join(f"{one:.0f}" for one in taken)
    at = " / ".join(f"{size:,}" for size in sizes)
    return row(
        "P3",
        f"{what}, at {at} messages",
        f"{each} µs: {ratio:.2f}x",
        "-" if most is None else f"flat ({most:g}x)",
        met=None if most is None else ratio <= most,
        us=taken,
        ratio=ratio,
    )


if __name__ == "__main__":
    report(measure)
