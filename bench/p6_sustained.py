"""P6: sustained appends through the writer to SQLite, until the last of them is durable.

Nobody flushes, the writer has its own pace; the loop only waits for room, once a turn, as an agent
does. Judged is the CPU time of the whole process, both threads, for the cores are shared; the rate
on the clock, with the disk, stands beside it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import anyio
import anyio.lowlevel
from measure import Options, report, row, scratch
from turns import Turn, add_turn, prose, some_turns

import turnlog
from turnlog import Message, Session, Source, Text

ROUNDS = 5
EVENTS = 300_000
AT_ONCE = 100  # messages between two moments in which the loop waits


class Rate(NamedTuple):
    """Microseconds an event: of the process's CPU, and on the clock."""

    cpu_us: float
    clock_us: float


def streaming(turns: list[Turn]) -> Callable[[Session], None]:
    """Appends turns, nine in ten of whose events are chunks."""
    numbers = count()

    def some(session: Session) -> None:
        number = next(numbers)
        add_turn(session, number + 1, turns[number % len(turns)])

    return some


def messages(texts: list[str]) -> Callable[[Session], None]:
    """Appends messages of 400 bytes."""
    numbers = count()

    def some(session: Session) -> None:
        for _ in range(AT_ONCE):
            number = next(numbers)
            text = texts[number % len(texts)]
            message = Message(f"m{number}", "user", (Text(text),), Source("user"))
            session.append("user/message", message, surface_op="append")

    return some


async def sustained(path: Path, some: Callable[[Session], None], events: int) -> Rate:
    """What the writer takes of a session that appends as fast as it is let."""
    async with turnlog.open_store(f"sqlite:{path}") as store, store.session("s") as session:
        start, cpu = time.perf_counter(), time.process_time()
        while session.next_seq < events:
            some(session)
            await session.room()
            await anyio.lowlevel.checkpoint()
        while session.durable_seq < session.next_seq:  # noqa: ASYNC110 - only a flush is told
            await anyio.sleep(0.001)
        took, used = time.perf_counter() - start, time.process_time() - cpu
        return Rate(used / session.next_seq * 1e6, took / session.next_seq * 1e6)


def measure(options: Options) -> Iterator[dict[str, Any]]:
    """One row for each kind of event."""
    dice = Random(7)  # noqa: S311 - no secret
    turns, texts = some_turns(200), [prose(dice, 400) for _ in range(500)]
    kinds = {
        "nine in ten are chunks": (lambda: streaming(turns), 150_000),
        "messages of 400 bytes": (lambda: messages(texts), 60_000),
    }
    events = options.size(EVENTS, 500)
    rates: dict[str, list[Rate]] = {name: [] for name in kinds}
    for turn in range(1 if options.small else ROUNDS):
        for name, (make, _) in kinds.items():
            with scratch() as folder:
                rates[name].append(anyio.run(sustained, folder / f"{turn}.db", make(), events))
    for name, (_, least) in kinds.items():
        cpu = min(rate.cpu_us for rate in rates[name])
        clock = min(rate.clock_us for rate in rates[name])
        yield row(
            "P6",
            f"sustained appends, SQLite, {name}",
            f"{1e6 / cpu:,.0f}/s of CPU, {cpu:.1f} µs each ({1e6 / clock:,.0f}/s on the clock)",
            f"{least:,}/s",
            met=None if options.small else 1e6 / cpu >= least,
            cpu_us=cpu,
            clock_us=clock,
        )


if __name__ == "__main__":
    report(measure)
