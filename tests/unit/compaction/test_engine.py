"""The engine: what it does when all goes well, and what it leaves when something does not."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import anyio
import pytest

from tests.unit.agent.scenes import assert_lawful, at_once
from turnlog import Image, Session, ToolCall
from turnlog.compaction.engine import BasicCompactionEngine
from turnlog.compaction.meter import measure
from turnlog.compaction.port import Ahead, compacting
from turnlog.compaction.pruner import Pruner
from turnlog.compaction.state import COMPACTIONS
from turnlog.compaction.task import ModelPolicy
from turnlog.content import Failure, Source, Text, user_message
from turnlog.errors import CompactionBusy, CompactionFailed, ContextOverflow
from turnlog.events import (
    CompactionEnd,
    CompactionStart,
    CompactionSummary,
    Header,
    InboxAccepted,
    ModelConfig,
    RequestHeader,
    RequestSent,
    ToolSchema,
)
from turnlog.models.scripted import Call, End, Fail, Hang, ScriptedModel, Used, Wait
from turnlog.records import flatten
from turnlog.testing.builders import Author
from turnlog.testing.providers import check_neutral

WORDS = "plain words that say nothing much and take their room in every request "
GOOD = "## Goals\n- ship it\n\n## State\n- half done"


def talk(turns: int = 40, *, words: int = 4) -> Session:
    """A conversation without tools, of about 60 tokens a turn for each word."""
    session = Session.create("s")
    for number in range(turns):
        session.add_user(f"question {number}: {WORDS * words}")
        session.add_assistant(f"answer {number}: {WORDS * words}")
    return session


def model(*answers: Any, window: int | None = 4000, **options: Any) -> ScriptedModel:
    """A model that answers as told."""
    return ScriptedModel(list(answers), context_window=window, **options)


def engine(*answers: Any, window: int | None = 4000, **options: Any) -> BasicCompactionEngine:
    """An engine that waits for nothing, on such a model."""
    options.setdefault("delay", at_once)
    return BasicCompactionEngine(model(*answers, window=window), **options)


def requests(made: BasicCompactionEngine) -> Sequence[bytes]:
    """What its model got."""
    asked = made.model
    assert isinstance(asked, ScriptedModel)
    return asked.requests


def ends(session: Session) -> list[CompactionEnd]:
    """How the brackets closed."""
    return [e.data for e in session.events if isinstance(e.data, CompactionEnd)]


def summaries(session: Session) -> list[CompactionSummary]:
    """What came of the requests."""
    return [e.data for e in session.events if isinstance(e.data, CompactionSummary)]


def assert_valid(session: Session) -> None:
    """Every law holds, and the next request is one."""
    assert_lawful(session)
    assert check_neutral([flatten(message) for message in session.request_messages()]) == []


# -- when all goes well ------------------------------------------------------------------------


async def test_it_compacts_what_is_too_much_for_the_window() -> None:
    """Down to below the threshold, with the most recent quarter as it was."""
    session = talk(40, words=1)
    recent = [message.text for message in session.derive_messages()[-8:]]
    made = engine([GOOD, Used(900, 20)], threshold=1500)
    done = await made.compact_if_needed(session)
    assert done is not None
    assert done.policy == "model"
    assert done.tokens_after < 1500 < done.tokens_before
    assert [message.text for message in session.derive_messages()[-8:]] == recent
    assert session.derive_messages()[0].source.kind == "compaction"
    assert measure(session).tokens == done.tokens_after
    assert_valid(session)


async def test_nothing_happens_below_the_threshold() -> None:
    """Not an event."""
    session = talk(2)
    assert await engine().compact_if_needed(session) is None
    assert len(session) == 4


async def test_what_the_request_will_bring_is_counted() -> None:
    """A long prompt that is not in the log yet makes compaction due."""
    session = talk(10)
    made = engine(GOOD)
    assert await made.compact_if_needed(session) is None
    long = user_message(WORDS * 200)
    done = await made.compact_if_needed(session, Ahead(messages=(long,)))
    assert done is not None
    assert len(session.derive_messages()) < 20


async def test_the_events_say_what_was_done() -> None:
    """In the order of the law, with range, tokens, attempts and usage."""
    session = talk(40, words=1)
    first = session.next_seq
    made = engine([GOOD, Used(900, 20, cache_read_tokens=700)], threshold=1500)
    done = await made.compact_if_needed(session)
    assert done is not None
    kinds = [event.type for event in session.events[first:]]
    assert kinds == [
        "compaction/start",
        "request/header",
        "request/context",
        "request/sent",
        "compaction/summary",
        "user/message",
        "compaction/end",
    ]
    start: CompactionStart = session.events[first].data
    assert (start.reason, start.window, start.turn) == ("threshold", 4000, None)
    assert start.tokens_before == done.tokens_before
    (end,) = ends(session)
    assert (end.start, end.end, end.error) == (0, done.end, None)
    assert (end.policy, end.attempts, end.tokens_after) == ("model", 1, done.tokens_after)
    assert end.usage == done.usage == summaries(session)[0].usage
    assert summaries(session)[0].shadowed_seqs == session.surface.replacements[0].shadowed


async def test_the_request_is_the_prefix_of_the_conversation_and_an_instruction() -> None:
    """Byte for byte, so that the provider has it; and `verify` proves it."""
    author = Author()
    author.record(
        "request/header", RequestHeader(Header(ModelConfig("scripted", "script"), "be kind"), "")
    )
    for number in range(30):
        author.user(f"{number} {WORDS}")
    session = author.session
    made = engine(GOOD, threshold=500)
    done = await made.compact_if_needed(session)
    assert done is not None
    sent: dict[str, Any] = json.loads(requests(made)[0])
    before = session.derive_messages(at=done.seq - 1 if done.seq else 0)
    said = [message.text for message in before][: done.shadowed]
    assert sent["messages"][0] == {"role": "system", "content": "be kind"}
    texts = json.dumps(sent["messages"][1:])
    assert [text in texts for text in said] == [True] * done.shadowed
    assert before[done.shadowed].text not in texts
    assert "Summarize" in json.dumps(sent["messages"][-1])
    assert_valid(session)


async def test_an_older_summary_is_merged() -> None:
    """There is never more than one on the surface, and it does not grow over thirty of them."""
    session = talk(10)

    def answer(body: bytes) -> str:
        return f"## Goals\n- {len(body)}\n\n## State\n- {WORDS}"

    made = engine(*[answer] * 30)
    sizes: list[int] = []
    for _ in range(30):
        for _ in range(4):
            session.add_user(WORDS * 4)
            session.add_assistant(WORDS * 4)
        done = await made.compact_now(session)
        assert done is not None
        stand = [m for m in session.derive_messages() if m.source.kind == "compaction"]
        assert len(stand) == 1
        sizes.append(len(stand[0].text))
    assert max(sizes) < min(sizes) * 2
    assert_valid(session)


async def test_pins_are_carried_verbatim_and_once() -> None:
    """In blocks of their own, through many compactions; what is unpinned is not."""
    session = talk(10)
    kept = session.add_user("NEVER touch the schema.").seq
    session.pin(kept)
    gone = session.pin("and this for a while")
    for number in range(5):
        if number == 3:
            session.unpin(gone)
        for _ in range(6):
            session.add_user(WORDS * 4)
            session.add_assistant(WORDS * 4)
        await engine(GOOD).compact_now(session)
        blocks = [b for m in session.derive_messages() for b in m.content if isinstance(b, Text)]
        assert [b.text for b in blocks].count("NEVER touch the schema.") == 1
        assert ("and this for a while" in [b.text for b in blocks]) == (number < 3)
        assert "NEVER" not in blocks[0].text
    assert_valid(session)


async def test_a_summary_names_what_it_stands_for_and_that_it_is_one() -> None:
    """So that nobody takes it for an instruction."""
    session = talk()
    await engine(GOOD).compact_now(session)
    text = session.derive_messages()[0].text
    assert text.startswith("Summary of events 0 to ")
    assert "no instruction" in text.splitlines()[0]


async def test_shortening_results_may_be_enough() -> None:
    """No model is asked, and no bracket opened."""
    session = Session.create("s")
    for number in range(4):
        session.add_assistant([ToolCall(f"c{number}", "read", "{}")])
        session.add_tool_result(f"c{number}", WORDS * 150)
    made = engine(
        pruner=Pruner(limit=2000, head=500, tail=100, keep=1), threshold=6000, window=9000
    )
    done = await made.compact_if_needed(session)
    assert done is not None
    assert (done.policy, done.compaction_id) == ("prune", None)
    assert len(done.pruned) == 3
    assert requests(made) == []
    assert_valid(session)


async def test_a_range_that_does_not_fit_is_summarised_in_parts() -> None:
    """Each request fits the window, each part is told what came before; one replacement."""
    session = talk(90)
    asked: list[str] = []

    def answer(body: bytes) -> str:
        asked.append(body.decode())
        return f"PART{len(asked)} of it"

    made = engine(*[answer] * 9)
    done = await made.compact_now(session)
    assert done is not None
    assert 2 <= len(asked) <= 6
    assert done.attempts == len(asked)
    assert max(map(len, asked)) < 4000 * 6  # characters of JSON, at least six for a token
    assert all(f"PART{n} of it" in body for n, body in enumerate(asked[1:], 1))
    assert "question 0:" in asked[0]
    assert "question 0:" not in asked[1]
    assert session.surface.replace_generation == 1
    assert_valid(session)


async def test_a_message_that_fits_no_request_is_left_out_of_it() -> None:
    """It is named with its beginning; the rest is summarised."""
    session = talk(3)
    session.add_user(f"BEGINNING {'x' * 200_000}")
    session.add_assistant("I see")
    for _ in range(8):
        session.add_user(WORDS * 4)
    made = engine(GOOD, GOOD, GOOD)
    done = await made.compact_now(session)
    assert done is not None
    assert done.policy == "model"
    assert all(len(body) < 50_000 for body in requests(made))
    assert "[6] user, 200010 characters: BEGINNING" in session.derive_messages()[0].text
    assert_valid(session)


async def test_only_the_last_compactions_surface_shows_and_each_undo_is_exact() -> None:
    """A fork from before a compaction is as the session was."""
    session = talk()
    before, at = list(session.derive_messages()), session.next_seq - 1
    await engine(GOOD).compact_now(session)
    session.add_user("more")
    assert list(session.fork(at).derive_messages()) == before


# -- a table of summaries ----------------------------------------------------------------------


def instruction_of(body: bytes) -> str:
    """What a request for a summary ends with."""
    return json.loads(body)["messages"][-1]["content"]


TABLE: dict[str, tuple[list[Any], str]] = {
    "empty": (["", "", ""], "empty"),
    "longer than its input": ([WORDS * 500 + "end"] * 3, "runaway"),
    "as long as its input": (
        ["\n".join(f"- {n} is said of {n * 7} and {n * 13}" for n in range(100))] * 3,
        "not-cheaper",
    ),
    "one line 2,000 times": (["it goes on\n" * 2000] * 3, "runaway"),
    "tool calls instead of text": ([Call("read", {"path": "x"})] * 3, "tool-calls"),
    "cut off": ([[GOOD, End("max-tokens")]] * 3, "truncated"),
    "an echo of the instruction": ([instruction_of] * 3, "echo"),
    "hanging": ([Hang()] * 3, "timeout"),
    "529 on every call": ([Fail("server")] * 3, "server"),
    "a full window": ([Fail("overflow-tokens")] * 3, "overflow-tokens"),
    "refused": ([Fail("refused")], "refused"),
    "cut in the middle": ([["## Goals", Fail("transport")]] * 3, "transport"),
}


@pytest.mark.parametrize("name", TABLE)
async def test_a_bad_summary_ends_in_its_event_at_bounded_cost(name: str) -> None:
    """The surface is as it was, the error has a code, and no more is asked than allowed."""
    answers, code = TABLE[name]
    session = talk(12)
    surface = list(session.surface.seqs)
    seconds = 0.0 if name == "hanging" else 60.0
    made = engine(*answers, "never asked", fallback="none", seconds=seconds)
    with pytest.raises(CompactionFailed) as caught:
        await made.compact_now(session)
    assert caught.value.code == code
    assert list(session.surface.seqs) == surface
    assert len(requests(made)) == len(answers)
    assert [end.error["code"] for end in ends(session)] == [code]
    assert [s.error.code for s in summaries(session) if s.error] == [code] * len(answers)
    assert session.events[-1].type == "compaction/end"
    assert_valid(session)


@pytest.mark.parametrize("name", TABLE)
async def test_without_a_good_summary_the_log_itself_is_one(name: str) -> None:
    """The structural fallback asks nobody, and what failed is in the log."""
    answers, _ = TABLE[name]
    session = talk(12)
    made = engine(*answers, seconds=0.0 if name == "hanging" else 60.0)
    done = await made.compact_now(session)
    assert done is not None
    assert (done.policy, done.attempts) == ("structural", len(answers))
    assert done.tokens_after < done.tokens_before
    assert "question 0:" in session.derive_messages()[0].text
    assert ends(session)[0].error is None
    assert_valid(session)


async def test_failures_of_the_provider_on_every_other_call_are_waited_out() -> None:
    """With the delays that the provider asks for."""
    waited: list[float | None] = []

    def delay(retry: int, failure: Failure) -> float:
        del retry
        waited.append(failure.provider_retry_after_ms)
        return 0.0

    session = talk(12)
    made = engine(Fail("server", retry_after_ms=7.0), GOOD, delay=delay)
    done = await made.compact_now(session)
    assert done is not None
    assert (done.policy, done.attempts) == ("model", 2)
    assert waited == [7.0]


async def test_a_model_is_told_why_its_summary_was_not_taken() -> None:
    """So that the next attempt is another one; a small one is only asked for less."""
    made = engine(Call("read", {}), GOOD, window=32_000)
    await made.compact_now(talk(12))
    assert b"called 1 tools" in requests(made)[1]
    made = engine(Call("read", {}), GOOD)
    await made.compact_now(talk(12))
    assert b"called 1 tools" not in requests(made)[1]
    assert b"three short sentences" in requests(made)[1]


async def test_another_attempt_is_not_as_steady_as_the_first() -> None:
    """At temperature 0 the same bad summary would come again; the step after it is as before."""
    steady = ModelConfig("scripted", "script", temperature=0.0)
    made, session = engine("", GOOD), talk(12)
    session.append("request/header", RequestHeader(Header(steady), "initial"))
    await made.compact_now(session)
    temperatures = [json.loads(body).get("temperature") for body in requests(made)]
    assert temperatures == [0.0, None]
    assert_valid(session)


async def test_a_model_that_repeats_itself_is_stopped() -> None:
    """Long before the answer is too long; the log has the beginning of what it said."""
    asked: list[int] = []

    async def count() -> None:
        asked.append(1)

    answer = [step for _ in range(100) for step in ("I am glad to be here. ", Wait(count))]
    made, session = engine(answer, GOOD), talk(12)
    await made.compact_now(session)
    assert len(asked) < 50
    rejected = summaries(session)[0]
    assert rejected.error is not None
    assert rejected.error.code == "runaway"
    assert rejected.summary is not None
    assert rejected.summary[0]["text"].startswith("I am glad")


async def test_an_endless_answer_is_not_read_to_its_end() -> None:
    """The stream is closed once it is far too long."""
    made = engine(*[[f"{n} words and more " for n in range(5000)]] * 3, fallback="none")
    with pytest.raises(CompactionFailed):
        await made.compact_now(talk(12))
    asked = made.model
    assert isinstance(asked, ScriptedModel)
    assert asked.open_streams == 0


async def test_usage_is_logged_on_every_exit() -> None:
    """Also of what was refused or broke off; what is unknown stays unknown."""
    session = talk(12)
    made = engine([Used(100, 5), ""], [Used(100, 7), Fail("transport")], [Used(90, 9), GOOD])
    done = await made.compact_now(session)
    assert done is not None
    used = [s.usage.output_tokens if s.usage else None for s in summaries(session)]
    assert used == [5, 7, 9]
    assert done.usage is not None
    assert (done.usage.input_tokens, done.usage.output_tokens) == (290, 21)


# -- progress or stop --------------------------------------------------------------------------


async def test_what_failed_is_not_tried_for_ever() -> None:
    """After two failures in a row nothing is asked until the session has grown."""
    session = talk(30)
    made = engine(*[""] * 50, fallback="none", attempts=2)
    for _ in range(10):
        with suppress(CompactionFailed):
            await made.compact_if_needed(session)
    assert [end.error["code"] for end in ends(session)] == ["empty", "empty"]
    assert len(requests(made)) == 4
    assert len(ends(session)) == 2
    for _ in range(2):
        session.add_user(WORDS * 10)
    with pytest.raises(CompactionFailed):
        await made.compact_if_needed(session)
    assert len(ends(session)) == 3


async def test_the_count_of_failures_survives_a_restart() -> None:
    """It is folded from the log."""
    session = talk(30)
    for _ in range(2):
        with pytest.raises(CompactionFailed):
            await engine("", fallback="none", attempts=1).compact_if_needed(session)
    again = Session.from_events(session.header, session.events)
    fresh = engine(GOOD)
    assert await fresh.compact_if_needed(again) is None
    assert requests(fresh) == []


async def test_another_window_begins_anew() -> None:
    """What failed with one model is tried with another one."""
    session = talk(30)
    for _ in range(2):
        with pytest.raises(CompactionFailed):
            await engine("", fallback="none", attempts=1).compact_if_needed(session)
    assert await engine(GOOD, window=3900).compact_if_needed(session) is not None


async def test_a_window_that_system_text_and_tools_fill_is_said_to_be_too_small() -> None:
    """Once, and nobody is asked."""
    session = Session.create("s")
    tools = tuple(ToolSchema(f"t{n}", WORDS * 8, {"type": "object"}) for n in range(30))
    header = Header(ModelConfig("scripted", "script"), "be kind", tools)
    made = engine()
    with pytest.raises(CompactionFailed, match="no compaction can make room") as caught:
        await made.compact_if_needed(session, Ahead(header))
    assert caught.value.code == "fixed-too-large"
    assert await made.compact_if_needed(session, Ahead(header)) is None
    assert len(ends(session)) == 1
    assert requests(made) == []


async def test_two_messages_above_the_window_are_enough_for_a_summary() -> None:
    """What fits no request is told by its beginning, and the next request fits."""
    session = Session.create("s")
    session.add_user("hello")
    session.add_user(f"BEGINNING {WORDS * 400}")
    made = engine(GOOD, GOOD, fallback="none")
    done = await made.compact_if_needed(session, Ahead(messages=(user_message("and now?"),)))
    assert done is not None
    assert done.tokens_after < 3200
    assert len(session.surface) == 1


async def test_nothing_to_gain_is_an_end_too() -> None:
    """All is of the open step: that is said once, and not again."""
    author = Author()
    author.begin_turn()
    author.begin_step()
    author.user(WORDS * 300)
    made = engine(GOOD)
    with pytest.raises(CompactionFailed) as caught:
        await made.compact_if_needed(author.session)
    assert caught.value.code == "nothing-to-gain"
    assert await made.compact_if_needed(author.session) is None
    assert requests(made) == []


async def test_one_compaction_for_each_request_that_was_measured() -> None:
    """After one, a request of a step comes before the next."""
    session = talk(30)
    made = engine(GOOD, GOOD, threshold=100)
    assert await made.compact_if_needed(session) is not None
    assert await made.compact_if_needed(session) is None
    session.append("request/sent", RequestSent("step", "sha256:0", "openai@1", "m"))
    for _ in range(20):
        session.add_user(WORDS * 4)
    assert await made.compact_if_needed(session) is not None


async def test_an_unknown_window_is_taken_for_a_small_one() -> None:
    """And compaction happens: a session must not grow for ever."""
    session = talk(300)
    made = engine(GOOD, window=None)
    done = await made.compact_if_needed(session)
    assert done is not None
    assert done.tokens_after < 0.8 * 32_768 < done.tokens_before


async def test_automatic_compaction_can_be_off() -> None:
    """Then only who asks for it has it."""
    session = talk(60)
    made = engine(*[GOOD] * 5, automatic=False)
    assert await made.compact_if_needed(session) is None
    with pytest.raises(CompactionFailed, match="off"):
        await made.on_overflow(session, overflow("tokens"))
    assert await made.compact_now(session) is not None


async def test_models_have_policies_of_their_own() -> None:
    """By their name; what they do not say is the engine's."""
    session = talk(12)
    policy = {"scripted:script": ModelPolicy(threshold=300)}
    assert await engine(GOOD).compact_if_needed(session) is None
    done = await engine(GOOD, overrides=policy).compact_if_needed(session)
    assert done is not None


