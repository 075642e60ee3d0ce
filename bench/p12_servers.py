"""P12, P9 and takeover on PostgreSQL and MariaDB, on private servers that wait for their disk.

    python p12_servers.py --count 3 [--only finding]

Events a second of one and of eight worker processes, each with sessions of its own, flushed
together again and again; against the same processes that insert the same events, a row each, with
one multi-row INSERT a transaction: on the clock, from the moment that all are ready until the last
is done. What eight workers need of the server's CPU and disk, and what turns of real agents do that
are streamed at the pace of a model, is what `scaling.py` computes with. Takeover is the time from
SIGKILL or SIGSTOP of an owner until another process owns its session. `--count` says how many
rounds; then P9 is at its full size, too. `--only` measures one part: sustained, turns, takeover or
finding, which is P9. A server that is not installed is a row that says so.
"""

from __future__ import annotations

import json
import os
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from functools import cache
from itertools import product
from pathlib import Path
from typing import IO, Any, NamedTuple, cast

import anyio
import p9_find
import pytest
from measure import HERE, ROOT, Options, on_disk, report, row
from p12_child import Work, store_of

sys.path.insert(0, str(ROOT))

from tests.servers import mariadb, postgres
from turnlog.errors import SessionInUse

WORKERS = (1, 8)
LEAST = 0.7
FLUSHES = {"messages": 1_600, "turns": 800}  # of all workers together
OWNERS = 3  # that are killed, and that are stopped
LEASE = 30.0  # seconds
AGENTS, TURNS = 25, 2
P9_SESSIONS, P9_MESSAGES, P9_ROUNDS = 1_000, 10_000, 5  # without --count
KINDS = {"messages": "messages of 400 bytes", "turns": "turns, nine in ten events are chunks"}
DURABLE_POSTGRES = {
    "fsync": "on",
    "full_page_writes": "on",
    "autovacuum": "on",
    "shared_buffers": "256MB",
}
SIZE = """
    SELECT sum(pg_total_relation_size(oid)) FROM pg_class
    WHERE relkind = 'r' AND relnamespace = '{}'::regnamespace
"""
PAGES = """
    SELECT SUM(data_length + index_length) FROM information_schema.tables
    WHERE table_schema = '{}'
"""
DURABLE_MARIADB = {
    "innodb_flush_log_at_trx_commit": "1",
    "innodb_flush_method": "fsync",
    "innodb_doublewrite": "1",
    "innodb_buffer_pool_size": "256M",
    "innodb_log_buffer_size": "16M",
    "innodb_log_file_size": "128M",
}


# -- servers -----------------------------------------------------------------------------------


class Place(NamedTuple):
    """An empty store on a server, with a table `bare` beside its own.

    Attributes:
        url: the store's.
        pid: the server's first process.
        folder: the server's.
        size: bytes on its disk of the store's tables, or of `bare`.
    """

    url: str
    pid: int
    folder: Path
    size: Callable[[], int]


@cache
def _postgres() -> postgres.Server:
    return postgres.server(**DURABLE_POSTGRES)


@cache
def _mariadb() -> mariadb.Server:
    return mariadb.server(**DURABLE_MARIADB)


def on_postgres() -> Place:
    """A schema of its own."""
    server = _postgres()
    schema = server.new_schema()
    bare = (
        "session bytea, seq bigint, type text, time bigint, data bytea, surface_op text, "
        "cited text, PRIMARY KEY (session, seq)"
    )
    server.sql(f"CREATE TABLE {schema}.bare ({bare})")
    query = SIZE.format(schema)
    pid = int((server.folder / "data" / "postmaster.pid").read_text().split()[0])
    return Place(server.url(schema), pid, server.folder, lambda: int(server.sql(query)[0]))


def on_mariadb() -> Place:
    """A database of its own."""
    server = _mariadb()
    name = server.new_database()
    bare = (
        "session BINARY(16), seq BIGINT, type TEXT, time BIGINT, data LONGBLOB, surface_op TEXT, "
        "cited TEXT, PRIMARY KEY (session, seq)"
    )
    server.sql(f"CREATE TABLE bare ({bare}) ENGINE=InnoDB", database=name)
    pid = int((server.folder / "pid").read_text())

    def size() -> int:
        tables = server.sql(f"SHOW TABLES FROM {name}")
        server.sql(f"ANALYZE TABLE {', '.join(table for (table,) in tables)}", database=name)
        return int(server.sql(PAGES.format(name))[0][0])

    return Place(server.url(name), pid, server.folder, size)


SERVERS: dict[str, Callable[[], Place]] = {"PostgreSQL": on_postgres, "MariaDB": on_mariadb}


