"""A process that runs real turns until it is killed: `agent_child.py STORE EFFECTS SEED`.

It drives the loop on session "s" with tools, parallel calls and retries, turn after turn. Whenever
more has become durable it prints `ack N HASH`: every event before seq N is on disk, and HASH is
that of their types and payloads (`Digest`). Each body appends its token to the file EFFECTS.

Used by `test_loop_kills` and by the benchmark of crashes; `make_agent` makes the agent anywhere.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
import uuid
from collections.abc import Iterable
from pathlib import Path
from random import Random
from typing import Any

import anyio
import anyio.lowlevel

from turnlog import ReactLoopAgent, Tool, open_store
from turnlog.events import AnyEvent
from turnlog.models.scripted import Call, Fail, ScriptedModel, Think, Used
from turnlog.stores.live import StoredSession

SESSION = "s"
TOOLS = ("note", "think", "write")


class Writer:
    """A model that answers at random: words, or calls of several tools; now and then it fails."""

    def __init__(self, seed: int) -> None:
        self._random = Random(seed)  # noqa: S311 - a test's dice
        self._failing = False

    def __call__(self, body: bytes) -> Any:
        """The answer to a request."""
        dice = self._random
        self._failing = not self._failing and dice.random() < 0.2
        if self._failing:
            return ["half ", Fail("server")]
        last = json.loads(body)["messages"][-1]["role"]
        words = ["so ", Think("hm"), *("word " for _ in range(dice.randrange(6)))]
        if last == "tool" and dice.random() < 0.6:
            return [*words, "done.", Used(input_tokens=3, output_tokens=2)]
        calls = [
            Call(dice.choice(TOOLS), {"token": uuid.uuid4().hex}, id=uuid.uuid4().hex)
            for _ in range(dice.randint(1, 4))
        ]
        return [*words, *calls]


def make_agent(effects: Path, seed: int, *, max_steps: int = 6) -> ReactLoopAgent:
    """The agent: bodies as coroutines and in threads, side by side and alone."""

    def done(token: str) -> str:
        descriptor = os.open(effects, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            os.write(descriptor, f"{token}\n".encode())
        finally:
            os.close(descriptor)
        return f"{token} is done"

    async def note(token: str) -> str:
        """Note something down."""
        said = done(token)
        for _ in range(20):
            await anyio.lowlevel.checkpoint()
        return said

    def think(token: str) -> str:
        """Think in a thread."""
        return done(token)

    def write(token: str) -> str:
        """Write, beside nothing else."""
        return done(token)

    tools = [Tool(note), Tool(think), Tool(write, exclusive=True)]
    model = ScriptedModel([Writer(seed)], repeat=True)
    return ReactLoopAgent(model, tools=tools, delay=at_once, max_steps=max_steps, system="Work.")


def at_once(retry: int, failure: object) -> float:
    """Retry without waiting."""
    del retry, failure
    return 0.0


class Digest:
    """The running hash of a log."""

    def __init__(self) -> None:
        self._hash = hashlib.sha256()
        self.seq = 0

    def add(self, events: Iterable[AnyEvent]) -> str:
        """The hash after some more events, in order."""
        for event in events:
            self._hash.update(f"{event.seq} {event.type} ".encode() + event.raw)
            self.seq = event.seq + 1
        return self._hash.hexdigest()[:16]


class Acknowledger:
    """Says what has become durable.

    Args:
        session: whose.
        before: its events that it does not hold.
        tag: what each line begins with.
    """

    def __init__(self, session: StoredSession, before: Iterable[AnyEvent], tag: str = "") -> None:
        self._session = session
        self._tag = tag
        self._digest = Digest()
        self._digest.add(before)
        self.say()

    def say(self) -> None:
        """One line, at once and whole, if there is more than last time."""
        durable = self._session.durable_seq
        if durable > self._digest.seq:
            first = self._session.first_held
            new = self._session.held[self._digest.seq - first : durable - first]
            found = self._digest.add(new)
            os.write(1, f"{self._tag}ack {durable} {found}\n".encode())


async def main(store_url: str, effects: Path, seed: int) -> None:
    """Turn after turn, until somebody kills the process."""
    agent = make_agent(effects, seed)
    async with open_store(store_url) as store, store.session(SESSION) as session:
        acknowledger = Acknowledger(session, await session.read_events(0, session.first_held))
        while True:
            prompt = f"turn after {session.next_seq}"
            async with agent.stream(session, prompt) as turn:
                async for _ in turn:
                    acknowledger.say()
            acknowledger.say()


if __name__ == "__main__":
    anyio.run(main, sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]))
