"""A fleet of workers on one store, some of which are killed at random, until all turns are done.

`run` keeps the fleet going, `judge` says what is wrong with what it leaves. The store may be any;
its server may be restarted meanwhile.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from statistics import median
from typing import Any

import anyio
import anyio.abc
import anyio.to_thread
import msgspec
from anyio.streams.buffered import BufferedByteReceiveStream

from tests.crash.worker_agent import EFFECTS
from turnlog import open_store, proof
from turnlog.commands import Prompt
from turnlog.errors import TurnlogError
from turnlog.events import AnyEvent, AssistantMessage, InboxAccepted, TurnEnd
from turnlog.invariants import verify
from turnlog.session import Session
from turnlog.stores.store import Store

ROOT = Path(__file__).resolve().parents[2]
LOOK = 0.5  # seconds between looks at what is still to do
LONGEST_LINE = 1 << 20


class Plan(msgspec.Struct, frozen=True):
    """What to do.

    Attributes:
        url: the store's; sessions are named `fleet-SEED-N`, and must be new.
        workers: how many processes.
        sessions, prompts: how many, and prompts of each session.
        kills: how many workers are killed with SIGKILL; each is replaced.
        restart: restarts the store's server, and returns when that is done, or raises.
        restarts: how often it is called, at random moments.
        concurrency: of each worker.
        patience: seconds without a turn after which it is given up.
        seed: of the dice.
    """

    url: str
    workers: int = 8
    sessions: int = 500
    prompts: int = 3
    kills: int = 50
    restart: Callable[[], object] | None = None
    restarts: int = 0
    concurrency: int = 4
    patience: float = 120.0
    seed: int = 0

    @property
    def names(self) -> list[str]:
        """The sessions."""
        return [f"fleet-{self.seed}-{i}" for i in range(self.sessions)]

    def texts(self, name: str) -> list[str]:
        """A session's prompts."""
        return [f"{name}: task {i}" for i in range(self.prompts)]


class Outcome(msgspec.Struct):
    """What happened, and what is wrong.

    Attributes:
        turns: that workers told of; `gone_on` of them went on with one that was cut off.
        cut_off: turns that a kill or a fault of the store interrupted, as the logs say.
        takeover_ms: from the last event of such a turn to the one that goes on with it.
        troubles: what workers could not do at once, by kind of error.
        bodies: tool bodies that were run.
        faults: whatever must not be.
    """

    turns: int = 0
    gone_on: int = 0
    kills: int = 0
    restarts: int = 0
    seconds: float = 0.0
    events: int = 0
    cut_off: int = 0
    takeover_ms: list[int] = []
    troubles: dict[str, int] = {}
    bodies: int = 0
    faults: list[str] = []

    def to_dict(self) -> dict[str, Any]:
        """As JSON, with rates."""
        value = msgspec.to_builtins(self)
        took = sorted(self.takeover_ms)
        value["takeover_ms"] = {"median": median(took), "most": took[-1]} if took else None
        for what in ("turns", "events"):
            value[f"{what}_per_second"] = round(value[what] / self.seconds, 1)
        value["seconds"] = round(self.seconds, 1)
        return value


