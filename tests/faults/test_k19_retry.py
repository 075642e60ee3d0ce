"""Retries that double nothing, and side effects that never run twice by themselves."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.faults.scenes import (
    agent,
    assert_lawful,
    killed,
    of_type,
    results,
    sent,
    texts,
)
from turnlog import Prompt, Session, TurnlogError, open_store, tool
from turnlog.testing import Call, Fail


def look() -> str:
    """Look."""
    return "seen"


async def test_a_stream_that_fails_after_a_tool_result_leaves_a_history_to_go_on_from() -> None:
    """The result stays, the failed attempt leaves nothing, and the next prompt follows it."""
    session = Session.create("s")
    runner = agent(
        [Call("look", id="c1")], ["half an ans", Fail("transport")], ["on"], tools=[look], retries=0
    )
    assert (await runner.run(session, "go")).end_reason.kind == "error"
    assert (await runner.run(session, "try again")).text == "on"
    assert texts(session) == ["go", "", "seen", "try again", "on"]
    assert_lawful(session)


async def test_retrying_three_times_says_the_prompt_once(tmp_path: Path) -> None:
    """Neither a request that is tried again nor a command that is posted again repeats it."""
    async with open_store(f"jsonl:{tmp_path}") as store:
        async with store.session("s") as session:
            runner = agent(*[["pa", Fail("server")]] * 3, ["whole"])
            for _ in range(3):
                await store.inbox("s").post(Prompt("my prompt", id="click"))
            assert (await runner.run(session)).text == "whole"
            await store.inbox("s").post(Prompt("my prompt", id="click"))
            with pytest.raises(TurnlogError, match="nothing to run"):
                await runner.run(session)
        async with store.session("s") as session:
            assert [body.count(b"my prompt") for body in sent(runner)] == [1, 1, 1, 1]
            assert len(of_type(session, "llm/retry")) == 3
            assert texts(session) == ["my prompt", "whole"]
            assert_lawful(session)


async def test_a_side_effect_whose_result_was_lost_is_not_repeated(tmp_path: Path) -> None:
    """After a crash between effect and result the outcome is unknown, and nothing is rerun."""
    url, effects = f"jsonl:{tmp_path / 'store'}", tmp_path / "effects"
    killed(url, effects, "hang")
    again: list[str] = []

    @tool
    def work(name: str) -> str:
        again.append(name)
        return "done"

    runner = agent(["Did it work?"], tools=[work])
    async with open_store(url) as store, store.session("s") as session:
        started = of_type(session, "tool/call")
        assert [event.data.call_id for event in started] == ["call-hang"]
        ((_, told, code),) = results(session)
        assert code == "TOOL_OUTCOME_UNKNOWN"
        assert "verify" in told
        await runner.run(session, "Go on.")
        assert told.encode() in sent(runner)[0]
        assert_lawful(session)
    assert again == []
    assert effects.read_text() == "hang\n"


async def test_of_a_batch_cut_off_in_the_middle_each_call_says_what_is_known(
    tmp_path: Path,
) -> None:
    """The first has its result, the second's outcome is unknown, the third never started."""
    url, effects = f"jsonl:{tmp_path / 'store'}", tmp_path / "effects"
    killed(url, effects, "one", "hang", "three")
    async with open_store(url) as store, store.session("s") as session:
        assert [(c, code) for c, _, code in results(session)] == [
            ("call-one", None),
            ("call-hang", "TOOL_OUTCOME_UNKNOWN"),
            ("call-three", "TOOL_NOT_STARTED"),
        ]
        assert results(session)[0][1] == "one is done"
        await agent(["I see."]).run(session, "Go on.")
        assert_lawful(session)
    assert effects.read_text() == "one\nhang\n"
