"""P2: `derive_messages` after an append, iterated, and as it was earlier."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Any

from histories import add, history
from measure import Options, best, median_call, report, row

from turnlog import Session


def after_append(session: Session, samples: int) -> float:
    """The median microseconds of deriving after an append."""
    n = len(session)

    def append(i: int) -> None:
        add(session, n + i)

    session.derive_messages()
    return median_call(samples, append, session.derive_messages) * 1e6


def measure(options: Options) -> Iterator[dict[str, Any]]:
    """Rows of P2."""
    n, samples = options.size(100_000, 300), options.size(3000, 30)
    small, large = history(options.size(1000, 30)), history(n)
    times = [(after_append(small, samples), after_append(large, samples)) for _ in range(3)]
    few, many = (min(column) for column in zip(*times, strict=True))
    yield row(
        "P2",
        f"derive after an append, n = {n:,}",
        f"{many:.2f} µs",
        "2 µs",
        met=many < 2,
        us=many,
    )
    ratio = many / few
    yield row(
        "P2",
        f"… against n = {options.size(1000, 30):,}",
        f"{few:.2f} µs: {ratio:.2f}x",
        "2x",
        met=ratio <= 2,
        ratio=ratio,
    )
    messages = large.derive_messages()
    walk = best(9, lambda: deque(messages, maxlen=0)) * 1e3
    loop = best(9, lambda: [None for _ in messages]) * 1e3
    yield row(
        "P2",
        f"iterate all {len(messages):,}",
        f"{loop:.1f} ms in a comprehension, {walk:.1f} ms in C",
        "5 ms",
        met=loop < 5,
        ms=loop,
    )
    edge = large.next_seq - 1
    places = [edge * i // 10 for i in range(11)]
    worst = max(best(5, lambda at=at: large.derive_messages(at)) for at in places) * 1e3
    yield row(
        "P2",
        f"at=n, the slowest of {len(places)} places",
        f"{worst:.1f} ms",
        "20 ms",
        met=worst < 20,
        ms=worst,
    )


if __name__ == "__main__":
    report(measure)