class Fleet:
    """The processes, and what they say."""

    def __init__(self, plan: Plan, folder: Path, tasks: anyio.abc.TaskGroup) -> None:
        self._plan = plan
        self._folder = folder
        self._tasks = tasks
        self._alive: list[anyio.abc.Process] = []
        self._hired = 0
        self._leaving = False
        self.outcome = Outcome()
        self.said = anyio.Event()

    async def hire(self) -> None:
        """Start one more worker."""
        plan = self._plan
        words = ["worker", "--store", plan.url, "--json", "--concurrency", str(plan.concurrency)]
        words += ["--agent", "tests.crash.worker_agent:make", "--attempts", "1000000"]
        self._hired += 1
        with (self._folder / f"worker-{self._hired}.err").open("wb") as errors:
            process = await anyio.open_process(
                [sys.executable, "-m", "turnlog", *words],
                cwd=ROOT,
                env={**os.environ, EFFECTS: str(self._folder / "effects")},
                stdin=subprocess.DEVNULL,
                stderr=errors,
            )
        self._alive.append(process)
        self._tasks.start_soon(self._listen, process, self._hired)

    async def kill(self, dice: Random) -> None:
        """Kill one, and start another in its place."""
        victim = self._alive.pop(dice.randrange(len(self._alive)))
        victim.send_signal(signal.SIGKILL)
        self.outcome.kills += 1
        await self.hire()

    async def dismiss(self) -> None:
        """Let all end."""
        self._leaving = True
        for process in self._alive:
            process.send_signal(signal.SIGTERM)

    async def _listen(self, process: anyio.abc.Process, number: int) -> None:
        assert process.stdout is not None
        lines = BufferedByteReceiveStream(process.stdout)
        heard = False
        async with process:
            try:
                while True:
                    self._heard(json.loads(await lines.receive_until(b"\n", LONGEST_LINE)))
                    heard = True
            except (anyio.EndOfStream, anyio.IncompleteRead):
                status = await process.wait()
        # One that is told to leave while it is still starting has not begun to listen for that.
        left = self._leaving and (status == 0 or (status == -signal.SIGTERM and not heard))
        if status != -signal.SIGKILL and not left:
            said = (self._folder / f"worker-{number}.err").read_text(errors="replace")[-500:]
            self.outcome.faults.append(f"worker {number} ended by itself with {status}: {said}")
            self._alive = [one for one in self._alive if one is not process]
        self.said.set()

    def _heard(self, line: dict[str, Any]) -> None:
        if "turn" in line:
            self.outcome.turns += 1
            self.outcome.gone_on += line["goesOn"]
        else:
            troubles = self.outcome.troubles
            troubles[line["kind"]] = troubles.get(line["kind"], 0) + 1
        self.said.set()


async def run(plan: Plan, folder: Path) -> Outcome:
    """Post the prompts, keep the fleet going until all turns are done, and judge what it left.

    Args:
        plan: what to do.
        folder: an empty folder for what the workers and their tools write.
    """
    dice = Random(plan.seed)  # noqa: S311 - a test's dice
    async with _fleet(plan, folder) as fleet, open_store(plan.url) as store:
        started = anyio.current_time()
        await post(store, plan)
        for _ in range(plan.workers):
            await fleet.hire()
        await _oversee(plan, store, fleet, dice)
        await fleet.dismiss()
    outcome = fleet.outcome
    outcome.seconds = anyio.current_time() - started
    async with open_store(plan.url) as store:
        await judge(store, plan, folder / "effects", outcome)
    return outcome


@asynccontextmanager
async def _fleet(plan: Plan, folder: Path) -> AsyncGenerator[Fleet]:
    async with anyio.create_task_group() as tasks:
        yield Fleet(plan, folder, tasks)


async def post(store: Store, plan: Plan) -> None:
    """Leave all prompts in their inboxes, those of each session in their order."""
    for i in range(plan.prompts):
        for name in plan.names:
            command = Prompt(plan.texts(name)[i], id=f"{name}-{i}")
            await store.inbox(name).post(command, create=True)


async def _oversee(plan: Plan, store: Store, fleet: Fleet, dice: Random) -> None:
    """Kill and restart at random moments, in turns done, until nothing waits."""
    outcome = fleet.outcome
    early = plan.sessions * plan.prompts * 3 // 4  # so that there is much to do after the last
    kills = sorted(dice.randrange(early) for _ in range(plan.kills))
    restarts = sorted(dice.randrange(early) for _ in range(plan.restarts))
    seen, at, look_at = -1, 0.0, 0.0
    while True:
        fleet.said = anyio.Event()
        while outcome.kills < len(kills) and outcome.turns >= kills[outcome.kills]:
            await fleet.kill(dice)
        if outcome.restarts < len(restarts) and outcome.turns >= restarts[outcome.restarts]:
            outcome.restarts += 1
            await _restart(plan, outcome)
        now = anyio.current_time()
        if outcome.turns != seen:
            seen, at = outcome.turns, now
        if outcome.faults or now > at + plan.patience:
            outcome.faults.append(f"given up after {outcome.turns} turns")
            return
        if now >= look_at:
            if not await _waits(plan, store, outcome):
                return
            look_at = anyio.current_time() + LOOK
        with anyio.move_on_after(LOOK):
            await fleet.said.wait()


