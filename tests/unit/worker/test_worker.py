"""A worker on a store in memory, with scripted models."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import anyio
import pytest

from tests.unit.agent.scenes import agent, assert_lawful, end, results
from turnlog import ReactLoopAgent, Session, Tool
from turnlog.commands import Approve, Cancel, Command, Compact, Deny, Prompt, Steer
from turnlog.content import ToolCall
from turnlog.errors import StoreError, TurnlogError
from turnlog.models.scripted import Call, Hang, ScriptedModel
from turnlog.stores.live import StoredSession
from turnlog.stores.memory import MemoryStorage, MemoryStore
from turnlog.stores.port import Claim, Owner
from turnlog.stores.store import Store
from turnlog.worker import AgentFor, Ran, Report, Skipped, Tally, Worker

CUT = {"kind": "aborted", "reason": {"kind": "shutdown"}}


@pytest.fixture
async def storage() -> MemoryStorage:
    """What several stores share, as processes share a file."""
    return MemoryStorage()


@pytest.fixture
async def store(storage: MemoryStorage) -> AsyncGenerator[Store]:
    """The test's own handle."""
    async with Store(MemoryStore(storage)) as opened:
        yield opened


async def post(store: Store, name: str, *commands: Command) -> None:
    """Leave commands in an inbox."""
    for command in commands:
        await store.inbox(name).post(command, create=True)


def echo(body: bytes) -> str:
    """An answer that has how many messages it answers."""
    return f"after {len(json.loads(body)['messages'])}"


def echoing(**options: Any) -> ReactLoopAgent:
    """An agent that always has an answer."""
    return ReactLoopAgent(ScriptedModel([echo], repeat=True), **options)


async def work(
    store: Store, runner: ReactLoopAgent | AgentFor, **options: Any
) -> tuple[Tally, list[Report]]:
    """Work until nothing waits; what was done."""
    reports: list[Report] = []
    worker = Worker(store, runner, on_report=reports.append, jitter=lambda: 1.0, **options)
    return await worker.run(once=True), reports


def ran(reports: Sequence[Report]) -> list[tuple[str, str]]:
    """Which sessions had a turn, and how it ended."""
    return [(r.session_id, r.result.end_reason.kind) for r in reports if isinstance(r, Ran)]


def said(session: Session) -> list[str]:
    """What a person reads."""
    return [message.text for message in session.extract_chat_messages()]


# -- what it runs ------------------------------------------------------------------------------


async def test_each_prompt_has_a_turn_in_order_of_posting(store: Store) -> None:
    """And nothing waits any more."""
    await post(store, "a", Prompt("one"), Prompt("two"))
    await post(store, "b", Prompt("three"))
    tally, reports = await work(store, echoing())
    assert tally == Tally(turns=3)
    assert sorted(ran(reports)) == [("a", "completed"), ("a", "completed"), ("b", "completed")]
    session = await store.read("a")
    assert said(session) == ["one", "after 1", "two", "after 3"]
    assert_lawful(session)
    assert await store.pending(only_prompts=False) == []


async def test_a_session_with_many_prompts_does_not_starve_others(store: Store) -> None:
    """After a turn it goes to the end."""
    await post(store, "many", *(Prompt(f"{i}") for i in range(4)))
    await post(store, "b", Prompt("x"))
    await post(store, "c", Prompt("x"))
    _, reports = await work(store, echoing(), concurrency=1)
    assert [name for name, _ in ran(reports)] == ["many", "b", "c", "many", "many", "many"]


@pytest.mark.parametrize("most", [1, 3])
async def test_no_more_sessions_run_at_once_than_it_may(store: Store, most: int) -> None:
    """However many wait."""
    running: list[int] = []
    now = 0

    async def busy() -> str:
        nonlocal now
        now += 1
        running.append(now)
        for _ in range(5):
            await anyio.lowlevel.checkpoint()
        now -= 1
        return "done"

    def make(session: StoredSession) -> ReactLoopAgent:
        return agent([Call("busy", id=f"call-{session.id}")], "ok", tools=[busy])

    for i in range(7):
        await post(store, f"s{i}", Prompt("go"))
    tally, _ = await work(store, make, concurrency=most)
    assert tally.turns == 7
    assert max(running) == most


async def test_an_agent_may_be_made_for_each_session(store: Store) -> None:
    """By a function of the session, which may be asynchronous."""

    async def make(session: StoredSession) -> ReactLoopAgent:
        await anyio.lowlevel.checkpoint()
        return agent(f"I am {session.id}")

    await post(store, "a", Prompt("who?"))
    await post(store, "b", Prompt("who?"))
    await work(store, make)
    assert said(await store.read("a"))[-1] == "I am a"
    assert said(await store.read("b"))[-1] == "I am b"


