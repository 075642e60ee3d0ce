"""Tokens: disjoint buckets, unknown is not zero, once in a family of forks."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.views.histories import numbers, play, prefix, sessions
from turnlog import events as ev
from turnlog.compaction.history import compactions
from turnlog.content import Text, Usage, assistant_message
from turnlog.events import SessionHeader
from turnlog.session import Session
from turnlog.testing.builders import Author
from turnlog.views.usage import Count, Prices, Spent, Tokens

KNOWN = Usage(10, 5, 100, 0, 2)
PRICES = {"parrot": Prices(1.0, 0.1, 2.0, 4.0)}


def say(session: Session, usage: Usage | None, turn: int = 1, step: int = 1, **how: Any) -> int:
    """An answer that took this much; returns its seq."""
    message = assistant_message("hi", id=f"a{session.next_seq}", model=how.pop("model", "parrot"))
    data = ev.AssistantMessage(message, turn, step, usage)
    how = {"surface_op": "append", **how}
    return session.append("assistant/message", data, **how).seq


@given(sessions())
def test_incremental_equals_refold_and_depends_on_the_prefix_alone(session: Session) -> None:
    """The account at n is that of a session that never had more, kept slowly or at once."""
    for event in session.events:
        assert session.usage(at=event.seq) == prefix(session, event.seq).usage()
    assert session.usage() == session.usage(at=session.next_seq - 1)


@given(sessions())
def test_groups_add_up(session: Session) -> None:
    """Steps, turns and models each sum to the total."""
    spent = session.usage().everything
    for groups in (spent.by_step, spent.by_turn, spent.by_model):
        assert sum(groups.values(), Spent({})) == spent
        assert sum((group.total for group in groups.values()), Tokens()) == spent.total


@given(sessions())
def test_each_record_counts_once(session: Session) -> None:
    """The total is the sum over answers, attempts and summaries, recounted here by hand."""
    reported: list[dict[str, Any]] = []
    for event in session.events:
        wire = event.to_dict()
        answer = wire["type"] == "assistant/message" and wire["surfaceOp"] == "append"
        if answer or wire["type"] in ("assistant/attempt", "compaction/summary"):
            reported.append(wire["data"].get("usage", {}))
    total = session.usage().everything.total
    assert total.answers == len(reported)
    for count, field in ((total.input, "inputTokens"), (total.output, "outputTokens")):
        said = [usage[field] for usage in reported if field in usage]
        assert (count.known, count.unknown) == (sum(said), len(reported) - len(said))


@given(numbers(20), st.lists(st.integers(0, 50), min_size=3, max_size=3), numbers(20))
def test_a_chain_of_forks_counts_each_request_once(
    begin: list[int], cuts: list[int], more: list[int]
) -> None:
    """Over a chain of four sessions, `own` sums to the usage of the distinct events."""
    session = play(begin)
    root = session.usage().inherited
    author = Author(session)
    family, distinct = [session], list(session.events)[session.header.seed_length or 0 :]
    for cut in cuts:
        author.session = author.session.fork(max(0, author.session.next_seq - 1 - cut) - 1)
        for n in more:
            say(author.session, Usage(n, 1), turn=n % 3)
        family.append(author.session)
        distinct += list(author.session.events)[author.session.header.seed_length or 0 :]
    own = sum((one.usage().own for one in family), Spent({}))
    said = [e for e in distinct if e.type == "assistant/message" and e.surface_op == "append"]
    said += [e for e in distinct if e.type in ("assistant/attempt", "compaction/summary")]
    assert own.total == sum((Tokens.of(event.data.usage) for event in said), Tokens())
    assert family[0].usage().inherited == root


def test_what_was_not_reported_is_unknown() -> None:
    """A sum keeps its known part and says how many did not report."""
    session = Author().session
    say(session, KNOWN)
    say(session, Usage(output_tokens=3))
    say(session, None)
    total = session.usage().own.total
    assert total.answers == 3
    assert total.output == Count(8, 1)
    assert total.input == Count(10, 2)
    assert total.output.exact is None
    assert total.total == Count(118, 7)


def test_zero_that_was_reported_is_zero() -> None:
    """A reported zero is known."""
    session = Author().session
    say(session, Usage(0, 0, 0, 0, 0))
    assert session.usage().own.total == Tokens(1)
    assert session.usage().own.total.total.exact == 0


def test_failed_attempts_and_summaries_count() -> None:
    """What a failed attempt or a compaction took is in the account, at its turn and step."""
    author = Author()
    author.begin_turn()
    author.begin_step()
    author.request()
    author.record("assistant/attempt", ev.AssistantAttempt(1, 1, usage=Usage(7, 1)))
    author.end_step()
    author.record("compaction/summary", ev.CompactionSummary("c", usage=Usage(50, 5)))
    author.end_turn()
    author.record("compaction/summary", ev.CompactionSummary("d", usage=Usage(60, 6)))
    own = author.session.usage().own
    inputs = {place: spent.total.input.known for place, spent in own.by_step.items()}
    assert inputs == {(1, 1): 7, (1, None): 50, (None, None): 60}
    assert {turn: s.total.input.known for turn, s in own.by_turn.items()} == {1: 57, None: 60}
    assert list(own.by_model) == ["parrot"]


def test_an_answer_told_anew_counts_once() -> None:
    """A replacement that repeats an answer, usage and all, took nothing."""
    session = Author().session
    seq = say(session, KNOWN)
    op = {"op": "replace", "start": seq, "end": seq}
    say(session, KNOWN, surface_op=op, source_event_seqs=[seq])
    assert session.usage().own.total.answers == 1


def test_models_are_told_apart() -> None:
    """The message says which model answered; else the one that was asked last did."""
    author = Author()
    author.begin_turn()
    author.begin_step()
    author.request()
    say(author.session, KNOWN, model="other")
    author.record("assistant/attempt", ev.AssistantAttempt(1, 1, usage=KNOWN))
    assert set(author.session.usage().own.by_model) == {"other", "parrot"}


@pytest.mark.parametrize(
    ("config", "asked"),
    [
        (ev.ModelConfig("local", "smollm2"), "local:smollm2"),
        (ev.ModelConfig("openai-compatible", "smollm2"), "openai-compatible:smollm2@http://h/v1"),
        (ev.ModelConfig("a", "smollm2"), "smollm2"),
    ],
)
def test_a_model_has_one_name(config: ev.ModelConfig, asked: str) -> None:
    """Answers, failed attempts and summaries of a model are one account, however it was asked."""
    session = Session.create("s")
    session.append("request/header", ev.RequestHeader(ev.Header(config), "initial"))
    session.append("request/sent", ev.RequestSent("step", "sha256:0", "plain@1", asked))
    session.append("assistant/attempt", ev.AssistantAttempt(1, 1, usage=KNOWN))
    say(session, KNOWN, model="smollm2")
    session.append("compaction/start", ev.CompactionStart("k"))
    session.append("compaction/summary", ev.CompactionSummary("k", usage=KNOWN))
    session.append("compaction/end", ev.CompactionEnd("k"))
    (name,) = session.usage().everything.by_model
    assert name == "smollm2"
    assert [each.model for each in compactions(session)] == ["smollm2"]


def test_another_model_keeps_the_name_it_was_asked_by() -> None:
    """A request that the header does not speak of is counted as the log has it."""
    session = Session.create("s")
    config = ev.ModelConfig("local", "smollm2")
    session.append("request/header", ev.RequestHeader(ev.Header(config), "initial"))
    session.append("request/sent", ev.RequestSent("step", "sha256:0", "plain@1", "openai:big"))
    session.append("assistant/attempt", ev.AssistantAttempt(1, 1, usage=KNOWN))
    assert list(session.usage().everything.by_model) == ["openai:big"]


def test_a_fork_inherits_what_its_parent_used() -> None:
    """What lies before the cut is inherited, what comes after is the child's own."""
    author = Author()
    say(author.session, KNOWN)
    child = author.session.fork()
    say(child, Usage(1, 1))
    usage = child.usage()
    assert (usage.inherited.total.answers, usage.own.total.answers) == (1, 1)
    assert usage.everything.total.input.known == 11