async def test_a_switch_to_a_smaller_model_is_checked_before_it_happens() -> None:
    """By the window of the model that comes, and the reason says so."""
    session = talk(20)
    big = Header(ModelConfig("scripted", "big"), "be kind")
    session.append("request/header", RequestHeader(big, "initial"))
    ahead = Ahead(Header(ModelConfig("scripted", "script"), "be kind"), 2000)
    made = engine(*[GOOD] * 4, window=2000)
    done = await made.compact_if_needed(session, ahead)
    assert done is not None
    assert done.reason == "switch"
    assert done.tokens_after < 1600
    assert_valid(session)


# -- overflows that a provider reports -----------------------------------------------------------


def overflow(kind: str) -> ContextOverflow:
    """What a provider says."""
    return ContextOverflow(Failure("too large", f"overflow-{kind}"))


async def test_an_overflow_of_tokens_compacts_whatever_was_estimated() -> None:
    """The provider knows better."""
    session = talk(10)
    made = engine(GOOD)
    done = await made.on_overflow(session, overflow("tokens"))
    assert done.reason == "overflow"
    assert done.tokens_after < done.tokens_before
    assert_valid(session)


@pytest.mark.parametrize("kind", ["media", "bytes"])
async def test_too_many_images_become_notes(kind: str) -> None:
    """In what is not of the open step; the originals are still in the log."""
    author = Author()
    session = author.session
    picture = Image("image/png", "A" * 50_000)
    for _ in range(3):
        session.add_user([Text("look"), picture])
    author.begin_turn()
    author.begin_step()
    session.add_user([Text("now this"), picture])
    made = engine()
    done = await made.on_overflow(session, overflow(kind))
    assert done.policy == "prune"
    images = [b for m in session.derive_messages() for b in m.content if isinstance(b, Image)]
    assert images == [picture]
    assert "original is event 0" in session.derive_messages()[0].text
    assert requests(made) == []
    assert check_neutral([flatten(message) for message in session.request_messages()]) == []


