"""`Worker`: takes sessions whose inbox has work, runs a turn of each, hands them back.

It stands on two things alone: the inbox says what there is to do (`store.pending()`), and the lease
says who does it (`store.session()` refuses a session that another process owns). A prompt stays in
the inbox until its turn is over, so that a session whose worker died is found there, repaired by
whoever opens it, and gone on with.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Generator, Sequence
from contextlib import contextmanager
from inspect import isawaitable
from typing import TYPE_CHECKING, TypeAlias, cast

import anyio

from turnlog.agent import ReactLoopAgent
from turnlog.agent.state import CUT_OFF
from turnlog.commands import Approve
from turnlog.errors import DamagedSession, NoSuchSession, SessionInUse, StoreError, TurnlogError
from turnlog.stores.patience import Patience
from turnlog.views.loop import SHUTDOWN, loop_fold
from turnlog.worker.reports import Ran, Report, Skipped, Tally
from turnlog.worker.rota import BROKEN, BUSY, STUCK, Delay, Rota

if TYPE_CHECKING:
    from turnlog.agent import Turn, TurnResult
    from turnlog.session import Session
    from turnlog.stores.live import StoredSession
    from turnlog.stores.port import Queued
    from turnlog.stores.store import Store

AgentFor: TypeAlias = "Callable[[StoredSession], ReactLoopAgent | Awaitable[ReactLoopAgent]]"
"""Makes the agent that runs a session, which it owns by then; called before each turn."""

POLL = Delay(0.05, 1.0)
"""Between looks at what waits, while nothing does."""
UNREACHABLE = Delay(0.25, 5.0)
"""Between looks while the store cannot be asked."""
ATTEMPTS = 5
GRACE = 30.0
PATIENCE = 600.0
"""Seconds for which a turn waits for a store that is away."""


async def wait_for(changed: anyio.Event, seconds: float) -> None:
    """Wait until something changed, at most so many seconds."""
    with anyio.move_on_after(seconds):
        await changed.wait()


class Worker:
    """Runs what waits in a store's inboxes, one turn at a time of each session.

    Args:
        store: an open store.
        agent: an agent for all sessions, or a function that makes the one for a session.
        concurrency: how many sessions are run at once.
        attempts: how often in a row a turn is gone on with that crashes cut off.
        grace: seconds that turns have to end after `drain`, before they are cut off.
        patience: seconds for which a turn waits for a store that went away, besides the store's
            own patience, before it is cut off; none with `once`.
        on_report: called for each turn that was run, and for whatever could not be.
        wait, jitter: how time passes, and by what workers differ; tests give their own.

    Attributes:
        tally: what it has done so far.
    """

    def __init__(  # noqa: PLR0913 - all but two optional
        self,
        store: Store,
        agent: ReactLoopAgent | AgentFor,
        *,
        concurrency: int = 8,
        attempts: int = ATTEMPTS,
        grace: float = GRACE,
        patience: float = PATIENCE,
        on_report: Callable[[Report], object] = lambda _: None,
        wait: Callable[[anyio.Event, float], Awaitable[None]] = wait_for,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        if concurrency < 1:
            msg = f"a worker's concurrency: expected 1 or more, got {concurrency}"
            raise TurnlogError(msg)
        self.tally = Tally()
        self._store = store
        self._agent = agent
        self._concurrency = concurrency
        self._attempts = attempts
        self._grace = grace
        self._seconds = patience
        self._on_report = on_report
        self._wait_for = wait
        self._jitter = jitter
        self._rota = Rota(jitter)
        self._changed = anyio.Event()
        self._turns: set[Turn] = set()
        self._patient: set[Patience] = set()
        self._draining = self._leaving = self._once = False
        self._look_at = 0.0  # not before then the store is asked again
        self._fresh_until = 0.0  # until then not even that, if something is due
        self._vain = 0  # looks in a row that found nothing to run
        self._unreachable = 0  # looks in a row that failed

    # -- its life ------------------------------------------------------------------------------

    async def run(self, *, once: bool = False) -> Tally:
        """Work until `drain` or `stop`; with `once`, until nothing waits that can be run.

        A session that another process runs is waited for, one that is broken is not, and is not
        tried again.

        Raises:
            TurnlogError: with `once`, the store cannot say what waits.
        """
        self._once = once
        failure: TurnlogError | None = None
        async with anyio.create_task_group() as tasks:
            while not self._draining:
                failure = await self._look()
                if once and failure is not None:
                    break
                while self._has_room:
                    name = self._rota.due(anyio.current_time())
                    if name is None:
                        break
                    self._rota.start(name)
                    tasks.start_soon(self._serve, name)
                if once and self._rota.is_over:
                    break
                await self._wait()
            await self._drained()
        if once and failure is not None:
            raise failure
        self.tally.stuck = self._rota.stuck
        return self.tally

    def drain(self) -> None:
        """Take no further session; turns that run have `grace` to end. Returns at once."""
        self._draining = True
        self._changed.set()

    def stop(self) -> None:
        """The same, but cut off the turns that run: what had arrived is kept, others go on."""
        self.drain()
        self._leaving = True
        for turn in self._turns:
            turn.stop(SHUTDOWN)
        for patience in self._patient:
            patience.end()

    async def _drained(self) -> None:
        with anyio.move_on_after(self._grace) as scope:
            while self._rota.running:
                await self._changed.wait()
                self._changed = anyio.Event()
        if scope.cancelled_caught:
            self.stop()

    # -- what there is to do -------------------------------------------------------------------

    @property
    def _has_room(self) -> bool:
        return not self._draining and len(self._rota.running) < self._concurrency

    async def _look(self) -> TurnlogError | None:
        """Ask the store what waits, unless that was done just now, or there is enough to do.

        Returns why it could not be asked, if that is so.
        """
        rota, now = self._rota, anyio.current_time()
        enough = now < self._fresh_until and rota.due(now) is not None
        if not self._has_room or now < self._look_at or enough:
            return None
        running = set(rota.running)
        try:
            waiting = await self._store.pending(only_prompts=False)
            free = waiting and await self._store.pending(only_prompts=False, only_free=True)
        except TurnlogError as error:
            if self._once:
                return error
            self._unreachable += 1
            again = UNREACHABLE.after(self._unreachable, self._jitter())
            self._look_at = now + again
            self._on_report(Skipped(None, error, again))
            return error
        rota.see(waiting, but=running, busy=set(waiting) - set(free))
        self._unreachable = 0
        self._vain = self._vain + 1 if rota.due(now) is None else 0
        self._fresh_until = now + POLL.most
        if running <= rota.running:
            self._look_at = now + POLL.after(max(1, self._vain), self._jitter())
        else:
            self._look_at = now  # what came back while the store was asked may wait again
        return None

    async def _wait(self) -> None:
        """Wait until a session comes back, one is due, or it is time to look again."""
        now = anyio.current_time()
        seconds = POLL.most
        if self._has_room:
            due = self._rota.wakes_in(now)
            seconds = min(max(0.0, self._look_at - now), POLL.most if due is None else due)
        if not self._changed.is_set():
            await self._wait_for(self._changed, seconds)
        self._changed = anyio.Event()

    # -- one session ---------------------------------------------------------------------------

    async def _serve(self, name: str) -> None:
        """Run one turn of a session, hand it back, and say what became of it."""
        rota = self._rota
        reports: list[Report] = []
        try:
            has_run, reports = await self._run_turn(name)
        except SessionInUse:
            rota.later(name, anyio.current_time(), BUSY)
        except NoSuchSession:
            rota.done(name)
        except Exception as error:  # noqa: BLE001 - of a tool, an agent, a store: it is reported
            again: float | None = None
            if self._once:
                rota.never(name)
            else:
                again = rota.later(name, anyio.current_time(), BROKEN)
            reports = [Skipped(name, _first(error), again)]
        else:
            if has_run:
                rota.done(name)
                self._look_at, self._vain = 0.0, 0
            else:
                rota.later(name, anyio.current_time(), STUCK)
        finally:
            rota.running.discard(name)
            self._changed.set()
        for report in reports:
            self._count(report)

    async def _run_turn(self, name: str) -> tuple[bool, list[Report]]:
        """Own a session for a turn; whether anything came of it, and what there is to say."""
        started = anyio.current_time()
        async with self._store.session(name, create=False) as session:
            if self._draining:
                return False, []
            if not session.writable:
                msg = f"session {name!r} is damaged: `turnlog repair --accept-damage` lets it go on"
                raise DamagedSession(msg)
            cut_off, before = session.fold(loop_fold).cut_off, session.next_seq
            with self._patient_with(session) as patience:
                waiting = await session.commands()
                agent = await self._agent_for(session)
                _check_tools(session, agent, waiting)
                go_on = cut_off <= self._attempts
                async with agent.stream(session, one=True, go_on=go_on) as turn:
                    goes_on = await self._to_its_end(turn, patience)
                has_run = session.next_seq > before or await session.commands() != waiting
        reports: list[Report] = []
        if cut_off > self._attempts:
            msg = f"session {name!r}: its last turn was cut off {cut_off} times: given up"
            reports.append(Skipped(name, TurnlogError(msg), None))
        if turn.result is not None and session.next_seq > before:
            seconds = anyio.current_time() - started
            reports.append(Ran(name, turn.result, seconds, goes_on))
        return has_run, reports

    @contextmanager
    def _patient_with(self, session: StoredSession) -> Generator[Patience]:
        """While the session is run: it waits for a store that went away."""

        def away(error: StoreError, again_in: float) -> None:
            self._on_report(Skipped(session.id, error, again_in))

        seconds = 0.0 if self._once or self._leaving else self._seconds
        patience = session.patience = Patience(seconds, away)
        self._patient.add(patience)
        try:
            yield patience
        finally:
            self._patient.discard(patience)
            patience.end()

    async def _to_its_end(self, turn: Turn, patience: Patience) -> bool:
        """Run a turn; whether it goes on with one that was cut off."""
        goes_on = False
        self._turns.add(turn)
        try:
            if self._leaving:
                turn.stop(SHUTDOWN)
            async for event in turn:
                if event.type == "context/message" and event.message is not None:
                    goes_on = goes_on or event.message.source.kind == CUT_OFF
        except anyio.get_cancelled_exc_class():
            patience.end()  # it is closed in a shield, where nothing else would
            raise
        finally:
            self._turns.discard(turn)
        return goes_on

    async def _agent_for(self, session: StoredSession) -> ReactLoopAgent:
        if isinstance(self._agent, ReactLoopAgent):
            return self._agent
        try:
            made = self._agent(session)
            agent = await made if isawaitable(made) else made
        except Exception as error:
            said = str(error) if isinstance(error, TurnlogError) else repr(error)
            msg = f"session {session.id!r}: the function that makes its agent failed: {said}"
            raise TurnlogError(msg) from error
        if not isinstance(cast("object", agent), ReactLoopAgent):
            kind = type(agent).__name__
            msg = f"session {session.id!r}: expected a function that makes an agent, it made {kind}"
            raise TurnlogError(msg)
        return agent

    def _count(self, report: Report) -> None:
        tally = self.tally
        if isinstance(report, Ran):
            tally.turns += 1
            if _is_cut_off(report.result):
                tally.cut_off += 1
            elif not report.is_well:
                tally.failed += 1
        self._on_report(report)


def _is_cut_off(result: TurnResult) -> bool:
    match result.end_reason.kind, result.end_reason.reason:
        case "aborted", {"kind": kind}:
            return kind == SHUTDOWN
        case _:
            return False


def _check_tools(session: Session, agent: ReactLoopAgent, waiting: Sequence[Queued]) -> None:
    """A call that was approved is not run by an agent that does not have its tool.

    Raises:
        TurnlogError: this one has not, and the call would fail.
    """
    state = session.fold(loop_fold)
    if not state.open:
        return
    commands = [queued.command for queued in waiting]
    approved = {command.call_id for command in commands if isinstance(command, Approve)}
    wanted = {asked.tool_name for call, asked in state.asked.items() if call in approved}
    if missing := sorted(wanted - set(agent.tools)):
        msg = f"session {session.id!r} waits with a call of {', '.join(missing)}, unknown here"
        raise TurnlogError(msg)


def _first(error: Exception) -> Exception:
    """The first error inside nested groups."""
    while isinstance(error, ExceptionGroup):
        error = cast("ExceptionGroup[Exception]", error).exceptions[0]
    return error
