"""P7, JSONL and SQLite: 10,000 messages, opened cold, to `derive_messages()`; and msgspec's floor.

Both in processes of their own, whose modules are loaded before the clock starts; the files are in
the page cache.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
from histories import add
from measure import HERE, NoPeer, Options, fresh, report, row, shared_peers

import turnlog
import turnlog.stores.jsonl
import turnlog.stores.sqlite
import turnlog.stores.store

ROUNDS = 7
FLOOR = "msgspec JSONL no-fsync"
KINDS = {
    "JSONL plain": "jsonl:{0}/plain",
    "JSONL zstd": "jsonl:{0}/zstd?compress=zstd",
    "SQLite": "sqlite:{0}/s.db",
}


async def write(folder: Path, n: int) -> None:
    """Write the history to a store of each kind."""
    for url in KINDS.values():
        async with (
            turnlog.open_store(url.format(folder), durability="none") as store,
            store.session("s") as session,
        ):
            for i in range(n):
                add(session, i)
                if i % 30 == 29:
                    await session.flush()


async def opened(url: str, how: str) -> dict[str, Any]:
    """CPU milliseconds of this process from opening the store to the messages."""
    start = time.process_time()
    async with turnlog.open_store(url) as store:
        if how == "read":
            messages = (await store.read("s")).derive_messages()
            taken = time.process_time() - start
        else:
            async with store.session("s", create=False) as session:
                messages = session.derive_messages()
                taken = time.process_time() - start
    return {"resume_ms": taken * 1e3, "items": len(messages)}


def measure(options: Options) -> Iterator[dict[str, Any]]:
    """One row for each kind of file and way to open it."""
    n = options.size(10_000, 60)
    missing = None
    ways = [(kind, how) for kind in KINDS for how in ("read", "resume")]
    times: dict[tuple[str, str], list[float]] = {way: [] for way in ways}
    floors: list[float] = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        anyio.run(write, folder, n)
        try:
            peer = [str(HERE / "cpu_clock.py"), str(shared_peers() / "bench_floors.py")]
            floor = folder / "floor"
            floor.mkdir()
            fresh(*peer, "write", str(n), str(floor), FLOOR=FLOOR)
        except NoPeer as reason:
            missing = str(reason)
        for _ in range(1 if options.small else ROUNDS):
            if missing is None:
                found = fresh(*peer, "resume", str(n), str(floor), FLOOR=FLOOR)
                floors.append(found["resume_ms"])
            for kind, how in ways:
                found = fresh(__file__, "--open", KINDS[kind].format(folder), how)
                if found["items"] != n:
                    msg = f"expected {n} messages, got {found['items']}"
                    raise ValueError(msg)
                times[kind, how].append(found["resume_ms"])
    least = min(floors, default=None)
    for (kind, how), taken in times.items():
        ours = min(taken)
        ratio = ours / least if least else None
        other = f"floor {least:.0f} ms: {ratio:.2f}x" if least and ratio else missing
        yield row(
            "P7",
            f"cold {how}, {kind}, {n:,} messages",
            f"{ours:.0f} ms ({other})",
            "2x",
            met=ratio <= 2 if ratio else None,
            ms=ours,
            floor_ms=least,
        )


if __name__ == "__main__":
    if sys.argv[1:2] == ["--open"]:
        print(json.dumps(anyio.run(opened, *sys.argv[2:4])))
    else:
        report(measure)
