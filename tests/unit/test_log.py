"""Admission: each rule with its own error, which names rule, seq and value."""

from __future__ import annotations

from typing import Any

import pytest

from turnlog import Message, Session, SessionHeader, Source, Text, ToolCall, errors
from turnlog import events as ev
from turnlog.content import tool_message, user_message
from turnlog.events import AnyEvent, Replace
from turnlog.log import Damage, SessionLog, make_event
from turnlog.testing.builders import Author, new_session
from turnlog.testing.strategies import illegal_appends


def busy() -> Session:
    """A session with messages, a result, a shadowed node and a call that is running."""
    author = Author()
    call, running = ToolCall("c1", "f", "{}"), ToolCall("c2", "f", "{}")
    author.user("one")
    author.user("two")
    author.begin_turn()
    author.begin_step()
    author.answer([Text("ok"), call, running])
    author.dispatch(call)
    author.dispatch(running)
    author.result(call)
    author.session.append(
        "user/message",
        user_message("summary"),
        surface_op=Replace(0, 0),
        source_event_seqs=[0],
    )
    return author.session


def test_every_admission_error_is_tested() -> None:
    """The illegal appends below, and those of loading, break every rule that there is."""
    loading = {errors.InvalidEnvelope, errors.SeqOutOfOrder, errors.PayloadTooLarge}
    here = {errors.UncitedCall, errors.UnknownProvenance}
    tested = {illegal.error for illegal in illegal_appends(busy())} | loading | here

    def leaves(error: type[errors.AdmissionError]) -> set[type[errors.AdmissionError]]:
        below = [leaf for sub in error.__subclasses__() for leaf in leaves(sub)]
        return set(below) or {error}

    assert tested == leaves(errors.AdmissionError)


@pytest.mark.parametrize("number", range(len(list(illegal_appends(busy())))))
def test_refused(number: int) -> None:
    """The error is the rule's own, names rule and seq, carries a value, and nothing changed."""
    session = busy()
    illegal = list(illegal_appends(session))[number]
    before = [event.to_dict() for event in session.events], list(session.surface.seqs)
    with pytest.raises(errors.AdmissionError) as caught:
        illegal.attempt(session)
    assert type(caught.value) is illegal.error
    assert str(caught.value).startswith(f"{illegal.error.rule} (seq {session.next_seq}): ")
    assert "\n" not in str(caught.value)
    assert before == ([event.to_dict() for event in session.events], list(session.surface.seqs))


def test_rules_have_names_of_their_own() -> None:
    """No two errors name the same rule."""
    kinds = [errors.AdmissionError]
    for kind in kinds:
        kinds.extend(kind.__subclasses__())
    assert len({kind.rule for kind in kinds}) == len(kinds)


def result(call_id: str = "c2") -> ev.ToolResult:
    """A result."""
    return ev.ToolResult(tool_message(call_id, "x", id="r"))


def test_results_cite_their_call() -> None:
    """An appended result cites its call and its settled result, and may cite more."""
    session = busy()
    (call,) = [e.seq for e in session.events if e.type == "tool/call" and e.data.call_id == "c2"]
    settled = session.append("tool/settled", result()).seq
    for cited, missing in ((None, call), ([0], call), ([settled], call), ([call], settled)):
        with pytest.raises(errors.UncitedCall) as caught:
            session.append("tool/result", result(), surface_op="append", source_event_seqs=cited)
        assert caught.value.value == missing
    session.append(
        "tool/result", result(), surface_op="append", source_event_seqs=[settled, 0, call]
    )
    session.append("tool/result", result("other"), surface_op="append")


def test_a_reused_id_is_another_call() -> None:
    """A result of a call that never started cites nothing, though its id once had a tool/call."""
    session = busy()
    session.add_assistant([ToolCall("c2", "f", "{}")])
    session.append("tool/result", result("c2"), surface_op="append")


def test_foreign_results_cite_what_they_like() -> None:
    """In the source of an import a result need not cite its call."""
    header = SessionHeader("a", 1, seed_length=3, source_format="other/v1", source_length=3)
    session = busy()
    wires: list[dict[str, Any]] = [
        {"type": "tool/call", "data": {"callId": "c", "name": "f", "arguments": ""}},
        {"type": "tool/result", "data": result("c").to_dict(), "surfaceOp": "append"},
    ]
    events = [{**wire, "seq": seq, "time": 1} for seq, wire in enumerate(wires)]
    assert len(Session.from_events(header, events)) == 2
    with pytest.raises(errors.UncitedCall):
        Session.from_events(session.header, events)


def test_plain_dicts_are_copied() -> None:
    """What the caller does to a payload later does not reach the log."""
    session = new_session()
    data: dict[str, Any] = {"command": {"type": "steer", "tags": ["a"]}}
    event = session.append("inbox/accepted", data)
    data["command"]["tags"].append("b")
    assert event.data.command == {"type": "steer", "tags": ["a"]}
    struct = ev.InboxAccepted({"tags": ["a"]})
    event = session.append("inbox/accepted", struct)
    struct.command["tags"].append("b")
    assert event.data.command == {"tags": ["a"]}


@pytest.mark.parametrize("time", [1.5, None, 2**63, True])
def test_the_clock_gives_milliseconds(time: Any) -> None:
    """A clock that gives something else is refused before anything is changed."""

    def clock() -> Any:
        return time

    session = Session.from_events(SessionHeader("a", 1), [], clock=clock)
    with pytest.raises(errors.InvalidEnvelope, match="milliseconds"):
        session.add_user("x")
    assert len(session) == 0


