"""Requests: each that was sent, what it was made of, what came of it."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given

from tests.unit.views.histories import prefix, sessions
from turnlog import events as ev
from turnlog.content import Text, Usage
from turnlog.events import SessionHeader
from turnlog.interop.dsh import open_dsh, upcast_type
from turnlog.log import make_event
from turnlog.session import Session
from turnlog.testing.builders import Author


def begun() -> Author:
    """A turn whose first step has a prompt."""
    author = Author()
    author.begin_turn()
    author.begin_step()
    author.user("hello")
    return author


# -- laws ----------------------------------------------------------------------------------------


@given(sessions())
def test_incremental_equals_refold_and_depends_on_the_prefix_alone(session: Session) -> None:
    """The requests at n are those of a session that never had more, read slowly or at once."""
    for event in session.events:
        assert session.requests(at=event.seq) == prefix(session, event.seq).requests()
    assert session.requests() == session.requests(at=session.next_seq - 1)


@given(sessions())
def test_every_sent_request_is_listed_once(session: Session) -> None:
    """Each `request/sent` is one request, in order, and no settling event settles two."""
    requests = session.requests()
    assert [r.index for r in requests] == list(range(len(requests)))
    sent = [event.seq for event in session.events if event.type == "request/sent"]
    assert [r.seq for r in requests if not r.inferred] == sent
    settled = [r.outcome_seq for r in requests if r.outcome_seq is not None]
    assert len(settled) == len(set(settled))
    assert sorted(r.at for r in requests) == [r.at for r in requests]


@given(sessions())
def test_what_a_request_says_is_what_the_log_says(session: Session) -> None:
    """Header, digest and usage are those of the events that the request names."""
    for request in session.requests():
        if request.header_seq is not None:
            assert session.event_at(request.header_seq).data.header == request.header
        if request.seq is not None:
            assert request.at == request.seq - 1
            assert session.event_at(request.seq).data.digest == request.digest
        if request.usage is not None and request.outcome_seq is not None:
            assert session.event_at(request.outcome_seq).data.usage == request.usage


# -- what came of it -----------------------------------------------------------------------------


def test_an_answered_request() -> None:
    """It has the header in force, its prefix, its answer and what that took."""
    author = begun()
    author.request("be brief")
    author.stream([Text("Hello")])
    answer = author.answer([Text("Hello")])
    (request,) = author.session.requests()
    assert request.header is not None
    assert request.header.system == "be brief"
    assert (request.turn, request.step, request.attempt) == (1, 1, 1)
    assert (request.outcome, request.outcome_seq) == ("answered", answer.seq)
    assert request.usage == answer.data.usage
    assert [m.text for m in author.session.request_messages(at=request.at)] == ["hello"]


def test_a_request_is_open_until_something_came_of_it() -> None:
    """At the moment at which it was sent, nobody knows more; the list that was taken then stays."""
    author = begun()
    author.request()
    taken = author.session.requests()
    assert (taken[0].outcome, taken[0].outcome_seq, taken[0].usage) == ("open", None, None)
    author.answer([Text("Hello")])
    assert [r.outcome for r in author.session.requests()] == ["answered"]
    assert taken[0].outcome == "open"


def test_a_request_that_another_follows_is_unknown() -> None:
    """Two in a row, of the log's own or one of them inferred: of the first, nobody knows."""
    author = begun()
    author.request()
    author.request(header=False)
    author.begin_step()
    author.answer([Text("Hello")])
    outcomes = [(r.step, r.inferred, r.outcome) for r in author.session.requests()]
    assert outcomes == [(1, False, "unknown"), (1, False, "unknown"), (2, True, "answered")]


def test_a_fork_waits_for_no_auxiliary_request() -> None:
    """What was open in the parent for another purpose than a step is over in the child."""
    author = begun()
    author.record("request/sent", ev.RequestSent("title", "sha256:0", "e@1", "m"))
    assert [r.outcome for r in author.session.requests()] == ["open"]
    assert [r.outcome for r in author.session.fork().requests()] == ["unknown"]


def test_each_attempt_is_a_request() -> None:
    """A failed attempt says why; the next one is a request of its own under the same header."""
    author = begun()
    author.request()
    author.fail(author.stream([Text("Hel")]))
    author.request(header=False)
    author.answer([Text("Hello")], author.stream([Text("Hello")]))
    first, second = author.session.requests()
    assert (first.outcome, first.failure.code) == ("failed", "transport")
    assert (second.outcome, second.attempt) == ("answered", 2)
    assert first.header_seq == second.header_seq