async def test_a_budget_of_images_is_kept_before_a_provider_complains() -> None:
    """The oldest are left out, no more than must be."""
    session = Session.create("s")
    for _ in range(6):
        session.add_user([Text("look"), Image("image/png", "A" * 400)])
    made = engine(window=100_000, overrides={"scripted:script": ModelPolicy(media=4)})
    done = await made.compact_if_needed(session)
    assert done is not None
    assert (done.policy, done.pruned) == ("prune", (0, 1))
    assert measure(session).media == 4
    assert await made.compact_if_needed(session) is None


async def test_an_image_in_the_open_step_cannot_be_left_out() -> None:
    """It is what the person asks about; in the next turn it can."""
    author = Author()
    author.begin_turn()
    author.begin_step()
    author.session.add_user([Text("this"), Image("image/png", "A" * 500)])
    with pytest.raises(CompactionFailed) as caught:
        await engine().on_overflow(author.session, overflow("media"))
    assert caught.value.code == "nothing-to-gain"


async def test_overflows_that_nothing_helps_are_not_tried_for_ever() -> None:
    """The second one asks nobody."""
    session = talk(1)
    session.add_user(WORDS * 400)
    made = engine(*[""] * 9, fallback="none", attempts=1, stretch=1)
    codes: list[str] = []
    for _ in range(3):
        try:
            await made.on_overflow(session, overflow("tokens"))
        except CompactionFailed as failed:
            codes.append(failed.code)
    assert codes[1:] == ["exhausted", "exhausted"]
    assert len(requests(made)) <= 1