def test_an_imported_seed_is_the_session_s_own() -> None:
    """An import used what its seed says, though its source names a parent; its forks inherit it."""
    made = Author().session
    say(made, KNOWN)
    header = SessionHeader(
        "imported",
        0,
        parent_session="elsewhere",
        seed_length=1,
        source_format="dsh/v4",
        source_length=1,
        source={"parentSession": "elsewhere"},
    )
    imported = Session.from_events(header, made.events)
    assert imported.usage().own.total.answers == 1
    assert imported.fork().usage().own.total.answers == 0


def test_the_cost_is_known_only_if_all_of_it_is() -> None:
    """A price list gives a cost; a bucket or price that is not known gives None."""
    session = Author().session
    say(session, KNOWN)
    own = session.usage().own
    assert own.cost(PRICES) == pytest.approx((10 * 1 + 100 * 0.1 + 5 * 4) / 1e6)
    assert own.cost({}) is None
    assert own.cost({"parrot": Prices(input=1.0, output=4.0)}) is None
    say(session, Usage(10, 5, 0), turn=2)
    own = session.usage().own
    assert own.cost(PRICES) is None
    free = {"parrot": Prices(1.0, 0.1, 0, 4.0)}
    assert own.cost(free) == pytest.approx((20 * 1 + 100 * 0.1 + 10 * 4) / 1e6)
    assert own.by_turn[1].cost(PRICES) is not None


def test_the_wire_form_has_every_bucket() -> None:
    """An empty account says zero, bucket by bucket."""
    assert Tokens().to_dict() == {
        "answers": 0,
        **{
            bucket: {"known": 0, "unknown": 0}
            for bucket in ("input", "cacheRead", "cacheWrite", "output", "reasoning")
        },
    }


def test_an_answer_of_no_turn_belongs_to_the_one_that_runs() -> None:
    """Where an event does not name its turn and step, those that are open count."""
    author = Author()
    author.begin_turn()
    author.begin_step()
    author.session.add_assistant([Text("hi")], usage=KNOWN)
    assert set(author.session.usage().own.by_step) == {(1, 1)}


def test_an_account_is_shown_without_made_up_numbers() -> None:
    """What an account looks like says how much of it is known."""
    session = Author().session
    assert repr(session.usage().own) == "<Spent: 0 tokens in 0 answers>"
    say(session, None)
    assert repr(session.usage().own) == "<Spent: unknown tokens in 1 answer>"
    say(session, KNOWN)
    assert repr(session.usage().own) == "<Spent: at least 115 tokens in 2 answers>"
