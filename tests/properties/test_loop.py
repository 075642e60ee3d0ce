"""Whatever happens to a loop, in whatever order, its log keeps every law and can be sent on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import anyio
import anyio.lowlevel
import msgspec
from hypothesis import given
from hypothesis import strategies as st

from tests.faults.scenes import assert_accepted
from tests.prefixes import broken_prefixes
from tests.unit.agent.scenes import agent, assert_lawful, end
from turnlog import Session, Tool, open_store
from turnlog.agent import ApprovalRequest, ReactLoopAgent, ToolAborted
from turnlog.commands import Approve, Cancel, Command, Deny, Prompt, Steer
from turnlog.content import tool_message
from turnlog.events import ToolResult
from turnlog.models.scripted import Call, End, Fail, Think, Used
from turnlog.stores.store import Store
from turnlog.testing.strategies import TEXTS

IDS = ("c1", "c2", "c3")
Moment = tuple[str, int]  # the nth event of that type during a call of `stream`


class Plan(msgspec.Struct):
    """One call of `stream`: what is said, and what happens after how many events."""

    prompt: str | None
    choice: Any
    leave: Moment | None
    actions: Mapping[Moment, Sequence[Command | None]]  # None stops the turn
    late: bool
    reopen: bool


class Scene(msgspec.Struct):
    """What a model answers, who approves, and the turns."""

    answers: list[list[Any]]
    native: bool
    approver: bool | None
    plans: list[Plan]


said = TEXTS | st.just("word")
NAMES = ["quick", "slow", "slow", "asked", "asked", "alone", "raises", "aborts"]
ARGUMENTS: list[Any] = [{"n": 0}, {"n": 1}, {"n": 30}]
calls = st.builds(
    Call, st.sampled_from(NAMES), st.sampled_from(ARGUMENTS), st.sampled_from([*IDS, None])
)
wrong_calls = st.builds(
    Call,
    st.sampled_from(["quick", "never", "nope", ""]),
    st.sampled_from(["{", '{"n": "x"}', "", {"n": 1}]),
    st.sampled_from([*IDS, None]),
)
words = st.lists(said | said.map(Think), min_size=1, max_size=4)
failures = st.sampled_from(["rate-limit", "server", "transport", "refused"]).map(Fail)
odd = st.lists(
    said | said.map(Think) | calls | wrong_calls | failures | st.just(End("max-tokens")),
    max_size=5,
)
asking = st.tuples(
    st.lists(said, max_size=1),
    st.lists(calls, min_size=1, max_size=4),
    st.lists(wrong_calls, max_size=1),
    st.lists(st.builds(Used, st.integers(0, 9), st.integers(0, 9)), max_size=1),
).map(lambda parts: [step for part in parts for step in part])
answers = st.one_of(asking, asking, words, odd)
turns = st.none() | st.integers(1, 3)
commands = st.one_of(
    st.none(),
    st.builds(Steer, said, turns),
    st.builds(Cancel, turns),
    st.sampled_from(IDS).map(Approve),
    st.sampled_from(IDS).map(Deny),
    st.builds(Prompt, said),
)
moments = st.tuples(
    st.sampled_from(
        [
            "assistant/chunk",
            "tool/call",
            "tool/call",
            "tool/settled",
            "tool/result",
            "request/sent",
            "approval/asked",
            "step/end",
            "llm/retry",
        ]
    ),
    st.integers(1, 4),
)
plans = st.builds(
    Plan,
    prompt=st.sampled_from([None, "go on"]),
    choice=st.sampled_from(["auto", "auto", "required", "none"]),
    leave=st.none() | st.none() | moments,
    actions=st.dictionaries(moments, st.lists(commands, min_size=1, max_size=2), max_size=4),
    late=st.booleans(),
    reopen=st.booleans(),
)
scenes = st.builds(
    Scene,
    answers=st.lists(answers, min_size=3, max_size=9),
    native=st.booleans() | st.just(True),
    approver=st.sampled_from([None, None, True, False]),
    plans=st.lists(plans, min_size=2, max_size=5),
)


def tools(ran: list[str]) -> list[Tool]:
    """Tools of every kind; `slow` and `alone` take as many rounds of the loop as they are told."""

    async def quick(n: int) -> str:
        ran.append("quick")
        return str(n)

    async def slow(n: int) -> list[int]:
        ran.append("slow")
        for _ in range(n * 3):
            await anyio.lowlevel.checkpoint()
        return [n]

    async def raises(n: int = 0) -> None:
        await anyio.lowlevel.checkpoint()
        raise ValueError(n)

    async def aborts(n: int = 0) -> None:
        try:
            for _ in range(n * 9):
                await anyio.lowlevel.checkpoint()
        except anyio.get_cancelled_exc_class():
            raise ToolAborted("nothing was done") from None

    return [
        Tool(quick),
        Tool(slow),
        Tool(raises),
        Tool(aborts),
        Tool(slow, name="alone", exclusive=True),
        Tool(quick, name="asked", approve="ask"),
        Tool(quick, name="never", approve="never"),
    ]


def runner(scene: Scene, ran: list[str]) -> ReactLoopAgent:
    """The scene's agent."""

    def approve(_: ApprovalRequest) -> bool:
        return bool(scene.approver)

    approver = None if scene.approver is None else approve
    made = agent(*scene.answers, tools=tools(ran), approve=approver, retries=1, system="Be brief.")
    model: Any = made.model
    model.native_tools = scene.native
    if not scene.native:
        model.encoder = "openai-plain@1"
    return made