def cpu_of(pid: int) -> float | None:
    """Seconds of CPU that a process took, with its children, living and gone; None elsewhere."""
    if not Path("/proc/self/stat").exists():
        return None
    ticks = 0
    for place in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = place.read_text().rpartition(")")[2].split()
        except (FileNotFoundError, ProcessLookupError):
            continue  # it ended
        if place.parent.name == str(pid):
            ticks += sum(map(int, fields[11:15]))
        elif fields[1] == str(pid):
            ticks += sum(map(int, fields[11:13]))
    return ticks / os.sysconf("SC_CLK_TCK")


# -- workers -----------------------------------------------------------------------------------


class Child:
    """A process of `p12_child.py`."""

    def __init__(self, work: Work) -> None:
        self.process = subprocess.Popen(  # noqa: S603 - our own interpreter
            [sys.executable, str(HERE / "p12_child.py"), json.dumps(work._asdict())],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._in, self._out = (
            cast("IO[str]", self.process.stdin),
            cast("IO[str]", self.process.stdout),
        )

    def hear(self) -> str:
        """Its next line.

        Raises:
            RuntimeError: it ended before.
        """
        line = self._out.readline().strip()
        if not line:
            msg = f"a worker ended with status {self.process.wait()}"
            raise RuntimeError(msg)
        return line

    def go(self) -> None:
        """Let it begin."""
        print(file=self._in, flush=True)


class Ran(NamedTuple):
    """What some workers did together: of the clock, of CPU, of the server's CPU and disk."""

    events: int
    commits: int
    turns: int
    seconds: float
    worker_cpu: float
    server_cpu: float | None
    bytes: int

    @property
    def rate(self) -> float:
        """Events a second."""
        return self.events / self.seconds


def run(place: Place, works: Sequence[Work]) -> Ran:
    """Let workers run side by side."""
    with ExitStack() as stack:
        children = [Child(work) for work in works]
        for child in children:
            stack.enter_context(child.process)
            stack.callback(child.process.kill)
        for child in children:
            child.hear()
        size, cpu, start = place.size(), cpu_of(place.pid), time.perf_counter()
        for child in children:
            child.go()
        said: list[dict[str, Any]] = [json.loads(child.hear()) for child in children]
        took = time.perf_counter() - start
        for child in children:
            child.process.wait(60)
    used = cpu_of(place.pid)
    return Ran(
        sum(each["events"] for each in said),
        sum(each["commits"] for each in said),
        sum(each.get("turns", 0) for each in said),
        took,
        sum(each["cpu"] for each in said),
        None if used is None or cpu is None else used - cpu,
        place.size() - size,
    )


def sustained(name: str, make: Callable[[], Place], options: Options) -> Iterator[dict[str, Any]]:
    """P12: a row for each kind of events and number of workers."""
    chosen = list(product(KINDS, WORKERS))
    for kind, count in chosen[-1:] if options.small else chosen:
        flushes = options.size(FLUSHES[kind], 16) // count
        rounds: list[tuple[Ran, Ran]] = []
        for _ in range(options.count or 1):
            both: list[Ran] = []
            for what in ("append", "bare"):
                place = make()
                works = [
                    Work(what, place.url, f"w{i}", kind=kind, flushes=flushes) for i in range(count)
                ]
                both.append(run(place, works))
            rounds.append((both[0], both[1]))
        ours, bare = max(rounds, key=lambda pair: pair[0].rate + pair[1].rate)
        ratio = ours.rate / bare.rate
        judged = count == max(WORKERS) and not options.small
        yield row(
            "P12",
            f"{count} worker{'s' * (count > 1)}, own sessions, {KINDS[kind]}, {name}",
            f"{ours.rate:,.0f} events/s, bare INSERT loop {bare.rate:,.0f}: {ratio:.2f}x",
            f"{LEAST}x" if count > 1 else "told",
            met=ratio >= LEAST if judged else None,
            server=name,
            kind=kind,
            workers=count,
            batch=ours.events / ours.commits,
            ours=ours._asdict(),
            bare=bare._asdict(),
            rounds=[pair[0].rate / pair[1].rate for pair in rounds],
        )


def turns(name: str, make: Callable[[], Place], options: Options) -> Iterator[dict[str, Any]]:
    """What a turn of an agent costs, when the model speaks as fast as models do."""
    place = make()
    pause = 0.0 if options.small else 0.02
    work = Work(
        "agents",
        place.url,
        "a",
        turns=options.size(TURNS, 1),
        sessions=options.size(AGENTS, 2),
        pause=pause,
    )
    ran = run(place, [work])
    used = ran.server_cpu
    server = "not told here" if used is None else f"{used / ran.turns * 1e3:.1f} ms"
    yield row(
        "turn",
        f"a turn of {work.sessions} streaming agents of one process, {name}",
        f"{ran.events / ran.turns:.0f} events, {ran.commits / ran.turns:.2f} transactions, "
        f"server's CPU {server}, agent's {ran.worker_cpu / ran.turns * 1e3:.1f} ms",
        "told",
        met=None,
        server=name,
        sessions=work.sessions,
        ran=ran._asdict(),
    )


# -- takeover ----------------------------------------------------------------------------------


def takeover(name: str, make: Callable[[], Place], options: Options) -> Iterator[dict[str, Any]]:
    """Seconds until another owns the session of an owner that died, and of one that sleeps."""
    place, lease = make(), 1.0 if options.small else LEASE
    owners = options.size(OWNERS, 1)
    signals = {"SIGKILL": signal.SIGKILL, "SIGSTOP": signal.SIGSTOP}
    with ExitStack() as stack:
        children: dict[str, Child] = {}
        for sent in signals:
            for i in range(owners):
                child = Child(Work("hold", place.url, f"{sent}-{i}", lease=lease))
                stack.enter_context(child.process)
                stack.callback(child.process.kill)  # ends a stopped one, too
                children[f"{sent}-{i}"] = child
        for child in children.values():
            child.hear()
            child.go()
        time.sleep(0.5)  # they write
        found = anyio.run(_taken, place, lease, children, signals)
    for sent in signals:
        times = [seconds for session, seconds in found.items() if session.startswith(sent)]
        yield row(
            "takeover",
            f"owner gets {sent}, until another owns its session, {name}",
            f"{statistics.median(times):.1f} s (the longest of {owners} {max(times):.1f}), "
            f"lease {lease:.0f} s",
            "told",
            met=None,
            server=name,
            seconds=times,
            lease=lease,
        )


async def _taken(
    place: Place, lease: float, children: dict[str, Child], signals: dict[str, signal.Signals]
) -> dict[str, float]:
    """Send each its signal, and try to own its session; after how many seconds that was so."""
    found: dict[str, float] = {}
    store, _ = store_of(Work("hold", place.url, "heir", lease=lease))

    async def take(name: str, child: Child) -> None:
        child.process.send_signal(signals[name.partition("-")[0]])
        start = time.monotonic()
        with anyio.fail_after(4 * LEASE):
            while True:
                try:
                    async with store.session(name) as session:
                        session.add_user("now mine")
                        await session.flush()
                        found[name] = time.monotonic() - start
                        return
                except SessionInUse:
                    await anyio.sleep(0.05)

    async with store, anyio.create_task_group() as tasks:
        for name, child in children.items():
            tasks.start_soon(take, name, child)
    return found


# -- P9 ----------------------------------------------------------------------------------------


def finding(name: str, make: Callable[[], Place], options: Options) -> Iterator[dict[str, Any]]:
    """P9: the first page of a listing, and searches."""
    full = bool(options.count) and not options.small
    sessions = p9_find.SESSIONS if full else options.size(P9_SESSIONS, 5)
    messages = p9_find.MESSAGES if full else options.size(P9_MESSAGES, 60)
    rounds = p9_find.ROUNDS if full else options.size(P9_ROUNDS, 1)
    speaker = p9_find.Speaker()
    page, whole = anyio.run(p9_find.listing, make().url, speaker, sessions, rounds)
    yield row(
        "P9",
        f"first {p9_find.PAGE} lines of a listing of {sessions:,} sessions, {name}",
        f"{page * 1e3:.1f} ms ({whole * 1e3:.1f} with opening the store)",
        "10 ms",
        met=page <= 0.01 if full else None,
        ms=page * 1e3,
        server=name,
    )
    made, found = anyio.run(p9_find.searching, make().url, speaker, messages, rounds)
    for said, (taken, hits) in found.items():
        yield row(
            "P9",
            f"search for {said} in {messages:,} messages, {name}",
            f"{taken * 1e3:.1f} ms, {hits} hits",
            "40 ms",
            met=taken <= 0.04 if full else None,
            ms=taken * 1e3,
            index_s=made,
            server=name,
        )


PARTS = (sustained, turns, takeover, finding)


def measure(options: Options) -> Iterator[dict[str, Any]]:
    """All rows of each server."""
    for name, make in SERVERS.items():
        try:
            place = make()
        except pytest.skip.Exception as reason:
            yield row("P12", f"everything on {name}", f"not measured: {reason}", "-", met=None)
            continue
        if on_disk(place.folder) is False:
            print(f"{name} is in memory here: set TMPDIR to a folder on a disk", file=sys.stderr)
        for part in PARTS:
            if options.only not in (None, part.__name__):
                continue
            yield from part(name, make, options)


if __name__ == "__main__":
    report(measure)