async def test_a_failed_turn_is_counted_and_answered(store: Store) -> None:
    """It is not tried again: its error is in the log."""
    await post(store, "a", Prompt("one"), Prompt("two"))
    tally, reports = await work(store, lambda _: agent(retries=0))
    assert tally == Tally(turns=2, failed=2)
    assert ran(reports) == [("a", "error"), ("a", "error")]


# -- what suspended and idle sessions wait for -------------------------------------------------


def wipe() -> str:
    """Wipe."""
    return "wiped"


WIPE = Tool(wipe, approve="ask")


async def suspend(store: Store, *calls: str) -> None:
    """A session with a turn that waits for approvals."""
    await post(store, "s", Prompt("wipe it"))
    _, reports = await work(
        store, agent([Call("wipe", id=call_id) for call_id in calls or ("c1",)], tools=[WIPE])
    )
    assert ran(reports) == [("s", "suspended")]
    assert await store.pending(only_prompts=False) == []


@pytest.mark.parametrize(
    ("decision", "said"), [(Approve("c1"), "wiped"), (Deny("c1", "not now"), "not now")]
)
async def test_a_decision_wakes_a_suspended_turn(
    store: Store, decision: Command, said: str
) -> None:
    """Which goes on, and ends."""
    await suspend(store)
    await post(store, "s", decision)
    tally, reports = await work(store, agent("done", tools=[WIPE]))
    assert (tally.turns, ran(reports)) == (1, [("s", "completed")])
    session = await store.read("s")
    ((_, result, _),) = results(session)
    assert said in result
    assert_lawful(session)


async def test_a_cancel_wakes_a_suspended_turn(store: Store) -> None:
    """Which ends with it."""
    await suspend(store)
    await post(store, "s", Cancel(turn=1))
    await work(store, agent(tools=[WIPE]))
    assert end(await store.read("s")).reason == {"kind": "user"}
    assert await store.pending(only_prompts=False) == []


async def test_a_decision_that_is_not_enough_is_left_alone(store: Store) -> None:
    """A denial behind a call that nobody decided stays in the inbox, and is no hot loop."""
    await suspend(store, "c1", "c2")
    await post(store, "s", Deny("c2"))
    tally, reports = await work(store, agent(tools=[WIPE]))
    assert (tally, reports) == (Tally(stuck=("s",)), [])
    await post(store, "s", Approve("c1"))
    tally, _ = await work(store, agent("done", tools=[WIPE]))
    assert tally == Tally(turns=1)


async def test_an_approved_call_is_not_run_without_its_tool(store: Store) -> None:
    """A worker that does not know the tool leaves the turn to one that does."""
    await suspend(store)
    await post(store, "s", Approve("c1"))
    tally, (skipped,) = await work(store, agent("done"))
    assert tally.stuck == ("s",)
    assert isinstance(skipped, Skipped)
    assert "wipe" in str(skipped.error)
    tally, _ = await work(store, agent("done", tools=[WIPE]))
    assert tally == Tally(turns=1)


async def test_what_means_nothing_does_not_wait_for_ever(store: Store) -> None:
    """Decisions and cancels for a turn that is over, and a compaction of next to nothing."""
    await post(store, "s", Prompt("one"))
    await work(store, echoing())
    await post(store, "s", Approve("c9"), Cancel(turn=1), Compact())
    tally, _ = await work(store, echoing())
    assert tally == Tally()
    assert await store.inbox("s").waiting() == []


async def test_steering_wakes_nobody(store: Store) -> None:
    """It waits for the next turn, and is said there."""
    await post(store, "s", Steer("briefly"))
    assert await work(store, echoing()) == (Tally(), [])
    await post(store, "s", Prompt("tell"))
    await work(store, echoing())
    assert said(await store.read("s"))[:2] == ["tell", "briefly"]


# -- processes that die, and others that live --------------------------------------------------


def begin(session: Session, *, call: str | None = None) -> None:
    """Log a turn for the prompt "p1" as far as a crash leaves it, maybe with a call that runs."""
    session.append("turn/start", {"turn": 1})
    session.append("step/start", {"turn": 1, "step": 1})
    prompt = {"type": "prompt", "text": "one", "id": "p1"}
    session.append("inbox/accepted", {"command": prompt})
    session.add_user("one")
    if call is not None:
        session.add_assistant(["I will.", ToolCall(call, "wipe", "{}")])
        session.append(
            "tool/call",
            {"callId": call, "name": "wipe", "arguments": "{}", "turn": 1, "step": 1},
        )


