"""UI nodes: what a screen draws, and the changes that lead there."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given

from tests.unit.views.histories import damaged, prefix, sessions
from turnlog import SurfaceProjector
from turnlog import events as ev
from turnlog.assembly import Assembly
from turnlog.content import Chunk, Text, TextDelta, ToolCall
from turnlog.errors import SeqOutOfOrder
from turnlog.events import AssistantChunk
from turnlog.records import Codec
from turnlog.session import Session
from turnlog.testing.builders import Author
from turnlog.views.nodes import (
    AnswerNode,
    CallNode,
    CompactionNode,
    EndNode,
    MessageNode,
    Node,
    OpaqueNode,
    Partial,
    PinNode,
    apply,
)

CALL = ToolCall("call-1", "peek", '{"at": 1}')
OTHER = ToolCall("call-2", "poke", "{}")


def begun() -> Author:
    """A turn whose first step has sent its request."""
    author = Author()
    author.begin_turn()
    author.begin_step()
    author.user("hello")
    author.request()
    return author


def only(session: Session, kind: type[Any], at: int | None = None) -> Any:
    """The one node of that type."""
    (node,) = [node for node in session.nodes(at) if type(node) is kind]
    return node


# -- laws ----------------------------------------------------------------------------------------


@given(sessions())
def test_changes_lead_to_the_same_state(session: Session) -> None:
    """A consumer that applies the changes one by one has the projector's nodes at every prefix."""
    projector, state = SurfaceProjector(), dict[str, Node]()
    for event in session.events:
        for change in projector.project(event):
            apply(state, change)
        assert tuple(state.values()) == projector.nodes
        assert list(state) == [node.id for node in projector.nodes]
    assert session.nodes() == projector.nodes


@given(sessions())
def test_incremental_equals_refold_and_depends_on_the_prefix_alone(session: Session) -> None:
    """The nodes at n are the nodes of a session that never had more, fed slowly or at once."""
    for event in session.events:
        shorter = prefix(session, event.seq)
        assert session.nodes(at=event.seq) == shorter.nodes()
    assert session.nodes() == session.nodes(at=session.next_seq - 1)


@given(sessions())
def test_the_wire_form_says_all(session: Session) -> None:
    """A viewer that knows only the changes on the wire has the wire form of the nodes."""
    projector, state = SurfaceProjector(), dict[str, Any]()
    for event in session.events:
        for change in projector.project(event):
            wire = json.loads(json.dumps(change.to_dict()))
            if wire["op"] == "remove":
                del state[wire["id"]]
            elif wire["op"] == "chunk":
                state[wire["id"]]["chunks"].append(wire["chunk"])
                state[wire["id"]]["lastSeq"] = wire["seq"]
            else:
                state[wire["node"]["id"]] = wire["node"]
    assert [shown(wire) for wire in state.values()] == [
        shown(node.to_dict()) for node in session.nodes()
    ]


def shown(wire: dict[str, Any]) -> dict[str, Any]:
    """A wire node with its chunks assembled."""
    if "chunks" not in wire:
        return wire
    read = Codec(AssistantChunk).convert
    chunks: list[Chunk] = [
        read({"turn": 1, "step": 1, "chunk": chunk}).chunk for chunk in wire["chunks"]
    ]
    return {**wire, "chunks": Assembly(chunks).blocks()}


@given(sessions())
def test_only_unfinished_bubbles_leave(session: Session) -> None:
    """A node stays there, at its place, unless it was an answer that was streaming."""
    projector = SurfaceProjector()
    for event in session.events:
        before = projector.nodes
        projector.project(event)
        after = {node.id: node for node in projector.nodes}
        kept = [node.id for node in before if node.id in after]
        assert [node.id for node in projector.nodes][: len(kept)] == kept
        gone = [node for node in before if node.id not in after]
        assert all(node.status == "streaming" for node in gone)


@given(sessions())
def test_a_node_is_shadowed_when_the_model_lost_it(session: Session) -> None:
    """A message's node is marked exactly when its event is no longer on the surface."""
    for node in session.nodes():
        if isinstance(node, (MessageNode, OpaqueNode)):
            assert node.shadowed_by == session.surface.shadowed_by(node.seq)
            assert (node.shadowed_by is None) == (node.seq in session.surface)


# -- answers -------------------------------------------------------------------------------------


