"""P3: replacements on a long history: half of it at once; 10,000 single nodes at random."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from typing import Any

from histories import history
from measure import HERE, NoPeer, Options, best, dsh, report, row, shared_peers

from turnlog import Message, Session, Source, Text
from turnlog.events import Replace


def replace_half(n: int) -> float:
    """CPU milliseconds of replacing the first half of `n` messages, then deriving."""
    session = history(n)
    session.derive_messages()
    half = session.surface.seqs[: n // 2]
    message = Message("sum", "user", (Text("what was said"),), Source("user"))
    start = time.thread_time_ns()
    session.append(
        "user/message",
        message,
        surface_op=Replace(half[0], half[-1]),
        source_event_seqs=half,
    )
    session.derive_messages()
    return (time.thread_time_ns() - start) / 1e6


def prune(session: Session, nodes: list[int]) -> None:
    """Replace each node by a shorter message, deriving after each."""
    for node in nodes:
        message = Message(f"p{node}", "user", (Text("pruned"),), Source("user"))
        session.append(
            "user/message", message, surface_op=Replace(node, node), source_event_seqs=[node]
        )
        session.derive_messages()


def measure(options: Options) -> Iterator[dict[str, Any]]:
    """Rows of P3."""
    n, prunes = options.size(100_000, 90), options.size(10_000, 20)
    half = min(replace_half(n) for _ in range(3))
    session = history(n)
    session.derive_messages()
    nodes = random.Random(7).sample(list(session.surface.seqs), prunes)  # noqa: S311 - no secret
    start = time.thread_time_ns()
    prune(session, nodes)
    took = (time.thread_time_ns() - start) / 1e9
    each = took / prunes * 1e6
    their_half = their_each = None
    missing = "too small a run for it" if options.small else None
    if missing is None:
        try:
            found = dsh(shared_peers() / "bench_dsh_session.mjs")["n100000"]
            their_half = found["replaceHalfAppendMs"] + found["deriveAfterReplaceMs"]
            their_each = dsh(HERE / "dsh_prunes.mjs", str(n), "300")["usEach"]
        except NoPeer as reason:
            missing = str(reason)
    other = f"DeepSeek Harness {their_half:.1f} ms" if their_half else missing
    yield row(
        "P3",
        f"replace half of {n:,}, then derive",
        f"{half:.1f} ms ({other})",
        "faster",
        met=half < their_half if their_half else None,
        ms=half,
        dsh_ms=their_half,
    )
    other = f"DeepSeek Harness {their_each:.0f} µs each" if their_each else missing
    yield row(
        "P3",
        f"{prunes:,} single prunes of {n:,}, deriving after each",
        f"{each:.1f} µs each, {took:.2f} s in all ({other})",
        "faster, 1 s",
        met=took < 1 and each < their_each if their_each else None,
        us=each,
        seconds=took,
        dsh_us=their_each,
    )
    edge = session.next_seq - 1
    places = [edge * i // 10 for i in range(11)]
    worst = max(best(3, lambda at=at: session.derive_messages(at)) for at in places) * 1e3
    yield row(
        "P2",
        f"at=n after {prunes:,} prunes, the slowest of {len(places)} places",
        f"{worst:.1f} ms",
        "20 ms",
        met=worst < 20,
        ms=worst,
    )


if __name__ == "__main__":
    report(measure)