async def crash(store: Store, act: Callable[[Session], object]) -> None:
    """What a process leaves that dies in its first turn: its prompt is in the inbox still."""
    await post(store, "s", Prompt("one", id="p1"))
    async with store.session("s") as session:
        act(session)


async def test_a_turn_that_a_crash_cut_off_is_gone_on_with(store: Store) -> None:
    """It is repaired and closed; a new turn says so to the model, and answers the prompt once."""
    await crash(store, lambda session: begin(session, call="c1"))
    tally, (report,) = await work(store, echoing(tools=[WIPE]))
    assert tally == Tally(turns=1)
    assert isinstance(report, Ran)
    assert report.goes_on
    session = await store.read("s")
    assert said(session) == ["one", "I will.", "after 4"]
    ((_, _, code),) = results(session)
    assert code == "TOOL_OUTCOME_UNKNOWN"
    note = session.derive_messages()[-2]
    assert (note.role, note.source.kind) == ("user", "cut-off")
    assert "was cut off" in note.text
    assert await store.pending(only_prompts=False) == []
    assert_lawful(session)


async def test_prompts_that_came_later_wait_for_it(store: Store) -> None:
    """In order of posting."""
    await crash(store, begin)
    await post(store, "s", Prompt("two"))
    tally, _ = await work(store, echoing())
    assert tally.turns == 2
    assert said(await store.read("s")) == ["one", "after 2", "two", "after 4"]


async def test_an_answer_that_was_whole_is_not_given_again(store: Store) -> None:
    """A crash between the answer and the end of its turn leaves nothing to go on with."""

    def answered(session: Session) -> None:
        begin(session)
        session.add_assistant("All done.")

    await crash(store, answered)
    tally, reports = await work(store, echoing())
    assert (tally, reports) == (Tally(), [])
    assert said(await store.read("s")) == ["one", "All done."]
    assert await store.pending(only_prompts=False) == []


async def test_a_cancelled_turn_is_not_gone_on_with(store: Store) -> None:
    """Though a crash came before it was closed."""

    def cancelled(session: Session) -> None:
        begin(session)
        command = {"type": "cancel", "turn": 1, "reason": "user", "id": "x1"}
        session.append("inbox/accepted", {"command": command})

    await crash(store, cancelled)
    await post(store, "s", Cancel(turn=1, id="x1"))
    tally, reports = await work(store, echoing())
    assert (tally, reports) == (Tally(), [])
    assert await store.pending(only_prompts=False) == []


@pytest.mark.parametrize("turn", [None, 1])
async def test_a_cancel_that_came_too_late_for_the_process_counts(
    store: Store, turn: int | None
) -> None:
    """It was meant for the turn that a crash has cut off by now."""
    await crash(store, begin)
    await post(store, "s", Cancel(turn=turn))
    tally, reports = await work(store, echoing())
    assert (tally, reports) == (Tally(), [])
    assert await store.inbox("s").waiting() == []


async def test_a_turn_of_a_persons_own_is_not_gone_on_with(store: Store) -> None:
    """Nobody left that prompt for a worker; the one in the inbox is run."""
    async with store.session("s") as session:
        session.append("turn/start", {"turn": 1})
        session.append("step/start", {"turn": 1, "step": 1})
        session.add_user("mine")
    await post(store, "s", Prompt("two"))
    _, (report,) = await work(store, echoing())
    assert isinstance(report, Ran)
    assert not report.goes_on
    assert said(await store.read("s")) == ["mine", "two", "after 2"]


async def test_a_turn_that_is_cut_off_again_and_again_is_given_up(store: Store) -> None:
    """It may be what kills the processes; the session is free for the next prompt."""
    await crash(store, begin)
    for turn in (2, 3):
        async with store.session("s") as session:
            session.append("turn/start", {"turn": turn})
    tally, (skipped,) = await work(store, echoing(), attempts=2)
    assert tally.turns == 0
    assert isinstance(skipped, Skipped)
    assert "cut off 3 times" in str(skipped.error)
    assert await store.pending(only_prompts=False) == []
    await post(store, "s", Prompt("two"))
    _, reports = await work(store, echoing(), attempts=2)
    assert ran(reports)[-1] == ("s", "completed")


