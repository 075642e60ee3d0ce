"""Models that answer as they were told, and as a session's own model did."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest

from turnlog import Session
from turnlog.assembly import Assembly
from turnlog.content import (
    BlockEnd,
    Chunk,
    Finish,
    FinishReason,
    Reasoning,
    Text,
    TextDelta,
    ToolCall,
    ToolCallDelta,
    Usage,
    UsageChunk,
    assistant_message,
)
from turnlog.errors import InvalidModel, RateLimited, RequestRefused, TransportFailed
from turnlog.events import AssistantAttempt, AssistantChunk, AssistantMessage, CompactionSummary
from turnlog.models import open_model
from turnlog.models.port import Model
from turnlog.models.recorded import RecordedModel
from turnlog.testing import Call, End, Fail, Hang, ScriptedModel, Think, Used, Wait


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    """Both: everything here works on either."""
    return request.param


async def collect(model: Model, into: list[Chunk] | None = None) -> Assembly:
    """One answer, whole."""
    chunks: list[Chunk] = [] if into is None else into
    async with model.connected(), model.stream(b"body") as stream:
        async for chunk in stream:
            chunks.append(chunk)  # noqa: PERF401 - what came before a failure is kept
    return Assembly(chunks)


async def test_answers_in_order() -> None:
    """Each request gets the next answer, as blocks, with usage where the script has some."""
    model = ScriptedModel(
        [
            [Think("Hm"), "Let me ", "see", Call("add", {"a": 1}), Call("sub"), Used(9, 3)],
            "done",
            [TextDelta(0, "as is"), End("max-tokens"), "never"],
        ]
    )
    first = await collect(model)
    assert first.blocks() == (
        Reasoning("Hm"),
        Text("Let me see"),
        ToolCall("call-0-0", "add", '{"a":1}'),
        ToolCall("call-0-1", "sub", ""),
    )
    assert first.usage == Usage(9, 3)
    assert first.finish == FinishReason("tool-calls")
    second = await collect(model)
    assert (second.blocks(), second.usage) == ((Text("done"),), None)
    assert second.finish == FinishReason("stop")
    assert (await collect(model)).finish == FinishReason("max-tokens")
    assert model.requests == [b"body"] * 3


async def test_a_script_that_is_over() -> None:
    """A request too many is refused; a script that repeats begins again."""
    model = ScriptedModel(["a"])
    await collect(model)
    with pytest.raises(RequestRefused, match="1 answers, this is request 2"):
        await collect(model)
    again = ScriptedModel(["a", "b"], repeat=True)
    texts = [(await collect(again)).blocks() for _ in range(3)]
    assert texts == [(Text("a"),), (Text("b"),), (Text("a"),)]


async def test_failures_where_the_script_has_them() -> None:
    """As the first step the request fails, later the stream does, after what came before."""
    model = ScriptedModel([[Fail("rate-limit", retry_after_ms=5)], ["half", Fail("transport")]])
    with pytest.raises(RateLimited) as caught:
        async with model.stream(b""):
            pytest.fail("the request was to fail")
    assert caught.value.retry_after_ms == 5
    chunks: list[Chunk] = []
    with pytest.raises(TransportFailed):
        await collect(model, chunks)
    assert chunks == [TextDelta(0, "half")]
    assert model.open_streams == 0


async def test_a_gate_holds_the_stream() -> None:
    """Nothing comes until the gate opens."""
    gate = anyio.Event()
    model = ScriptedModel([["a", Wait(gate.wait), "b"]])
    async with model.stream(b"") as chunks:
        assert await anext(chunks) == TextDelta(0, "a")
        with anyio.move_on_after(0):
            await anext(chunks)
            pytest.fail("the gate was shut")


async def test_a_stream_that_hangs_can_be_left() -> None:
    """Cancelling ends a stream that hangs, and the model knows that it was left."""
    model = ScriptedModel([["a", Hang()]])
    with anyio.CancelScope() as scope:
        async with model.stream(b"") as chunks:
            async for _ in chunks:
                assert model.open_streams == 1
                scope.cancel()
    assert scope.cancelled_caught
    assert model.open_streams == 0


async def test_an_answer_may_depend_on_the_request() -> None:
    """A function makes the answer from the bytes of the request."""
    model = ScriptedModel([lambda body: [body.decode()]])
    assert (await collect(model)).blocks() == (Text("body"),)


async def test_a_script_in_a_file(tmp_path: Path) -> None:
    """The form that the module shows is read, every step of it."""
    script = {
        "answers": [
            [
                {"reasoning": "A sum."},
                {"toolCall": {"name": "add", "arguments": {"a": 1, "b": 2}}},
                {"toolCall": {"name": "raw", "arguments": "{", "id": "x"}},
                {"usage": {"inputTokens": 9, "cacheReadTokens": 2}},
            ],
            ["It is", {"text": " 3."}],
            "short",
            ["It ", {"fail": "transport", "message": "cut"}],
            [{"fail": "rate-limit", "retryAfterMs": 7}],
            ["x", {"finish": "max-tokens"}],
            ["and then", {"hang": True}],
        ],
        "contextWindow": 4096,
        "nativeTools": False,
    }
    path = tmp_path / "script.json"
    path.write_bytes(msgspec.json.encode(script))
    model = open_model(f"scripted:{path}")
    assert (model.name, model.provider) == (f"scripted:{path}", "scripted")
    assert (model.context_window, model.native_tools) == (4096, False)
    first = await collect(model)
    assert first.blocks() == (
        Reasoning("A sum."),
        ToolCall("call-0-0", "add", '{"a":1,"b":2}'),
        ToolCall("x", "raw", "{"),
    )
    assert first.usage == Usage(9, None, 2)
    assert (await collect(model)).blocks() == (Text("It is 3."),)
    assert (await collect(model)).blocks() == (Text("short"),)
    with pytest.raises(TransportFailed, match="cut"):
        await collect(model)
    with pytest.raises(RateLimited):
        await collect(model)
    assert (await collect(model)).finish == FinishReason("max-tokens")


@pytest.mark.parametrize(
    "text", ["", "[]", '{"answers": 1}', '{"answers": [[{"say": "x"}]]}', '{"anwers": []}']
)
def test_a_file_that_is_no_script(tmp_path: Path, text: str) -> None:
    """A file that is no script is refused by name, in one line."""
    path = tmp_path / "script.json"
    path.write_text(text)
    with pytest.raises(InvalidModel) as caught:
        open_model(f"scripted:{path}")
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_file_that_is_not_there() -> None:
    """A missing script is named."""
    with pytest.raises(InvalidModel, match=r"nowhere\.json"):
        open_model("scripted:nowhere.json")


def _log(session: Session, turn: int, chunks: list[Any], attempt: int = 1) -> list[int]:
    return [
        session.append("assistant/chunk", AssistantChunk(turn, 1, chunk, attempt)).seq
        for chunk in chunks
    ]


async def test_a_recorded_session_answers_again() -> None:
    """Answers come in their order: as chunks where they are logged, whole where they are not."""
    session = Session.create(session_id="s")
    streamed: list[Chunk] = [
        TextDelta(0, "Hel"),
        TextDelta(0, "lo"),
        ToolCallDelta(1, "c", "add", "{}"),
        UsageChunk(Usage(5)),
        Finish(FinishReason("tool-calls")),
    ]
    _log(session, 1, [TextDelta(0, "failed")])
    session.append("assistant/attempt", AssistantAttempt(1, 1, 1, 0, 0))
    cited = _log(session, 1, streamed, attempt=2)
    answer = (Text("Hello"), ToolCall("c", "add", "{}"))
    session.append(
        "assistant/message",
        AssistantMessage(assistant_message(answer, id="m1", provider="p", model="m"), 1, 1),
        surface_op="append",
        source_event_seqs=cited,
    )
    session.append("compaction/summary", CompactionSummary("k", ({"type": "text", "text": "S"},)))
    session.append(
        "assistant/message",
        AssistantMessage(assistant_message("whole", id="m2"), 2, 1, Usage(1)),
        surface_op="append",
    )
    cut = _log(session, 3, [TextDelta(0, "cut "), ToolCallDelta(1, "d", "add", '{"a')])
    session.append(
        "assistant/message",
        AssistantMessage(assistant_message("cut ", id="m3"), 3, 1, interrupted=True),
        surface_op="append",
        source_event_seqs=cut,
    )

    model = open_model("recorded:s", events=list(session.events))
    assert isinstance(model, RecordedModel)
    chunks: list[Chunk] = []
    await collect(model, chunks)
    assert chunks == streamed
    assert (await collect(model)).blocks() == (Text("S"),)
    chunks = []
    await collect(model, chunks)
    assert chunks == [
        BlockEnd(0, Text("whole")),
        UsageChunk(Usage(1)),
        Finish(FinishReason("stop")),
    ]
    interrupted = await collect(model)
    assert interrupted.blocks() == (Text("cut "),)
    assert interrupted.finish == FinishReason("stop")
    with pytest.raises(RequestRefused, match="4 answers"):
        await collect(model)


def test_a_recording_needs_its_session() -> None:
    """Without events there is nothing to answer with."""
    with pytest.raises(InvalidModel, match="events"):
        open_model("recorded:s")