def test_a_request_that_a_crash_cut_off() -> None:
    """Repair closes the step; an answer that had begun is interrupted, else nobody knows."""
    author = begun()
    author.request()
    silent = author.session.fork()
    author.stream([Text("Hello")])
    author.session.repair()
    assert [r.outcome for r in author.session.requests()] == ["interrupted"]
    assert [r.outcome for r in silent.requests()] == ["unknown"]


def test_an_auxiliary_request_has_its_instruction() -> None:
    """A compaction's request is settled by its summary, or by the error of its bracket."""
    author = begun()
    author.request()
    author.answer([Text("Hello")])
    sent = ev.RequestSent("compaction", "sha256:0", "e@1", "m", instruction="summarise")
    for error in (None, "no progress"):
        author.record("compaction/start", ev.CompactionStart("c"))
        author.record("request/sent", sent)
        if error is None:
            author.record("compaction/summary", ev.CompactionSummary("c", usage=Usage(9, 9)))
        author.record("compaction/end", ev.CompactionEnd("c", error=error))
    _, told, failed = author.session.requests()
    assert (told.purpose, told.instruction, told.outcome) == ("compaction", "summarise", "answered")
    assert told.usage == Usage(9, 9)
    assert (failed.outcome, failed.failure) == ("failed", "no progress")


def test_an_answer_told_anew_is_no_answer() -> None:
    """A replacement settles nothing and was asked for by nobody."""
    author = begun()
    author.request()
    answer = author.answer([Text("Hello")])
    before = author.session.requests()
    op = {"op": "replace", "start": answer.seq, "end": answer.seq}
    author.session.append(
        "assistant/message", answer.data, surface_op=op, source_event_seqs=[answer.seq]
    )
    assert author.session.requests() == before


def test_without_a_header_nothing_is_inferred() -> None:
    """A history that was adopted from messages has no requests."""
    session = Author().session
    session.add_user("hi")
    session.add_assistant("hello")
    assert session.requests() == ()


# -- logs of others ------------------------------------------------------------------------------


def imported(folder: Path) -> Session:
    """A session of DeepSeek Harness, event for event."""
    source = open_dsh(folder)
    found = list(source.events())
    header = SessionHeader(
        source.id,
        0,
        seed_length=len(found),
        source_format=source.source_format,
        source_length=len(found),
        source=source.header,
    )
    events: list[ev.AnyEvent] = []
    for e in found:
        op = e.surface_op
        if isinstance(op, tuple):
            op = ev.Replace(*op)
        kind = upcast_type(e.type)
        events.append(make_event(kind, e.seq, e.time, e.data, op, e.source_event_seqs))
    return Session.from_events(header, events)


@pytest.mark.parametrize(
    "name",
    ["v0/chat", "v0/tools", "v0/cancel", "v0/compaction", "v3/tools", "v4/tools", "v4/cancel"],
)
def test_requests_of_real_sessions_are_inferred(corpus: Path, name: str) -> None:
    """Every answer of an imported log answers one inferred request, made of what was before it."""
    session = imported(corpus / "dsh" / name)
    requests = session.requests()
    answers = [e.seq for e in session.events if e.type == "assistant/message"]
    answered = [r for r in requests if r.outcome in ("answered", "interrupted")]
    assert [r.outcome_seq for r in answered] == answers
    for request in requests:
        assert request.inferred
        assert request.digest is None
        assert request.header is not None
        messages = session.request_messages(at=request.at)
        assert messages[len(messages) - 1].role in ("user", "tool")


@pytest.mark.parametrize("name", ["v0/tools", "v0/compaction", "v3/compaction", "v4/cancel"])
def test_real_sessions_are_drawn(corpus: Path, name: str) -> None:
    """An imported log shows its finished answers and its cards, and what was compacted too."""
    session = imported(corpus / "dsh" / name)
    nodes = session.nodes()
    assert not [node for node in nodes if node.status in ("streaming", "running", "waiting")]
    answers = [e for e in session.events if e.type == "assistant/message"]
    assert len([node for node in nodes if node.kind == "assistant"]) == len(answers)
    calls = [e for e in session.events if e.type == "tool/call"]
    assert len([node for node in nodes if node.kind == "call"]) == len(calls)
    replaced = [e for e in session.events if e.type == "user/message" and e.surface_op != "append"]
    assert len([n for n in nodes if n.kind == "compaction" and n.shadows]) == len(replaced)
