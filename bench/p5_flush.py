"""P5: one `flush()` a turn on SQLite, against a bare loop; and how many fsyncs a flush takes.

The bare loop inserts the same rows, a turn in one transaction, through the same driver with the
same pragmas, and does nothing else: no packing, no sums, no claim, no line of a listing. A second
one writes a row an event, unpacked. Turns of all alternate, on the same disk; times are on the
clock, for the disk is what is waited for: medians, of the quietest of several rounds. Fsyncs are
counted by a VFS of SQLite's that notes each xSync, and by strace, where it is installed.
"""

from __future__ import annotations

import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import AsyncExitStack
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeAlias

import anyio
import apsw
from measure import NoPeer, Options, report, row, scratch
from turns import OTHERS, Turn, add_turn, some_turns

import turnlog
from turnlog.stores.sqlite.connection import Database

ROUNDS = 8
TURNS = 50
DUE = (1, 20, 200)  # sessions
FLUSHES = 5
USUAL = apsw.vfs_names()[0]  # the VFS that is the default one
PRAGMAS = ("journal_mode", "synchronous", "wal_autocheckpoint", "page_size", "cache_size")
TABLES = {
    "events": "id, type, time, data, surface_op, source_event_seqs, ignorable, extra, sum",
    "chunks": "id, last, message, data, sum",
    "streams": "id, last, message, data, sum",
}

Rows: TypeAlias = dict[str, list[tuple[Any, ...]]]


# -- against a bare loop -----------------------------------------------------------------------


class Bare:
    """The loop without turnlog: the rows of a turn, a transaction, nothing else."""

    def __init__(self, path: Path, like: Path) -> None:
        """A file with the tables that `like` has, and the pragmas of a store."""
        source = apsw.Connection(str(like), apsw.SQLITE_OPEN_READONLY)
        schema = [sql for (sql,) in source.execute("SELECT sql FROM sqlite_schema") if sql]
        source.close()
        self._db = apsw.Connection(str(path))
        for name, value in pragmas().items():
            self._db.pragma(name, value)
        for sql in schema:
            if sql.split()[2].strip('"') in TABLES:
                self._db.execute(sql)
        self.insert: dict[str, str] = {}
        for table, columns in TABLES.items():
            marks = ", ".join("?" * len(columns.split(",")))
            self.insert[table] = f"INSERT INTO {table} ({columns}) VALUES ({marks})"  # noqa: S608

    def put(self, rows: Rows) -> None:
        """The rows of one turn, durably."""
        db = self._db
        db.execute("BEGIN IMMEDIATE")
        for table, those in rows.items():
            db.executemany(self.insert[table], those)
        db.execute("COMMIT")

    def close(self) -> None:
        """Close the file."""
        self._db.close()


def pragmas() -> dict[str, Any]:
    """What a store at the default durability sets, as its own writing connection says it."""
    with tempfile.TemporaryDirectory() as name:
        database = Database(Path(name) / "s.db", "sqlite:", "turn")
        database.open()
        try:
            with database.writing() as db:
                return {pragma: db.pragma(pragma) for pragma in PRAGMAS}
        finally:
            database.close()


async def rehearse(path: Path, turns: list[Turn]) -> tuple[list[Rows], list[Rows]]:
    """Write the turns; which rows each of them made, and what a row an event would be."""
    ends: list[int] = []
    plain: list[Rows] = []
    async with turnlog.open_store(f"sqlite:{path}") as store, store.session("s") as session:
        for number, turn in enumerate(turns, 1):
            start = session.next_seq
            add_turn(session, number, turn)
            await session.flush()
            ends.append(session.next_seq)
            events = [session.event_at(seq) for seq in range(start, session.next_seq)]
            rows = [(e.seq, e.type, e.time, e.raw, None, None, None, None, 0) for e in events]
            plain.append({"events": rows})
    db = apsw.Connection(str(path), apsw.SQLITE_OPEN_READONLY)
    same: list[Rows] = []
    for start, end in pairwise([0, *ends]):
        found: Rows = {}
        for table, columns in TABLES.items():
            where = "WHERE id & ((1 << 36) - 1) BETWEEN ? AND ? ORDER BY id"
            query = f"SELECT {columns} FROM {table} {where}"  # noqa: S608
            found[table] = db.execute(query, (start, end - 1)).fetchall()
        same.append(found)
    db.close()
    return same, plain


async def alternate(folder: Path, turns: list[Turn]) -> dict[str, float]:
    """The median milliseconds of a turn: of each way to write it."""
    like = folder / "rehearsal.db"
    same, plain = await rehearse(like, turns)
    taken: dict[str, list[float]] = {"append": [], "flush": [], "same": [], "plain": []}
    loops = {"same": Bare(folder / "same.db", like), "plain": Bare(folder / "plain.db", like)}
    url = f"sqlite:{folder / 's.db'}"
    async with turnlog.open_store(url) as store, store.session("s") as session:
        for number, turn in enumerate(turns, 1):
            start = time.perf_counter()
            add_turn(session, number, turn)
            taken["append"].append(time.perf_counter() - start)
            start = time.perf_counter()
            await session.flush()
            taken["flush"].append(time.perf_counter() - start)
            for name, rows in (("same", same), ("plain", plain)):
                start = time.perf_counter()
                loops[name].put(rows[number - 1])
                taken[name].append(time.perf_counter() - start)
    for loop in loops.values():
        loop.close()
    return {name: statistics.median(times) * 1e3 for name, times in taken.items()}


