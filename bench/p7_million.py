"""P7 and P13 on SQLite: a log of 1,000,000 events, 5,000 of them on the surface, opened cold.

Nine in ten events are chunks; compactions shadow all but the last 5,000 nodes. The log is made
through the store and kept in build/bench, for it takes a while. It is opened by a fresh process
whose modules are loaded; the time is on the clock, from `open_store` to `derive_messages()`, with
the file in the page cache, and with the kernel told to drop it (`posix_fadvise`); how much was read
from the disk is what /proc/self/io says. A log twice as long has as many nodes.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import Any

import anyio
from histories import text
from measure import BUILD, ROOT, Options, fresh, report, row, scratch
from turns import add_turn, some_turns

import turnlog
import turnlog.stores.sqlite
import turnlog.stores.store
from turnlog.stores.live import StoredSession

EVENTS = (1_000_000, 2_000_000)
SURFACE = 5_000
AT_ONCE = 50_000  # events that are written by one opened session
FLUSH = 20  # turns between two flushes
ROUNDS = 11
WAYS = ("read", "resume")
NEARLY = 1.25
"""How much more than the shorter log the longer one may take: "nearly the same"."""


# -- making the logs ---------------------------------------------------------------------------


@contextmanager
def kept(options: Options) -> Iterator[Path]:
    """The folder of the logs: one that stays, as long as what writes them is the same."""
    if options.small:
        with scratch() as folder:
            yield folder
        return
    said = sha256()
    for source in (Path(__file__), *sorted((ROOT / "src" / "turnlog" / "stores").rglob("*.py"))):
        said.update(source.read_bytes())
    folder = BUILD / "bench"
    folder.mkdir(parents=True, exist_ok=True)
    stamp = folder / "stamp"
    if not stamp.exists() or stamp.read_text() != said.hexdigest():
        for old in folder.glob("*.db*"):
            if old.is_file():
                old.unlink()
        stamp.write_text(said.hexdigest())
    yield folder


async def make(path: Path, events: int, surface: int) -> None:
    """A log of so many events or a few more."""
    turns = some_turns(200)
    number = 0
    async with turnlog.open_store(f"sqlite:{path}", durability="none") as store:
        written = 0
        while written < events:
            async with store.session("s") as session:
                until = min(written + AT_ONCE, events)
                while session.next_seq < until:
                    number += 1
                    add_turn(session, number, turns[number % len(turns)])
                    if number % FLUSH == 0:
                        await session.flush()
                    if len(session.surface) > surface * 6 // 5:
                        compact(session, surface * 4 // 5)
                written = session.next_seq
        async with store.session("s") as session:
            while len(session.surface) < surface:
                session.add_user(f"and {len(session.surface)}")
            compact(session, surface)


async def make_short(path: Path, surface: int) -> None:
    """A log that is its surface."""
    async with (
        turnlog.open_store(f"sqlite:{path}", durability="none") as store,
        store.session("s") as session,
    ):
        for i in range(surface):
            session.add_user(text(i))


def compact(session: StoredSession, left: int) -> None:
    """Shadow the oldest nodes by a summary, so that `left` nodes are left."""
    seqs = session.surface.seqs
    if len(seqs) > left:
        session.replace(seqs[0], seqs[len(seqs) - left], f"what was said before {session.next_seq}")


# -- opening them ------------------------------------------------------------------------------


def memory() -> int:
    """Bytes of this process that are in memory."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE")


def read_from_disk() -> int:
    """Bytes that this process had to be brought from a disk."""
    told = Path("/proc/self/io").read_text()
    return int(told.partition("read_bytes:")[2].split()[0])


async def opened(path: str, how: str) -> dict[str, Any]:
    """What it takes from opening the store to the messages."""
    memory_before, disk_before = memory(), read_from_disk()
    start, cpu = time.perf_counter(), time.process_time()
    async with turnlog.open_store(f"sqlite:{path}") as store:
        if how == "read":
            session = await store.read("s")
            messages = session.derive_messages()
            ms, cpu_ms = (time.perf_counter() - start) * 1e3, (time.process_time() - cpu) * 1e3
            grown = memory() - memory_before
        else:
            async with store.session("s", create=False) as session:
                messages = session.derive_messages()
                ms, cpu_ms = (time.perf_counter() - start) * 1e3, (time.process_time() - cpu) * 1e3
                grown = memory() - memory_before
        return {
            "ms": ms,
            "cpu_ms": cpu_ms,
            "memory": grown,
            "disk": read_from_disk() - disk_before,
            "messages": len(messages),
            "events": len(session),
        }