# -- by hand, and meanwhile ----------------------------------------------------------------------


async def test_by_hand_it_compacts_what_is_far_from_full() -> None:
    """With what the person wants to be kept."""
    session = talk(8)
    made = engine(GOOD)
    done = await made.compact_now(session, instruction="keep the schema")
    assert done is not None
    assert done.reason == "manual"
    assert b"keep the schema" in requests(made)[0]
    assert len(session.surface) < 8


async def test_while_one_runs_another_is_refused() -> None:
    """And the one that runs goes on."""
    session = talk(12)
    began, go = anyio.Event(), anyio.Event()

    async def gate() -> None:
        began.set()
        await go.wait()

    made = engine([Wait(gate), GOOD])
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(made.compact_now, session)
        await began.wait()
        assert session in compacting
        with pytest.raises(CompactionBusy, match="already"):
            await engine(GOOD).compact_now(session)
        assert await engine(GOOD).compact_if_needed(session) is None
        go.set()
    assert session.surface.replace_generation == 1
    assert session not in compacting
    assert_valid(session)


async def test_what_is_appended_meanwhile_is_kept() -> None:
    """Behind the range, where it was appended."""
    session = talk(12)

    async def more() -> None:
        session.add_user("meanwhile")

    done = await engine([Wait(more), GOOD]).compact_now(session)
    assert done is not None
    assert session.derive_messages()[-1].text == "meanwhile"
    assert_valid(session)


