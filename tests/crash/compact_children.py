"""Forks a child for each line on stdin, which compacts a session and kills itself at a moment.

A line: `SCENE MOMENT URL`. The scenes: `hand` compacts session "s" between its turns, `turn` runs
the prompts that wait for it, and compaction is due. The moments: `at:NAME` is the append of such an
event, `after:NAME` the commit that holds it and nothing later, `stream` the middle of the summary's
stream, `commit:N` the Nth commit of one event each. Answers `killed`, or `done` when the moment
never came.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence
from typing import Any, cast

import anyio

from turnlog import BasicCompactionEngine, ReactLoopAgent
from turnlog.compaction.pruner import Pruner
from turnlog.events import AnyEvent, Replace
from turnlog.models.scripted import Call, ScriptedModel, Wait
from turnlog.stores import open_store, writer
from turnlog.stores.port import Batch

SESSION = "s"
WINDOW = 2000
GOOD = "## Goals\n- ship it\n\n## State\n- half done"
MOMENTS = ("compaction/start", "request/sent", "compaction/summary", "replacement")


def name(event: AnyEvent) -> str:
    """The event's type; what takes the place of a range has a name of its own."""
    is_replacement = event.type == "user/message" and isinstance(event.surface_op, Replace)
    return "replacement" if is_replacement else event.type


def die() -> None:
    """Be gone at once."""
    os.kill(os.getpid(), signal.SIGKILL)


def make_agent(*, dies: bool = False) -> ReactLoopAgent:
    """An agent that answers "yes" to all but requests for a summary; it has a tool to call."""

    def look(path: str) -> str:
        return f"{path}: {'what it says ' * 40}"

    async def gate() -> None:
        if dies:
            die()

    def answer(body: bytes) -> Any:
        if b"Summarize our conversation" in body:
            return ["## Goals", Wait(gate), GOOD]
        text = body.decode()
        return (
            "yes"
            if "look at it" not in text or "what it says" in text
            else ["I look", Call("look", {"path": "it"}, id="c-look")]
        )

    model = ScriptedModel([answer], repeat=True, context_window=WINDOW)
    pruner = Pruner(limit=300, head=100, tail=50, keep=0)
    return ReactLoopAgent(
        model, tools=[look], compaction=BasicCompactionEngine(model, pruner=pruner)
    )


async def play(scene: str, moment: str, url: str) -> None:
    """Compact the session, and die on the way."""
    how, _, what = moment.partition(":")
    runner = make_agent(dies=how == "stream")
    if how in ("after", "commit"):
        writer.MAX_BATCH = 1  # so that every event is the last durable one for a while
    async with open_store(url) as store, store.session(SESSION) as session:
        if how == "at":
            session.observe(lambda event: die() if name(event) == what else None)
        backend = cast("Any", store.backend)
        real, count = backend.commit, 0

        async def commit(batches: Sequence[Batch]) -> Any:
            nonlocal count
            found = await real(batches)
            count += 1
            if how == "after" and any(name(event) == what for event in batches[0].events):
                die()
            if how == "commit" and count == int(what):
                die()
            return found

        backend.commit = commit
        if scene == "hand":
            await runner.compact(session, instruction="keep the names")
        else:
            async with runner.stream(session) as turn:
                async for _ in turn:
                    pass


def main() -> None:
    """Serve the parent until it closes stdin."""
    for line in sys.stdin:
        scene, moment, url = line.split()
        child = os.fork()
        if child == 0:
            os.close(0)
            anyio.run(play, scene, moment, url)
            os._exit(0)
        _, status = os.waitpid(child, 0)
        if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL:
            said = "killed"
        else:
            said = "done" if status == 0 else f"failed {status}"
        os.write(1, f"{said}\n".encode())


if __name__ == "__main__":
    main()
