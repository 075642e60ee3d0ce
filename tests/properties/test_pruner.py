"""Pruning shortens what is oversized and nothing else, once, whatever the history."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.properties.views import violations
from turnlog import Session
from turnlog.compaction.graphemes import cut_before
from turnlog.compaction.meter import METER, measure
from turnlog.compaction.pruner import Pruner
from turnlog.content import Block, Image, Text, ToolCall
from turnlog.records import Opaque
from turnlog.testing.builders import Author
from turnlog.testing.strategies import SAID, histories, mangled, prefix

PIECES = st.sampled_from(
    [
        "plain ",
        "line\r\n",
        "e\u0301",
        "\U0001f468\u200d\U0001f469",
        "\U0001f1e9\U0001f1ea",
        "한",
        "x",
    ]
)
LONG = st.lists(PIECES, min_size=1, max_size=6).flatmap(
    lambda pieces: st.integers(1, 120).map(lambda times: "".join(pieces) * times)
)
BLOCKS = st.lists(
    st.one_of(
        (LONG | SAID).map(Text),
        st.just(Image("image/png", "AAAA")),
        st.just(Opaque({"type": "acme-chart"})),
    ),
    min_size=1,
    max_size=4,
)
PRUNERS = st.builds(
    Pruner,
    limit=st.integers(0, 400),
    head=st.integers(0, 200),
    tail=st.integers(0, 200),
    keep=st.integers(0, 3),
    whole=st.sampled_from([0, 300, 32_768]),
)


@st.composite
def long_results(draw: st.DrawFn) -> Session:
    """Any history, and steps with long results behind it, the last of them perhaps open."""
    author = Author(draw(histories(cut=False) | mangled()))
    steps = draw(st.lists(st.lists(BLOCKS, min_size=1, max_size=3), min_size=1, max_size=3))
    author.begin_turn()
    for contents in steps:
        _step(author, contents)
    if draw(st.booleans()):
        author.end_step()
        author.end_turn()
    return author.session


def _step(author: Author, contents: Sequence[Sequence[Block]]) -> None:
    if author.step:
        author.end_step()
    author.begin_step()
    seq = author.session.next_seq
    calls = [ToolCall(f"long{seq}.{n}", "read", "{}") for n in range(len(contents))]
    author.answer(calls)
    for call, content in zip(calls, contents, strict=True):
        author.session.add_tool_result(call.id, content)


def text_of(session: Session, seq: int) -> str:
    """The text of a result."""
    return session.event_at(seq).data.message.text


def others_of(session: Session, seq: int) -> list[Block]:
    """The blocks of a result that are no text."""
    return [b for b in session.event_at(seq).data.message.content if not isinstance(b, Text)]


@settings(max_examples=100)
@given(long_results(), PRUNERS)
def test_pruning_replaces_what_it_planned_and_nothing_else(
    session: Session, pruner: Pruner
) -> None:
    """Every other node stays, each replaced one is shorter, its original unchanged in the log."""
    before = list(session.surface.seqs)
    planned = [seq for seq, _ in pruner.plan(session)]
    wire = [event.to_dict() for event in session.events]
    assert pruner.prune(session) == planned
    after = list(session.surface.seqs)
    assert [a for a, b in zip(after, before, strict=True) if a == b] == [
        seq for seq in before if seq not in planned
    ]
    replaced = [(a, b) for a, b in zip(after, before, strict=True) if a != b]
    assert all(first < second for (first, _), (second, _) in pairwise(replaced))
    for new, old in replaced:
        assert len(text_of(session, new)) < len(text_of(session, old))
        assert others_of(session, new) == others_of(session, old)
        assert len(text_of(session, old)) > pruner.limit
    seed = [event for event in session.events if event.seq < len(wire)]
    assert [event.to_dict() for event in seed] == wire


@settings(max_examples=100)
@given(long_results(), PRUNERS, PRUNERS)
def test_no_result_is_pruned_twice(session: Session, pruner: Pruner, other: Pruner) -> None:
    """A second pruning does nothing, and one by another rule leaves what was shortened alone."""
    pruner.prune(session)
    length = len(session)
    assert pruner.prune(session) == []
    assert len(session) == length
    for seq in other.prune(session):
        assert session.event_at(seq).surface_op == "append"


@settings(max_examples=100)
@given(long_results(), PRUNERS)
def test_what_remains_is_whole_characters_of_the_original(session: Session, pruner: Pruner) -> None:
    """What is left is the original's beginning and end, cut between characters as they are read."""
    for seq, shorter in pruner.plan(session):
        old = text_of(session, seq)
        new = shorter.message.text
        head, _, rest = new.partition("\n[")
        while not rest.partition(" characters are left out here.")[0].isdigit():
            more, _, rest = rest.partition("\n[")
            head = f"{head}\n[{more}"
        tail = rest.partition("that number.]\n")[2]
        missing = int(rest.partition(" ")[0])
        assert len(head) + missing + len(tail) == len(old)
        assert old.startswith(head)
        assert old.endswith(tail)
        assert len(head) <= pruner.head
        assert len(tail) <= pruner.tail
        assert cut_before(old, len(head)) == len(head)
        assert cut_before(old, len(old) - len(tail)) == len(old) - len(tail)
        assert f"event {seq} " in rest


@settings(max_examples=60)
@given(long_results(), PRUNERS)
def test_pruning_keeps_every_view_in_order(session: Session, pruner: Pruner) -> None:
    """After pruning requests are valid, laws hold as before, and the gauge is that of a refold."""
    found = {finding.rule for finding in session.verify()}
    valid = not violations(session.request_messages())
    before = measure(session)
    replaced = pruner.prune(session)
    assert {finding.rule for finding in session.verify()} <= found
    assert not valid or not violations(session.request_messages())
    again = prefix(session, len(session))
    assert measure(again) == measure(session)
    assert METER.dump(again.fold(METER)) == METER.dump(session.fold(METER))
    if replaced:
        assert measure(session).bytes < before.bytes


@settings(max_examples=60)
@given(long_results(), PRUNERS)
def test_open_steps_and_recent_results_stay_whole(session: Session, pruner: Pruner) -> None:
    """Nothing of a step that has not ended is replaced, nor a recent result that may stay."""
    open_step = session.fold(METER).open_step
    planned = [seq for seq, _ in pruner.plan(session)]
    assert open_step is None or all(seq < open_step for seq in planned)
    whole = [
        seq
        for seq in session.surface.seqs
        if session.event_at(seq).type == "tool/result"
        and session.event_at(seq).surface_op == "append"
    ]
    for seq in whole[len(whole) - pruner.keep :] if pruner.keep else []:
        assert seq not in planned or len(text_of(session, seq)) > pruner.whole - sum(
            len(text_of(session, later)) for later in whole if later > seq and later not in planned
        )