def against_bare(options: Options) -> Iterator[dict[str, Any]]:
    """The rows of the comparison."""
    streamed = some_turns(options.size(TURNS, 3))
    kinds = {
        f"{OTHERS} events": [turn._replace(deltas=[]) for turn in streamed],
        "90 events, 81 of them chunks": streamed,
    }
    for kind, turns in kinds.items():
        found: list[dict[str, float]] = []
        for _ in range(1 if options.small else ROUNDS):
            with scratch() as folder:
                found.append(anyio.run(alternate, folder, turns))
        least = min(found, key=lambda each: sum(each.values()))
        ratio = least["flush"] / least["same"]
        yield row(
            "P5",
            f"flush of a turn of {kind}, SQLite, on disk",
            f"{least['flush']:.2f} ms, bare loop {least['same']:.2f} ms: {ratio:.2f}x "
            f"(one with a row an event {least['plain']:.2f} ms; the appends {least['append']:.2f})",
            "1.5x",
            met=None if options.small else ratio <= 1.5,
            ms=least,
            rounds=found,
        )


# -- counting ----------------------------------------------------------------------------------


class CountingFile(apsw.VFSFile):
    """A file that notes when it is synced."""

    def __init__(self, name: Any, flags: list[int], synced: list[str]) -> None:
        super().__init__(USUAL, name, flags)
        self._name = name.filename() if isinstance(name, apsw.URIFilename) else str(name)
        self._synced = synced

    def xSync(self, flags: int) -> None:  # noqa: N802 - SQLite's name
        """Note it, and do it."""
        self._synced.append(self._name)
        super().xSync(flags)


class CountingVfs(apsw.VFS):
    """The usual VFS, as the default one, which notes the names of the files that are synced."""

    def __init__(self) -> None:
        super().__init__("counting", USUAL, makedefault=True)
        self.synced: list[str] = []

    def xOpen(self, name: Any, flags: list[int]) -> CountingFile:  # noqa: N802 - SQLite's name
        """Open a file that is counted."""
        return CountingFile(name, flags, self.synced)


async def flushes(folder: Path, due: int, marked: Path | None) -> list[str]:
    """Flush one session while `due` are waiting, a few times; the files that SQLite synced.

    Args:
        folder: of the store.
        due: how many sessions.
        marked: a file that is synced before and after, so that strace's output shows when.
    """
    vfs = CountingVfs()
    url = f"sqlite:{folder / 's.db'}"
    async with turnlog.open_store(url, durability="turn") as store, AsyncExitStack() as stack:
        sessions = [await stack.enter_async_context(store.session(f"s{i}")) for i in range(due)]
        db = apsw.Connection(str(folder / "s.db"), vfs="counting")
        db.pragma("wal_checkpoint(truncate)")  # so that none is due while it is counted
        db.close()
        for each in range(FLUSHES + 1):
            for number, session in enumerate(sessions):
                session.add_user(f"prompt {each} of session {number}")
            if each == 1:  # the first one began the WAL
                vfs.synced.clear()
                _mark(marked)
            await sessions[0].flush()
            late = [session.id for session in sessions if session.durable_seq < session.next_seq]
            if late:
                raise RuntimeError(f"{len(late)} sessions were due and were not written")
        _mark(marked)
        found = list(vfs.synced)
    vfs.unregister()
    return found


def _mark(file: Path | None) -> None:
    if file is not None:
        with file.open("wb") as handle:
            os.fsync(handle)


def traced(due: int) -> list[str]:
    """The files that the kernel was asked to sync in between, by strace.

    Raises:
        NoPeer: strace is not installed, or may not look here.
    """
    strace = shutil.which("strace")
    if strace is None:
        raise NoPeer("no strace")
    with scratch() as folder:
        out, mark = folder / "trace", folder / "mark"
        calls = "trace=fsync,fdatasync,sync_file_range,msync,syncfs,sync"
        command = [strace, "-f", "-y", "-e", calls, "-o", str(out), sys.executable, __file__]
        ran = subprocess.run(  # noqa: S603
            [*command, "--flushes", str(folder), str(due), str(mark)],
            check=False,
            capture_output=True,
        )
        if ran.returncode:
            raise NoPeer(f"strace failed: {ran.stderr.decode()[-200:]}")
        lines = [line for line in out.read_text().splitlines() if "resumed>" not in line]
        first, last = (i for i, line in enumerate(lines) if f"<{mark}>" in line)
        between = [line for line in lines[first + 1 : last] if "(" in line]
        return [line.partition("<")[2].partition(">")[0] or line for line in between]


def counts(options: Options) -> Iterator[dict[str, Any]]:
    """A row for each way to count."""
    numbers = DUE[: 2 if options.small else None]
    told: dict[str, list[str]] = {"VFS": [], "strace": []}
    wrong: dict[str, bool] = {"VFS": False, "strace": False}
    missing = ""
    for due in numbers:
        with scratch() as folder:
            seen = {"VFS": anyio.run(flushes, folder, due, None)}
        try:
            seen["strace"] = traced(due)
        except NoPeer as reason:
            missing = str(reason)
        for how, files in seen.items():
            wal = [name for name in files if name.endswith("-wal")]
            told[how].append(f"{due}: {len(files)}")
            wrong[how] |= len(files) != FLUSHES or wal != files
    for how, found in told.items():
        lost = how == "strace" and missing
        yield row(
            "P5",
            f"fsyncs of {FLUSHES} flushes with {', '.join(map(str, numbers))} sessions due, {how}",
            f"not measured: {missing}" if lost else "; ".join(found),
            f"{FLUSHES} each",
            met=None if lost else not wrong[how],
        )


def measure(options: Options) -> Iterator[dict[str, Any]]:
    """The rows of P5."""
    yield from against_bare(options)
    yield from counts(options)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--flushes"]:
        where, many, file = sys.argv[2:5]
        print(json.dumps(anyio.run(flushes, Path(where), int(many), Path(file))))
    else:
        report(measure)
