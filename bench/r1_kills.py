"""R1: a running agent killed with SIGKILL at random moments, then resumed; in each kind of store.

    python r1_kills.py --count 1000

The agent, and what must hold of what it leaves, are those of tests/crash: what a flush acknowledged
is there unchanged, nothing is damaged, no law is broken, no body ran twice or unlogged, every
provider takes the next request, the agent runs on. Here the moment is one in time, from before the
store is open to the middle of a turn, and what would be sent is judged at every message of the log.
Children are forked, for a thousand interpreters would take their time to start.

PostgreSQL and MariaDB are the tests' own servers, with a new database for each session, so that a
child may die while it makes the tables. There a killed owner keeps its session until its lease is
over: who resumes steals it. A server that is not installed is a row that says so.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import anyio
import pytest
from measure import ROOT, Options, report, row

sys.path.insert(0, str(ROOT))

from tests.crash.agent_child import SESSION, Digest
from tests.crash.agent_child import main as run_agent
from tests.crash.agent_kills import check
from tests.store_urls import url_of
from turnlog import open_store
from turnlog.errors import TurnlogError
from turnlog.testing.providers import check_neutral

COUNT = 100  # of each kind
PER_SESSION = 3  # kills, before a new session is begun


class Kind(NamedTuple):
    """A kind of store.

    Attributes:
        name: in `tests.store_urls`.
        longest: seconds after its fork at which a child is killed at the latest.
        leased: whether a killed owner keeps its session until a lease is over.
    """

    name: str
    longest: float
    leased: bool = False


KINDS = {
    "JSONL": Kind("jsonl", 0.12),
    "SQLite": Kind("sqlite", 0.12),
    "PostgreSQL": Kind("postgresql", 0.25, leased=True),
    "MariaDB": Kind("mysql", 0.25, leased=True),
}


def kill_one(url: str, effects: Path, seed: int, after: float) -> tuple[int, str]:
    """Fork a child that runs the agent, kill it; returns what it acknowledged last.

    Raises:
        RuntimeError: it ended by itself.
    """
    heard, said = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.dup2(said, 1)
        try:
            anyio.run(run_agent, url, effects, seed)
        except BaseException:  # noqa: BLE001 - it is told; nothing of the parent's is to be run
            traceback.print_exc()
        finally:
            os._exit(1)
    os.close(said)
    time.sleep(after)
    os.kill(pid, signal.SIGKILL)
    _, status = os.waitpid(pid, 0)
    with os.fdopen(heard, "rb") as pipe:
        whole = [line for line in pipe.read().splitlines(keepends=True) if line.endswith(b"\n")]
    if not os.WIFSIGNALED(status):
        msg = f"the child of seed {seed} ended by itself"
        raise RuntimeError(msg)
    if not whole:
        return 0, Digest().add(())
    _, seq, digest = whole[-1].split()
    return int(seq), digest.decode()


async def projections(url: str) -> tuple[int, list[str]]:
    """How many projections there were to judge, and what is wrong with them."""
    async with open_store(url) as store:
        session = await store.read(SESSION, load="all")
        seqs = [event.seq for event in session.events if event.surface_op is not None]
        wrong: list[str] = []
        for seq in seqs:
            sent = [message.to_dict() for message in session.request_messages(seq)]
            wrong += [f"at {seq}: {violation}" for violation in check_neutral(sent)]
        return len(seqs), wrong


def measure(options: Options) -> Iterator[dict[str, Any]]:
    """One row for each kind of store."""
    kills = options.count or options.size(COUNT, 3)
    for name, kind in KINDS.items():
        try:
            yield kill_many(name, kind, kills)
        except pytest.skip.Exception as reason:
            yield row("R1", f"kills on {name}", f"not measured: {reason}", "-", met=None)


def kill_many(name: str, kind: Kind, kills: int) -> dict[str, Any]:
    """The row of a kind of store."""
    dice = random.Random(7)  # noqa: S311 - no secret
    faults: list[str] = []
    acknowledged = bodies = judged = 0
    for begun in range(0, kills, PER_SESSION):
        with tempfile.TemporaryDirectory() as place:
            url, effects = url_of(kind.name, Path(place)), Path(place) / "effects"
            open_store(url)  # so that no child has to import its driver
            for kill in range(begun, min(begun + PER_SESSION, kills)):
                safe = kill_one(url, effects, kill, dice.random() * kind.longest)
                acknowledged += safe[0]
                try:
                    anyio.run(partial(check, steal=kind.leased), url, effects, safe, kill)
                except (AssertionError, TurnlogError, ExceptionGroup) as fault:
                    faults.append(f"kill {kill}: {fault!r}")
            count, wrong = anyio.run(projections, url)
            judged += count
            faults += wrong
            bodies += len(effects.read_text().split()) if effects.exists() else 0
    return row(
        "R1",
        f"{kills:,} kills of a running agent, {name}",
        f"{len(faults)} faults; {acknowledged:,} acknowledged events looked for, "
        f"{bodies:,} tool bodies run, {judged:,} projections judged",
        "0",
        met=not faults,
        kills=kills,
        faults=faults[:20],
    )


if __name__ == "__main__":
    report(measure)