async def _waits(plan: Plan, store: Store, outcome: Outcome) -> bool:
    """Whether anything is still to do, as far as the store can be asked."""
    try:
        return not set(plan.names).isdisjoint(await store.pending(only_prompts=False))
    except TurnlogError as error:  # the server is on its way down or up
        kind = type(error).__name__
        outcome.troubles[kind] = outcome.troubles.get(kind, 0) + 1
        return True


async def _restart(plan: Plan, outcome: Outcome) -> None:
    assert plan.restart is not None
    try:
        await anyio.to_thread.run_sync(plan.restart)
    except Exception as error:  # noqa: BLE001 - whatever a hook raises ends the run
        outcome.faults.append(f"the restart failed: {error!r}")


# -- what must hold ----------------------------------------------------------------------------


async def judge(store: Store, plan: Plan, effects: Path, outcome: Outcome) -> None:
    """Each prompt has one answer, no law is broken, no body ran twice or unlogged."""
    called: set[str] = set()
    for name in plan.names:
        session = await store.read(name, load="all")
        outcome.events += len(session)
        waiting = [queued.command for queued in await store.inbox(name).waiting()]
        faults = [*_faults(session, plan.texts(name)), *(f"still waits: {one}" for one in waiting)]
        outcome.faults += [f"{name}: {fault}" for fault in faults]
        called |= {json.loads(e.data.arguments)["token"] for e in session.events if is_call(e)}
        _note_takeovers(session, outcome)
    ran = _ran(effects)
    outcome.bodies = sum(ran.values())
    outcome.faults += [f"a body ran {n} times: {token}" for token, n in ran.items() if n > 1]
    outcome.faults += [f"a body ran unlogged: {token}" for token in sorted(set(ran) - called)]


def _ran(effects: Path) -> Counter[str]:
    """How often each body was run."""
    return Counter(effects.read_text().split() if effects.exists() else ())


def is_call(event: AnyEvent) -> bool:
    """Whether a body was dispatched."""
    return event.type == "tool/call"


def _faults(session: Session, prompts: list[str]) -> Iterator[str]:
    """What is wrong with one session."""
    if session.damage:
        yield f"damaged: {session.damage}"
    for finding in verify(session, prove=proof.finding):
        if finding.level == "fault":
            yield str(finding)
    said = [event.data.text for event in session.events if event.type == "user/message"]
    if said != prompts:
        yield f"prompts: expected {prompts}, the log has {said}"
    accepted = [e.data.command["text"] for e in session.events if isinstance(e.data, InboxAccepted)]
    if accepted != prompts:
        yield f"accepted: expected {prompts}, the log has {accepted}"
    answers, ends = _answers(session)
    if answers != [1] * len(prompts):
        yield f"answers of each prompt: expected one, there are {answers}"
    if any(end not in ("completed", "interrupted") for end in ends):
        yield f"turns ended otherwise than completed or interrupted: {ends}"


def _answers(session: Session) -> tuple[list[int], list[str]]:
    """How many whole answers each prompt has, and how the turns ended."""
    answers: list[int] = []
    ends: list[str] = []
    for event in session.events:
        data = event.data
        if event.type == "user/message":
            answers.append(0)
        elif isinstance(data, AssistantMessage):
            whole = not data.interrupted and not data.message.tool_calls
            answers[-1] += whole
        elif isinstance(data, TurnEnd):
            ends.append(data.reason.kind)
    return answers, ends


def _note_takeovers(session: Session, outcome: Outcome) -> None:
    """How long turns that were cut off waited for the one that goes on with them."""
    ended: int | None = None
    for event in session.events:
        if isinstance(event.data, TurnEnd):
            cut_off = event.data.reason.kind == "interrupted"
            outcome.cut_off += cut_off
            ended = event.time if cut_off else None  # repair's time is that of the last event
        elif event.type == "turn/start" and ended is not None:
            outcome.takeover_ms.append(event.time - ended)
