"""Compactions, prunes, pins, cancels, crashes and forks in any order: nothing is lost or broken."""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from typing import Any

import anyio
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from tests.properties import test_loop as loops
from tests.properties.views import violations
from tests.unit.agent.scenes import agent, at_once
from turnlog import Session, open_store
from turnlog.agent import ApprovalRequest, ReactLoopAgent
from turnlog.commands import Compact
from turnlog.compaction.engine import BasicCompactionEngine
from turnlog.compaction.pins import is_carried, pinned
from turnlog.compaction.port import SOURCE
from turnlog.compaction.pruner import Pruner
from turnlog.content import Text
from turnlog.errors import CompactionFailed
from turnlog.invariants import verify
from turnlog.models.scripted import Call, End, Fail, ScriptedModel, Used
from turnlog.proof import finding
from turnlog.testing.strategies import histories, mangled

SUMMARIES: list[Any] = [
    "## Goals\n- ship it [0]",
    ["all is well", Used(10, 5)],
    "",
    "again and again\n" * 50,
    Call("read", {}),
    ["cut", End("max-tokens")],
    Fail("server"),
    Fail("overflow-tokens"),
    ["half", Fail("transport")],
]
answers = st.lists(st.sampled_from(SUMMARIES), min_size=1, max_size=4)
numbers = st.lists(st.integers(0, 10**6), min_size=1, max_size=6)


def engine(summaries: list[Any], *, window: int = 1200, **options: Any) -> BasicCompactionEngine:
    """An engine that has much to do."""
    model = ScriptedModel(summaries, repeat=True, context_window=window, name="scripted:summaries")
    small = Pruner(limit=40, head=16, tail=8, keep=1)
    return BasicCompactionEngine(model, pruner=small, delay=at_once, **options)


def faults(session: Session) -> list[str]:
    """Laws that are broken, by rule and place."""
    found = verify(session, prove=finding)
    return [f"{each.rule} {each.seq}" for each in found if each.level == "fault"]


def assert_whole(session: Session) -> None:
    """The next request is valid, and has no summary that was superseded."""
    assert violations(session.request_messages()) == []
    replaced = {seq for each in session.surface.replacements for seq in each.shadowed}
    assert replaced.isdisjoint(session.surface.seqs)


def visible(session: Session) -> Counter[int]:
    """How often each pinned event is to be seen: where it was, or carried on."""
    found: Counter[int] = Counter()
    for pin in pinned(session):
        found[pin.seq] += pin.seq in session.surface
        for message in session.derive_messages():
            found[pin.seq] += any(
                isinstance(block, Text) and block.text.startswith(f"Pinned, from event {pin.seq},")
                for block in message.content
                if is_carried(block)
            )
    return found


@given(histories(), answers, numbers, st.sampled_from(["structural", "none"]))
def test_any_history_can_be_compacted_and_stays_whole(
    session: Session, summaries: list[Any], choices: list[int], fallback: Any
) -> None:
    """By hand, when it is due, after an overflow, with pins between; and each undo is exact."""
    session.repair()
    before = faults(session)
    made = engine(summaries, fallback=fallback, threshold=60)

    async def work() -> None:
        for choice in choices:
            pinnable = [
                s for s in session.surface.seqs if session.event_at(s).type == "user/message"
            ]
            if choice % 3 == 0 and pinnable:
                with suppress(Exception):
                    session.pin(pinnable[choice % len(pinnable)])
            if choice % 5 == 0:
                session.add_user("more " * (choice % 100 + 1))
            at, seen = session.next_seq - 1, list(session.request_messages())
            surface, pins = list(session.surface.seqs), visible(session)
            try:
                if choice % 2:
                    await made.compact_now(session)
                else:
                    await made.compact_if_needed(session)
            except CompactionFailed:
                pruned = any(
                    event.type == "compaction/prune" for event in session.events if event.seq > at
                )
                assert pruned or list(session.surface.seqs) == surface
            if at >= 0:
                assert list(session.request_messages(at=at)) == seen
            assert_whole(session)
            assert all(shown <= 1 for shown in (visible(session) - pins).values())
            assert all(visible(session)[seq] for seq, shown in pins.items() if shown)

    if not session.seed_is_open:
        anyio.run(work)
    assert faults(session) == before
    for at in range(len(session) and session.next_seq):
        assert violations(session.request_messages(at=at)) == []