async def test_a_session_of_another_process_is_waited_for(
    store: Store, storage: MemoryStorage
) -> None:
    """Nobody runs it twice; it is run once it is free."""
    async with AsyncExitStack() as other, Store(MemoryStore(storage)) as theirs:
        await post(store, "s", Prompt("one"))
        await other.enter_async_context(theirs.session("s"))
        waits = 0

        async def wait(changed: anyio.Event, seconds: float) -> None:
            nonlocal waits
            del seconds
            waits += 1
            with anyio.move_on_after(0.01):
                await changed.wait()
            if waits == 3:
                assert said(await store.read("s")) == []
                await other.aclose()

        tally, _ = await work(store, echoing(), wait=wait)
        assert tally == Tally(turns=1)
        assert waits >= 3


class Counting(MemoryStore):
    """Counts who asks for a session."""

    def __init__(self, storage: MemoryStorage) -> None:
        super().__init__(storage)
        self.claims: list[str] = []

    async def claim(self, session_id: str, owner: Owner, *, steal: bool = False) -> Claim:
        """Count."""
        self.claims.append(session_id)
        return await super().claim(session_id, owner, steal=steal)


async def test_a_session_of_another_process_is_not_asked_for(
    store: Store, storage: MemoryStorage
) -> None:
    """As long as the store knows whose it is; others are run meanwhile, and then it is, once."""
    counting = Counting(storage)
    async with AsyncExitStack() as theirs, Store(counting) as ours:
        await post(store, "s", Prompt("one"))
        await post(store, "other", Prompt("two"))
        await theirs.enter_async_context(store.session("s"))
        waits = 0

        async def wait(changed: anyio.Event, seconds: float) -> None:
            nonlocal waits
            del seconds
            waits += 1
            with anyio.move_on_after(0.01):
                await changed.wait()
            if waits == 20:
                assert counting.claims == ["other"]
                await theirs.aclose()

        tally, _ = await work(ours, echoing(), wait=wait)
    assert tally == Tally(turns=2)
    assert counting.claims == ["other", "s"]


# -- leaving -----------------------------------------------------------------------------------


@asynccontextmanager
async def working(store: Store, runner: ReactLoopAgent, **options: Any) -> AsyncGenerator[Worker]:
    """A worker that works until the block ends and it does."""
    worker = Worker(store, runner, jitter=lambda: 1.0, **options)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(worker.run)
        yield worker


class Gate:
    """A tool that says when it runs, and ends when it may."""

    def __init__(self) -> None:
        self.reached = anyio.Event()
        self.open = anyio.Event()

    async def pass_through(self) -> str:
        """Pass."""
        self.reached.set()
        await self.open.wait()
        return "through"


async def test_draining_finishes_what_runs_and_starts_nothing(store: Store) -> None:
    """The prompt that came next waits for another worker."""
    gate = Gate()
    await post(store, "s", Prompt("one"), Prompt("two"))
    runner = agent([Call("pass_through")], "done", tools=[gate.pass_through])
    async with working(store, runner) as worker:
        await gate.reached.wait()
        worker.drain()
        gate.open.set()
    assert worker.tally == Tally(turns=1)
    assert said(await store.read("s"))[-1] == "done"
    assert await store.pending() == ["s"]


@pytest.mark.parametrize("grace", [0.0, 1000.0])
async def test_what_is_cut_off_is_kept_and_another_goes_on(store: Store, grace: float) -> None:
    """After the grace, or at once when it is told to stop."""
    reached = anyio.Event()

    async def ready() -> None:
        reached.set()

    await post(store, "s", Prompt("one", id="p1"))
    runner = agent(["Once ", _when(ready), Hang()])
    async with working(store, runner, grace=grace) as worker:
        await reached.wait()
        if grace:
            worker.stop()
        else:
            worker.drain()
    assert worker.tally == Tally(turns=1, cut_off=1)
    session = await store.read("s")
    assert said(session) == ["one", "Once "]
    assert end(session).to_dict() == CUT
    assert await store.pending() == ["s"]
    tally, (report,) = await work(store, echoing())
    assert tally == Tally(turns=1)
    assert isinstance(report, Ran)
    assert report.goes_on
    session = await store.read("s")
    assert said(session) == ["one", "Once ", "after 3"]
    assert await store.pending() == []
    assert_lawful(session)


def _when(act: Callable[[], Any]) -> Any:
    from turnlog.models.scripted import Wait  # noqa: PLC0415 - beside its one use

    return Wait(act)


async def test_stopping_leaves_a_suspended_turn_suspended(store: Store) -> None:
    """It waits for a person, not for this process."""
    await suspend(store)
    async with working(store, agent(tools=[WIPE])) as worker:
        worker.stop()
    session = await store.read("s")
    assert session.events[-1].type != "turn/end"


# -- what is broken ----------------------------------------------------------------------------


