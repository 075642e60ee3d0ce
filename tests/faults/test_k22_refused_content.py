"""Images that a provider refuses: they cost a request or two, and block no session."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, cast

import pytest

from tests.faults.scenes import assert_lawful, at_once, of_type, sent
from turnlog import Image, ReactLoopAgent, Session, Text, ToolCall, open_store
from turnlog.dialects import ENCODERS
from turnlog.models.failures import failure_of
from turnlog.testing import Fail, ScriptedModel

SEEING = [name for name in ENCODERS if name.startswith(("openai@", "anthropic@"))]
PLACES = {
    "anthropic": "messages.{0}.content.{1}.image.source.base64: image exceeds 5 MB maximum",
    "openai": "Invalid 'messages[{0}].content[{1}].image_url.url': unsupported image",
}


def picture(name: str, size: int = 400) -> Image:
    """An image that is told from others by its data."""
    data = (name * size)[: size // 4 * 4]
    return Image("image/png", data)


def images(body: bytes) -> list[tuple[int, int, str]]:
    """The images of a request: the places of message and block, and their data."""
    found: list[tuple[int, int, str]] = []
    messages: list[dict[str, Any]] = json.loads(body)["messages"]
    for at, message in enumerate(messages):
        content = message.get("content")
        for place, block in enumerate(
            cast("list[Any]", content if isinstance(content, list) else [])
        ):
            text = json.dumps(block)
            found += [(at, place, name) for name in ("BIG", "ok1", "ok2", "ok3") if name in text]
    return found


def refusing(provider: str, bad: str) -> Any:
    """A provider that refuses an image and names its place, as a step of a script."""

    def answer(body: bytes) -> Any:
        for at, place, name in images(body):
            if name == bad:
                message = PLACES[provider].format(at, place)
                said = failure_of(400, {"error": {"message": message}})
                return Fail(said.failure.code, said.failure.message)
        return "fine"

    return answer


def agent(encoder: str, answer: Any) -> ReactLoopAgent:
    """An agent on a model of that provider."""
    provider = encoder.partition("@")[0]
    model = ScriptedModel(
        [answer], repeat=True, name=f"{provider}:m", encoder=encoder, context_window=200_000
    )
    return ReactLoopAgent(model, system="Be brief.", delay=at_once)


def shown(session: Session) -> list[str]:
    """The beginnings of the images that the model would see."""
    return [
        (block.data or "")[:3]
        for message in session.request_messages()
        for block in message.content
        if isinstance(block, Image)
    ]


def history() -> Session:
    """Ten messages with three good images and one that is too big, in the middle."""
    session = Session.create("s")
    for number in range(3):
        session.add_user([Text(f"look at {number}"), picture(f"ok{number + 1}")])
        session.add_assistant("I see")
        if number == 1:
            session.add_assistant([ToolCall("c", "shot", "{}")])
            session.add_tool_result("c", [Text("a screenshot"), picture("BIG", 8000)])
            session.add_assistant("I see that too")
    return session


@pytest.mark.parametrize("encoder", SEEING)
async def test_one_image_that_is_refused_becomes_a_note_and_the_others_stay(encoder: str) -> None:
    """The answer names its message and part: one more request, and the original in the log."""
    session = history()
    runner = agent(encoder, refusing(encoder.partition("@")[0], "BIG"))
    result = await runner.run(session, "and now?")
    assert result.text == "fine"
    assert len(sent(runner)) == 2
    assert shown(session) == ["ok1", "ok2", "ok3"]
    note = next(m.text for m in session.request_messages() if m.role == "tool")
    assert note.startswith("a screenshot")
    assert "left out here; the original is event 5" in note
    assert (
        cast("Image", session.event_at(5).data.message.content[1]).data == picture("BIG", 8000).data
    )
    assert (await runner.run(session, "and then?")).text == "fine"
    assert len(sent(runner)) == 3
    assert_lawful(session)


@pytest.mark.parametrize("encoder", SEEING)
@pytest.mark.parametrize("store", ["jsonl:{}", "sqlite:{}/s.db"])
async def test_what_was_refused_is_not_sent_again_after_reopening(
    tmp_path: Path, encoder: str, store: str
) -> None:
    """The turn that brought it fails and says why; every later one is answered at once."""
    answer = refusing(encoder.partition("@")[0], "BIG")
    async with open_store(store.format(tmp_path)) as opened:
        async with opened.session("s") as session:
            first = agent(encoder, answer)
            await first.run(session, [Text("look"), picture("ok1")])
            result = await first.run(session, [Text("and this?"), picture("BIG", 8000)])
            assert result.error is not None
            assert "image" in result.error.message
        async with opened.session("s") as session:
            later = agent(encoder, answer)
            for number in range(3):
                assert (await later.run(session, f"just text {number}")).text == "fine"
            assert len(sent(later)) == 3
            assert shown(session) == ["ok1"]
            said = next(e for e in of_type(session, "user/message") if "BIG" in str(e.data.content))
            assert said.surface_op == "append"
            assert_lawful(session)


@pytest.mark.parametrize("encoder", SEEING)
async def test_a_session_that_was_refused_and_never_mended_is_answered(encoder: str) -> None:
    """A log whose last request got 400 and says no more: the next prompt costs one more request."""
    provider = encoder.partition("@")[0]
    session = Session.create("s")
    await agent(encoder, refusing(provider, "BIG")).run(session, [Text("see"), picture("BIG", 800)])
    failed = next(e.seq for e in session.events if e.type == "assistant/attempt")
    cut = Session.from_events(session.header, session.events[: failed + 1])
    runner = agent(encoder, refusing(provider, "BIG"))
    assert (await runner.run(cut, "just text")).text == "fine"
    assert len(sent(runner)) == 2
    assert shown(cut) == []
    assert_lawful(cut)


async def test_a_provider_that_blames_the_wrong_image_blocks_nothing() -> None:
    """Thirty images, one of them wide; the newest is blamed: the older ones go, and it stays."""
    session = Session.create("s")
    for number in range(30):
        name = "BIG" if number == 3 else "ok1"
        session.add_user([Text(f"look at {number}"), picture(name)])
        session.add_assistant("I see")

    def answer(body: bytes) -> Any:
        found = images(body)
        if any(name == "BIG" for _, _, name in found) and len(found) > 20:
            at, place, _ = found[-1]
            return Fail("overflow-media", PLACES["openai"].format(at, place))
        return "fine"

    runner = agent("openai@1", answer)
    result = await runner.run(session, [Text("and this?"), picture("ok2")])
    assert result.text == "fine"
    assert len(sent(runner)) == 2
    assert shown(session) == ["ok2"]
    assert (await runner.run(session, "more")).text == "fine"
    assert len(sent(runner)) == 3
    assert_lawful(session)


async def test_a_wrong_blame_of_an_older_image_costs_one_request_more() -> None:
    """First the blamed one goes, then, still refused, all of the older ones."""
    session = history()

    def answer(body: bytes) -> Any:
        found = images(body)
        if any(name == "BIG" for _, _, name in found):
            at, place, _ = next(each for each in found if each[2] != "BIG")
            return Fail("overflow-media", PLACES["openai"].format(at, place))
        return "fine"

    runner = agent("openai@1", answer)
    assert (await runner.run(session, "and now?")).text == "fine"
    assert len(sent(runner)) == 3
    assert shown(session) == []
    assert_lawful(session)


async def test_images_that_nobody_names_all_go() -> None:
    """A refusal that says only that an image is bad, in the prompt of the turn: it ends in it."""
    session = history()

    def answer(body: bytes) -> Any:
        return Fail("refused", "Could not process image") if images(body) else "fine"

    runner = agent("anthropic@1", answer)
    result = await runner.run(session, [Text("this"), picture("ok3")])
    assert result.error is not None
    assert result.error.message == "Could not process image"
    assert len(sent(runner)) == 2
    assert shown(session) == []
    assert (await runner.run(session, "just text")).text == "fine"
    assert len(sent(runner)) == 3
    assert_lawful(session)


async def test_another_refusal_leaves_every_image_alone() -> None:
    """What is refused for its tools is no reason to take content away."""
    session = history()
    runner = agent("openai@1", Fail("refused", "tools[0]: unknown field in messages[2].content[1]"))
    assert (await runner.run(session, "and now?")).error is not None
    assert len(sent(runner)) == 1
    assert shown(session) == ["ok1", "ok2", "BIG", "ok3"]
    assert_lawful(session)
