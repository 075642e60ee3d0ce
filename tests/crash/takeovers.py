"""Rounds in which a session is taken over on a server, and what must hold after each.

In a round a process runs an agent on a session, until it is killed, or stopped, at a random moment.
Another waits until the lease is over, or steals the session; it repairs it, and runs a turn. A
process that was stopped wakes when the other has the session, and must learn of that. Several
sessions are at it side by side, so that each is the others' load.
"""

from __future__ import annotations

import math
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from typing import NamedTuple

import anyio
import anyio.abc
from anyio.streams.buffered import BufferedByteReceiveStream

from tests.crash.agent_child import Digest
from tests.crash.agent_kills import Lost, check_effects, check_next_request
from tests.unit.agent.scenes import assert_lawful
from turnlog import open_store
from turnlog.stores.store import Store

ROOT = Path(__file__).resolve().parents[2]
PATIENCE = 90.0  # seconds after which what must be said counts as never said
LONGEST_LINE = 1 << 16
ROUNDS_A_SESSION = 5
MOST_LINES = 25  # that an owner says before something happens to it
MOST_PAUSE = 0.02  # seconds from the last of them until it does


class Said(NamedTuple):
    """One line, as `takeover_child` describes them."""

    word: str
    rest: str


class Process:
    """A child, as the test hears it.

    Attributes:
        pid: its process id.
        acknowledged: each seq that it said to be durable, with the digest of what is before it.
    """

    def __init__(self) -> None:
        self.pid = 0
        self.acknowledged: list[tuple[int, str]] = []
        self._put, self._lines = anyio.create_memory_object_stream[Said](math.inf)

    def heard(self, line: Said) -> None:
        """It said something."""
        if line.word == "ack":
            seq, digest = line.rest.split()
            self.acknowledged.append((int(seq), digest))
        self._put.send_nowait(line)
        if line.word == "gone":
            self._put.close()

    async def hear(self, *words: str) -> Said:
        """The next line with one of these words.

        Raises:
            Lost: it says something else, besides `ack` and `busy`, or nothing.
        """
        with anyio.fail_after(PATIENCE):
            while True:
                line = await self._lines.receive()
                if line.word in words:
                    if line.word == "gone":
                        self._lines.close()
                    return line
                if line.word not in ("ack", "busy"):
                    msg = f"process {self.pid}: expected {words}, it said {line}"
                    raise Lost(msg)

    async def say_lines(self, count: int) -> None:
        """Let it say so many lines, or end its work."""
        for _ in range(count):
            if (await self.hear("ack", "done")).word == "done":
                msg = f"process {self.pid} was done after {count} lines"
                raise Lost(msg)


class Parent:
    """`takeover_child.py`, which forks."""

    def __init__(self, process: anyio.abc.Process) -> None:
        self._process = process
        self._children: dict[str, Process] = {}

    async def fork(self, what: str, url: str, name: str, effects: Path, seed: int) -> Process:
        """A new child."""
        assert self._process.stdin is not None
        tag = f"c{len(self._children)}"
        child = self._children[tag] = Process()
        line = f"{tag} {what} {url} {name} {effects} {seed}\n"
        await self._process.stdin.send(line.encode())
        child.pid = int((await child.hear("pid")).rest)
        return child

    async def listen(self) -> None:
        """Hear what children say, until there is nobody any more."""
        assert self._process.stdout is not None
        lines = BufferedByteReceiveStream(self._process.stdout)
        while True:
            try:
                line = (await lines.receive_until(b"\n", LONGEST_LINE)).decode()
            except (anyio.EndOfStream, anyio.IncompleteRead):
                return
            tag, word, rest = [*line.split(" ", 2), ""][:3]
            self._children[tag].heard(Said(word, rest))