def test_loading_keeps_what_appending_refuses() -> None:
    """Loading keeps unknown types, empty blocks and payloads of another shape; nothing else."""
    empty = Message("m", "user", (Text(""),), Source("user")).to_dict()
    wires: list[dict[str, Any]] = [
        {"type": "user/message", "data": empty, "surfaceOp": "append"},
        {"type": "user/message", "data": {"odd": 1}, "surfaceOp": "append"},
        {"type": "x/y", "data": None, "surfaceOp": "append"},
        {"type": "x/y", "data": None},
        {"type": "x/z", "data": None, "ignorable": True},
    ]
    events = [{**wire, "seq": seq, "time": 1} for seq, wire in enumerate(wires)]
    session = Session.from_events(SessionHeader("a", 1), events)
    assert session.surface.seqs == [0, 1, 2]
    assert [message.id for message in session.derive_messages()] == ["m"]
    assert session.unknown_types == {"x/y": 2}
    assert session.request_messages() == []
    with pytest.raises(errors.UnknownEventType):
        Session.from_events(SessionHeader("a", 1), events, refuse_unknown=True)


def event(seq: int, text: str = "x", op: Any = "append", cited: Any = None) -> AnyEvent:
    """A user's message, loaded."""
    raw = b'{"id":"m%d","role":"user","content":[{"type":"text","text":"%s"}],' % (
        seq,
        text.encode(),
    )
    return make_event("user/message", seq, 1, raw + b'"source":{"kind":"user"}}', op, cited)


class TestDamage:
    """A log with lost events: everything else is there, nothing is invented."""

    def log(self) -> SessionLog:
        """Events 0, 1 and 4; 2 and 3 are lost."""
        log = SessionLog(SessionHeader("a", 1))
        log.load(event(0))
        log.load(event(1))
        log.lose(Damage("garbled", 2, 3))
        log.load(event(4))
        return log

    def test_seqs_go_on(self) -> None:
        """The events after the damage keep their seqs, lost ones are named as such."""
        log = self.log()
        assert [e.seq for e in log.events] == [0, 1, 4]
        assert (log.next_seq, log.event_at(4).seq, log.index(4)) == (5, 4, 2)
        assert (log.is_lost(3), log.is_lost(4)) == (True, False)
        with pytest.raises(errors.NoSuchEvent, match="lost to damage"):
            log.event_at(2)
        with pytest.raises(errors.NoSuchEvent, match="from 0 to 4"):
            log.event_at(5)
        with pytest.raises(errors.SeqOutOfOrder):
            log.lose(Damage("later", 7, 8))

    def test_replacements_of_what_is_there(self) -> None:
        """A replacement that needs nothing that was lost is one like any other."""
        log = self.log()
        log.load(event(5, "s", Replace(0, 4), [0, 1, 2, 3, 4]))
        assert (list(log.surface.seqs), log.flagged) == ([5], [])

    @pytest.mark.parametrize(
        ("op", "cited", "surface"),
        [
            (Replace(2, 4), [2, 3, 4], [0, 1, 5]),  # its start was lost
            (Replace(1, 3), [1, 2, 3], [0, 5, 4]),  # its end was lost
            (Replace(2, 3), [2, 3], [0, 1, 4, 5]),  # all of it
            (Replace(0, 4), [0, 3, 4], [5, 1]),  # 3 had taken the place of 1, and was lost
            (Replace(4, 0), [0, 4], [5, 1]),  # they were in that order once
        ],
    )
    def test_replacements_of_what_was_lost(
        self, op: Replace, cited: list[int], surface: list[int]
    ) -> None:
        """It takes the first place of what it cites that is still there, and is flagged."""
        log = self.log()
        log.load(event(5, "s", op, cited))
        assert list(log.surface.seqs) == surface
        assert log.flagged == [5]
        session = Session(log)
        assert [m.id for m in session.derive_messages()] == [f"m{seq}" for seq in surface]
        assert [m.id for m in session.derive_messages(at=4)] == ["m0", "m1", "m4"]
        assert session.surface.at(4) == (0, 1, 4)

    def test_new_events_cite_what_is_there(self) -> None:
        """After damage a new event cannot cite a lost one, though a loaded one may."""
        session = Session(self.log())
        for cited in ([2], [0, 3]):
            with pytest.raises(errors.UnknownProvenance) as caught:
                session.append(
                    "user/message",
                    user_message("x"),
                    surface_op="append",
                    source_event_seqs=cited,
                )
            assert caught.value.value == cited[-1:]
        session.append(
            "user/message", user_message("x"), surface_op="append", source_event_seqs=[4, 0]
        )

    def test_forks(self) -> None:
        """A fork of a damaged log has the same holes; without `at` it takes what there is."""
        log = self.log()
        log.lose(Damage("the end", 5, 6))
        session = Session(log)
        child = session.fork(session_id="child")
        assert [e.seq for e in child.events] == [0, 1, 4, 5]
        assert child.header.seed_length == 5
        assert [d.first_seq for d in child.damage] == [2]
        assert session.fork(1).damage == ()
        with pytest.raises(errors.NoSuchEvent):
            session.fork(3)


def test_many_seqs_that_come_twice_are_refused_at_once() -> None:
    """Of a long list of seqs that all come twice, the error names the first few."""
    session = Session.create("s")
    session.add_user("hello")
    with pytest.raises(errors.DuplicateProvenance) as caught:
        session.append(
            "user/message",
            user_message("again"),
            surface_op="append",
            source_event_seqs=[*range(200_000), *range(200_000)],
        )
    assert caught.value.value == list(range(10))
