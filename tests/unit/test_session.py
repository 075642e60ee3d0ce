"""A session: appends from any thread, observers, forks, folds, views in the past."""

from __future__ import annotations

import logging
import threading
from typing import Any

import pytest

from turnlog import (
    Message,
    Session,
    SessionHeader,
    Source,
    Text,
    ToolCall,
    assistant_message,
    tool_message,
    user_message,
)
from turnlog import events as ev
from turnlog.errors import (
    AdmissionError,
    NoSuchEvent,
    QueueFull,
    ReentrantAppend,
)
from turnlog.events import AnyEvent, Replace
from turnlog.log import SessionLog
from turnlog.testing.builders import Author, new_session


def test_threads() -> None:
    """Appends from many threads get dense seqs, each its own event, and observers see log order."""
    session = new_session()
    seen: list[int] = []
    session.observe(lambda event: seen.append(event.seq))
    got: list[tuple[int, str]] = []

    def work(name: str) -> None:
        for i in range(50):
            event = session.add_user(f"{name}-{i}")
            got.append((event.seq, event.data.text))

    threads = [threading.Thread(target=work, args=(f"t{n}",)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [event.seq for event in session.events] == list(range(400)) == seen
    assert {session.event_at(seq).data.text for seq, _ in got} == {text for _, text in got}
    assert all(session.event_at(seq).data.text == text for seq, text in got)
    for n in range(8):
        own = [t for t in (e.data.text for e in session.events) if t.startswith(f"t{n}-")]
        assert own == [f"t{n}-{i}" for i in range(50)]


class TestObservers:
    """Observers run after commit and hurt nobody."""

    def test_a_failing_one_hurts_nobody(self, caplog: pytest.LogCaptureFixture) -> None:
        """The append succeeds, the others are called, and the failure is logged."""
        session, seen = new_session(), list[AnyEvent]()

        def fail(event: AnyEvent) -> None:
            raise RuntimeError(event.seq)

        session.observe(fail)
        session.observe(seen.append)
        with caplog.at_level(logging.ERROR, "turnlog"):
            event = session.add_user("x")
        assert seen == [event] == list(session.events)
        assert "failed at event 0" in caplog.text

    def test_they_see_the_committed_state(self) -> None:
        """When an observer is called the event is in the log and in every view."""
        session, lengths = new_session(), list[int]()
        session.observe(lambda _: lengths.append(len(session.derive_messages())))
        session.add_user("a")
        session.add_user("b")
        assert lengths == [1, 2]

    def test_appending_from_inside_is_refused(self) -> None:
        """Neither append nor repair nor the end of a seed may come from an observer."""
        author, refused = Author(), list[str]()
        session = author.session
        author.begin_turn()

        def meddle(_: AnyEvent) -> None:
            for attempt in (lambda: session.add_user("x"), session.repair, session.end_seed):
                with pytest.raises(ReentrantAppend):
                    attempt()
                refused.append("once")

        stop = session.observe(meddle)
        session.add_user("one")
        assert (len(refused), len(session)) == (3, 2)
        stop()
        stop()
        session.add_user("two")
        assert len(refused) == 3

    def test_nothing_is_published_of_what_was_refused(self) -> None:
        """A refused append reaches no observer."""
        session, seen = new_session(), list[AnyEvent]()
        session.observe(seen.append)
        with pytest.raises(AdmissionError):
            session.append("turn/start", {})
        assert seen == []

    def test_repair_is_published(self) -> None:
        """Closers are events like any other."""
        author, seen = Author(), list[str]()
        author.begin_turn()
        author.session.observe(lambda event: seen.append(event.type))
        author.session.repair()
        assert seen == ["turn/end"]


def test_a_commit_that_refuses_changes_nothing() -> None:
    """What a durable session refuses before the commit leaves every view as it was."""
    full = True

    def commit(_: AnyEvent) -> None:
        if full:
            raise QueueFull("full")

    session = Session(SessionLog(SessionHeader("a", 1)), commit=commit)
    for attempt in (
        lambda: session.add_user("x"),
        lambda: session.append("turn/start", {"turn": 1}),
    ):
        with pytest.raises(QueueFull):
            attempt()
    assert (len(session), session.next_seq, len(session.surface)) == (0, 0, 0)
    full = False
    assert session.add_user("x").seq == 0


class TestIds:
    """Messages get an id when they have none."""

    def test_given_at_append(self) -> None:
        """A message struct with an empty id gets a new one, wherever it is in the payload."""
        session = new_session()
        append: Any = session.append
        payloads: list[tuple[str, Any]] = [
            ("user/message", user_message("a")),
            ("assistant/message", ev.AssistantMessage(assistant_message("a"))),
            ("tool/result", ev.ToolResult(tool_message("c", "a"))),
            ("system/message", ev.SystemMessage(Message("", "system", (Text("a"),), Source("s")))),
        ]
        for type_name, data in payloads:
            append(type_name, data, surface_op="append")
        ids = [message.id for message in session.derive_messages()]
        assert all(ids)
        assert len(set(ids)) == len(ids)

    def test_kept(self) -> None:
        """An id that is there stays."""
        event = new_session().append(
            "user/message", user_message("a", id="mine"), surface_op="append"
        )
        assert event.data.id == "mine"


class TestFork:
    """A child shares the prefix and never changes the parent."""

    def author(self) -> Author:
        """A turn with a call that runs, and a bracket that is open."""
        author = Author()
        author.user("hi")
        author.begin_turn()
        author.begin_step()
        author.request()
        call = ToolCall("c", "f", "{}")
        author.answer([call, ToolCall("d", "f", "{}")])
        author.dispatch(call)
        return author

    def test_closes_what_is_open(self) -> None:
        """The child begins with its mark, then closers; the parent stays as it was."""
        parent = self.author().session
        before = list(parent.events)
        child = parent.fork(session_id="child")
        assert list(parent.events) == before
        assert list(child.events[: len(before)]) == before
        added = child.events[len(before) :]
        assert [event.type for event in added] == [
            "session/end-seed",
            "tool/result",
            "tool/result",
            "step/end",
            "turn/end",
        ]
        assert [e.data.error.code for e in added[1:3]] == [
            "TOOL_OUTCOME_UNKNOWN",
            "TOOL_NOT_STARTED",
        ]
        assert added[-1].data.reason.kind == "forked"
        assert child.header.parent_session == parent.id
        assert child.header.seed_length == len(before)

    def test_lives_on_its_own(self) -> None:
        """What is appended to one is not in the other."""
        parent = self.author().session
        child = parent.fork(0, "child")
        child.add_user("child")
        parent.add_context("parent")
        assert [m.text for m in child.derive_messages()] == ["hi", "child"]
        assert child.event_at(0) is parent.event_at(0)

    def test_of_nothing(self) -> None:
        """An empty session can be forked, and so can the place before the first event."""
        assert [e.type for e in new_session().fork(session_id="x").events] == ["session/end-seed"]
        assert len(self.author().session.fork(-1).derive_messages()) == 0

    def test_at_no_event(self) -> None:
        """There is no fork at an event that is not there."""
        for at in (99, -2):
            with pytest.raises(NoSuchEvent):
                self.author().session.fork(at)

    def test_of_a_fork(self) -> None:
        """A grandchild has all marks, and its seed is its parent's whole log."""
        child = self.author().session.fork(session_id="child")
        grandchild = child.fork(session_id="grandchild")
        assert grandchild.header.parent_session == "child"
        assert grandchild.header.seed_length == len(child)
        marks = [e.seq for e in grandchild.events if e.type == "session/end-seed"]
        assert marks[-1] == len(child)


class Counting:
    """A fold that counts types, and fails on one."""

    def start(self) -> dict[str, int]:
        """Nothing yet."""
        return {}

    def step(self, state: dict[str, int], event: AnyEvent, /) -> dict[str, int]:
        """One more; a person's "boom" fails after the state was changed."""
        state[event.type] = state.get(event.type, 0) + 1
        if event.message is not None and event.message.text == "boom":
            raise RuntimeError("boom")
        return state


def test_folds() -> None:
    """An application's fold is incremental, and equal to a fold from the start at any event."""
    session, fold = new_session(), Counting()
    assert session.fold(fold) == {}
    session.add_user("a")
    session.append("turn/start", {"turn": 1})
    assert session.fold(fold) == {"user/message": 1, "turn/start": 1} == session.fold(Counting())
    assert session.fold(fold, at=0) == {"user/message": 1}
    assert session.fold(fold, at=-1) == {}
    session.add_user("b")
    assert session.fold(fold)["user/message"] == 2
    with pytest.raises(NoSuchEvent):
        session.fold(fold, at=3)


def test_a_fold_that_fails_is_folded_anew() -> None:
    """A step that changed the state and then failed does not count twice."""
    session, fold = new_session(), Counting()
    session.add_user("a")
    session.fold(fold)
    session.add_user("boom")
    for _ in range(2):
        with pytest.raises(RuntimeError):
            session.fold(fold)
    assert session.fold(fold, at=0) == {"user/message": 1}


def test_views_in_the_past() -> None:
    """`at=n` is after event n; what is not there is an error that says what is."""
    session = new_session()
    session.add_user("a")
    session.add_user("b")
    session.append(
        "user/message", user_message("s"), surface_op=Replace(0, 1), source_event_seqs=[0, 1]
    )
    texts = [[m.text for m in session.derive_messages(at)] for at in (-1, 0, 1, 2)]
    assert texts == [[], ["a"], ["a", "b"], ["s"]]
    assert [m.text for m in session.extract_chat_messages(at=0)] == ["a"]
    for view in (session.derive_messages, session.request_messages):
        for at in (3, -2):
            with pytest.raises(NoSuchEvent, match="from 0 to 2"):
                view(at)


def test_reading_events() -> None:
    """Events are a live view, never a copy; one is found by its seq."""
    session = new_session()
    events: Any = session.events
    first = session.add_user("a")
    assert (events[0], len(events), list(events)) == (first, 1, [first])
    assert session.event_at(0) is first
    with pytest.raises(TypeError):
        events[0] = first
    for seq in (1, -1):
        with pytest.raises(NoSuchEvent, match="from 0 to 0"):
            session.event_at(seq)
    assert repr(session) == "<Session 'made': 1 events, 1 on the surface>"


def test_everyday_forms() -> None:
    """add_user, add_context, add_assistant and add_tool_result make a whole conversation."""
    session = new_session()
    session.add_user("weather?")
    session.add_context("it is Monday")
    session.add_assistant([Text("let me see"), ToolCall("c", "weather", "{}")], model="m")
    session.append("tool/call", {"callId": "c", "name": "weather", "arguments": "{}"})
    result = session.add_tool_result("c", "")
    assert (result.source_event_seqs, result.data.message.text) == ((3,), "(no output)")
    assert [m.role for m in session.request_messages()] == ["user", "user", "assistant", "tool"]
    assert session.request_messages().mends == ()
    assert [m.text for m in session.extract_chat_messages()] == ["weather?", "let me see"]
    assert len(session.extract_chat_messages(include_tools=True, include_context=True)) == 4
