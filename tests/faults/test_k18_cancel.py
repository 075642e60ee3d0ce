"""What a cancelled turn keeps: the text, the prompt, what it cost."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anyio
import pytest

from tests.faults.scenes import agent, assert_lawful, leap, of_type, sent, texts, until
from turnlog import Session, open_store
from turnlog.testing import Fail, Hang, Think, Used, Wait

WORDS = [f"word-{i} " for i in range(200)]


async def test_the_model_knows_what_a_person_saw_before_the_cancel() -> None:
    """Text that was interrupted after two hundred tokens is in the next request, word by word."""
    session = Session.create("s")
    runner = agent([*WORDS, Hang()], ["on"])
    async with runner.stream(session, "tell me") as turn:
        await until(turn, "assistant/chunk", 200)
        result = await turn.cancel()
    assert result is not None
    assert result.text == "".join(WORDS)
    assert of_type(session, "assistant/message")[0].data.interrupted is True
    await runner.run(session, "go on")
    assert "".join(WORDS).encode() in sent(runner)[1]
    assert_lawful(session)


async def test_the_prompt_is_on_disk_before_the_provider_is_called(tmp_path: Path) -> None:
    """A stop before the first token erases nothing: the prompt was durable when it was sent."""
    stored: list[bytes] = []

    def hang(body: bytes) -> list[Any]:
        assert b"my own prompt" in body
        stored.append(b"".join(p.read_bytes() for p in (tmp_path / "s").glob("*.jsonl")))
        return [Hang()]

    async with open_store(f"jsonl:{tmp_path}") as store:
        async with store.session("s") as session:
            runner = agent(hang, ["on"])
            async with runner.stream(session, "my own prompt") as turn:
                while not stored:
                    await anyio.lowlevel.checkpoint()
                await turn.cancel()
            assert stored[0].count(b"my own prompt") == 1
            assert stored[0].count(b'"request/sent"') == 1
        async with store.session("s") as session:
            assert texts(session) == ["my own prompt"]
            await runner.run(session, "again")
            assert texts(session) == ["my own prompt", "again", "on"]
            assert_lawful(session)


@pytest.mark.parametrize("said", ["text", Think("reasoning")], ids=["text", "reasoning"])
async def test_usage_of_an_aborted_request_is_unknown_and_not_zero(said: Any) -> None:
    """What was reported before the abort counts, and what was not is counted as unknown."""
    session = Session.create("s")
    runner = agent([said, Hang()], [said, Used(input_tokens=9), Hang()])
    for chunks in (1, 2):
        async with runner.stream(session, "go") as turn:
            await until(turn, "assistant/chunk", chunks)
            result = await turn.cancel()
        assert result is not None
        assert result.usage.output_tokens is None
        assert result.usage.input_tokens == (9 if chunks == 2 else None)
    total = session.usage().own.total
    assert (total.answers, total.output.known, total.output.unknown) == (2, 0, 2)
    assert (total.input.known, total.input.unknown) == (9, 1)
    assert_lawful(session)


@pytest.mark.parametrize("way", ["abort", "abort before anything", "error", "timeout", "crash"])
async def test_every_exit_leaves_an_account(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """However a request ended, its usage is on record, as unknown where nothing was said."""

    async def too_long() -> None:
        leap(monkeypatch)
        await anyio.sleep_forever()

    session = Session.create("s")
    if way == "error":
        await agent([Used(input_tokens=9), Fail("transport")], retries=0).run(session, "go")
    elif way == "timeout":
        await agent(["some", Wait(too_long)], max_seconds=60).run(session, "go")
    else:
        async with agent(["some", Hang()]).stream(session, "go") as turn:
            await until(turn, "assistant/chunk" if way == "abort" else "request/sent")
    if way == "crash":
        upto = of_type(session, "request/sent")[0].seq + 1
        events = [event.to_dict() for event in session.events[:upto]]
        session = Session.from_events(session.header, events)
        session.repair()
    total = session.usage().own.total
    assert total.answers == 1
    assert total.output.exact is None
    assert total.input.known == (9 if way == "error" else 0)
    (request,) = session.requests()
    assert request.outcome in ("failed", "interrupted")
    assert_lawful(session)
