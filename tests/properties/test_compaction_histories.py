"""Long lives of sessions: talk, tools, prunes, pins, compactions, cancels, crashes, forks, undo.

Whatever comes in whatever order, every projection at every seq is one that a provider takes, the
log loses nothing, and a session that is opened from a record is the session.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import anyio
from hypothesis import given, note
from hypothesis import strategies as st

from tests.properties.test_compaction import SUMMARIES, engine, faults
from tests.properties.test_opening import resumed
from tests.properties.views import violations
from turnlog import Session, Text, ToolCall
from turnlog.compaction.history import compactions
from turnlog.compaction.pins import pinned
from turnlog.compaction.port import SOURCE
from turnlog.compaction.pruner import Pruner
from turnlog.content import Message, tool_message
from turnlog.errors import CompactionFailed, TurnlogError
from turnlog.events import ToolResult
from turnlog.standing import STANDING

WORDS = "some words that take room "
KINDS = (
    *("talk", "talk", "call", "call", "open call", "late", "prune", "pin", "unpin"),
    *("compact", "compact", "due", "cancel", "crash", "fork", "undo", "repair"),
)
lives = st.lists(st.tuples(st.sampled_from(KINDS), st.integers(0, 10**6)), min_size=8, max_size=24)
summaries = st.lists(st.sampled_from(SUMMARIES), min_size=1, max_size=4)


class Life:
    """A session that goes through things.

    Attributes:
        session: as it is now.
        shared: how many events the last crash, fork or undo left of the one before it.
    """

    def __init__(self, summaries: list[Any]) -> None:
        self.session: Session = Session.create("s")
        self.shared = 0
        self.engine = engine(summaries, threshold=200)
        self.calls = 0
        for number in range(6):
            self.session.add_user(f"{number} {WORDS * 8}")
            self.session.add_assistant(f"yes {WORDS * 8}")

    async def go(self, kind: str, number: int) -> None:
        """One thing, as far as it is possible now."""
        session = self.session
        if kind in ("call", "open call"):
            self.calls += 1
            call = ToolCall(f"c{self.calls}", "read", "{}")
            session.add_assistant([Text(f"look {WORDS * (number % 4)}"), call])
            if kind == "call":
                session.add_tool_result(call.id, f"{number} {WORDS * (number % 23)}")
            return
        match kind:
            case "talk":
                session.add_user(f"{number} {WORDS * (number % 19)}")
                session.add_assistant(f"yes {WORDS * (number % 17)}")
            case "late":
                self.late()
            case "prune":
                Pruner(limit=60, head=20, tail=10, keep=0).prune(session)
            case "pin" if len(session.surface):
                seqs = session.surface.seqs
                with suppress(TurnlogError):  # nothing in it that can be carried, or pinned already
                    session.pin(seqs[number % len(seqs)])
            case "unpin":
                for pin in list(pinned(session))[:1]:
                    session.unpin(pin.pin_id)
            case "compact" | "due" | "cancel":
                await self.compact(kind)
            case "crash":
                least = session.header.seed_length or 0
                self.shared = max(least, len(session) - number % 9)
                events = list(session.events)[: self.shared]
                self.session = Session.from_events(session.header, events)
                self.session.repair()
            case "fork" if len(session):
                self.shared = max(1, len(session) - number % 9)
                self.session = session.fork(self.shared - 1, f"fork-{number}")
            case "undo" if compactions(session):
                found = compactions(session)
                self.shared = found[number % len(found)].start
                self.session = session.fork(self.shared - 1, f"undo-{number}")
            case _:
                session.repair()

    async def compact(self, kind: str) -> None:
        """By hand, when it is due, or cancelled while the summary is made."""
        session = self.session
        if kind == "cancel":
            scope = anyio.CancelScope()
            stop = session.observe(
                lambda event: scope.cancel() if event.type == "request/sent" else None
            )
            with scope, suppress(CompactionFailed):
                await engine(["## Goals"], threshold=200).compact_now(session)
            stop()
            return
        with suppress(CompactionFailed):
            if kind == "compact":
                await self.engine.compact_now(session)
            else:
                await self.engine.compact_if_needed(session)

    def late(self) -> None:
        """A result that comes after its call was closed without it."""
        for event in self.session.events:
            if event.type == "tool/result" and event.data.error is not None:
                message = tool_message(event.data.message.tool_call_id, "late", id=f"l{self.calls}")
                self.session.append("tool/late-result", ToolResult(message))
                self.session.add_context("The result came late: late")
                return


def standing(messages: Any) -> list[Message]:
    """The summaries among messages."""
    return [message for message in messages if message.source.kind == SOURCE]


@given(lives, summaries)
def test_every_projection_of_any_life_is_valid_and_nothing_is_lost(
    life: list[tuple[str, int]], answers: list[Any]
) -> None:
    """At every seq: one summary at most, none that was superseded; and each undo is exact."""

    async def work() -> None:
        lived = Life(answers)
        for kind, number in life:
            before, was = lived.session, list(lived.session.events)
            seen = list(before.request_messages())
            await lived.go(kind, number)
            now = lived.session
            shared = len(was) if now is before else lived.shared
            assert list(now.events)[:shared] == was[:shared]
            if now is before and was:
                assert list(now.request_messages(was[-1].seq)) == seen
        check(lived.session)

    anyio.run(work)


def check(session: Session) -> None:
    """Every law of the log, and of its views at every event."""
    assert faults(session) == []
    for event in session.events:
        messages = session.request_messages(event.seq)
        assert violations(messages) == [], event.seq
        shown = standing(session.derive_messages(event.seq))
        assert len(shown) <= 1, event.seq
    replaced = {seq for each in session.surface.replacements for seq in each.shadowed}
    assert replaced.isdisjoint(session.surface.seqs)
    for each in compactions(session):
        child, seen = (
            session.fork(each.start - 1, "undone"),
            session.derive_messages(each.start - 1),
        )
        shown = list(child.derive_messages())
        assert shown[: len(seen)] == list(seen)
        assert all(message.source.kind == "repair" for message in shown[len(seen) :])
        assert all(session.event_at(seq).seq == seq for seq in each.shadowed)


@given(lives, summaries, st.integers(1, 10**6))
def test_any_life_goes_on_the_same_from_a_record(
    life: list[tuple[str, int]], answers: list[Any], place: int
) -> None:
    """Opened from one, it has the same surface, messages and facts, and is compacted alike."""

    async def work() -> None:
        lived = Life(answers)
        for kind, number in life:
            await lived.go(kind, number)
        whole = lived.session
        whole.repair()
        if not len(whole):
            return
        found = (resumed(whole, at) for at in range(1 + place % len(whole), len(whole) + 1))
        part = next((each for each in found if each is not None), None)
        if part is None:
            return
        note(f"held from {part.first_held} of {len(whole)}")
        whole = Session.from_events(whole.header, whole.events)
        same(part, whole)
        for session in (part, whole):
            session.add_user(f"more {WORDS * 30}")
            with suppress(CompactionFailed):
                await engine(answers, threshold=200).compact_now(session)
        assert [e.type for e in part.held[-8:]] == [e.type for e in list(whole.events)[-8:]]
        assert [m.text for m in part.derive_messages()] == [m.text for m in whole.derive_messages()]
        assert part.surface.seqs == whole.surface.seqs

    anyio.run(work)


def same(part: Session, whole: Session) -> None:
    """The one that is partly in memory shows what the other does."""
    assert part.surface.seqs == whole.surface.seqs
    assert part.derive_messages() == whole.derive_messages()
    assert part.request_messages() == whole.request_messages()
    for fold in STANDING.values():
        assert fold.dump(part.fold(fold)) == fold.dump(whole.fold(fold))
