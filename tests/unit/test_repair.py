"""Repair, branch by branch: what an interrupted tail lacks, and nothing more."""

from __future__ import annotations

from typing import Any

from turnlog import Session, SessionHeader, Text, ToolCall, tool_message
from turnlog import events as ev
from turnlog.content import (
    Reasoning,
    ReasoningDelta,
    TextDelta,
    ToolCallDelta,
    Usage,
    UsageChunk,
)
from turnlog.events import AnyEvent, Replace
from turnlog.invariants import verify
from turnlog.repair import is_suspended, repair_id
from turnlog.testing.builders import Author

ONE, TWO, THREE = (ToolCall(name, "f", "{}") for name in ("one", "two", "three"))


def asking(*calls: ToolCall, request: bool = True) -> Author:
    """An open step whose answer asks for calls."""
    author = Author()
    author.begin_turn()
    author.user("go")
    author.begin_step()
    if request:
        author.request()
    author.answer([Text("well"), *calls])
    return author


def told(events: list[AnyEvent]) -> list[str]:
    """The closers, results by their error or as real."""
    words: list[str] = []
    for event in events:
        if event.type == "tool/result":
            error = event.data.error
            words.append(f"{event.data.message.tool_call_id}: {error.code if error else 'real'}")
        else:
            words.append(event.type)
    return words


def test_nothing_to_repair() -> None:
    """An empty log and a closed one need nothing."""
    author = asking(ONE)
    author.dispatch(ONE)
    author.result(ONE)
    author.end_step()
    author.end_turn()
    assert author.session.repair() == []
    assert Author().session.repair() == []


def test_calls() -> None:
    """In call order: a settled result enters, a started call is unknown, another never started."""
    author = asking(ONE, TWO, THREE)
    started = author.dispatch(ONE)
    ran = author.dispatch(TWO)
    settled = author.settle(TWO, "real")
    added = author.session.repair()
    assert told(added) == [
        "one: TOOL_OUTCOME_UNKNOWN",
        "two: real",
        "three: TOOL_NOT_STARTED",
        "step/end",
        "turn/end",
    ]
    one, two, three, _, end = added
    assert [e.source_event_seqs for e in (one, two, three)] == [
        (started.seq,),
        (ran.seq, settled.seq),
        None,
    ]
    assert two.data == settled.data
    assert (one.data.message.is_error, three.data.message.is_error) == (True, True)
    assert one.data.message.id == repair_id(author.session.header, one.seq)
    assert "verify" in one.data.message.text
    assert "safe to make it again" in three.data.message.text
    assert end.data.reason.kind == "interrupted"
    assert {e.time for e in added} == {settled.time}


def test_without_a_request_nobody_knows_that_a_call_did_not_start() -> None:
    """A step without request/sent gives unknown outcomes, for its log may not record calls."""
    added = asking(ONE, request=False).session.repair()
    assert told(added)[0] == "one: TOOL_OUTCOME_UNKNOWN"
    assert added[0].source_event_seqs is None


def test_dsh_records_its_calls() -> None:
    """In the source of a DeepSeek Harness import a call without tool/call never started."""
    events = asking(ONE, request=False).session.events
    for source, code in (("dsh/v4", "TOOL_NOT_STARTED"), ("other/v1", "TOOL_OUTCOME_UNKNOWN")):
        header = SessionHeader(
            "a", 1, seed_length=len(events), source_format=source, source_length=len(events)
        )
        session = Session.from_events(header, [event.to_dict() for event in events])
        assert told(session.end_seed("interrupted")) == [
            "session/end-seed",
            f"one: {code}",
            "step/end",
            "turn/end",
        ]