async def test_a_pin_that_comes_meanwhile_is_carried() -> None:
    """What is in the range is pinned while the model thinks."""
    session = talk(12)

    async def more() -> None:
        session.pin(0)

    await engine([Wait(more), GOOD]).compact_now(session)
    blocks = session.derive_messages()[0].content
    assert [isinstance(b, Text) and b.text.startswith("question 0:") for b in blocks].count(True)


async def test_a_range_that_was_changed_meanwhile_is_left_alone() -> None:
    """The error says so, and the surface is as the other one made it."""
    session = talk(12)

    async def change() -> None:
        session.replace(2, 3, "another one was here")

    made = engine([Wait(change), GOOD])
    with pytest.raises(CompactionFailed) as caught:
        await made.compact_now(session)
    assert caught.value.code == "range-changed"
    assert session.surface.replace_generation == 1
    assert ends(session)[-1].error["code"] == "range-changed"
    assert_valid(session)


@pytest.mark.parametrize("when", ["request/sent", "request/header", "compaction/start"])
async def test_cancelled_at_any_await_it_closes_the_bracket(when: str) -> None:
    """With its error, what was used, and the surface as it was."""
    session = talk(12)
    surface = list(session.surface.seqs)
    with anyio.CancelScope() as scope:
        session.observe(lambda event: scope.cancel() if event.type == when else None)
        await engine([Used(5, 5), "## Goals", Hang()]).compact_now(session)
    assert scope.cancelled_caught
    assert list(session.surface.seqs) == surface
    (end,) = ends(session)
    assert end.error["code"] == "cancelled"
    assert session.fold(COMPACTIONS).failed == 0
    assert_valid(session)


