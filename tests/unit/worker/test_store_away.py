"""A worker whose store goes away while a turn runs: a backend that fails at the port."""

from __future__ import annotations

from collections.abc import AsyncGenerator

import anyio
import pytest

from tests.away import AwayStore
from tests.unit.agent.scenes import agent, assert_lawful, results
from turnlog import tool
from turnlog.commands import Prompt
from turnlog.errors import StaleWriter, StoreError, WriteFailed
from turnlog.models.scripted import Call
from turnlog.stores.memory import MemoryStorage, MemoryStore
from turnlog.stores.patience import Patience
from turnlog.stores.store import Store
from turnlog.worker import Ran, Report, Skipped, Worker

ANSWERS = ([Call("work", {}, id="c1")], ["It is done."])


class Away(AwayStore):
    """A store that is away whenever a test says so.

    Attributes:
        away: whether it is.
        comes_back: after how many failures; None: when the test says so.
    """

    away = False
    comes_back: int | None = None

    def fail(self, kind: type[StoreError]) -> StoreError | None:
        """The error that is due, if one is."""
        if self.away and self.comes_back is not None:
            self.comes_back -= 1
            self.away = self.comes_back >= 0
        return kind("no server there") if self.away else None


class Scene:
    """A prompt that waits, a tool that sees the store go away, and what the worker says."""

    def __init__(self, storage: MemoryStorage, store: Store, backend: Away) -> None:
        self.storage = storage
        self.store = store
        self.backend = backend
        self.ran = 0
        self.reports: list[Report] = []
        self.gone = anyio.Event()  # set when the worker says that the store is away

        @tool
        async def work() -> str:
            """Outlive the store."""
            self.ran += 1
            self.backend.away = self.ran == 1
            return "worked"

        self.tool = work

    def worker(self, patience: float = 600.0, grace: float = 30.0) -> Worker:
        """A worker that ends after a turn, and tells of everything."""

        def report(one: Report) -> None:
            self.reports.append(one)
            self.gone.set()
            if isinstance(one, Ran):
                running.drain()

        runner = agent(*ANSWERS, tools=[self.tool])
        running = Worker(self.store, runner, patience=patience, grace=grace, on_report=report)
        return running

    async def another(self) -> list[Report]:
        """What another worker does, once the store is back."""
        self.backend.away = False
        reports: list[Report] = []
        async with Store(MemoryStore(self.storage)) as store:
            runner = agent("It may be done.", tools=[self.tool])
            await Worker(store, runner, on_report=reports.append).run(once=True)
        return reports


@pytest.fixture
async def scene() -> AsyncGenerator[Scene]:
    """A session "s" with a prompt, on a store that may go away."""
    storage = MemoryStorage()
    backend = Away(storage)
    async with Store(backend) as store:
        await store.inbox("s").post(Prompt("Work, please."), create=True)
        yield Scene(storage, store, backend)


async def test_a_turn_waits_for_a_store_that_is_away(scene: Scene) -> None:
    """It goes on as if nothing had been: the result is kept, the tool runs once; it is said."""
    scene.backend.comes_back = 4
    await scene.worker().run()
    skipped, ran = scene.reports
    assert isinstance(skipped, Skipped)
    assert (skipped.session_id, str(skipped.error), skipped.again_in) == (
        "s",
        "no server there",
        0.25,
    )
    assert isinstance(ran, Ran)
    assert (ran.result.text, ran.goes_on) == ("It is done.", False)
    session = await scene.store.read("s")
    assert results(session) == [("c1", "worked", None)]
    assert [m.role for m in session.derive_messages()] == ["user", "assistant", "tool", "assistant"]
    assert scene.ran == 1
    assert await scene.store.pending(only_prompts=False) == []
    assert_lawful(session)


async def test_who_is_to_leave_waits_no_longer(scene: Scene) -> None:
    """The turn is cut off; another worker goes on with it, and the model reads what is known."""
    worker = scene.worker()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(worker.run)
        await scene.gone.wait()
        worker.stop()
    (_, failed) = scene.reports
    assert isinstance(failed, Skipped)
    assert isinstance(failed.error, WriteFailed)
    (ran,) = await scene.another()
    assert isinstance(ran, Ran)
    assert ran.goes_on
    session = await scene.store.read("s")
    ((_, _, code),) = results(session)
    assert code == "TOOL_OUTCOME_UNKNOWN"
    note = session.derive_messages()[-2]
    assert note.source.kind == "cut-off"
    assert "the process that ran it ended, or lost its store" in note.text
    assert scene.ran == 1


async def test_a_grace_that_is_over_ends_the_waiting(scene: Scene) -> None:
    """After `drain` a turn has that long, and no longer, for its store to come back."""
    worker = scene.worker(grace=0.0)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(worker.run)
        await scene.gone.wait()
        worker.drain()
    assert not any(isinstance(report, Ran) for report in scene.reports)
    assert [type(report) for report in await scene.another()] == [Ran]


async def test_a_worker_that_is_cancelled_waits_no_longer(scene: Scene) -> None:
    """Though its turn is closed in a shield."""
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(scene.worker().run)
        await scene.gone.wait()
        tasks.cancel_scope.cancel()
    assert [type(report) for report in await scene.another()] == [Ran]


async def test_a_store_that_stays_away_ends_the_turn(scene: Scene) -> None:
    """When the patience is over; the session is tried again later, as any that is broken."""
    worker = scene.worker(patience=0.1)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(worker.run)
        await scene.gone.wait()
        worker.stop()
    (failed,) = scene.reports
    assert isinstance(failed, Skipped)
    assert failed.again_in is not None
    assert failed.again_in >= 0.5
    assert [type(report) for report in await scene.another()] == [Ran]


async def test_once_it_does_not_wait(scene: Scene) -> None:
    """Nothing that failed is tried again."""
    tally = await scene.worker().run(once=True)
    (failed,) = scene.reports
    assert isinstance(failed, Skipped)
    assert (tally.stuck, failed.again_in) == (("s",), None)


async def test_a_session_that_was_taken_over_is_not_waited_for(scene: Scene) -> None:
    """That does not pass: it is told at once."""

    @tool
    async def work() -> str:
        """See another process take the session."""
        async with (
            Store(MemoryStore(scene.storage)) as other,
            other.session("s", steal=True) as session,
        ):
            session.add_user("Mine now.")
        return "worked"

    scene.tool = work
    async with anyio.create_task_group() as tasks:
        worker = scene.worker()
        tasks.start_soon(worker.run)
        await scene.gone.wait()
        worker.stop()
    (failed,) = scene.reports
    assert isinstance(failed, Skipped)
    assert isinstance(failed.error, StaleWriter)
    assert (await scene.store.read("s")).derive_messages()[-1].text == "Mine now."


async def test_a_flush_of_ones_own_may_wait_as_well(scene: Scene) -> None:
    """A session's patience is for whoever holds it, and each time away is told once."""
    told: list[tuple[str, float]] = []
    async with scene.store.session("s") as session:
        session.patience = Patience(60.0, lambda error, pause: told.append((str(error), pause)))
        for _ in range(2):
            session.add_user("Hello")
            scene.backend.away, scene.backend.comes_back = True, 2
            await session.flush()
            assert session.durable_seq == session.next_seq
        assert told == [("no server there", 0.25)] * 2
        session.patience.end()
        session.add_user("Bye")
        scene.backend.away, scene.backend.comes_back = True, 1
        with pytest.raises(WriteFailed):
            await session.flush()
    assert (await scene.store.read("s")).derive_messages()[-1].text == "Bye"
