"""Bad summaries over many turns of a loop: each ends in its event, and what they cost is bounded.

One compaction with a bad summary is in `test_engine`; here a conversation goes on with it.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest

from tests.unit.agent.scenes import assert_lawful, at_once
from turnlog import BasicCompactionEngine, ReactLoopAgent, Session
from turnlog.compaction.history import compactions
from turnlog.compaction.meter import measure
from turnlog.events import CompactionEnd, CompactionSummary
from turnlog.models.scripted import Call, End, Fail, Hang, ScriptedModel, Wait

WINDOW = 4000
TURNS = 40
ATTEMPTS = 3
WORDS = "plain words that say nothing much and take their room in every request "
GOOD = "## Goals\n- ship it\n\n## State\n- half done"


def echo(body: bytes) -> str:
    """All that it was shown, and more: longer than its input."""
    shown = [str(m.get("content")) for m in json.loads(body)["messages"]]
    return "\n".join(f"{number}: {text} as I said" for number, text in enumerate(shown))


STUBS: dict[str, tuple[Any, str]] = {
    "empty": ("", "empty"),
    "blank": (" \n\n", "empty"),
    "longer than its input": (echo, "runaway"),
    "one line 2,000 times": ("it goes on\n" * 2000, "runaway"),
    "one word without an end": ("word " * 4000, "runaway"),
    "tool calls instead of text": (Call("read", {"path": "x"}), "tool-calls"),
    "text and a tool call": ([GOOD, Call("read", {"path": "x"})], "tool-calls"),
    "cut off": ([GOOD, End("max-tokens")], "truncated"),
    "broken off": (["## Goals", Fail("transport")], "transport"),
    "529 on every call": (Fail("server", "HTTP 529: overloaded"), "server"),
    "a full window": (Fail("overflow-tokens"), "overflow-tokens"),
    "no key": (Fail("auth"), "auth"),
}


async def converse(stub: Any, **options: Any) -> tuple[Session, BasicCompactionEngine]:
    """Forty turns of about 130 tokens each; summaries are due from the twenty-fourth on."""
    summaries = ScriptedModel([stub], repeat=True, context_window=WINDOW, name="scripted:stub")
    engine = BasicCompactionEngine(summaries, delay=at_once, attempts=ATTEMPTS, **options)
    model = ScriptedModel([f"yes: {WORDS * 5}"], repeat=True, context_window=WINDOW)
    runner = ReactLoopAgent(model, delay=at_once, compaction=engine)
    session = Session.create("s")
    for number in range(TURNS):
        result = await runner.run(session, f"{number}: {WORDS * 6}")
        assert result.end_reason.kind == "completed"
    return session, engine


def sent(engine: BasicCompactionEngine) -> int:
    """How many summaries were asked for."""
    model = engine.model
    assert isinstance(model, ScriptedModel)
    return len(model.requests)


def ends(session: Session) -> list[str | None]:
    """The code that each compaction ended with; None for one that was done."""
    found = [e.data.error for e in session.events if isinstance(e.data, CompactionEnd)]
    return [None if error is None else error["code"] for error in found]


def refusals(session: Session) -> list[str]:
    """The code of each request for a summary that came to nothing."""
    found = [e.data for e in session.events if isinstance(e.data, CompactionSummary)]
    return [summary.error.code for summary in found if summary.error is not None]


@pytest.mark.parametrize("name", STUBS)
async def test_without_a_fallback_each_failure_is_told_and_not_paid_for_every_turn(
    name: str,
) -> None:
    """At most some requests for each twentieth of the window by which the session has grown."""
    stub, code = STUBS[name]
    session, engine = await converse(stub, fallback="none")
    stretches = 2 + (measure(session).tokens - WINDOW * 8 // 10) // (WINDOW // 20)
    told = ends(session)
    assert {*told} == {code}
    assert 2 <= len(told) <= stretches
    assert refusals(session) == [code] * sent(engine)
    assert len(told) <= sent(engine) <= ATTEMPTS * len(told)
    assert len(session.surface) == 2 * TURNS
    assert_lawful(session)


@pytest.mark.parametrize("name", STUBS)
async def test_with_the_fallback_the_session_stays_small_whatever_the_summaries_are(
    name: str,
) -> None:
    """Each compaction is done in the end, and the failures before it are in the log."""
    stub, code = STUBS[name]
    session, engine = await converse(stub)
    assert measure(session).tokens < WINDOW * 8 // 10
    done = compactions(session)
    assert 1 <= len(done) <= 4
    assert {each.policy for each in done} == {"structural"}
    assert ends(session) == [None] * len(done)
    assert refusals(session) == [code] * sent(engine)
    assert sent(engine) <= ATTEMPTS * len(done)
    assert_lawful(session)


async def test_529_on_every_other_call_costs_one_request_more_each_time() -> None:
    """The summaries are the model's, and no failure counts against a later compaction."""
    calls = 0

    def every_other(_: bytes) -> Any:
        nonlocal calls
        calls += 1
        return Fail("server", "HTTP 529: overloaded") if calls % 2 else GOOD

    session, engine = await converse(every_other, fallback="none")
    done = compactions(session)
    assert len(done) >= 1
    assert ends(session) == [None] * len(done)
    assert {each.policy for each in done} == {"model"}
    assert sent(engine) == 2 * len(done)
    assert_lawful(session)


async def test_529_on_every_other_call_repeats_no_part_that_was_told() -> None:
    """A range in parts goes on with the part that failed, until too many have failed."""
    session = Session.create("s")
    for number in range(90):
        session.add_user(f"question {number}: {WORDS * 4}")
        session.add_assistant(f"answer {number}: {WORDS * 4}")
    answers = [GOOD, Fail("server"), GOOD, Fail("server"), GOOD, GOOD, GOOD]
    model = ScriptedModel(answers, context_window=WINDOW)
    engine = BasicCompactionEngine(model, delay=at_once, fallback="none")
    done = await engine.compact_now(session)
    assert done is not None
    asked = [(e.data.from_seq, e.data.through_seq) for e in session.events if is_sent(e)]
    told = [place for place, answer in zip(asked, answers, strict=False) if answer == GOOD]
    assert len(told) == len(set(told)) >= 3
    assert len(asked) == len(told) + 2
    assert asked[1] == asked[2]
    assert_lawful(session)


def is_sent(event: Any) -> bool:
    """Whether a request was sent."""
    return event.type == "request/sent"


@pytest.mark.parametrize("fallback", ["structural", "none"])
async def test_a_hanging_summary_is_given_up_after_its_time(
    monkeypatch: pytest.MonkeyPatch, fallback: Any
) -> None:
    """Five minutes by default, which pass at once here; the turns go on."""

    async def later() -> None:
        leap(monkeypatch)

    session, engine = await converse(["## Goals", Wait(later), Hang()], fallback=fallback)
    assert refusals(session) == ["timeout"] * sent(engine)
    assert {*ends(session)} == {None if fallback == "structural" else "timeout"}
    assert 3 <= sent(engine) <= ATTEMPTS * len(ends(session))
    assert_lawful(session)


def leap(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let an hour pass at once."""
    loop = asyncio.get_running_loop()
    time: Callable[[], float] = loop.time
    monkeypatch.setattr(loop, "time", lambda: time() + 3600)
