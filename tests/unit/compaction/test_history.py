"""What was compacted, read from the events of any writer, and what it cost in prefix cache."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnlog import Session, Usage
from turnlog import events as ev
from turnlog.compaction.estimate import message_size
from turnlog.compaction.history import Compaction, compactions
from turnlog.compaction.prefix import Replaced, replacements
from turnlog.content import Failure, Image, Message, Source, Text, ToolCall
from turnlog.events import AnyEvent, Replace
from turnlog.interop.importing import find
from turnlog.testing.builders import DIGEST, Author
from turnlog.testing.strategies import histories
from turnlog.views.usage import Prices


def talk(session: Session, turns: int = 3) -> None:
    """A few turns of ten tokens or so a message."""
    for i in range(turns):
        session.add_user(f"question {i} " + "x" * 40)
        session.add_assistant(f"answer {i} " + "y" * 40, model="m")


def ours(session: Session, last: int, summary: str = "short", **end: Any) -> Compaction:
    """A compaction with the fields that our engine logs; what is read of it."""
    nodes = session.surface.seqs[: last + 1]
    session.append(
        "compaction/start",
        ev.CompactionStart("k", None, "manual", "keep the schema", 900, 4000),
    )
    session.append(
        "request/sent",
        ev.RequestSent("compaction", "sha256:0", "plain@1", "small", instruction="Summarise."),
    )
    usage = Usage(100, 20, 800, 0)
    session.append(
        "compaction/summary",
        ev.CompactionSummary("k", (Text(summary).to_dict(),), tuple(nodes), usage, "model", 1),
    )
    message = Message(f"k{session.next_seq}", "user", (Text(summary),), Source("compaction"))
    session.append(
        "user/message",
        message,
        surface_op=Replace(nodes[0], nodes[-1]),
        source_event_seqs=list(nodes),
    )
    session.append(
        "compaction/end",
        ev.CompactionEnd("k", start=nodes[0], end=nodes[-1], tokens_before=900, **end),
    )
    return compactions(session)[-1]


# -- ours --------------------------------------------------------------------------------------


def test_a_compaction_of_ours() -> None:
    """Range, tokens, cost, summary, reason and wish are as they were logged."""
    session = Session.create("s")
    talk(session)
    found = ours(session, 3, tokens_after=300, policy="model")
    assert (found.number, found.id, found.status) == (0, "k", "done")
    assert (found.start, found.end, found.seq) == (6, 10, 9)
    assert found.shadowed == (0, 1, 2, 3)
    assert (found.tokens_before, found.tokens_after, found.gain) == (900, 300, 600)
    assert not found.is_estimated
    assert (found.reason, found.instruction, found.policy) == ("manual", "keep the schema", "model")
    assert found.summary == "short"
    assert (found.model, found.tokens.total.exact, found.error) == ("small", 920, None)
    assert found.cost is None
    prices = {"small": Prices(1.0, 0.1, 0.0, 2.0)}
    (priced,) = compactions(session, prices=prices)
    assert priced.cost == pytest.approx((100 + 80 + 40) / 1_000_000)


def test_a_gain_may_be_negative() -> None:
    """A compaction that made things longer says so, logged or estimated, and is no damage."""
    session = Session.create("s")
    talk(session)
    assert ours(session, 1, tokens_after=950).gain == -50
    assert session.damage == ()
    other = Author(Session.create("t"))
    other.user("hi")
    other.compact(0, 0, "a summary that is very much longer than what it stands for")
    (found,) = compactions(other.session)
    assert found.is_estimated
    assert found.gain is not None
    assert found.gain < 0


def test_what_is_pinned_is_no_part_of_the_summary() -> None:
    """The summary is what the model or a rule said."""
    session = Session.create("s")
    session.pin(session.add_user("a rule").seq)
    from turnlog.compaction.pins import carried  # noqa: PLC0415 - used here alone

    session.append("compaction/start", ev.CompactionStart("k"))
    content = (Text("summary"), *carried(session, [0]))
    session.append(
        "user/message",
        Message("m", "user", content, Source("compaction")),
        surface_op=Replace(0, 0),
        source_event_seqs=[0],
    )
    (found,) = compactions(session)
    assert found.summary == "summary"


def test_how_compactions_end() -> None:
    """Failed with its error, cut off by a crash, dead because another began, or still open."""
    author = Author(Session.create("s"))
    talk(author.session)
    author.record("compaction/start", ev.CompactionStart("a"))
    failure = Failure("the model said nothing", "empty")
    author.record("compaction/summary", ev.CompactionSummary("a", error=failure))
    author.record("compaction/end", ev.CompactionEnd("a", error=failure.to_dict()))
    author.record("compaction/start", ev.CompactionStart("b"))
    author.session.repair()
    author.record("compaction/start", ev.CompactionStart("c"))
    author.record("compaction/start", ev.CompactionStart("d"))
    found = compactions(author.session)
    assert [(each.status, each.error, each.gain) for each in found] == [
        ("failed", "empty: the model said nothing", 0),
        ("interrupted", "interrupted", 0),
        ("interrupted", "interrupted", 0),
        ("open", None, None),
    ]
    assert all(each.summary == "" and each.seq is None for each in found)
    assert found[0].tokens.answers == 1


def test_one_that_was_cut_off_after_its_message_is_done() -> None:
    """What is on the surface has happened, however the bracket was closed."""
    session = Session.create("s")
    talk(session)
    session.append("compaction/start", ev.CompactionStart("k"))
    session.replace(0, 1, "short")
    session.repair()
    (found,) = compactions(session)
    assert (found.status, found.shadowed, found.error) == ("done", (0, 1), "interrupted")


def test_a_summary_without_a_model_cost_nothing() -> None:
    """It counts no answer, and no unknown tokens."""
    session = Session.create("s")
    session.add_user("hi")
    session.append("compaction/start", ev.CompactionStart("k"))
    summary = ev.CompactionSummary("k", policy="structural")
    session.append("compaction/summary", summary)
    session.replace(0, 0, "s")
    session.append("compaction/end", ev.CompactionEnd("k", policy="structural"))
    (found,) = compactions(session)
    assert (found.policy, found.tokens.answers) == ("structural", 0)


# -- of others ---------------------------------------------------------------------------------

ODD: list[Any] = [
    {"id": "old", "tokensRemoved": -12, "kept": [0]},
    {"compactionId": 7, "tokensBefore": True, "error": ["?"], "usage": "none"},
    {},
    None,
    "text",
    [1],
]


@pytest.mark.parametrize("data", ODD)
def test_records_of_any_shape_are_read(data: Any) -> None:
    """The surface says what was done; what the records do not say is estimated or unknown."""
    author = Author(Session.create("s"))
    for i in range(4):
        author.user(f"message {i}")
    author.compact(0, 2, "the old summary")
    events = [event.to_dict() for event in author.session.events]
    for event in events:
        if event["type"].startswith("compaction/"):
            event["data"] = data
    (found,) = compactions(Session.from_events(author.session.header, events))
    assert (found.status, found.shadowed, found.summary) == ("done", (0, 1, 2), "the old summary")
    assert found.is_estimated
    assert found.tokens_after is not None
    assert found.tokens.total.exact is None or not found.tokens.answers


def test_tokens_removed_may_be_negative() -> None:
    """An older record that says how many were removed is believed, also when it was less than 0."""
    session = Session.create("s")
    session.add_user("hi")
    wire = [event.to_dict() for event in session.events]
    for data in ({"id": "a", "tokensBefore": 100}, {"id": "a", "tokensRemoved": -12}):
        kind = "compaction/end" if len(wire) > 1 else "compaction/start"
        wire.append({"type": kind, "seq": len(wire), "time": 0, "data": data})
    (found,) = compactions(Session.from_events(session.header, wire))
    assert (found.id, found.tokens_before, found.tokens_after, found.gain) == ("a", 100, 112, -12)


def test_sessions_of_deepseek_harness(corpus: Path) -> None:
    """Its compactions have their ranges, usage and summaries without the frame around them."""
    (found,) = find(corpus / "dsh" / "v0" / "compaction")
    source = found.read(None)
    session = Session.from_events(source.header, list(source))
    first, second, *_ = compactions(session)
    assert (first.start, first.shadowed) == (161, (4, 31, 38, 62, 69, 93))
    assert second.shadowed == (163, 100, 124, 131, 155, 166, 190)
    assert first.summary.startswith("## Primary Request")
    assert first.tokens.cache_read.exact == 2265
    assert first.model == "deepseek-v4-flash"
    assert any(each.kind == "prune" for each in replacements(session))


# -- prefix cache ------------------------------------------------------------------------------


def sizes(session: Session, *seqs: int) -> int:
    """Estimated tokens of the messages of these events."""
    messages = [session.event_at(seq).message for seq in seqs]
    return sum(message_size(m).tokens for m in messages if m is not None)


def test_what_a_replacement_costs_in_prefix_cache() -> None:
    """What lies behind it and had been sent; neither what leaves nor what came since."""
    session = Session.create("s")
    talk(session, 3)
    session.add_user("not sent yet")
    session.replace(0, 1, "short")
    (found,) = replacements(session)
    assert found == Replaced(
        7, "summary", (0, 1), sizes(session, 0, 1), sizes(session, 7), sizes(session, 2, 3, 4)
    )
    assert found.broke == 0


def test_what_is_broken_already_is_not_counted_again() -> None:
    """Of several replacements without a request between them each token is counted once."""
    session = Session.create("s")
    talk(session, 4)
    session.add_assistant("so all was sent", model="m")
    session.replace(4, 4, "later")
    session.replace(6, 6, "behind the break")
    session.replace(2, 2, "before it")
    costs = [each.resent for each in replacements(session)]
    assert costs == [sizes(session, 5, 6, 7), 0, sizes(session, 3)]
    session.add_assistant("sent again", model="m")
    session.replace(3, 3, "once more")
    assert replacements(session)[-1].resent == sizes(session, 9, 5, 10, 7, 8)


@pytest.mark.parametrize(("asked", "kept"), [("local:m", True), ("m", True), ("other", False)])
def test_the_model_that_a_header_names_is_the_one_that_was_asked(asked: str, kept: bool) -> None:  # noqa: FBT001 - a parameter of the test
    """A summary's request to it keeps the prefix, whether the name has its provider or not."""
    session = Session.create("s")
    header = ev.Header(ev.ModelConfig("local", "m"))
    session.append("request/header", ev.RequestHeader(header, "initial"))
    session.add_user("question")
    session.append("request/sent", ev.RequestSent("step", DIGEST, "none@1", "local:m", 1, 1))
    session.add_assistant("answer", model="m")
    later = session.add_user("one more thing").seq
    changed = ev.Header(ev.ModelConfig("local", "m"), "Be brief.")
    session.append("request/header", ev.RequestHeader(changed, "change"))
    session.append("request/sent", ev.RequestSent("compaction", DIGEST, "none@1", asked))
    first = session.surface.seqs[0]
    session.replace(first, first, "short")
    answer = session.surface.seqs[1]
    (found,) = replacements(session)
    assert found.resent == (sizes(session, answer, later) if kept else 0)