async def test_inside_a_step_it_waits_for_its_end() -> None:
    """And is done at the next boundary."""
    author = Author()
    session = author.session
    for _ in range(12):
        session.add_user(WORDS * 4)
    author.begin_turn()
    author.begin_step()
    made = engine(GOOD)
    assert await made.compact_now(session, instruction="keep it") is None
    assert requests(made) == []
    assert made.is_wanted(session)
    author.end_step()
    done = await made.compact_if_needed(session)
    assert done is not None
    assert done.reason == "manual"
    assert b"keep it" in requests(made)[0]
    assert not made.is_wanted(session)


async def test_what_the_inbox_asked_for_survives_a_crash() -> None:
    """Accepted and not done, it is done by the next engine; done, it is not done again."""
    session = talk(12)
    session.append("inbox/accepted", InboxAccepted({"type": "compact", "id": "c1"}))
    again = Session.from_events(session.header, session.events)
    made = engine(GOOD, GOOD)
    assert made.is_wanted(again)
    done = await made.compact_if_needed(again)
    assert done is not None
    assert done.reason == "manual"
    assert not made.is_wanted(Session.from_events(again.header, again.events))


async def test_a_compaction_that_always_crashes_is_given_up() -> None:
    """A command is taken up a few times, not for ever."""
    session = talk(12)
    session.append("inbox/accepted", InboxAccepted({"type": "compact", "id": "c1"}))
    made = engine()
    for number in range(3):
        assert made.is_wanted(session)
        session.append("compaction/start", CompactionStart(f"x{number}", reason="manual"))
        session.repair()
    assert not made.is_wanted(session)