@given(mangled(), answers)
def test_a_log_that_keeps_no_law_is_compacted_or_refused(
    session: Session, summaries: list[Any]
) -> None:
    """Nothing else comes of it, and what would be sent is valid."""

    async def work() -> None:
        with suppress(CompactionFailed):
            await engine(summaries).compact_now(session)

    anyio.run(work)
    assert violations(session.request_messages()) == []


scenes = st.tuples(
    loops.scenes,
    answers,
    st.dictionaries(loops.moments, st.just([Compact()]), max_size=3),
)


async def play(scene: Any) -> Session:
    """A scene of the loop's, with an engine that compacts at almost every step."""
    told, summaries, wishes = scene

    def approve(_: ApprovalRequest) -> bool:
        return bool(told.approver)

    made = agent(
        *told.answers,
        tools=loops.tools([]),
        approve=None if told.approver is None else approve,
        retries=1,
        system="Be brief.",
        compaction=engine(summaries, window=2400, threshold=800, retain=0),  # tools take 364
    )
    async with open_store("memory:") as store:
        last: Session | None = None
        for plan in told.plans:
            actions = {**wishes, **plan.actions}
            prompt = plan.prompt and f"{plan.prompt}: {'some words ' * 200}"
            async with store.session("s") as session:
                await loops.act(
                    store, made, session, structs.replace(plan, actions=actions, prompt=prompt)
                )
                check(session)
                last = session
        assert last is not None
        return last


def check(session: Session) -> None:
    """Every law is kept, and the next request is one."""
    loops.check(session)
    assert_whole(session)


@given(scenes)
def test_a_loop_that_compacts_all_the_time_keeps_every_law(scene: Any) -> None:
    """Whatever the summaries are, and whatever happens meanwhile."""
    session = anyio.run(play, scene)
    for at in range(session.next_seq):
        assert violations(session.request_messages(at=at)) == []


@given(scenes, st.data())
def test_a_kill_at_any_event_of_it_is_mended(scene: Any, data: st.DataObject) -> None:
    """Cut off after any event, the log is repaired and goes on; a fork there does too."""
    whole = anyio.run(play, scene)
    kept = data.draw(st.integers(0, len(whole)), label="events kept")
    cut = Session.from_events(whole.header, list(whole.events)[:kept])
    cut.repair()
    check(cut)
    forked = whole.fork(kept - 1)
    check(forked)
    for session in (cut, forked):
        made = ReactLoopAgent(
            ScriptedModel(["fine"] * 3),
            compaction=engine(["all is well"], window=2400, threshold=800),
        )
        result = anyio.run(made.run, session, "go on")
        assert result.text == "fine"
        check(session)


@given(histories(cut=False), st.integers(1, 30))
def test_chained_compactions_leave_one_summary_and_do_not_grow(
    session: Session, count: int
) -> None:
    """However many there were, and whatever the history."""
    made = engine(["## Goals\n- ship it\n\n## State\n- half done"], window=4000)
    session.repair()

    async def work() -> list[int]:
        sizes: list[int] = []
        for _ in range(count):
            for number in range(6):
                session.add_user(f"{number} words " * 20)
            before, refused = list(session.surface.seqs), ""
            try:
                done = await made.compact_now(session)
            except CompactionFailed as error:
                done, refused = None, error.code
            if refused:  # a short history may gain nothing
                assert refused in {"not-cheaper", "nothing-to-gain"}
                assert list(session.surface.seqs) == before
            if done is None:
                return sizes
            assert done.policy == "model"
            sizes.append(len(done.summary))
        return sizes

    sizes = anyio.run(work)
    if sizes:
        assert max(sizes) == min(sizes)
        standing = [m for m in session.derive_messages() if m.source.kind == SOURCE]
        assert len(standing) == 1