def test_an_answer_keeps_its_id_from_the_first_chunk_to_the_message() -> None:
    """Chunks update one bubble, the message takes its place under the same id."""
    author = begun()
    chunks = author.stream([Text("Hello there")])
    streaming: AnswerNode = only(author.session, AnswerNode)
    assert (streaming.status, streaming.content) == ("streaming", (Text("Hello there"),))
    assert streaming.seq == chunks[0]
    done = author.answer([Text("Hello there")], chunks)
    final: AnswerNode = only(author.session, AnswerNode)
    assert (final.id, final.seq, final.last_seq) == (streaming.id, chunks[0], done.seq)
    assert (final.status, final.stream, final.attempt) == ("done", None, 1)
    assert final.usage == done.data.usage


def test_a_snapshot_of_a_stream_never_changes() -> None:
    """A node taken in mid-stream says the same after more has come."""
    author = begun()
    projector = SurfaceProjector()
    for event in author.session.events:
        projector.project(event)
    seen: list[AnswerNode] = []
    for piece in ("a", "b", "c"):
        (change,) = projector.project(author.chunk(TextDelta(0, piece)))
        assert isinstance(change.node, AnswerNode)
        seen.append(change.node)
    assert [node.content for node in seen] == [(Text("a"),), (Text("ab"),), (Text("abc"),)]


def test_a_change_by_a_chunk_sends_the_chunk_alone() -> None:
    """The wire form of an update does not repeat what was streamed before."""
    author = begun()
    projector = SurfaceProjector()
    author.chunk(TextDelta(0, "x" * 1000))
    author.chunk(TextDelta(0, "y"))
    changes = [change for event in author.session.events for change in projector.project(event)]
    assert changes[-1].to_dict() == {
        "op": "chunk",
        "id": changes[-2].node.id,
        "seq": author.session.next_seq - 1,
        "chunk": {"type": "text-delta", "index": 0, "text": "y"},
    }


def test_a_late_viewer_gets_the_stream_in_one_piece() -> None:
    """The wire form of an unfinished answer has neighbouring deltas joined."""
    author = begun()
    for piece in ("one ", "two ", "three"):
        author.chunk(TextDelta(0, piece))
    node: AnswerNode = only(author.session, AnswerNode)
    assert node.to_dict()["chunks"] == [{"type": "text-delta", "index": 0, "text": "one two three"}]


def test_a_failed_attempt_leaves_no_bubble() -> None:
    """After `assistant/attempt` the bubble is gone; the next attempt has one of its own."""
    author = begun()
    failed = author.stream([Text("Hel")])
    author.fail(failed)
    assert not [n for n in author.session.nodes() if n.kind == "assistant"]
    again = author.stream([Text("Hello")])
    assert only(author.session, AnswerNode).attempt == 2
    author.answer([Text("Hello")], again)
    assert only(author.session, AnswerNode).id == f"n{again[0]}"


def test_an_attempt_that_is_not_made_again_leaves_no_bubble_either() -> None:
    """`assistant/attempt` alone takes the bubble away."""
    author = begun()
    author.stream([Text("Hel")])
    author.record("assistant/attempt", ev.AssistantAttempt(1, 1, 2))
    assert only(author.session, AnswerNode).status == "streaming"  # that was another attempt
    author.record("assistant/attempt", ev.AssistantAttempt(1, 1, 1))
    assert not [n for n in author.session.nodes() if n.kind == "assistant"]


def test_a_stream_can_go_on_in_two_ways() -> None:
    """Growing an older piece of a stream leaves the longer one as it is."""
    short = Partial([TextDelta(0, "a")], 1)
    longer = short.grown(TextDelta(0, "b"))
    other = short.grown(TextDelta(0, "c"))
    assert [p.blocks for p in (short, longer, other)] == [
        (Text("a"),),
        (Text("ab"),),
        (Text("ac"),),
    ]


def test_an_old_log_says_with_a_retry_that_an_attempt_failed() -> None:
    """A bubble is gone after `llm/retry`, where no attempt was closed."""
    author = begun()
    author.stream([Text("Hel")])
    failure = ev.Failure("cut", "transport")
    author.record("llm/retry", ev.LlmRetry(1, 1, 1, 0.0, failure))
    assert not [n for n in author.session.nodes() if n.kind == "assistant"]


def test_an_interrupted_answer_is_marked() -> None:
    """What repair makes of an open stream keeps the bubble's id and says so."""
    author = begun()
    chunks = author.stream([Text("Hello")])[:3]
    bubble = only(author.session, AnswerNode, at=chunks[-1])
    author.session.repair()
    answer: AnswerNode = only(author.session, AnswerNode)
    assert (answer.id, answer.status) == (bubble.id, "interrupted")
    end: EndNode = only(author.session, EndNode)
    assert (end.reason.kind, end.status) == ("interrupted", "interrupted")


