"""P1: validated `append` in memory, the payload built in the loop, against DeepSeek Harness."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

from measure import NoPeer, Options, dsh, report, row, shared_peers

from turnlog import Message, Session, Source, Text
from turnlog.content import TextDelta
from turnlog.events import AssistantChunk

ROUNDS = 3
TRIES = 3  # per round, as the peer's program has it


def typed_message(session: Session, n: int) -> None:
    """User messages as structs."""
    append = session.append
    for i in range(n):
        message = Message(f"m{i}", "user", (Text(f"message number {i}"),), Source("user"))
        append("user/message", message, surface_op="append")


def dict_message(session: Session, n: int) -> None:
    """User messages as plain dicts."""
    append = session.append
    for i in range(n):
        message: dict[str, Any] = {
            "id": f"m{i}",
            "role": "user",
            "content": [{"type": "text", "text": f"message number {i}"}],
            "source": {"kind": "user"},
        }
        append("user/message", message, surface_op="append")


def typed_chunk(session: Session, n: int) -> None:
    """Chunks as structs."""
    append = session.append
    for _ in range(n):
        append("assistant/chunk", AssistantChunk(1, 1, TextDelta(0, "tok ")))


def dict_chunk(session: Session, n: int) -> None:
    """Chunks as plain dicts."""
    append = session.append
    for _ in range(n):
        delta = {"type": "text-delta", "index": 0, "text": "tok "}
        append("assistant/chunk", {"turn": 1, "step": 1, "chunk": delta})


WORK: dict[str, tuple[Callable[[Session, int], None], str, float]] = {
    "user message, typed": (typed_message, "append100kUserMessages", 3.0),
    "user message, dict": (dict_message, "append100kUserMessages", 1.5),
    "chunk, typed": (typed_chunk, "append100kChunks", 3.0),
    "chunk, dict": (dict_chunk, "append100kChunks", 1.5),
}


def measure(options: Options) -> Iterator[dict[str, Any]]:
    """One row for each kind of payload."""
    n = options.size(100_000, 200)
    ours = dict.fromkeys(WORK, float("inf"))
    theirs: dict[str, float] = {}
    missing = "too small a run for it" if options.small else None
    for _ in range(1 if options.small else ROUNDS):
        for name, (work, _key, _least) in WORK.items():
            for _ in range(TRIES):
                session = Session.create("a")
                start = time.thread_time_ns()
                work(session, n)
                took = (time.thread_time_ns() - start) / n / 1000
                ours[name] = min(ours[name], took)
        if missing is None:
            try:
                found = dsh(shared_peers() / "bench_dsh_session.mjs")
            except NoPeer as reason:
                missing = str(reason)
                continue
            for _work, key, _least in WORK.values():
                theirs[key] = min(theirs.get(key, float("inf")), found[key]["usEach"])
    for name, (_work, key, least) in WORK.items():
        if missing is None:
            ratio = theirs[key] / ours[name]
            measured = f"{ours[name]:.2f} µs, DeepSeek Harness {theirs[key]:.2f} µs: {ratio:.2f}x"
            met = ratio >= least
        else:
            measured, met = f"{ours[name]:.2f} µs (DeepSeek Harness: {missing})", None
        detail = {"us": ours[name], "dsh_us": theirs.get(key)}
        yield row("P1", f"append, {name}", measured, f"{least:g}x", met=met, **detail)


if __name__ == "__main__":
    report(measure)