def drop(path: Path) -> None:
    """Ask the kernel to forget what it holds of a file."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
        os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(handle)


def open_all(
    logs: dict[str, Path], surface: int, rounds: int
) -> dict[tuple[str, str, str], list[dict[str, Any]]]:
    """What it takes to open each log, by its name, the way and the state of the page cache."""
    found: dict[tuple[str, str, str], list[dict[str, Any]]] = {}
    for _ in range(rounds):
        for name, path in logs.items():
            for how in WAYS:
                for cache in ("warm",) if name == "short" else ("warm", "dropped"):
                    if cache == "dropped":
                        drop(path)
                    one = fresh(__file__, "--open", str(path), how)
                    if one["messages"] != surface:
                        msg = f"{name}: expected {surface} messages, got {one['messages']}"
                        raise ValueError(msg)
                    found.setdefault((name, how, cache), []).append(one)
    return found


def measure(options: Options) -> Iterator[dict[str, Any]]:
    """Rows of P7 for each way and state of the page cache, and those of P13."""
    surface = options.size(SURFACE, 60)
    sizes = EVENTS if not options.small else (2_000, 4_000)
    if not Path("/proc/self/io").exists():
        yield row("P7", "a log of 1,000,000 events", "no /proc here", "100 ms", met=None)
        return
    with kept(options) as folder:
        logs = {f"{size:,}": folder / f"{size}.db" for size in sizes}
        for size, path in zip(sizes, logs.values(), strict=True):
            if not path.exists():
                start = time.perf_counter()
                draft = path.with_name(f"draft-{path.name}")
                draft.unlink(missing_ok=True)
                anyio.run(make, draft, size, surface)
                draft.rename(path)
                shutil.rmtree(draft.with_name(f"{draft.name}-owners"))
                took = time.perf_counter() - start
                print(f"made {size:,} events in {took:.0f} s", file=sys.stderr)
        short = folder / "short.db"
        if not short.exists():
            anyio.run(make_short, short, surface)
        logs["short"] = short
        found = open_all(logs, surface, 1 if options.small else ROUNDS)
    one, two, _ = logs
    for how in WAYS:
        for cache in ("warm", "dropped"):
            best = [min(found[name, how, cache], key=lambda o: o["ms"]) for name in (one, two)]
            ms, twice = best[0]["ms"], best[1]["ms"]
            disk = best[0]["disk"] / 1e6
            yield row(
                "P7",
                f"cold {how}, SQLite, {one} events, {surface:,} on the surface, cache {cache}",
                f"{ms:.0f} ms ({best[0]['cpu_ms']:.0f} CPU, {disk:.1f} MB from disk); "
                f"{two} events {twice:.0f} ms: {twice / ms:.2f}x",
                f"100 ms; {NEARLY}x",
                met=None if options.small else ms < 100 and twice <= NEARLY * ms,
                ms=ms,
                twice_ms=twice,
                cpu_ms=best[0]["cpu_ms"],
            )
    for how in WAYS:
        grown = {
            name: min(each["memory"] for each in found[name, how, "warm"]) / 1e6 for name in logs
        }
        ratio = grown[two] / grown[one]
        yield row(
            "P13",
            f"memory that {how} takes, {surface:,} messages on the surface",
            f"{one} events {grown[one]:.1f} MB, {two} events {grown[two]:.1f} MB: {ratio:.2f}x "
            f"(a log of only the surface {grown['short']:.1f} MB)",
            "1.1x",
            met=None if options.small else ratio <= 1.1,
            mb=grown,
        )


if __name__ == "__main__":
    if sys.argv[1:2] == ["--open"]:
        print(json.dumps(anyio.run(opened, *sys.argv[2:4])))
    else:
        report(measure)