def test_partial_answer() -> None:
    """Chunks without a message become one: marked, citing them, blank text and calls left out."""
    author = Author()
    author.begin_turn()
    author.begin_step()
    author.request()
    chunks = [
        author.chunk(ReasoningDelta(0, "hm")).seq,
        author.chunk(TextDelta(1, "par")).seq,
        author.chunk(TextDelta(1, "tial")).seq,
        author.chunk(TextDelta(2, "  ")).seq,
        author.chunk(ToolCallDelta(3, "one", "f", "{")).seq,
        author.chunk(UsageChunk(Usage(5))).seq,
    ]
    added = author.session.repair()
    assert told(added) == ["assistant/message", "step/end", "turn/end"]
    answer: ev.AssistantMessage = added[0].data
    assert answer.message.content == (Reasoning("hm"), Text("partial"))
    assert (answer.interrupted, answer.usage) == (True, Usage(5))
    assert list(added[0].source_event_seqs or ()) == chunks
    assert answer.message.source.model == "parrot"


def test_answer_of_which_nothing_shows() -> None:
    """Chunks that show nothing become a failed attempt with its usage."""
    author = Author()
    author.begin_turn()
    author.begin_step()
    author.request()
    author.fail(author.stream([Text("first try")]))
    first = author.chunk(TextDelta(0, " ")).seq
    last = author.chunk(UsageChunk(Usage(5))).seq
    added = author.session.repair()
    assert told(added) == ["assistant/attempt", "step/end", "turn/end"]
    attempt: ev.AssistantAttempt = added[0].data
    assert (attempt.attempt, attempt.first_seq, attempt.last_seq) == (2, first, last)
    assert (attempt.usage, attempt.failure and attempt.failure.code) == (Usage(5), "interrupted")


def test_halves_of_a_character_in_a_partial_answer() -> None:
    """A stream cut in the middle of a character is repaired, and says what had come."""
    author = Author()
    author.begin_turn()
    author.begin_step()
    for piece in ("a\ud83d", "\ude00", "b\ud83d"):
        author.chunk(TextDelta(0, piece))
    added = author.session.repair()
    assert added[0].data.message.text == "a\U0001f600b\ud83d"


def test_between_things() -> None:
    """A turn without step, a step without request, an answer without calls."""
    author = Author()
    author.begin_turn()
    assert told(author.session.fork(session_id="x").repair()) == []
    assert told(author.session.repair()) == ["turn/end"]
    author = Author()
    author.begin_turn()
    author.begin_step()
    assert told(author.session.repair()) == ["step/end", "turn/end"]
    assert told(asking().session.repair()) == ["step/end", "turn/end"]
    author = asking(ONE)
    author.result(ONE)
    author.end_step()
    assert told(author.session.repair()) == ["turn/end"]


def test_a_request_that_nothing_came_of() -> None:
    """It is accounted for as an attempt of unknown usage; in a fork it is the parent's."""
    author = Author()
    author.begin_turn()
    author.begin_step()
    author.request()
    author.fail()
    author.request(header=False)
    child = author.session.fork(session_id="x")
    assert told(list(child.events[author.session.next_seq + 1 :])) == ["step/end", "turn/end"]
    added = author.session.repair()
    assert told(added) == ["assistant/attempt", "step/end", "turn/end"]
    attempt = added[0].data
    assert (attempt.attempt, attempt.first_seq, attempt.usage) == (2, None, None)
    assert attempt.failure.code == "interrupted"


def test_open_compaction() -> None:
    """An open bracket is closed first, with its error; the surface stays as it was."""
    author = Author()
    author.begin_turn()
    author.user("a")
    author.record("compaction/start", ev.CompactionStart("c", 1))
    added = author.session.repair()
    assert told(added) == ["compaction/end", "turn/end"]
    assert added[0].data == ev.CompactionEnd("c", 1, "interrupted")
    author = Author()
    author.record("compaction/start", ev.CompactionStart("c"))
    assert told(author.session.repair()) == ["compaction/end"]


def test_a_bracket_of_the_parent_is_dead() -> None:
    """A fork inside a bracket does not close it: the end of the seed did."""
    author = Author()
    author.record("compaction/start", ev.CompactionStart("c"))
    child = author.session.fork(session_id="child")
    assert told(list(child.events)) == ["compaction/start", "session/end-seed"]
    assert child.repair() == []
    assert [f for f in verify(child) if f.level == "fault"] == []