def test_a_fork_in_mid_stream_keeps_the_bubble_s_id() -> None:
    """In the child, the seed's end does not part the chunks from the message made of them."""
    author = begun()
    chunks = author.stream([Text("Hello")])
    child = author.session.fork(chunks[2])
    assert only(child, AnswerNode).id == f"n{chunks[0]}"
    assert only(child, AnswerNode).status == "interrupted"


def test_a_log_without_chunks_shows_the_message() -> None:
    """Imported sessions have no chunk events; the final message is there at once."""
    author = begun()
    done = author.answer([Text("Hello")])
    answer: AnswerNode = only(author.session, AnswerNode)
    assert (answer.id, answer.content) == (f"n{done.seq}", (Text("Hello"),))


def test_a_message_in_mid_stream_does_not_move_the_bubble() -> None:
    """Nodes stand in the order in which they began."""
    author = begun()
    chunks = author.stream([Text("Hello")])
    author.user("and another thing")
    author.answer([Text("Hello")], chunks)
    assert [node.kind for node in author.session.nodes()] == ["user", "assistant", "user"]


# -- calls ---------------------------------------------------------------------------------------


def test_a_card_follows_its_call() -> None:
    """Waiting, asked, running, settled, done: one card, one id."""
    author = begun()
    answer = author.answer([Text("Let me see"), CALL, OTHER])
    author.record("approval/asked", ev.ApprovalAsked("q", "poke", OTHER.id, reason="it pokes"))
    author.record("approval/decided", ev.ApprovalDecided("q", "granted"))
    first = author.dispatch(CALL)
    author.dispatch(OTHER)
    author.settle(OTHER)
    author.result(CALL, is_error=True)
    author.result(OTHER)
    session = author.session
    ids = only(session, AnswerNode).calls
    assert ids == (f"n{answer.seq}.0", f"n{answer.seq}.1")
    history: dict[str, list[str]] = {node_id: [] for node_id in ids}
    for at in range(answer.seq, session.next_seq):
        for node in session.nodes(at):
            if node.id in history and node.status not in history[node.id][-1:]:
                history[node.id].append(node.status)
    assert history[ids[0]] == ["waiting", "running", "error"]
    assert history[ids[1]] == ["waiting", "asked", "waiting", "running", "settled", "done"]
    card = session.nodes()[-1]
    assert isinstance(card, CallNode)
    assert card.approval is not None
    assert (card.approval.outcome, card.approval.reason) == ("granted", "it pokes")
    assert session.nodes()[-2].last_seq == session.next_seq - 2
    assert first.seq in [n.started for n in session.nodes() if isinstance(n, CallNode)]


def test_a_late_result_is_on_the_card_of_its_call() -> None:
    """The placeholder stays the result; what came late is beside it."""
    author = begun()
    author.answer([CALL])
    author.dispatch(CALL)
    author.session.repair()
    author.late(CALL, "it had worked")
    card: CallNode = only(author.session, CallNode)
    assert card.status == "error"
    assert card.result is not None
    assert card.late is not None
    assert card.late.message.text == "it had worked"


def test_ids_that_come_again_have_cards_of_their_own() -> None:
    """A result goes to the call of the last message that used its id."""
    author = begun()
    author.answer([CALL])
    author.answer([CALL])
    author.result(CALL)
    first, second = [n for n in author.session.nodes() if isinstance(n, CallNode)]
    assert (first.status, second.status) == ("waiting", "done")
    author.end_turn()
    assert [n.status for n in author.session.nodes() if n.kind == "call"] == ["interrupted", "done"]


def test_a_question_about_no_call_is_in_sight() -> None:
    """An approval that names no call that we know is a card that asks."""
    author = begun()
    author.record("approval/asked", ev.ApprovalAsked("q", "poke", arguments="{}"))
    card: CallNode = only(author.session, CallNode)
    assert (card.status, card.name) == ("asked", "poke")


# -- compaction, pins, and what cannot be read ---------------------------------------------------