async def test_a_session_that_cannot_be_run_hides_no_other(store: Store) -> None:
    """It is reported, and, as nobody would wait for it here, not tried again."""

    def make(session: StoredSession) -> ReactLoopAgent:
        if session.id == "bad":
            msg = "no agent for this one"
            raise RuntimeError(msg)
        return echoing()

    await post(store, "bad", Prompt("one"))
    await post(store, "good", Prompt("one"))
    tally, reports = await work(store, make)
    assert tally == Tally(turns=1, stuck=("bad",))
    (skipped,) = [report for report in reports if isinstance(report, Skipped)]
    assert (skipped.session_id, skipped.again_in) == ("bad", None)
    assert str(skipped.error) == (
        "session 'bad': the function that makes its agent failed: "
        "RuntimeError('no agent for this one')"
    )
    assert await store.pending() == ["bad"]


async def test_what_failed_once_is_not_tried_again_while_others_run(store: Store) -> None:
    """However long they take: nothing says how often a script would see it fail."""
    made: list[str] = []

    def make(session: StoredSession) -> Any:
        made.append(session.id)
        return None if session.id == "bad" else echoing()

    async def wait(changed: anyio.Event, seconds: float) -> None:
        del changed, seconds
        await anyio.lowlevel.checkpoint()

    await post(store, "bad", Prompt("one"))
    await post(store, "good", *(Prompt(f"{i}") for i in range(5)))
    tally, reports = await work(store, make, concurrency=1, wait=wait)
    assert (made.count("bad"), tally.turns, tally.stuck) == (1, 5, ("bad",))
    (skipped,) = [report for report in reports if isinstance(report, Skipped)]
    assert "expected a function that makes an agent, it made NoneType" in str(skipped.error)


async def test_a_worker_that_goes_on_tries_again_later(store: Store) -> None:
    """And says in how many seconds; a function that works by then makes the agent."""
    failures = ["not yet"]

    async def make(session: StoredSession) -> ReactLoopAgent:
        del session
        if failures:
            raise TurnlogError(failures.pop())
        return echoing()

    reports: list[Report] = []

    def report(one: Report) -> None:
        reports.append(one)
        if isinstance(one, Ran):
            worker.drain()

    await post(store, "s", Prompt("one"))
    worker = Worker(store, make, on_report=report, jitter=lambda: 1.0)
    await worker.run()
    (skipped,) = [one for one in reports if isinstance(one, Skipped)]
    assert str(skipped.error) == "session 's': the function that makes its agent failed: not yet"
    assert skipped.again_in == 0.5
    assert ran(reports) == [("s", "completed")]


class Unreachable(MemoryStore):
    """A store that cannot say what waits, for a while."""

    failures = 2

    async def pending(self, *, only_prompts: bool = True, only_free: bool = False) -> list[str]:
        """What waits, after some failures."""
        if self.failures:
            self.failures -= 1
            msg = "no server there"
            raise StoreError(msg)
        return await super().pending(only_prompts=only_prompts, only_free=only_free)


async def test_a_store_that_cannot_be_asked_is_asked_again(storage: MemoryStorage) -> None:
    """Each failure is reported, and a session that waits is run in the end."""
    reports: list[Report] = []

    async def wait(changed: anyio.Event, seconds: float) -> None:
        del seconds
        with anyio.move_on_after(0.01):
            await changed.wait()

    async with Store(Unreachable(storage)) as store:
        await post(store, "s", Prompt("one"))

        def report(one: Report) -> None:
            reports.append(one)
            if isinstance(one, Ran):
                worker.drain()

        worker = Worker(store, echoing(), on_report=report, wait=wait, jitter=lambda: 1.0)
        await worker.run()
    failures = [one for one in reports if isinstance(one, Skipped)]
    assert [str(one.error) for one in failures] == ["no server there"] * 2
    assert [one.again_in for one in failures] == [0.125, 0.25]
    assert ran(reports) == [("s", "completed")]


async def test_once_it_fails_with_the_store(storage: MemoryStorage) -> None:
    """Nobody would look at it again; the error is raised, and not reported besides."""
    reports: list[Report] = []
    async with Store(Unreachable(storage)) as store:
        worker = Worker(store, echoing(), on_report=reports.append)
        with pytest.raises(StoreError, match="no server there"):
            await worker.run(once=True)
    assert reports == []


async def test_a_worker_that_may_run_nothing_is_refused(store: Store) -> None:
    """With the number in the message."""
    with pytest.raises(TurnlogError, match="got 0"):
        Worker(store, echoing(), concurrency=0)