def test_the_fold_can_be_kept_and_taken_up_again() -> None:
    """At every event of a log with all that it looks at."""
    session = talk(2)
    session.append(
        "inbox/accepted", InboxAccepted({"type": "compact", "id": "c", "instruction": "x"})
    )
    session.append("compaction/start", CompactionStart("a", reason="manual", tokens_before=5))
    session.repair()
    session.append("compaction/start", CompactionStart("b", reason="threshold", window=9))
    failed = {"code": "empty", "message": "m"}
    session.append("compaction/end", CompactionEnd("b", error=failed))
    session.append("compaction/start", CompactionStart("c", reason="threshold", window=9))
    session.append("compaction/end", CompactionEnd("c"))
    session.append("request/sent", RequestSent("step", "d", "e", "m"))
    state = COMPACTIONS.start()
    for event in session.events:
        kept = json.loads(json.dumps(COMPACTIONS.dump(state)))
        state = COMPACTIONS.step(COMPACTIONS.restore(kept), event)
        whole = session.fold(COMPACTIONS, event.seq)
        assert COMPACTIONS.dump(state) == COMPACTIONS.dump(whole)


async def test_an_engine_with_another_model_leaves_the_conversations_own() -> None:
    """Its requests have their own header; the source says who made the summary."""
    session = talk(12)
    header = Header(ModelConfig("openai", "gpt", tool_choice="required"), "be kind")
    session.append("request/header", RequestHeader(header, "initial"))
    made = engine(GOOD)
    done = await made.compact_now(session)
    assert done is not None
    assert session.derive_messages()[0].source == Source("compaction", "scripted", "script")
    assert b"tool_choice" not in requests(made)[0]
    assert_valid(session)
