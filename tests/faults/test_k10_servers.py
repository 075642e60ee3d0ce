"""Two writers of one session on a database server: one at a time, whatever machine it is on."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from tests.crash.children import Children
from tests.faults.scenes import agent, assert_lawful, texts
from tests.store_urls import SERVERS, url_of
from turnlog import ReactLoopAgent, open_store
from turnlog.errors import SessionInUse
from turnlog.stores.port import Batch
from turnlog.stores.store import Store
from turnlog.testing.conformance.samples import FIRST, NOON, header, prompt

CHILD = Path(__file__).with_name("owner_child.py")
pytestmark = pytest.mark.skipif(os.name != "posix", reason="needs SIGSTOP")


@pytest.fixture(params=SERVERS)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """An empty store on a server."""
    return url_of(request.param, tmp_path)


class Owner:
    """A process that owns, or wants, session "s"."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self.pid = process.pid

    def ask(self, line: str) -> None:
        """Tell it to do something."""
        assert self._process.stdin is not None
        print(line, file=self._process.stdin, flush=True)

    def hear(self) -> str:
        """What it answers."""
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()

    def does(self, line: str) -> str:
        """Tell it, and hear what it answers."""
        self.ask(line)
        return self.hear()

    def leave(self) -> None:
        """Let it give the session back, and end."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        assert self._process.wait(60) == 0


@contextmanager
def owners(url: str, count: int) -> Generator[list[Owner]]:
    """So many processes, connected; killed at the end, if they are still there."""
    with ExitStack() as stack:
        made: list[Owner] = []
        for _ in range(count):
            process = subprocess.Popen(
                [sys.executable, str(CHILD), url],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            stack.enter_context(process)
            stack.callback(process.kill)
            made.append(Owner(process))
        for owner in made:
            assert owner.hear() == "ready"
        yield made


async def test_two_processes_write_one_after_the_other(url: str) -> None:
    """R097: the second is refused while the first lives, then both have their 500 appends."""
    with owners(url, 2) as (first, second):
        assert first.does("own") == "owner"
        assert f"process {first.pid} " in second.does("own")
        assert first.does("append 500 one") == "ack 500"
        assert f"process {first.pid} " in second.does("own")
        first.leave()
        assert second.does("own") == "owner"
        assert second.does("append 500 two") == "ack 1000"
        second.leave()
    async with open_store(url) as store:
        found = await store.read("s", load="all")
        assert texts(found) == [f"{name} {i}" for name in ("one", "two") for i in range(500)]
        assert [event.seq for event in found.events] == list(range(1000))
        assert_lawful(found)


async def test_a_stopped_owner_that_wakes_is_refused(url: str) -> None:
    """R098: an owner that sleeps is robbed; what it appends then is refused, naming the thief."""
    with owners(url, 1) as (sleeper,), ExitStack() as stack:
        assert sleeper.does("own") == "owner"
        assert sleeper.does("append 2 mine") == "ack 2"
        os.kill(sleeper.pid, signal.SIGSTOP)
        stack.callback(os.kill, sleeper.pid, signal.SIGCONT)
        async with open_store(url) as store:
            with pytest.raises(SessionInUse, match=f"process {sleeper.pid} "):
                async with store.session("s"):
                    pass
            async with store.session("s", steal=True) as session:
                session.add_user("thief 0")
                await session.flush()
                stack.close()
                told = sleeper.does("append 1 late")
                session.add_user("thief 1")
        assert told.startswith("stale: ")
        assert f"process {os.getpid()} " in told
    async with open_store(url) as store:
        found = await store.read("s", load="all")
        assert texts(found) == ["mine 0", "mine 1", "thief 0", "thief 1"]
        assert_lawful(found)


async def test_a_scheduler_and_a_person_do_not_branch_a_session(url: str) -> None:
    """R099: who runs an agent on a session of another process's is refused before the model is."""
    with owners(url, 1) as (scheduler,):
        assert scheduler.does("own") == "owner"
        assert scheduler.does("append 1 nightly") == "ack 1"
        runner = agent(["fine"])
        async with open_store(url) as store:
            with pytest.raises(SessionInUse, match=f"process {scheduler.pid} "):
                await ask(runner, store)
            scheduler.leave()
            await ask(runner, store)
            assert texts(await store.read("s")) == ["nightly 0", "By hand.", "fine"]


async def ask(runner: ReactLoopAgent, store: Store) -> None:
    """Run a turn on the session by hand."""
    async with store.session("s") as session:
        await runner.run(session, "By hand.")


async def test_equal_and_falling_times_make_nothing_stale(url: str) -> None:
    """R101, R102: seqs are versions; handles that write within a millisecond are not in the way."""
    async with open_store(url) as one, open_store(url) as two:
        await one.backend.create(header("a"))
        for seq in range(10):
            backend = (one, two)[seq % 2].backend
            claim = await backend.claim("a", FIRST)
            time = NOON - (seq == 7)
            batches = [Batch(claim, [prompt(seq, f"n{seq}", time=time)])]
            assert await backend.commit(batches) == [None]
            await backend.release(claim)
        assert texts(await one.read("a")) == [f"n{seq}" for seq in range(10)]


def test_eight_processes_open_a_new_database_at_once(url: str) -> None:
    """R103: all of them make the tables and the same session, and each has its append there."""
    with Children() as children:
        for i in range(8):
            children.ask(f"share {i} {url}")
        said = children.gone()
    assert {line for line in said if line.startswith("ack")} == {f"ack {i}" for i in range(8)}
    assert {line for line in said if line.startswith("sh")} == {f"shared {i}" for i in range(8)}
    assert sum(line.startswith("second") for line in said) == 7