async def act(store: Store, made: ReactLoopAgent, session: Session, plan: Plan) -> None:
    """Run what there is to run, with everything that happens meanwhile."""
    seen: Counter[str] = Counter()
    async with made.stream(session, plan.prompt, tool_choice=plan.choice) as turn:
        async for event in turn:
            seen[event.type] += 1
            now = (event.type, seen[event.type])
            for command in plan.actions.get(now, ()):
                if command is None:
                    turn.stop()
                else:
                    await store.inbox("s").post(command)
            if now == plan.leave:
                break
    if plan.late:
        bring_late(session)


def bring_late(session: Session) -> None:
    """What a thread does whose call was closed as unknown: it brings the result after all."""
    for event in reversed(session.events):
        if event.type == "tool/result" and event.data.error is not None:
            if event.data.error.code == "TOOL_OUTCOME_UNKNOWN":
                message = tool_message(event.data.message.tool_call_id, "late", id=f"l{event.seq}")
                session.append("tool/late-result", ToolResult(message))
            return


async def play(scene: Scene) -> Session:
    """The whole scene on a store in memory; the session is closed and opened again in between."""
    ran: list[str] = []
    made = runner(scene, ran)
    session: Session | None = None
    async with open_store("memory:") as store:
        plans = list(scene.plans)
        while plans:
            async with store.session("s") as session:
                while plans:
                    plan = plans.pop(0)
                    await act(store, made, session, plan)
                    if plan.reopen:
                        break
                check(session)
        assert session is not None
        started = sum(event.type == "tool/call" for event in session.events)
        assert len(ran) <= started  # no body runs but one that was logged, and that once
        return session


def check(session: Session) -> None:
    """Every law is kept, every request proved, and any provider takes what would be sent."""
    assert_lawful(session)
    assert_accepted(session)
    assert broken_prefixes(session) == []


@given(scenes)
def test_any_interleaving_keeps_every_law(scene: Scene) -> None:
    """Chunks, results, cancels, steering, approvals, failures: the log is lawful, and goes on."""
    anyio.run(play, scene)


@given(scenes, st.data())
def test_a_kill_at_any_event_is_mended(scene: Scene, data: st.DataObject) -> None:
    """Cut off after any event, the log is repaired, lawful, and the agent runs on."""
    whole = anyio.run(play, scene)
    for _ in range(3):
        kept = data.draw(st.integers(0, len(whole)), label="events kept")
        cut = Session.from_events(whole.header, list(whole.events)[:kept])
        cut.repair()
        assert cut.repair() == []
        check(cut)
        anyio.run(go_on, cut)


async def go_on(session: Session) -> None:
    """One more turn, which ends as it should."""
    made = agent([Call("quick", {"n": 1}, id="c1")], "fine", "fine", tools=tools([]))
    result = await made.run(session, "go on")
    assert (result.text, end(session).kind) == ("fine", "completed")
    check(session)
