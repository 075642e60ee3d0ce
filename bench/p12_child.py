"""What one worker process of `p12_servers.py` does: `p12_child.py JSON`.

It says `ready`, begins when a line comes on stdin, and says a line of JSON when it is done.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from functools import partial
from hashlib import sha256
from random import Random
from typing import Any, NamedTuple, cast

import anyio
import asyncpg  # pyright: ignore[reportMissingTypeStubs]
from anyio import to_thread
from asyncmy.connection import Connection
from turns import Turn, add_turn, prose, some_turns

from turnlog import Message, ReactLoopAgent, Session, Source, Text, tool
from turnlog.models.scripted import Call, ScriptedModel, Step, Wait
from turnlog.stores.mysql.driver import MySqlDriver
from turnlog.stores.mysql.urls import options_of
from turnlog.stores.port import Batch
from turnlog.stores.postgres.driver import PostgresDriver
from turnlog.stores.server.driver import Driver
from turnlog.stores.server.store import ServerStore
from turnlog.stores.store import Store

connect = cast("Callable[[str], Awaitable[Any]]", asyncpg.connect)  # pyright: ignore[reportUnknownMemberType]

SESSIONS = 4  # of a worker that appends
AT_ONCE = 25  # messages to each of them between two flushes
COLUMNS = ("session", "seq", "type", "time", "data", "surface_op", "cited")


class Work(NamedTuple):
    """What is to be done."""

    what: str  # append, bare, hold, agents
    url: str
    name: str  # of the worker, which begins the ids of its sessions
    kind: str = "messages"  # or turns
    flushes: int = 1
    turns: int = 1  # of each agent
    sessions: int = SESSIONS
    lease: float = 30.0  # seconds
    pause: float = 0.02  # seconds between two tokens of a model


class Counted(ServerStore):
    """Counts its transactions that store events."""

    commits = 0

    async def commit(self, batches: Sequence[Batch]) -> list[Any]:
        """Store batches in one transaction."""
        self.commits += 1
        return await super().commit(batches)


def store_of(work: Work) -> tuple[Store, Counted]:
    """A handle with that lease."""
    driver: Driver
    if work.url.startswith("mysql:"):
        driver = MySqlDriver(options_of(work.url, work.url), work.url)
    else:
        driver = PostgresDriver(work.url, work.url)
    backend = Counted(driver, lease=work.lease)
    return Store(backend), backend


async def begin() -> None:
    """Wait until all are ready."""
    print("ready", flush=True)
    await to_thread.run_sync(sys.stdin.readline)


# -- appending ---------------------------------------------------------------------------------


class Writing:
    """Appends the same events to whatever session."""

    def __init__(self, kind: str) -> None:
        dice = Random(7)  # noqa: S311 - no secret
        self._texts = [prose(dice, 400) for _ in range(500)] if kind == "messages" else []
        self._turns = some_turns(100) if kind == "turns" else []

    def add(self, session: Session, number: int) -> None:
        """What is between the flushes `number - 1` and `number`."""
        if self._turns:
            add_turn(session, number + 1, self._turns[number % len(self._turns)])
            return
        for i in range(number * AT_ONCE, (number + 1) * AT_ONCE):
            said = (Text(self._texts[i % len(self._texts)]),)
            message = Message(f"m{i}", "user", said, Source("user"))
            session.append("user/message", message, surface_op="append")


async def append(work: Work) -> dict[str, Any]:
    """Append to sessions, and flush them together, again and again."""
    writing = Writing(work.kind)
    store, backend = store_of(work)
    async with store, AsyncExitStack() as stack:
        names = [f"{work.name}-{i}" for i in range(work.sessions)]
        sessions = [await stack.enter_async_context(store.session(name)) for name in names]
        await begin()
        start = time.process_time()
        for number in range(work.flushes):
            for session in sessions:
                writing.add(session, number)
            for session in sessions:  # the first one takes the others along
                await session.flush()
        return {
            "events": sum(session.durable_seq for session in sessions),
            "commits": backend.commits,
            "cpu": time.process_time() - start,
        }


async def bare(work: Work) -> dict[str, Any]:
    """Insert the same events, a row each, with one multi-row INSERT a transaction."""
    writing = Writing(work.kind)
    sessions = [Session.create(f"{work.name}-{i}") for i in range(work.sessions)]
    batches: list[list[tuple[Any, ...]]] = []
    for number in range(work.flushes):
        batches.append([])
        for session in sessions:
            first = session.next_seq
            writing.add(session, number)
            batches[-1] += rows_of(session, first)
    insert = bare_mysql if work.url.startswith("mysql:") else bare_postgres
    used = await insert(work.url, batches)
    return {"events": sum(map(len, batches)), "commits": len(batches), "cpu": used}


def rows_of(session: Session, first: int) -> list[tuple[Any, ...]]:
    """The rows of a session's events from a seq on."""
    key = sha256(session.id.encode()).digest()[:16]
    found: list[tuple[Any, ...]] = []
    for seq in range(first, session.next_seq):
        event = session.event_at(seq)
        shown = None if event.surface_op is None else "append"
        cited = None
        if event.source_event_seqs:
            cited = f"{event.source_event_seqs[0]}-{event.source_event_seqs[-1]}"
        found.append((key, seq, event.type, event.time, event.raw, shown, cited))
    return found


