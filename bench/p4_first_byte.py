"""P4 end to end: from `agent.run` to the first byte of the request, by length of history.

The bound is P4's, one and a half copies of the body in memory, and 5 ms. Time is the clock's, since
two processes take part; the least of several turns counts, because the machine is shared.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import anyio
from histories import history
from measure import Options, best, report, row
from serving import Server, chat_server

from turnlog import Session
from turnlog.agent.loop import ReactLoopAgent

TURNS = 12


async def turns(session: Session, server: Server, count: int) -> tuple[float, list[float], int]:
    """Milliseconds to the first byte: of the first turn, of the others; the last body's size."""
    agent = ReactLoopAgent(server.model(), system="You help.")
    taken: list[float] = []
    size = 0
    async with agent.model.connected():
        for i in range(count + 1):
            start = time.monotonic_ns()
            await agent.run(session, f"And number {i}?")
            first, size = server.request()
            taken.append((first - start) / 1e6)
    return taken[0], taken[1:], size


def measure(options: Options) -> Iterator[dict[str, Any]]:
    """One row for each length of history."""
    for n in (10, 10_000, 100_000):
        length = min(n, 60) if options.small else n
        session = history(length - length % 3)
        with chat_server() as server:
            first, later, size = anyio.run(turns, session, server, options.size(TURNS, 1))
        copied = best(5, memoryview(bytes(size)).tobytes) * 1e3
        bound, least = 1.5 * copied + 5, min(later)
        yield row(
            "P4",
            f"agent.run to first byte, {length:,} messages before",
            f"{least:.1f} ms (median {sorted(later)[len(later) // 2]:.1f}; "
            f"the first turn of a process {first:.0f} ms)",
            f"{bound:.1f} ms",
            met=least <= bound,
            ms=later,
            first_ms=first,
            bytes=size,
        )


if __name__ == "__main__":
    report(measure)
