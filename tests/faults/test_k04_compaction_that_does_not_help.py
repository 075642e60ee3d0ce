"""Compaction that fails, cannot help, or never comes: its cost is bounded, and it is said."""

from __future__ import annotations

from base64 import b64encode
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from struct import pack
from typing import Any

import pytest

from tests.faults.compacting import (
    GOOD,
    WORDS,
    asked,
    codes,
    engine,
    failures,
    on,
    standing,
    starts,
    strict,
    talk,
    tokens,
)
from tests.faults.scenes import assert_lawful, of_type, sent
from turnlog import Image, Session, Text, ToolCall, open_store
from turnlog.commands import Compact
from turnlog.compaction.history import compactions
from turnlog.compaction.meter import measure
from turnlog.compaction.port import Ahead
from turnlog.compaction.task import ModelPolicy
from turnlog.errors import CompactionFailed
from turnlog.events import Header, ModelConfig, RequestSent
from turnlog.testing import Fail


async def test_a_summariser_that_says_nothing_is_asked_a_few_times_and_shown_to_fail() -> None:
    """Over a hundred turns that all are too much: a few requests a twentieth of the window."""
    session = talk(12)
    made = engine("", fallback="none")
    runner = on(4000, compaction=made)
    for number in range(20):
        assert (await runner.run(session, f"{number}")).text == "yes"
    assert len(asked(made)) == 0
    for number in range(80):
        assert (await runner.run(session, f"{number}: {WORDS * 3}")).text == "yes"
    session.add_user(WORDS * 200)
    assert (await runner.run(session, "and now?")).text == "yes"
    grown = measure(session).tokens - 3200
    assert 3 <= len(asked(made)) <= 3 * (2 + grown // 200)
    shown = compactions(session)
    assert {each.status for each in shown} == {"failed"}
    assert all("said nothing" in (each.error or "") for each in shown)
    assert [f.code for f in failures(session) if f] == ["empty"] * len(asked(made))
    assert_lawful(session)


async def test_an_empty_chat_is_not_compacted_because_of_its_tools() -> None:
    """The tools take what may be used: that is said once, nobody is asked, the chat goes on."""

    def tool(number: int) -> Any:
        def work(text: str) -> str:
            return text

        work.__name__ = f"tool_{number}"
        work.__doc__ = WORDS * 56
        return work

    made = engine(window=32_768)
    runner = on(32_768, tools=[tool(n) for n in range(40)], compaction=made)
    session = Session.create("s")
    assert measure(session, runner.header("auto")).tokens > 26_215
    for number in range(20):
        assert (await runner.run(session, f"turn {number}")).text == "yes"
    assert codes(session) == ["fixed-too-large"]
    assert asked(made) == []
    assert_lawful(session)


@pytest.mark.parametrize("words", [0, 2, 6])
async def test_compaction_that_cannot_get_below_the_window_is_not_repeated(words: int) -> None:
    """What is pinned is too much by itself: a summary for each turn would be paid for nothing."""
    session = talk(6)
    session.pin(" ".join(f"rule {n}: {WORDS}" for n in range(240)))
    made = engine()
    runner = on(4000, compaction=made)
    for number in range(40):
        assert (await runner.run(session, f"turn {number}: {WORDS * words}")).text == "yes"
    assert measure(session).tokens > 3200
    said = 40 * 2 * 12 * words
    assert len(asked(made)) <= 3 + said // 400  # and each of them makes room for so much
    assert_lawful(session)


async def test_with_automatic_compaction_off_nothing_is_kept_for_later(tmp_path: Path) -> None:
    """An overflow ends its turn; after a switch to a larger model the next one is as any other."""
    made = engine(automatic=False)
    async with open_store(f"sqlite:{tmp_path}/s.db") as store:
        async with store.session("s") as session:
            talk(20, session=session)
            small = on(4000, Fail("overflow-tokens"), compaction=made)
            result = await small.run(session, "go on")
            assert result.error is not None
            assert "automatic compaction is off" in result.error.message
        async with store.session("s") as session:
            large = on(64_000, name="scripted:large", compaction=made)
            assert (await large.run(session, "and now?")).text == "yes"
            assert asked(made) == []
            assert starts(session) == []
            assert_lawful(session)


async def test_a_compaction_that_was_asked_for_blocks_no_larger_model(tmp_path: Path) -> None:
    """It fails under the first model; the next turn, on a larger one, is answered all the same."""
    async with open_store(f"sqlite:{tmp_path}/s.db") as store:
        async with store.session("s") as session:
            talk(20, session=session)
            await store.inbox("s").post(Compact())
            failing = engine("", fallback="none", automatic=False)
            small = on(4000, Fail("overflow-tokens"), compaction=failing)
            assert (await small.run(session, "go on")).error is not None
        async with store.session("s") as session:
            large = on(64_000, name="scripted:large", compaction=failing)
            assert (await large.run(session, "and now?")).text == "yes"
            assert codes(session) == ["empty"]
            assert await store.inbox("s").waiting() == []
            assert_lawful(session)


async def test_without_a_known_window_a_session_is_compacted_and_not_for_nothing() -> None:
    """A million tokens go through; requests stay small, and each compaction makes one smaller."""
    session = Session.create("s")
    made = engine(window=None)
    long = WORDS * 357  # 5,000 tokens
    done = 0
    for number in range(200):
        session.add_user(f"{number} {long}")
        session.add_assistant("I see")
        for _ in range(3):
            compacted = await made.compact_if_needed(session)
            if compacted is not None:
                done += 1
                assert compacted.tokens_before - compacted.tokens_after > 32_768 // 20
        session.append("request/sent", RequestSent("step", "sha256:0", "openai@1", "m"))
        assert measure(session).tokens < 32_768
    assert 30 < done < 100
    assert done == len(starts(session))


@pytest.mark.parametrize("last", [True, False])
async def test_a_huge_tool_result_does_not_stop_compaction(last: bool) -> None:  # noqa: FBT001
    """1.2 MB of base64, the last message or not: it is shortened, and the rest is summarised."""
    session = talk(4)
    session.add_assistant([ToolCall("c", "read", "{}")])
    session.add_tool_result("c", "QUJD" * 300_000)
    if not last:
        talk(4, session=session)
    made = engine()
    done = await made.compact_if_needed(session)
    assert done is not None
    assert measure(session).tokens < 3200
    manual = await made.compact_now(session)
    assert manual is not None
    assert max(map(len, asked(made))) < 30_000
    assert session.event_at(9).message is not None
    assert len(session.event_at(9).data.message.text) == 1_200_000
    assert_lawful(session)


async def test_a_switch_to_a_smaller_window_asks_for_no_more_than_that_takes() -> None:
    """180k tokens of a 200k model, then one of 128k: in parts, before anything is sent to it."""
    session = talk(90, words=84)
    large = on(200_000, name="scripted:large", compaction=engine(window=200_000, threshold=0.95))
    assert (await large.run(session, "more")).text == "yes"
    assert 170_000 < measure(session).tokens < 190_000
    made = engine(strict(128_000), window=128_000, fallback="none")
    small = on(128_000, name="scripted:small", compaction=made)
    first = session.next_seq
    assert (await small.run(session, "go on")).text == "yes"
    assert [start.reason for start in starts(session)] == ["switch"]
    assert codes(session) == [None]
    purposes = [e.data.purpose for e in session.events[first:] if e.type == "request/sent"]
    assert purposes[0] == "compaction"
    assert purposes[-1] == "step"
    assert [f for f in failures(session) if f] == []
    assert max(map(tokens, [*asked(made), *sent(small)])) < 128_000
    assert_lawful(session)


def picture(size: int) -> Image:
    """A PNG of 8 x 8 pixels with so many characters."""
    head = b"\x89PNG\r\n\x1a\n" + pack(">I4sII", 13, b"IHDR", 8, 8)
    return Image("image/png", b64encode(head).decode().rstrip("=")[:32] + "A" * (size - 32))


@pytest.mark.parametrize(
    "policy", [ModelPolicy(media=10), ModelPolicy(bytes=8_000_000)], ids=["media", "bytes"]
)
async def test_images_that_cost_few_tokens_are_too_much_all_the_same(policy: ModelPolicy) -> None:
    """Fifty of 600 kB: the oldest become notes until the rest fits, and no request has them all."""
    session = Session.create("s")
    image = picture(600_000)
    for number in range(50):
        session.add_user([Text(f"look at {number}"), image])
        session.add_assistant("I see")
    made = engine(window=64_000, overrides={"scripted:m": policy, "scripted:summaries": policy})
    runner = on(64_000, compaction=made)
    assert measure(session).tokens < 10_000
    assert (await runner.run(session, "which was the best?")).text == "yes"
    shown = [
        sum(isinstance(block, Image) for block in message.content)
        for message in session.derive_messages()
    ]
    assert 8 <= sum(shown) <= 13
    assert max(map(len, [*sent(runner), *asked(made)])) < 8_500_000
    first_shown = shown.index(1)
    assert sum(shown[first_shown:]) == sum(shown)  # the most recent ones are those that stay
    assert session.event_at(0).data.content[1] == image
    assert_lawful(session)


@pytest.mark.parametrize("code", ["overflow-tokens", "overflow-bytes"])
async def test_by_hand_near_the_limit_no_request_is_too_large(code: str) -> None:
    """At 94 % of the window, and a provider that counts a tenth more than we: it is done."""
    session = talk(57, words=2)
    assert 0.92 * 4000 < measure(session).tokens < 0.96 * 4000

    def provider(body: bytes) -> Any:
        return Fail(code) if tokens(body) * 1.1 > 4000 else GOOD

    made = engine(provider, fallback="none")
    done = await made.compact_now(session)
    assert done is not None
    assert done.policy == "model"
    assert done.tokens_after < 2000
    assert_lawful(session)


async def test_a_second_compaction_waits_for_a_request_that_was_measured() -> None:
    """One is too much still, by the estimate: the next one comes behind the answer, not before."""
    session = talk(40, words=2)
    made = engine(threshold=300, retain=500)
    runner = on(4000, compaction=made)
    for number in range(6):
        assert (await runner.run(session, f"and {number}")).text == "yes"
    order = [
        event.type if event.type == "compaction/start" else event.data.purpose
        for event in session.events
        if event.type == "compaction/start"
        or (event.type == "request/sent" and event.data.purpose == "step")
    ]
    assert order[:2] == ["compaction/start", "step"]
    assert ("compaction/start", "compaction/start") not in pairwise(order)
    kept = sum(m.source.kind != "compaction" for m in session.derive_messages())
    assert kept >= 12
    assert_lawful(session)


async def test_a_summary_that_says_one_line_over_and_over_never_stands() -> None:
    """Two thousand times the same: refused, and what the model sees is what it saw."""
    session = talk(12)
    before = list(session.derive_messages())
    made = engine("we looked at it again\n" * 2000, fallback="none")
    with suppress(CompactionFailed):
        await made.compact_now(session)
    assert list(session.derive_messages()) == before
    assert standing(session) == []
    assert codes(session) == ["runaway"]
    assert len(asked(made)) == 3
    assert max(len(event.raw) for event in of_type(session, "compaction/summary")) < 2_000
    assert_lawful(session)


async def test_what_a_request_will_bring_is_part_of_the_measure() -> None:
    """The header of the next model counts, not that of the last one."""
    session = talk(20)
    header = Header(ModelConfig("scripted", "summaries"), WORDS * 100)
    made = engine(window=4000)
    assert await made.compact_if_needed(session, Ahead()) is None
    assert await made.compact_if_needed(session, Ahead(header, 4000)) is not None