async def bare_postgres(url: str, batches: Sequence[Sequence[tuple[Any, ...]]]) -> float:
    """The loop on PostgreSQL; seconds of CPU."""
    db = await connect(url)
    texts: dict[int, str] = {}
    for count in {len(rows) for rows in batches}:
        numbers = iter(range(1, count * len(COLUMNS) + 1))
        each = (f"({', '.join(f'${next(numbers)}' for _ in COLUMNS)})" for _ in range(count))
        texts[count] = f"INSERT INTO bare ({', '.join(COLUMNS)}) VALUES {', '.join(each)}"  # noqa: S608
    await begin()
    start = time.process_time()
    for rows in batches:
        async with db.transaction():
            await db.execute(texts[len(rows)], *(value for row in rows for value in row))
    used = time.process_time() - start
    await db.close()
    return used


async def bare_mysql(url: str, batches: Sequence[Sequence[tuple[Any, ...]]]) -> float:
    """The loop on MariaDB; seconds of CPU."""
    db: Any = Connection(**options_of(url, url), charset="utf8mb4")
    await db.connect()
    marks = ", ".join("%s" for _ in COLUMNS)
    text = f"INSERT INTO bare ({', '.join(COLUMNS)}) VALUES ({marks})"  # noqa: S608
    await begin()
    start = time.process_time()
    async with db.cursor() as cursor:
        for rows in batches:
            await cursor.executemany(text, rows)  # which makes one INSERT of them
            await db.commit()
    used = time.process_time() - start
    await db.ensure_closed()
    return used


# -- agents ------------------------------------------------------------------------------------


@tool
def read_file(path: str) -> str:
    """Read a file."""
    return f"{path}: {prose(Random(path), 400)}"  # noqa: S311 - no secret


def paced(work: Work, turns: Sequence[Turn]) -> ScriptedModel:
    """A model that says half of an answer, calls a tool, says the other half; token by token."""
    script: list[list[Step]] = []
    for number, turn in enumerate(turns):
        half = len(turn.deltas) // 2
        call = Call("read_file", {"path": f"src/file_{number}.py"})
        for some, last in ((turn.deltas[:half], [call]), (turn.deltas[half:], [])):
            wait = Wait(partial(anyio.sleep, work.pause))
            script.append([*(step for delta in some for step in (wait, delta)), *last])
    return ScriptedModel(script, context_window=1_000_000)


async def agents(work: Work) -> dict[str, Any]:
    """Run turns of real agents in many sessions side by side."""
    store, backend = store_of(work)
    events = 0

    async def run(number: int) -> None:
        nonlocal events
        turns = some_turns(work.turns, seed=number)
        runner = ReactLoopAgent(paced(work, turns), tools=[read_file])
        async with store.session(f"{work.name}-{number}") as session:
            for turn in turns:
                await runner.run(session, turn.prompt)
            await session.flush()
            events += session.durable_seq

    async with store:
        await begin()
        start = time.process_time()
        async with anyio.create_task_group() as tasks:
            for number in range(work.sessions):
                tasks.start_soon(run, number)
        used = time.process_time() - start
    turns = work.sessions * work.turns
    return {"events": events, "commits": backend.commits, "cpu": used, "turns": turns}


async def hold(work: Work) -> dict[str, Any]:
    """Own a session and write to it until someone kills this process."""
    store, _ = store_of(work)
    async with store, store.session(work.name) as session:
        session.add_user("mine")
        await session.flush()
        await begin()
        while True:
            session.add_user("still mine")
            await session.flush()
            await anyio.sleep(0.05)


WHAT = {"append": append, "bare": bare, "agents": agents, "hold": hold}


async def main() -> None:
    """Do it."""
    work = Work(**json.loads(sys.argv[1]))
    print(json.dumps(await WHAT[work.what](work)), flush=True)


if __name__ == "__main__":
    anyio.run(main)