def test_calls_outside_any_turn() -> None:
    """Calls of an adopted history are closed too, and no turn is ended that never began."""
    session = Author().session
    session.add_user("go")
    session.add_assistant([ONE, TWO])
    session.add_tool_result("one", "done")
    assert told(session.repair()) == ["two: TOOL_OUTCOME_UNKNOWN"]
    assert session.request_messages().mends == ()


def test_calls_that_were_shadowed() -> None:
    """A call whose message left the surface needs no result."""
    author = asking(ONE)
    seqs = list(author.session.surface.seqs)
    summary: dict[str, Any] = {"id": "s", "role": "user", "content": [], "source": {"kind": "user"}}
    author.session.append(
        "user/message",
        summary,
        surface_op=Replace(seqs[0], seqs[-1]),
        source_event_seqs=seqs,
    )
    assert told(author.session.repair()) == ["step/end", "turn/end"]


def test_answers_that_were_rewritten() -> None:
    """An answer that replaces another asks for nothing new: what was answered stays answered."""
    for answered in (True, False):
        author = asking(ONE)
        (answer,) = [e for e in author.session.events if e.type == "assistant/message"]
        if answered:
            author.dispatch(ONE)
            author.result(ONE)
        author.session.append(
            "assistant/message",
            answer.data,
            surface_op=Replace(answer.seq, answer.seq),
            source_event_seqs=[answer.seq],
        )
        expected = [] if answered else ["one: TOOL_NOT_STARTED"]
        assert told(author.session.repair()) == [*expected, "step/end", "turn/end"]
        assert author.session.request_messages().mends == ()


def test_settled_results_with_empty_blocks() -> None:
    """A settled result as another writer may have stored it does not stop repair."""
    author = asking(ONE)
    author.dispatch(ONE)
    settled = ev.ToolResult(tool_message("one", [Text("")], id="r"), 1, 1)
    wire = {"type": "tool/settled", "seq": author.session.next_seq, "time": 1}
    events = [*author.session.events, {**wire, "data": settled.to_dict()}]
    session = Session.from_events(author.session.header, events)
    assert told(session.repair()) == ["one: real", "step/end", "turn/end"]
    assert session.repair() == []


class TestSuspended:
    """A turn that only waits for approval is healthy, and nothing else is."""

    def waiting(self, *calls: ToolCall) -> Author:
        """Every call is asked about."""
        author = asking(*calls)
        for call in calls:
            asked = ev.ApprovalAsked(f"ask-{call.id}", call.name, call.id)
            author.record("approval/asked", asked)
        return author

    def decide(self, author: Author, call: ToolCall, outcome: str) -> None:
        """Say yes or no."""
        author.record("approval/decided", ev.ApprovalDecided(f"ask-{call.id}", outcome))

    def test_undecided_or_granted(self) -> None:
        """Repair leaves it alone whether the answer is out or was yes."""
        author = self.waiting(ONE, TWO)
        assert author.session.repair() == []
        self.decide(author, TWO, "granted")
        assert author.session.repair() == []
        assert is_suspended(author.session.header, author.session.events)

    def test_not_when_denied(self) -> None:
        """A denied call without result is an interrupted turn."""
        author = self.waiting(ONE, TWO)
        self.decide(author, ONE, "denied")
        assert told(author.session.repair())[:2] == [
            "one: TOOL_NOT_STARTED",
            "two: TOOL_NOT_STARTED",
        ]

    def test_not_when_started(self) -> None:
        """Once one body was dispatched, its outcome is in question."""
        author = self.waiting(ONE, TWO)
        self.decide(author, ONE, "granted")
        author.dispatch(ONE)
        assert told(author.session.repair())[:2] == [
            "one: TOOL_OUTCOME_UNKNOWN",
            "two: TOOL_NOT_STARTED",
        ]

    def test_not_when_a_call_was_not_asked_about(self) -> None:
        """A call that waits for nobody is not waiting."""
        author = self.waiting(ONE)
        author.end_step()
        author.begin_step()
        author.answer([TWO])
        assert len(author.session.repair()) == 4

    def test_an_old_approval_is_not_this_calls(self) -> None:
        """An id that is used again is another call: the old yes authorises nothing."""
        author = self.waiting(ONE)
        self.decide(author, ONE, "granted")
        author.dispatch(ONE)
        author.result(ONE)
        author.end_step()
        author.begin_step()
        author.request(header=False)
        author.answer([ONE])
        assert not is_suspended(author.session.header, author.session.events)
        assert told(author.session.repair()) == ["one: TOOL_NOT_STARTED", "step/end", "turn/end"]

    def test_only_the_bracket_of_a_suspended_turn_is_closed(self) -> None:
        """A compaction that a crash cut off does not end the turn that waits."""
        author = self.waiting(ONE)
        author.record("compaction/start", ev.CompactionStart("c"))
        assert told(author.session.repair()) == ["compaction/end"]
        assert author.session.repair() == []

    def test_a_fork_asks_again(self) -> None:
        """In a child nothing that the parent asked or granted counts."""
        author = self.waiting(ONE)
        self.decide(author, ONE, "granted")
        child = author.session.fork(session_id="child")
        assert told(list(child.events[-4:])) == [
            "session/end-seed",
            "one: TOOL_NOT_STARTED",
            "step/end",
            "turn/end",
        ]

    def test_ended_on_purpose(self) -> None:
        """With an end given, a turn that waits is closed too."""
        author = self.waiting(ONE)
        added = author.session.repair(end=ev.EndReason("aborted", "superseded"))
        assert told(added) == ["one: TOOL_NOT_STARTED", "step/end", "turn/end"]
        assert added[-1].data.reason == ev.EndReason("aborted", "superseded")


