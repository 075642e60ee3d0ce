"""How large the next request will be."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from turnlog import Session
from turnlog.compaction.characters import text_tokens
from turnlog.compaction.estimate import CharacterEstimator, header_size, message_size
from turnlog.compaction.meter import METER, MeterFold, measure
from turnlog.compaction.tally import Mark
from turnlog.content import (
    Failure,
    Image,
    Reasoning,
    Text,
    ToolCall,
    Usage,
    assistant_message,
    user_message,
)
from turnlog.events import (
    AssistantAttempt,
    AssistantMessage,
    Header,
    ModelConfig,
    Replace,
    RequestHeader,
    SystemMessage,
)
from turnlog.log import Damage, SessionLog
from turnlog.testing.builders import CONFIG, Author, new_session

PROSE = "The schema of the database must not be changed any more. "


def answer(author: Author, usage: Usage | None, text: str = PROSE, **more: Any) -> None:
    """An answer with what its provider reported."""
    message = assistant_message(text, id=f"a{author.session.next_seq}", model="parrot")
    data = AssistantMessage(message, author.turn, author.step, usage, **more)
    author.session.append("assistant/message", data, surface_op="append")


def asked(system: str | None = "You are careful.", prompt: str = PROSE * 20) -> Author:
    """A session whose first request was sent and is not answered."""
    author = Author()
    author.begin_turn()
    author.user(prompt)
    author.begin_step()
    author.request(system)
    return author


def answered(usage: Usage | None) -> Author:
    """A session with one answered request."""
    author = asked()
    answer(author, usage)
    author.end_step()
    author.end_turn()
    return author


def estimated(session: Session, header: Header | None) -> int:
    """The tokens of header and surface, all estimated."""
    fixed = 0 if header is None else header_size(header).tokens
    return fixed + sum(message_size(message).tokens for message in session.derive_messages())


HEADER = Header(CONFIG, "You are careful.")


def test_an_empty_session_is_its_header() -> None:
    """Before anything was said, a request is what its header takes."""
    gauge = measure(new_session(), HEADER)
    assert gauge.tokens == gauge.fixed == header_size(HEADER).tokens
    assert (gauge.reported, gauge.reported_at, gauge.seq) == (None, None, -1)


def test_without_a_report_all_is_estimated() -> None:
    """As long as no provider has reported anything, header and surface are estimated."""
    author = asked()
    gauge = measure(author.session)
    assert gauge.tokens == estimated(author.session, HEADER)
    assert gauge.reported is None
    assert gauge.seq == author.session.next_seq - 1


def test_a_report_counts_prompt_and_answer() -> None:
    """All buckets of the prompt and the output make the size after the answer."""
    author = answered(Usage(100, 40, 150, 50))
    gauge = measure(author.session)
    assert gauge.tokens == gauge.reported == 340
    assert gauge.reported_at == author.session.next_seq - 3


def test_what_is_new_is_added_as_estimated() -> None:
    """What was appended since the report is added to it."""
    author = answered(Usage(300, 40))
    said = author.user(PROSE * 5)
    assert said.message is not None
    assert measure(author.session).tokens == 340 + message_size(said.message).tokens


def test_reasoning_that_does_not_come_again_is_not_counted() -> None:
    """Hidden reasoning is output that the next prompt does not have; shown reasoning is."""
    usage = Usage(300, 1040, reasoning_tokens=1000)
    assert measure(answered(usage).session).tokens == 340
    author = asked()
    author.session.append(
        "assistant/message",
        AssistantMessage(assistant_message([Reasoning("so"), Text("yes")], id="a"), 1, 1, usage),
        surface_op="append",
    )
    assert measure(author.session).tokens == 1340


def test_of_an_interrupted_answer_what_is_there_counts() -> None:
    """The output of an answer that was cut off is not all in the log, so it is estimated."""
    author = asked()
    answer(author, Usage(300, 5000), "It is", interrupted=True)
    size = message_size(assistant_message("It is")).tokens
    assert measure(author.session).tokens == 300 + size


@pytest.mark.parametrize(
    "usage",
    [None, Usage(), Usage(0, 40), Usage(None, 40), Usage(None, 40, 500, 0), Usage(0, 0, 0, 0)],
)
def test_unknown_and_zero_are_no_report(usage: Usage | None) -> None:
    """An answer whose prompt is unknown or empty leaves the estimate as it is."""
    author = answered(usage)
    gauge = measure(author.session)
    assert gauge.reported is None
    assert gauge.tokens == estimated(author.session, HEADER)


def test_an_older_report_stays_when_a_newer_one_says_nothing() -> None:
    """After an answer without usage the last report still holds, with the new part estimated."""
    author = answered(Usage(300, 40))
    before = measure(author.session)
    author.begin_turn()
    author.begin_step()
    author.request(header=False)
    answer(author, None)
    gauge = measure(author.session)
    assert gauge.reported == before.reported
    assert gauge.tokens == before.tokens + message_size(assistant_message(PROSE)).tokens


def test_a_failed_attempt_reports_too() -> None:
    """What a failed attempt reports of its prompt holds for the surface it was sent with."""
    author = asked()
    failure = Failure("the line was cut", "transport")
    author.record(
        "assistant/attempt", AssistantAttempt(1, 1, 1, failure=failure, usage=Usage(321, 17))
    )
    assert measure(author.session).tokens == 321


def test_another_requests_usage_is_not_taken() -> None:
    """A compaction's own request does not stand for the next step's."""
    author = answered(Usage(300, 40))
    author.compact(0, 1, "In short: leave the schema alone.")
    gauge = measure(author.session)
    assert gauge.reported == 340


def test_a_compaction_counts_at_once() -> None:
    """Directly after a compaction the shadowed nodes' share of the report is gone."""
    author = answered(Usage(3000, 400))
    for _ in range(3):
        author.user(PROSE * 20)
    before = measure(author.session).tokens
    summary = author.compact(0, 3, "In short: leave the schema alone.")
    assert summary.message is not None
    after = measure(author.session)
    last = author.session.derive_messages()[-1]
    new = message_size(summary.message).tokens + message_size(last).tokens
    assert after.fixed < after.tokens < before
    # All that is left of the reported part is its header, which has its share of the report.
    share = -(-3400 * after.fixed // estimated(answered(None).session, HEADER))
    assert after.tokens == share + new


def test_a_pruning_counts_at_once() -> None:
    """Directly after a pruning the gauge is smaller, long before the next report."""
    author = asked()
    call = ToolCall("c1", "read", "{}")
    author.answer([Text("reading"), call])
    author.dispatch(call)
    result = author.result(call, PROSE * 200)
    before = measure(author.session).tokens
    author.prune(result.seq, "nothing of interest")
    assert before - measure(author.session).tokens > 1500


def test_a_summary_may_be_longer_than_what_it_replaces() -> None:
    """A gain may be negative: the gauge grows, and nothing is refused."""
    author = answered(Usage(300, 40))
    before = measure(author.session).tokens
    author.compact(0, 1, PROSE * 500)
    assert measure(author.session).tokens > before + 4000


def test_a_replacement_while_a_request_is_out_is_not_counted_twice() -> None:
    """A report stands for the nodes its request had, of which some may be gone when it comes."""
    author = asked()
    author.compact(0, 0, "short")
    answer(author, Usage(1000, 10))
    quiet = asked()
    answer(quiet, Usage(1000, 10))
    assert measure(author.session).tokens < measure(quiet.session).tokens // 2


def test_a_report_of_another_header_is_not_used() -> None:
    """With another model, system text or tools the next request is estimated."""
    author = answered(Usage(300, 40))
    for header in (
        Header(replace(CONFIG, model="cockatoo"), "You are careful."),
        Header(CONFIG, "You are bold."),
        Header(CONFIG),
    ):
        gauge = measure(author.session, header)
        assert gauge.reported is None
        assert gauge.tokens == estimated(author.session, header)


def test_settings_do_not_change_a_prompt() -> None:
    """A header that differs in settings alone has the same prompt, and the report holds."""
    author = answered(Usage(300, 40))
    config = replace(CONFIG, temperature=0.5, tool_choice="none")
    assert measure(author.session, Header(config, "You are careful.")).reported == 340


def test_a_report_holds_again_when_its_header_comes_back() -> None:
    """A fork logs its header again: the same one keeps the report, another one drops it."""
    author = answered(Usage(300, 40))
    child = author.session.fork()
    child.append("request/header", RequestHeader(HEADER, "resume"))
    assert measure(child).reported == 340
    other = author.session.fork(session_id="other")
    other.append("request/header", RequestHeader(Header(CONFIG, "You are bold."), "resume"))
    assert measure(other).reported is None


def test_a_report_that_leaves_something_out_is_not_believed() -> None:
    """A prompt reported as a few tokens of thousands, as caches make it, is not taken."""
    author = asked(prompt=PROSE * 500)
    answer(author, Usage(7, 12))
    gauge = measure(author.session)
    assert gauge.reported is None
    assert gauge.tokens == -(-estimated(author.session, HEADER) // 3)


def test_usage_without_a_logged_request_holds_for_the_surface_before_it() -> None:
    """An answer that was added by hand, or imported, reports what stood before it."""
    session = new_session()
    session.add_user(PROSE * 10)
    session.add_assistant(PROSE, usage=Usage(150, 20))
    session.add_user(PROSE)
    expected = 170 + message_size(user_message(PROSE)).tokens
    assert measure(session).tokens == expected


def test_an_instruction_and_more_messages_are_counted() -> None:
    """What a request has besides the surface is added: an instruction, messages, images."""
    author = answered(Usage(300, 40))
    bare = measure(author.session)
    told = measure(author.session, instruction=PROSE)
    assert told.tokens == bare.tokens + message_size(user_message(PROSE)).tokens
    shown = measure(author.session, extra=[user_message([Text("see"), Image("image/png", "AAAA")])])
    assert shown.media == bare.media + 1
    assert shown.bytes > bare.bytes


def test_system_text_on_the_surface_cannot_shrink() -> None:
    """Imported system text is fixed, and the header's is not counted beside it."""
    session = new_session()
    message = replace(user_message(PROSE * 10), id="s", role="system")
    session.append("system/message", SystemMessage(message), surface_op="append")
    gauge = measure(session, Header(CONFIG, PROSE * 10))
    assert gauge.tokens == gauge.fixed == message_size(message).tokens


def test_another_estimator_measures_apart() -> None:
    """Each estimator has its own sizes, kept from call to call."""

    class Doubling(CharacterEstimator):
        name = "doubling@1"

        def text(self, text: str) -> int:
            return 2 * text_tokens(text)

    author = asked()
    doubling = Doubling()
    once = measure(author.session).tokens
    assert once < measure(author.session, estimator=doubling).tokens <= 2 * once
    author.user(PROSE)
    assert measure(author.session, estimator=doubling).seq == author.session.next_seq - 1
    with pytest.raises(ValueError, match="doubling@1"):
        METER.restore(MeterFold(doubling).dump(author.session.fold(MeterFold(doubling))))


@pytest.mark.parametrize("value", [None, {}, {"estimator": "characters@1"}, 7, []])
def test_what_was_not_dumped_is_refused(value: Any) -> None:
    """A state that no meter dumped is refused."""
    with pytest.raises(ValueError, match="meter"):
        METER.restore(value)


def test_a_replacement_around_damage_takes_what_it_cites() -> None:
    """Where damage lost an end of the range, the meter follows the surface."""
    author = Author()
    for n in range(5):
        author.user(f"{PROSE}{n}")
    author.compact(1, 3, "short")
    events = author.session.events
    log = SessionLog(author.session.header)
    log.load(events[0])
    log.lose(Damage("garbled", 1, 1))
    for event in events[2:]:
        log.load(event)
    session = Session(log)
    assert session.flagged
    assert sorted(session.fold(METER).nodes) == sorted(session.surface.seqs)


def test_a_replacement_may_cite_more_than_it_shadows() -> None:
    """Nodes that a replacement cites and does not cover stay, also after others were replaced."""
    author = Author()
    for n in range(6):
        author.user(f"{PROSE}{n}")
    session = author.session
    first = author.compact(3, 4).seq
    session.append(
        "user/message",
        user_message("short", id="s"),
        surface_op=Replace(1, first),
        source_event_seqs=[0, 1, 2, first, 5],
    )
    assert sorted(session.fold(METER).nodes) == sorted(session.surface.seqs)
    assert measure(session).tokens == estimated(session, None)


def test_a_request_that_was_never_answered_is_forgotten_with_its_step() -> None:
    """What a later answer reports holds for what stood before it, not for an abandoned request."""
    author = asked(prompt=PROSE * 50)
    author.end_step()
    author.end_turn("aborted")
    author.compact(0, 0, "short")
    answer(author, Usage(90, 10))
    assert measure(author.session).tokens == 100


@pytest.mark.parametrize("length", [10, 1000])
def test_measuring_costs_what_is_new(length: int) -> None:
    """However long the session, a measurement looks at each new message once and at no other."""

    class Counting(CharacterEstimator):
        def __init__(self) -> None:
            self.name = f"counting@{length}"
            self.texts = 0

        def text(self, text: str) -> int:
            self.texts += 1
            return text_tokens(text)

    author, counting = Author(), Counting()
    for _ in range(length):
        author.user(PROSE)
    measure(author.session, estimator=counting)
    assert counting.texts == length
    author.user(PROSE)
    author.compact(2, length - 2)
    measure(author.session, estimator=counting)
    measure(author.session, estimator=counting)
    assert counting.texts == length + 2


def test_the_window_is_that_of_the_model_in_force() -> None:
    """A window that was logged counts for its own model alone."""
    author = asked()
    config = ModelConfig("scripted", "cockatoo")
    author.record(
        "request/context", {"provider": "scripted", "model": "parrot", "contextWindow": 9000}
    )
    assert author.session.fold(METER).window == 9000
    author.record("request/header", RequestHeader(Header(config), "change"))
    assert author.session.fold(METER).window is None


def test_records_that_have_not_their_types_shape_are_passed_over() -> None:
    """A payload of a core type that is not what the type says changes nothing."""
    author = answered(Usage(300, 40))
    wire = [event.to_dict() for event in author.session.events]
    broken = {"type": "request/header", "seq": len(wire), "time": 0, "data": {"header": 7}}
    session = Session.from_events(author.session.header, [*wire, broken])
    assert measure(session).tokens == 340


def test_a_share_of_nothing_is_the_report_itself() -> None:
    """A report about a request that is estimated at nothing still says what it was."""
    assert Mark(3, None, 0, 0, 0, reported=12).now() == 12


def test_the_dump_is_as_long_as_the_surface() -> None:
    """What is kept does not grow with the log, only with what is on the surface."""

    def length(author: Author) -> int:
        return len(msgspec.json.encode(METER.dump(author.session.fold(METER))))

    author = answered(Usage(300, 40))
    author.compact(0, 1)
    early = length(author)
    for _ in range(100):
        author.user(PROSE)
        author.compact(0, 1)
    assert length(author) < early + 50