def test_what_a_compaction_shadowed_is_still_shown() -> None:
    """The marker says what was shadowed; the nodes stay, marked; a fork brings them back."""
    author = Author()
    asked = author.user("one")
    answered = author.answer([Text("two")])
    author.user("three")
    before = author.session.derive_messages()
    start = author.session.next_seq
    summary = author.compact(0, 1)
    nodes = author.session.nodes()
    assert [node.kind for node in nodes] == ["user", "assistant", "user", "compaction"]
    assert [node.shadowed_by for node in nodes] == [summary.seq, summary.seq, None, None]
    marker = nodes[-1]
    assert isinstance(marker, CompactionNode)
    assert (marker.id, marker.status, marker.count) == (f"n{start}", "done", 2)
    assert (marker.shadows, marker.reversible) == ((asked.seq, answered.seq), True)
    assert only(author.session, CompactionNode, at=start).status == "running"
    back = author.session.fork(marker.before)
    assert back.derive_messages() == before


def test_a_compaction_that_failed_says_so() -> None:
    """Its marker has the error, and nothing is shadowed."""
    author = Author()
    author.user("one")
    author.record("compaction/start", ev.CompactionStart("c"))
    author.record("compaction/end", ev.CompactionEnd("c", error={"code": "no-progress"}))
    marker: CompactionNode = only(author.session, CompactionNode)
    assert (marker.status, marker.error) == ("error", {"code": "no-progress"})
    assert marker.count == 0


def test_a_compaction_whose_bracket_was_cut_off_has_happened() -> None:
    """Once its message is on the surface, it is done, whatever closed the bracket."""
    author = Author()
    author.user("one")
    done = author.compact(0, 0)
    child = author.session.fork(done.seq)
    marker: CompactionNode = only(child, CompactionNode)
    assert (marker.status, marker.count) == ("done", 1)
    cut = author.session.fork(done.seq - 1)
    assert only(cut, CompactionNode).status == "interrupted"


def test_a_call_without_a_result_is_shadowed_with_its_message() -> None:
    """A card is marked when the model lost its result, or its message if it has none."""
    author = begun()
    author.answer([CALL])
    summary = author.compact(0, 1)
    assert only(author.session, CallNode).shadowed_by == summary.seq


def test_a_pruned_result_shows_the_original() -> None:
    """The card keeps what the tool said, and has what the model reads now beside it."""
    author = begun()
    author.answer([CALL])
    result = author.result(CALL, "a long story")
    pruned = author.prune(result.seq, "short")
    card: CallNode = only(author.session, CallNode)
    assert card.result is not None
    assert card.reduced is not None
    assert (card.result.message.text, card.reduced.message.text) == ("a long story", "short")
    assert (card.shadowed_by, card.status) == (pruned.seq, "done")


def test_a_pin_names_the_node_it_pins() -> None:
    """A pin is a node of its own; unpinned, it says so."""
    author = Author()
    author.user("one")
    author.record("context/pin", ev.ContextPin("p", 0))
    pin: PinNode = only(author.session, PinNode)
    assert (pin.pinned, pin.target, pin.status) == (0, "n0", "done")
    author.record("context/unpin", ev.ContextUnpin("p"))
    assert only(author.session, PinNode).status == "unpinned"


def test_what_no_person_typed_is_context() -> None:
    """A user message whose source is no person is context, as in the transcript."""
    author = Author()
    author.session.add_user("typed")
    author.session.add_user("made", source="runtime-context")
    author.session.add_context("noted")
    assert [node.kind for node in author.session.nodes()] == ["user", "context", "context"]


def test_lost_and_unreadable_events_are_small_nodes() -> None:
    """A gap is damage; what holds a place on the surface and cannot be read is opaque."""
    author = Author()
    for text in ("one", "two", "three"):
        author.user(text)
    nodes = damaged(author.session, 1, 1).nodes()
    assert [node.kind for node in nodes] == ["user", "damage", "user", "opaque", "opaque"]
    assert (nodes[1].seq, nodes[1].last_seq) == (1, 1)
    assert [n.event_type for n in nodes if isinstance(n, OpaqueNode)] == [
        "other/message",
        "user/message",
    ]


def test_an_event_is_taken_once() -> None:
    """A projector that is fed the same event again refuses it and stays as it was."""
    author = Author()
    event = author.user("one")
    projector = SurfaceProjector()
    projector.project(event)
    with pytest.raises(SeqOutOfOrder, match="from seq 1 on, got 0"):
        projector.project(event)
    assert len(projector) == 1


def test_a_window_is_part_of_the_nodes() -> None:
    """A viewer of a long session asks for the nodes it shows."""
    author = Author()
    projector = SurfaceProjector()
    for n in range(10):
        projector.project(author.user(f"message {n}"))
    assert projector.window(3, 5) == projector.nodes[3:5]
    assert projector.get("n3") is projector.nodes[3]