def test_after_a_crash_inside_repair() -> None:
    """However many closers were written, the next repair writes exactly the others."""
    author = asking(ONE, TWO, THREE)
    author.dispatch(TWO)
    author.settle(TWO, "real")
    author.record("compaction/start", ev.CompactionStart("c"))
    events = list(author.session.events)
    added = author.session.repair()
    assert len(added) == 6
    for kept in range(len(added) + 1):
        session = Session.from_events(author.session.header, [*events, *added[:kept]])
        assert session.repair() == added[kept:]


def test_calls_that_share_an_id_are_told_apart_after_a_second_crash() -> None:
    """With one of two equal ids closed, the other is still known to have started."""
    session = Session.create("s")
    session.append("turn/start", {"turn": 1})
    session.append("step/start", {"turn": 1, "step": 1})
    session.append(
        "request/sent", {"purpose": "step", "digest": "d", "encoder": "e@1", "model": "m"}
    )
    session.add_assistant([ToolCall("", "a", "{}"), ToolCall("", "b", "{}")], turn=1, step=1)
    for name in "ab":
        session.append("tool/call", {"callId": "", "name": name, "arguments": "{}"})
    closed = session.fork().events  # not used further than to show that a fork closes both
    assert [e.data.error.code for e in closed if e.type == "tool/result"] == [
        "TOOL_OUTCOME_UNKNOWN",
        "TOOL_OUTCOME_UNKNOWN",
    ]
    whole = [event for event in session.repair() if event.type == "tool/result"]
    again = Session.from_events(session.header, session.events[: whole[0].seq + 1])
    rest = [event for event in again.repair() if event.type == "tool/result"]
    assert [event.data.error.code for event in rest] == ["TOOL_OUTCOME_UNKNOWN"]
    assert list(rest[0].source_event_seqs or ()) == list(whole[1].source_event_seqs or ())


def test_an_id_that_a_shadowed_message_used_too_is_closed_once() -> None:
    """A call whose message was compacted away does not take the answer of another."""
    session = Session.create("s")
    session.add_user("hi")
    session.add_assistant(ToolCall("c2", "f", "{}"))
    session.replace(0, 1, "so far")
    session.add_assistant(ToolCall("c2", "f", "{}"))
    assert [event.type for event in session.repair()] == ["tool/result"]
    assert session.repair() == []
    assert session.request_messages().mends == ()