def test_a_pruned_result_is_said_to_be_one() -> None:
    """Its kind is prune; an empty session has no replacements."""
    author = Author(Session.create("s"))
    assert replacements(author.session) == ()
    author.session.add_assistant(ToolCall("c", "f", "{}"))
    seq = author.session.add_tool_result("c", "x" * 400).seq
    author.prune(seq)
    (found,) = replacements(author.session)
    assert (found.kind, found.shadowed, found.resent) == ("prune", (seq,), 0)
    assert found.removed > found.added


def test_a_message_that_was_announced_to_be_shortened_is_pruned() -> None:
    """An image that became a note is no summary, and no compaction's message."""
    session = Session.create("s")
    seq = session.add_user([Text("look"), Image("image/png", "aGk=")]).seq
    session.append("compaction/start", ev.CompactionStart("k"))
    session.append("compaction/prune", ev.CompactionPrune((seq,)))
    session.replace(seq, seq, "look [image]")
    session.append("compaction/end", ev.CompactionEnd("k"))
    (found,) = replacements(session)
    assert found.kind == "prune"
    (compaction,) = compactions(session)
    assert (compaction.seq, compaction.pruned, compaction.shadowed) == (None, (seq,), ())


def naive(session: Session) -> list[tuple[int, int, int]]:
    """What each replacement removed, added and cost, as plainly as can be written."""
    found: list[tuple[int, int, int]] = []
    surface: list[int] = []
    cached: list[int] = []  # the nodes of the longest prefix that is kept somewhere
    model = asked = None

    def tokens(seqs: list[int]) -> int:
        return sizes(session, *seqs)

    def sent(event: AnyEvent) -> bool:
        data = event.data
        if isinstance(data, ev.RequestSent):
            return data.model in (model, asked) or data.purpose == "step" or model is None
        return event.type == "assistant/attempt" or (
            event.type == "assistant/message" and event.surface_op == "append"
        )

    for event in session.events:
        if sent(event):
            cached = list(surface)
        if isinstance(event.data, ev.RequestHeader):
            model = event.data.header.config.model
        elif isinstance(event.data, ev.RequestSent) and event.data.purpose == "step":
            model = asked = event.data.model
        op = event.surface_op
        if op == "append":
            surface.append(event.seq)
        elif op is not None:
            first, last = surface.index(op.start), surface.index(op.end)
            gone, kept = surface[first : last + 1], cached[last + 1 :]
            found.append((tokens(gone), tokens([event.seq]), tokens(kept)))
            surface[first : last + 1] = [event.seq]
            cached = cached[:first]
    return found


@given(histories())
def test_costs_are_those_of_the_plain_way(session: Session) -> None:
    """In any history, fast and slow agree."""
    found = [(each.removed, each.added, each.resent) for each in replacements(session)]
    assert found == naive(session)


# -- undo --------------------------------------------------------------------------------------


@given(histories(), st.data())
def test_a_fork_before_a_compaction_is_as_if_it_had_not_happened(
    session: Session, data: st.DataObject
) -> None:
    """What the model sees in it is what it saw at that moment, and all of it is in the child."""
    found = compactions(session)
    if not found:
        return
    chosen = data.draw(st.sampled_from(found))
    at = chosen.start - 1
    child = session.fork(at, "undone")
    assert list(child.derive_messages()) == list(session.derive_messages(at))
    assert len(compactions(child)) == chosen.number
    for seq in chosen.shadowed:
        assert seq in child.surface
