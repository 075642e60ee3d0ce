"""`verify`: each law broken once is one fault that names it; what is legal is at most a note."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from turnlog import (
    Message,
    Session,
    SessionHeader,
    Source,
    Text,
    ToolCall,
    tool_message,
    user_message,
)
from turnlog import events as ev
from turnlog.events import AnyEvent, Replace
from turnlog.interop.dsh import open_dsh
from turnlog.invariants import Finding, check, verify
from turnlog.log import Damage, SessionLog, make_event
from turnlog.testing.builders import Author, new_session

ONE, TWO = ToolCall("one", "f", "{}"), ToolCall("two", "f", "{}")
Change = Callable[[Author], Any]


def in_step(*, request: bool = True) -> Author:
    """An author in the first step of the first turn."""
    author = Author()
    author.begin_turn()
    author.user("go")
    author.begin_step()
    if request:
        author.request()
    return author


def asked(*calls: ToolCall) -> Author:
    """An author whose model asked for calls."""
    author = in_step()
    author.answer([Text("well"), *calls])
    return author


def add(type_name: str, data: Any, **how: Any) -> Change:
    """Append anything."""

    def change(author: Author) -> None:
        append: Any = author.session.append
        append(type_name, data, **how)

    return change


def result(call: ToolCall, turn: int | None = 1, step: int | None = 1, **more: Any) -> Change:
    """Append a bare result."""
    data = ev.ToolResult(tool_message(call.id, "x", id="r"), turn, step, **more)
    return add("tool/result", data, surface_op="append")


def answer(*content: Any, cited: Any = None, **more: Any) -> Change:
    """Append a bare answer."""
    message = Message("a", "assistant", content, Source("model"))
    data = ev.AssistantMessage(message, 1, 1, **more)
    return add("assistant/message", data, surface_op="append", source_event_seqs=cited)


def settled(call: ToolCall) -> Change:
    """Append a bare settled result."""
    return add("tool/settled", ev.ToolResult(tool_message(call.id, "early", id="r"), 1, 1))


def then(*changes: Change) -> Change:
    """One after the other."""

    def change(author: Author) -> None:
        for each in changes:
            each(author)

    return change


START, END = add("turn/start", {"turn": 1}), add("turn/end", {"turn": 1, "reason": {"kind": "x"}})
CHUNK = {"turn": 1, "step": 1, "chunk": {"type": "text-delta", "index": 0, "text": "x"}}
SENT = ev.RequestSent("step", "sha256:0", "none@0", "m", 1, 1)
FAILED = ev.AssistantAttempt(1, 1)
DISPATCH = ev.ToolCallStart("one", "f", "{}", 1, 1)
COMPACT = {"compactionId": "c"}
ASK = ev.ApprovalAsked("ask", "f", "one")
LATE = ev.ToolResult(tool_message("one", "x", id="r"), 1, 1)
USER = Message("m", "user", (Text("x"),), Source("user"))

BROKEN: list[tuple[str, Callable[[], Author], Change]] = [
    ("turn-number", Author, add("turn/start", {"turn": 2})),
    ("turn-closed", in_step, add("turn/start", {"turn": 2})),
    ("turn-open", Author, END),
    ("turn-open", Author, add("step/start", {"turn": 1, "step": 1})),
    ("step-closed", in_step, END),
    ("step-closed", in_step, add("step/start", {"turn": 1, "step": 2})),
    ("step-number", Author, then(START, add("step/start", {"turn": 1, "step": 2}))),
    ("names-open-step", in_step, add("step/end", {"turn": 1, "step": 2})),
    ("names-open-step", in_step, add("assistant/chunk", {**CHUNK, "step": 2})),
    ("names-open-step", Author, add("assistant/chunk", {**CHUNK})),
    ("names-open-step", Author, answer(Text("x"))),
    ("names-open-step", lambda: asked(ONE), result(ONE, 1, 2)),
    ("attempt-number", in_step, add("assistant/chunk", {**CHUNK, "attempt": 2})),
    ("attempt-number", in_step, add("assistant/attempt", ev.AssistantAttempt(1, 1, 2))),
    (
        "attempt-closed",
        in_step,
        then(add("assistant/chunk", CHUNK), add("step/end", {"turn": 1, "step": 1})),
    ),
    (
        "attempt-closed",
        in_step,
        then(add("assistant/chunk", CHUNK), add("assistant/chunk", {**CHUNK, "attempt": 2})),
    ),
    (
        "attempt-names-chunks",
        in_step,
        then(add("assistant/chunk", CHUNK), add("assistant/attempt", FAILED)),
    ),
    ("answer-cites-chunks", in_step, then(add("assistant/chunk", CHUNK), answer(Text("x")))),
    ("one-answer-a-step", asked, answer(Text("again"))),
    ("request-before-answer", asked, add("request/sent", SENT)),
    ("request-has-header", lambda: in_step(request=False), add("request/sent", SENT)),
    ("interrupted-has-no-calls", in_step, answer(ONE, interrupted=True)),
    ("call-was-asked", asked, add("tool/call", DISPATCH)),
    (
        "call-was-asked",
        lambda: asked(ONE),
        then(add("tool/call", DISPATCH), add("tool/call", DISPATCH)),
    ),
    (
        "call-is-approved",
        lambda: asked(ONE),
        then(add("approval/asked", ASK), add("tool/call", DISPATCH)),
    ),
    ("result-has-call", asked, result(ONE)),
    ("result-has-call", lambda: asked(ONE), settled(ONE)),
    ("one-result-a-call", lambda: asked(ONE), then(result(ONE), result(ONE))),
    (
        "one-result-a-call",
        lambda: asked(ONE),
        then(add("tool/call", DISPATCH), settled(ONE), settled(ONE)),
    ),
    ("results-in-call-order", lambda: asked(ONE, TWO), result(TWO)),
    (
        "not-started",
        lambda: asked(ONE),
        then(
            add("tool/call", DISPATCH),
            add(
                "tool/result",
                ev.ToolResult(
                    tool_message("one", "x", id="r"), 1, 1, ev.ToolError("E", "TOOL_NOT_STARTED")
                ),
                surface_op="append",
                source_event_seqs=[6],
            ),
        ),
    ),
    ("late-result-after-close", lambda: asked(ONE), add("tool/late-result", LATE)),
    ("compaction-closed", Author, then(*[add("compaction/start", COMPACT)] * 2)),
    ("compaction-closed", Author, then(add("compaction/start", COMPACT), START)),
    ("compaction-open", Author, add("compaction/end", COMPACT)),
    ("compaction-open", Author, add("compaction/summary", COMPACT)),
    ("decision-was-asked", Author, add("approval/decided", {"id": "x", "outcome": "granted"})),
    ("unpin-names-a-pin", Author, add("context/unpin", {"pinId": "p"})),
    ("pin-is-new", in_step, then(*[add("context/pin", {"pinId": "p", "seq": 0})] * 2)),
    ("payload-names-earlier", Author, add("context/pin", {"pinId": "p", "seq": 0})),
    ("payload-names-earlier", Author, add("session/title", {"title": "t", "messageSeqs": [-1]})),
    (
        "message-role",
        Author,
        add("assistant/message", {"message": USER.to_dict()}, surface_op="append"),
    ),
]


def faults(session: Session) -> list[Finding]:
    """The faults alone."""
    return [found for found in verify(session) if found.level == "fault"]


@pytest.mark.parametrize(
    ("rule", "start", "change"), BROKEN, ids=[f"{rule}-{i}" for i, (rule, *_) in enumerate(BROKEN)]
)
def test_one_fault(rule: str, start: Callable[[], Author], change: Change) -> None:
    """A legal log with one law broken has one fault, of that name, in one line."""
    author = start()
    assert faults(author.session) == []
    change(author)
    assert [found.rule for found in faults(author.session)] == [rule]
    line = str(faults(author.session)[0])
    assert line.startswith("fault: event ")
    assert "\n" not in line


def test_what_the_source_of_an_import_broke_is_a_note() -> None:
    """The same events as the source of an import give notes, and their mark is missed."""
    for rule, start, change in BROKEN:
        author = start()
        change(author)
        n = len(author.session)
        header = SessionHeader("a", 1, seed_length=n, source_format="other/v1", source_length=n)
        session = Session.from_events(header, author.session.events)
        assert faults(session) == []
        assert rule in {found.rule for found in verify(session)}


def test_settled_results_enter() -> None:
    """A result other than the one that had settled is a fault."""
    author = asked(ONE)
    author.dispatch(ONE)
    settled(ONE)(author)
    data = ev.ToolResult(tool_message("one", "other", id="r"), 1, 1)
    author.session.append("tool/result", data, surface_op="append", source_event_seqs=[6, 7])
    assert [f.rule for f in faults(author.session)] == ["settled-result-enters"]


def test_requests_are_missed_where_they_are_logged() -> None:
    """An answer without request/sent is a fault only in a log that records its requests."""
    for request, expected in ((True, ["request-before-answer"]), (False, [])):
        author = in_step(request=request)
        author.answer([Text("x")])
        author.end_step()
        author.begin_step()
        author.answer([Text("y")])
        assert [f.rule for f in faults(author.session)] == expected


def test_seeds_end_with_their_mark() -> None:
    """A native event right after an inherited seed is a fault, unless it is the mark."""
    events = [event.to_dict() for event in in_step().session.events]
    header = SessionHeader("a", 1, seed_length=2, source_length=3)
    found = faults(Session.from_events(header, events))
    assert [f.rule for f in found] == ["seed-length", "seed-has-end"]


def wire(type_name: str, seq: int, data: Any, **more: Any) -> dict[str, Any]:
    """An event in wire form."""
    return {"type": type_name, "seq": seq, "time": 1, "data": data, **more}


def test_what_only_loading_lets_in() -> None:
    """Payloads of another shape and empty blocks are faults of a log of ours."""
    empty = Message("m", "user", (Text(""),), Source("user")).to_dict()
    events = [
        wire("turn/start", 0, {"turn": "one"}),
        wire("user/message", 1, empty, surfaceOp="append"),
    ]
    session = Session.from_events(SessionHeader("a", 1), events)
    assert [f.rule for f in faults(session)] == ["payload-shape", "no-empty-block"]


def test_notes() -> None:
    """What is legal but worth knowing is a note."""
    author = asked(ONE)
    session = Session.from_events(
        author.session.header,
        [*author.session.events, wire("x/y", 6, {}), wire("x/z", 7, {}, ignorable=True)],
    )
    assert {str(found) for found in verify(session)} == {
        "note: no one here knows 'x/y' (1 event) [unknown-type]",
        "note: event 7: turn 1 is open [open-turn]",
        "note: mended in requests: message 'a5', call 'one' [open-call]",
        "note: 1 request not proved [request-proved]",
    }
    author.record("approval/asked", ASK)
    author.record("compaction/start", COMPACT)
    rules = {found.rule for found in verify(author.session)}
    assert {"suspended", "open-compaction"} < rules


def test_proof() -> None:
    """Each request is proved by what was handed in; what that finds is found."""
    session = in_step().session

    def prove(_: Session, event: AnyEvent) -> Finding | None:
        return Finding("fault", "request-proved", event.seq, "another digest")

    assert [f for f in verify(session, prove=prove) if f.level == "fault"] == [
        Finding("fault", "request-proved", 4, "another digest")
    ]
    assert [f.rule for f in verify(session, prove=lambda _, __: None)] == ["open-turn"]


def rich() -> Session:
    """Three turns with calls, approvals, pins and a compaction, each about those before."""
    author = Author()
    for turn in range(3):
        author.begin_turn()
        author.user("go")
        author.begin_step()
        author.request(header=turn == 0)
        calls = [ToolCall(f"{turn}{name}", "f", "{}") for name in "ab"]
        author.answer([Text("x"), *calls])
        for call in calls:
            author.record("approval/asked", ev.ApprovalAsked(f"ask {call.id}", "f", call.id))
            decided = {"id": f"ask {call.id}", "outcome": "granted"}
            author.record("approval/decided", decided)
            author.dispatch(call)
            author.result(call)
        author.end_step()
        author.begin_step()
        author.request(header=False)
        author.answer([Text("done")], author.stream([Text("done")]))
        author.end_step()
        author.end_turn()
        author.record("context/pin", {"pinId": f"p{turn}", "seq": 1})
        author.late(calls[0])
    for turn in range(3):
        author.record("context/unpin", {"pinId": f"p{turn}"})
    author.compact(1, 5)
    author.user("bye")
    return author.session


def without(whole: Session, first: int, last: int) -> SessionLog:
    """The log with some events lost."""
    log = SessionLog(whole.header)
    for event in whole.events:
        if event.seq == first:
            log.lose(Damage("x", first, last))
        if not first <= event.seq <= last:
            log.load(event)
    return log


def differs(event: AnyEvent) -> Finding:
    """What proving a request after damage finds."""
    return Finding("note", "request-proved", event.seq, "not what was sent")


class TestDamage:
    """Damage is a fault until it is acknowledged."""

    def log(self) -> SessionLog:
        """A turn of which the end was lost, and what came after."""
        log, author = SessionLog(SessionHeader("a", 1)), in_step()
        author.answer([Text("x")])
        author.end_step()
        for event in author.session.events:
            log.load(event)
        log.lose(Damage("garbled", 7, 8))
        raw = USER.to_dict()
        for data in (wire("turn/start", 9, {"turn": 3}), wire("user/message", 10, raw)):
            op = "append" if data["type"] == "user/message" else None
            log.load(make_event(data["type"], data["seq"], 1, ev.jsontext.encode(data["data"]), op))
        return log

    def test_until_acknowledged(self) -> None:
        """One fault, and none for what the lost events would have explained."""
        session = Session(self.log())
        assert [f.rule for f in faults(session)] == ["damage"]
        ranges = [{"firstSeq": 7, "lastSeq": 8, "reason": "garbled"}]
        session.append("session/damage-acknowledged", {"ranges": ranges})
        assert faults(session) == []
        assert "damage-acknowledged" in {found.rule for found in verify(session)}

    @pytest.mark.parametrize("width", [1, 3])
    def test_one_note_for_what_follows(self, width: int) -> None:
        """Whatever is lost of a rich log is one fault, and accepted none; what follows is brief."""
        whole = rich()
        assert faults(whole) == []
        for first in range(len(whole) - width):
            session = Session(without(whole, first, first + width - 1))
            found = verify(session, prove=lambda _, event: differs(event))
            assert [f.rule for f in found if f.level == "fault"] == ["damage"], first
            for rule in {f.rule for f in found}:
                assert len([f for f in found if f.rule == rule]) == 1, (first, rule)
            lost = {"firstSeq": first, "lastSeq": first + width - 1, "reason": "x"}
            session.append("session/damage-acknowledged", {"ranges": [lost]})
            session.repair()
            assert faults(session) == [], first

    def test_replacements_around_it(self) -> None:
        """A replacement that was placed around damage is a note."""
        log = self.log()
        op, raw = Replace(1, 8), ev.jsontext.encode(user_message("s", id="s").to_dict())
        log.load(make_event("user/message", 11, 1, raw, op, [1, 7, 8]))
        assert "placed-around-damage" in {found.rule for found in verify(Session(log))}

    def test_a_gap_that_nobody_reported(self) -> None:
        """A missing seq without damage is a fault."""
        events = list(new_session().fork(session_id="a").events)
        author = in_step()
        gap = [e for e in author.session.events if e.seq != 1]
        assert check(author.session.header, gap)[0].rule == "dense-seq"
        assert check(SessionHeader("a", 1, seed_length=0), events) == []


SESSIONS = [
    *(f"v0/{name}" for name in ("chat", "tools", "cancel", "compaction", "fork-parent")),
    *(f"v0/{name}" for name in ("fork-child", "crash-before", "crash-after")),
    *(f"v3/{name}" for name in ("chat", "tools", "compaction", "crash-before")),
    *(f"v4/{name}" for name in ("chat", "tools", "cancel", "compaction", "crash-before")),
]


@pytest.mark.parametrize("name", SESSIONS)
def test_sessions_of_another_program(corpus: Path, name: str) -> None:
    """What DeepSeek Harness wrote has no fault, as it is and after its seed was closed."""
    source = open_dsh(corpus / "dsh" / name)
    events = list(source.events())
    header = SessionHeader(
        source.id,
        1,
        seed_length=len(events),
        source_format=source.source_format,
        source_length=len(events),
    )
    log = SessionLog(header)
    for e in events:
        op = Replace(*e.surface_op) if isinstance(e.surface_op, tuple) else e.surface_op
        log.load(make_event(e.type, e.seq, e.time, e.data, op, e.source_event_seqs))
    session = Session(log)
    assert faults(session) == []
    session.end_seed("interrupted")
    assert faults(session) == []
    assert session.repair() == []
    assert session.request_messages().mends == ()