@asynccontextmanager
async def forking() -> AsyncGenerator[Parent]:
    """A process that forks, for the time of a `with`."""
    async with await anyio.open_process(
        [sys.executable, "-m", "tests.crash.takeover_child"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=None,
        cwd=ROOT,
    ) as process:
        parent = Parent(process)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(parent.listen)
            try:
                yield parent
            finally:
                with anyio.CancelScope(shield=True):
                    assert process.stdin is not None
                    await process.stdin.aclose()
                    await process.wait()


class Place(NamedTuple):
    """Where rounds happen: a process that forks, the store's URL, a handle on it, a folder."""

    parent: Parent
    url: str
    store: Store
    folder: Path


class Taken:
    """A session that is taken over again and again.

    Attributes:
        happened: how often what happened.
    """

    def __init__(self, place: Place, name: str, dice: Random, happened: Counter[str]) -> None:
        self._place = place
        self._name = name
        self._dice = dice
        self._acknowledged: list[tuple[int, str]] = []
        self._effects = place.folder / f"{name}.effects"
        self.happened = happened

    async def _fork(self, what: str) -> Process:
        place, seed = self._place, self._dice.randrange(2**31)
        return await place.parent.fork(what, place.url, self._name, self._effects, seed)

    async def round(self) -> None:
        """One takeover, and what must hold after it.

        Raises:
            AssertionError: that does not hold.
        """
        dice = self._dice
        sent = dice.choice([signal.SIGKILL, signal.SIGSTOP])
        how = dice.choice(["wait", "steal"])
        owner = await self._fork("own")
        await owner.hear("owner")
        await owner.say_lines(dice.randint(1, MOST_LINES))
        await anyio.sleep(dice.random() * MOST_PAUSE)
        os.kill(owner.pid, sent)
        if sent == signal.SIGSTOP:
            await owner.hear("stopped")
        elif (await owner.hear("gone")).rest != str(-sent):
            msg = f"process {owner.pid} ended by itself"
            raise Lost(msg)
        heir = await self._fork(how)
        said = await heir.hear("busy", "owner")
        if said.word == "busy":
            self._names(said, owner)
            self.happened["waited"] += 1
            await heir.hear("owner")
        if sent == signal.SIGSTOP:
            await self._wake(owner, heir)
        await heir.hear("done")
        await self._ends_well(heir)
        self.happened[f"{sent.name} {how}"] += 1
        self._acknowledged += owner.acknowledged + heir.acknowledged
        await judge(self._place.store, self._name, self._effects, self._acknowledged)

    async def _wake(self, owner: Process, heir: Process) -> None:
        """The owner wakes, while the heir is at work, and learns that it is none any more."""
        if self._dice.random() < 0.5:
            await heir.hear("ack")
        os.kill(owner.pid, signal.SIGCONT)
        self._names(await owner.hear("stale"), heir)
        await self._ends_well(owner)

    def _names(self, said: Said, process: Process) -> None:
        """A refusal names the process that owns the session."""
        if f"process {process.pid} " not in said.rest:
            msg = f"expected the refusal to name process {process.pid}: {said.rest}"
            raise Lost(msg)

    async def _ends_well(self, process: Process) -> None:
        if (await process.hear("gone")).rest != "0":
            msg = f"process {process.pid} failed: see what it wrote to stderr"
            raise Lost(msg)


async def judge(
    store: Store, name: str, effects: Path, acknowledged: Sequence[tuple[int, str]]
) -> None:
    """What must hold of a session that was taken over, when nobody owns it.

    Raises:
        AssertionError: seqs are not dense, something acknowledged is not there unchanged, a law is
            broken, a body ran twice or without its call in the log.
    """
    session = await store.read(name, load="all")
    if [event.seq for event in session.events] != list(range(len(session))):
        msg = f"{name}: the seqs are not dense"
        raise Lost(msg)
    if session.damage:
        msg = f"{name}: damaged: {session.damage}"
        raise Lost(msg)
    digest = Digest()
    for seq, said in sorted(set(acknowledged)):
        if digest.add(session.events[digest.seq : seq]) != said or digest.seq != seq:
            msg = f"{name}: events before {seq} are not what was acknowledged"
            raise Lost(msg)
    assert_lawful(session)
    check_next_request(session)
    check_effects(session, effects)


async def run(url: str, folder: Path, *, rounds: int, lanes: int, seed: int) -> Counter[str]:
    """So many takeovers of so many sessions at a time; how often what happened.

    Raises:
        ExceptionGroup: an AssertionError of a round, or the end of patience with it.
    """
    happened: Counter[str] = Counter()

    async def lane(place: Place, number: int) -> None:
        dice = Random(seed + number)  # noqa: S311 - a test's dice
        for first in range(0, rounds // lanes, ROUNDS_A_SESSION):
            taken = Taken(place, f"lane-{number}-{first}", dice, happened)
            for _ in range(first, min(first + ROUNDS_A_SESSION, rounds // lanes)):
                await taken.round()

    async with (
        open_store(url) as store,
        forking() as parent,
        anyio.create_task_group() as tasks,
    ):
        for number in range(lanes):
            tasks.start_soon(lane, Place(parent, url, store, folder), number)
    return happened
