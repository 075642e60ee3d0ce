"""Chat completions over HTTP, with every ugly moment of the stream."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Any

import anyio
import msgspec
import pytest

from tests.servers.chat_server import HANG, Reply, chat_server, delta, words
from turnlog.assembly import Assembly
from turnlog.content import Chunk, Finish, Reasoning, Text, ToolCall, Usage
from turnlog.errors import (
    ContextOverflow,
    InvalidModel,
    ModelError,
    RateLimited,
    RequestRefused,
    ServerFailed,
    TransportFailed,
)
from turnlog.models import open_model
from turnlog.models.openai import OpenAIModel

BODY = b'{"model": "m",  "stream":true}'


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    """Both: everything here works on either."""
    return request.param


def model_at(url: str, **options: Any) -> OpenAIModel:
    """A model of the server, naming calls id-0, id-1 and so on."""
    ids = iter(range(100))
    return OpenAIModel("test", "m", url, new_id=lambda: f"id-{next(ids)}", **options)


async def collect(model: OpenAIModel, into: list[Chunk], body: bytes = BODY) -> None:
    """Every chunk of one answer, also those before a failure."""
    async with model.stream(body) as chunks:
        async for chunk in chunks:
            into.append(chunk)  # noqa: PERF401 - what came before a failure is kept


async def ask(*replies: Reply) -> Assembly:
    """The answer to one request."""
    chunks: list[Chunk] = []
    async with chat_server(*replies) as server:
        await collect(model_at(server.url), chunks)
    assert [type(chunk) for chunk in chunks].count(Finish) == 1
    assert isinstance(chunks[-1], Finish)
    return Assembly(chunks)


async def fail(reply: Reply) -> tuple[ModelError, Assembly]:
    """The error of one request, and what had arrived before it."""
    chunks: list[Chunk] = []
    async with chat_server(reply) as server:
        with pytest.raises(ModelError) as caught:
            await collect(model_at(server.url), chunks)
    return caught.value, Assembly(chunks)


class _Segments:
    segments = (b'{"a": ', b'"\xc3\xa9"', b"}")


async def test_exactly_the_given_bytes_are_sent() -> None:
    """The body goes over the wire as it is, with its length, whether in one piece or in many."""
    large = b"[" + b"x" * 3_000_000 + b"]"
    async with chat_server(*[Reply.events(*words("hi"), "[DONE]")] * 3) as server:
        model = model_at(server.url, api_key="secret")
        await collect(model, [])
        await collect(model, [], large)
        async with model.stream(_Segments()) as chunks:
            assert [chunk async for chunk in chunks]
    assert [request.body for request in server.requests] == [
        BODY,
        large,
        b"".join(_Segments.segments),
    ]
    headers = server.requests[0].headers
    assert server.requests[0].head.startswith(b"POST /v1/chat/completions HTTP/1.1\r\n")
    assert headers["content-length"] == str(len(BODY))
    assert headers["content-type"] == "application/json"
    assert headers["authorization"] == "Bearer secret"
    assert "transfer-encoding" not in headers


async def test_text_reasoning_and_usage() -> None:
    """Reasoning, text and trailing usage arrive as blocks and disjoint buckets."""
    usage = {
        "prompt_tokens": 100,
        "completion_tokens": 20,
        "prompt_tokens_details": {"cached_tokens": 64},
        "completion_tokens_details": {"reasoning_tokens": 5},
    }
    answer = await ask(
        Reply.events(
            delta(role="assistant", content=None),
            delta(reasoning_content="Hm"),
            delta(reasoning="m."),
            delta(content="Hel"),
            delta(content="lo"),
            delta("stop"),
            {"choices": [], "usage": usage},
            "[DONE]",
        )
    )
    assert answer.blocks() == (Reasoning("Hmm."), Text("Hello"))
    assert answer.usage == Usage(36, 20, 64, None, 5)
    assert answer.finish is not None
    assert answer.finish.kind == "stop"


async def test_deepseek_names_its_cache_in_its_own_way() -> None:
    """`prompt_cache_hit_tokens` is what was read from the cache."""
    usage = {"prompt_tokens": 10, "completion_tokens": 1, "prompt_cache_hit_tokens": 8}
    answer = await ask(Reply.events({**delta("stop", content="x"), "usage": usage}, "[DONE]"))
    assert answer.usage == Usage(2, 1, 8)


async def test_usage_that_never_comes_is_unknown() -> None:
    """Without a report there is no usage, and null is no report; zero is not made up."""
    answer = await ask(Reply.events(*words("x"), {"choices": [], "usage": None}, "[DONE]"))
    assert answer.usage is None


async def test_pings_comments_and_empty_deltas_say_nothing() -> None:
    """Comments, ping events, empty data, null, and empty deltas leave no trace."""
    answer = await ask(
        Reply.events(
            b": ping\n\n",
            b"event: ping\ndata: {}\n\n",
            b"data:\n\n",
            b"id: 7\nretry: 10\n\n",
            "null",
            {"choices": []},
            delta(content=""),
            delta(),
            {"choices": [{"delta": None}]},
            *words("x"),
            "[DONE]",
        )
    )
    assert answer.blocks() == (Text("x"),)


async def test_bytes_may_be_cut_anywhere() -> None:
    """A stream that arrives byte by byte, with CR LF and UTF-8 cut apart, reads the same."""
    text = "né\u2028…🎉"
    raw = "".join(
        f"data: {msgspec.json.encode(event).decode()}\r\n\r\n" for event in words(*text, text)
    ).encode()
    pieces = [raw[at : at + 1] for at in range(len(raw))]
    answer = await ask(Reply(pieces=[*pieces, b"data: [DONE]\n\n"]))
    assert answer.blocks() == (Text(text * 2),)


async def test_tool_calls_in_parallel() -> None:
    """Interleaved deltas of two calls are told apart by index."""
    answer = await ask(
        Reply.events(
            delta(tool_calls=[_call(0, "a", "add", "")]),
            delta(tool_calls=[_call(1, "b", "sub", '{"x"')]),
            delta(tool_calls=[_call(0, None, None, "{}"), _call(1, None, None, ":1}")]),
            delta("tool_calls"),
            "[DONE]",
        )
    )
    assert answer.blocks() == (ToolCall("a", "add", "{}"), ToolCall("b", "sub", '{"x":1}'))
    assert answer.finish is not None
    assert answer.finish.kind == "tool-calls"


def _call(index: int | None, call_id: str | None, name: str | None, arguments: Any) -> Any:
    function = {"name": name, "arguments": arguments}
    call = {"index": index, "id": call_id, "type": "function", "function": function}
    return {key: value for key, value in call.items() if value is not None}


@pytest.mark.parametrize(
    ("deltas", "calls"),
    [
        pytest.param(
            [_call(None, "a", "add", "{}"), _call(None, "b", "add", "[]")],
            [("a", "{}"), ("b", "[]")],
            id="no index, an id each",
        ),
        pytest.param(
            [_call(None, "a", "add", "{"), _call(None, None, None, "}")],
            [("a", "{}")],
            id="no index, continued",
        ),
        pytest.param(
            [_call(None, "a", "f", "{"), _call(None, "b", "f", "["), _call(None, "a", None, "}")],
            [("a", "{}"), ("b", "[")],
            id="no index, interleaved by id",
        ),
        pytest.param(
            [_call(0, "a", "add", "{}"), _call(0, "b", "add", "[]")],
            [("a", "{}"), ("b", "[]")],
            id="the same index for all",
        ),
        pytest.param(
            [_call(0, None, "add", "{}"), _call(1, "", "add", "[]")],
            [("id-0", "{}"), ("id-1", "[]")],
            id="no ids",
        ),
        pytest.param(
            [_call(0, "a", "add", "{"), _call(0, "a", "add", "}")],
            [("a", "{}")],
            id="id and name every time",
        ),
        pytest.param(
            [_call(0, None, "add", "{"), _call(0, "a", None, "}")],
            [("a", "{}")],
            id="the id comes late",
        ),
        pytest.param(
            [_call(0, "a", "add", {"x": 1})], [("a", '{"x":1}')], id="arguments as an object"
        ),
        pytest.param([_call(0, "a", "add", None)], [("a", "")], id="no arguments"),
    ],
)
async def test_tool_calls_with_parts_missing(
    deltas: list[Any], calls: list[tuple[str, str]]
) -> None:
    """Calls are told apart whatever servers leave out or repeat, and each has an id."""
    events = [delta(tool_calls=[call]) for call in deltas]
    answer = await ask(Reply.events(*events, delta("stop"), "[DONE]"))
    found = [block for block in answer.blocks() if isinstance(block, ToolCall)]
    assert [(call.id, call.arguments) for call in found] == calls
    assert {call.name for call in found} <= {"add", "f"}
    assert answer.finish is not None
    assert answer.finish.kind == "tool-calls"


@pytest.mark.parametrize(
    ("reason", "kind"),
    [("stop", "stop"), ("length", "max-tokens"), ("function_call", "tool-calls"), ("eos", "stop")],
)
async def test_reasons_to_finish(reason: str, kind: str) -> None:
    """The provider's reasons are ours, and an unknown one is a stop."""
    answer = await ask(Reply.events(delta(reason, content="x"), "[DONE]"))
    assert answer.finish is not None
    assert answer.finish.kind == kind


async def test_either_sign_of_the_end_is_enough() -> None:
    """`[DONE]` without a reason and a reason without `[DONE]` both end an answer."""
    assert (await ask(Reply.events(delta(content="x"), "[DONE]"))).blocks() == (Text("x"),)
    assert (await ask(Reply.events(*words("x")))).blocks() == (Text("x"),)
    unended = b'data: {"choices":[{"delta":{"content":"y"},"finish_reason":"stop"}]}'
    assert (await ask(Reply(pieces=[unended]))).blocks() == (Text("y"),)


async def test_a_server_that_does_not_stream() -> None:
    """A whole message as JSON reads as one."""
    message = {"role": "assistant", "content": "hi", "tool_calls": [_call(None, "a", "f", "{}")]}
    body = {
        "choices": [{"message": message, "finish_reason": "tool_calls"}],
        "usage": {"prompt_tokens": 3},
    }
    answer = await ask(Reply.error(200, body))
    assert answer.blocks() == (Text("hi"), ToolCall("a", "f", "{}"))
    assert answer.usage == Usage(3)


@pytest.mark.parametrize("framing", ["chunked", "close"])
async def test_a_connection_that_is_cut(framing: Any) -> None:
    """What had arrived was given; then the failure says that it may be tried again."""
    error, before = await fail(
        Reply.events(delta(content="half"), b'data: {"cho', framing=framing, cut=True)
    )
    assert isinstance(error, TransportFailed)
    assert error.retryable
    assert error.failure.code == "transport"
    assert before.blocks() == (Text("half"),)


async def test_a_stream_that_just_ends() -> None:
    """An orderly end with neither a reason nor `[DONE]` is a cut."""
    error, before = await fail(Reply.events(delta(content="half")))
    assert isinstance(error, TransportFailed)
    assert before.blocks() == (Text("half"),)


async def test_nobody_listens() -> None:
    """A connection that cannot be made is a transport failure."""
    async with chat_server() as server:
        pass
    with pytest.raises(TransportFailed):
        await collect(model_at(server.url), [])


async def test_garbage_in_the_stream() -> None:
    """An event that is no JSON fails the attempt, and quotes where it begins."""
    error, before = await fail(Reply.events(delta(content="a"), "<html>"))
    assert isinstance(error, TransportFailed)
    assert "<html>" in str(error)
    assert before.blocks() == (Text("a"),)


@pytest.mark.parametrize(
    ("event", "kind", "code"),
    [
        ({"error": {"message": "Overloaded", "type": "server_error"}}, ServerFailed, "server"),
        ({"error": {"message": "x", "code": 502}}, ServerFailed, "server"),
        ({"error": {"message": "slow", "code": "rate_limit_exceeded"}}, RateLimited, "rate-limit"),
        ({"error": "went wrong"}, ServerFailed, "server"),
        ({"object": "error", "message": "bad", "code": 400}, RequestRefused, "refused"),
        (b'event: error\ndata: {"message": "boom"}\n\n', ServerFailed, "server"),
        (
            {"error": {"message": "maximum context length is 8 tokens", "code": 400}},
            ContextOverflow,
            "overflow-tokens",
        ),
    ],
)
async def test_an_error_inside_a_200(event: Any, kind: type[ModelError], code: str) -> None:
    """An error object in the stream raises, after what had arrived."""
    error, before = await fail(Reply.events(delta(content="a"), event, "[DONE]"))
    assert type(error) is kind
    assert error.failure.code == code
    assert before.blocks() == (Text("a"),)


async def test_a_content_filter_refuses() -> None:
    """An answer that a filter cut off is refused, and would be again."""
    error, before = await fail(Reply.events(delta("content_filter", content="a"), "[DONE]"))
    assert isinstance(error, RequestRefused)
    assert not error.retryable
    assert error.failure.code == "content-filter"
    assert before.blocks() == (Text("a"),)


async def test_a_refusal_before_the_body_was_read() -> None:
    """A server that answers 413 and hangs up while the body is on its way is understood."""
    reply = Reply(413, [b"no"], framing="close", early=True)
    async with chat_server(reply) as server:
        with pytest.raises(ModelError) as caught:
            await collect(model_at(server.url), [], b"x" * 30_000_000)
    # The kernel may drop the answer together with the connection.
    assert caught.value.failure.code in {"overflow-bytes", "transport"}


async def test_the_key_is_in_no_error() -> None:
    """A provider that quotes the key does not get it into our log."""
    reply = Reply.error(401, {"error": {"message": "Incorrect API key provided: sk-123"}})
    async with chat_server(reply) as server:
        with pytest.raises(RequestRefused) as caught:
            await collect(model_at(server.url, api_key="sk-123"), [])
    assert "sk-123" not in repr(caught.value.failure)
    assert caught.value.failure.code == "auth"


async def test_a_redirect_is_not_followed() -> None:
    """A key is not carried to another place."""
    reply = Reply(307, [b""], {"location": "http://127.0.0.1:9/v1"})
    error, _ = await fail(reply)
    assert isinstance(error, RequestRefused)


@pytest.mark.parametrize("how", ["break", "cancel", "raise"])
async def test_leaving_early_closes_the_connection(how: str) -> None:
    """The server sees the client leave, by whichever way."""
    async with chat_server(Reply.events(delta(content="x"), HANG)) as server:
        model = model_at(server.url)
        with anyio.CancelScope() as scope:
            try:
                async with model.stream(BODY) as chunks:
                    async for _ in chunks:
                        if how == "break":
                            break
                        if how == "raise":
                            raise LookupError  # noqa: TRY301 - it is what is tried
                        scope.cancel()
            except LookupError:
                assert how == "raise"
        with anyio.fail_after(30):
            await server.left.wait()


async def test_connections_are_kept_while_connected() -> None:
    """Streams inside `connected` share a connection, and those outside do not."""
    async with chat_server(*[Reply.events(*words("x"), "[DONE]")] * 4) as server:
        model = model_at(server.url)
        async with model.connected(), model.connected():
            await collect(model, [])
            await collect(model, [])
        assert server.connections == 1
        await collect(model, [])
        await collect(model, [])
        assert server.connections == 3


async def test_chunks_need_no_reading() -> None:
    """A stream that is entered and left without reading leaks nothing."""
    async with chat_server(Reply.events(*words("x"), "[DONE]")) as server:
        model = model_at(server.url)
        async with model.stream(BODY):
            assert not server.left.is_set()


async def test_an_iterator_that_is_closed_inside() -> None:
    """The chunks may be closed before their block is left."""
    async with chat_server(Reply.events(*words("x"), "[DONE]")) as server:
        model = model_at(server.url)
        async with model.stream(BODY) as chunks:
            assert isinstance(chunks, AsyncGenerator)
            async for _ in chunks:
                break
            await chunks.aclose()


def test_names_and_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    """Names open models; keys come from the environment, and only for the host they are for."""
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    with pytest.raises(InvalidModel, match="OPENAI_API_KEY"):
        open_model("openai:gpt-5-mini")
    monkeypatch.setenv("OPENAI_API_KEY", "sk-openai")
    model = open_model("openai:gpt-5-mini")
    assert (model.provider, model.model, model.context_window) == ("openai", "gpt-5-mini", 400_000)
    assert "sk-openai" not in repr(model)
    with pytest.raises(InvalidModel, match="api_key"):
        open_model("openai:gpt-5-mini", base_url="http://127.0.0.1:1/v1")
    monkeypatch.setenv("DEEPSEEK_API_KEY", "sk-deep")
    model = open_model("deepseek:deepseek-chat")
    assert (model.name, model.encoder) == ("deepseek:deepseek-chat", "deepseek@1")


async def test_a_key_goes_only_to_its_host(monkeypatch: pytest.MonkeyPatch) -> None:
    """A compatible server gets the key that is configured for it, and no other."""
    monkeypatch.setenv("OPENAI_API_KEY", "sk-openai")
    async with chat_server(*[Reply.events(*words("x"), "[DONE]")] * 2) as server:
        host = server.url.removeprefix("http://").removesuffix("/v1")
        for keys in ("other.example=sk-1", f"other.example=sk-1 {host}=sk-2"):
            monkeypatch.setenv("TURNLOG_API_KEYS", keys)
            model = open_model(f"openai-compatible:org/m:7b@{server.url}", context_window=10)
            assert (model.provider, model.model) == ("openai-compatible", "org/m:7b")
            async with model.stream(BODY) as chunks:
                assert [chunk async for chunk in chunks]
    assert "authorization" not in server.requests[0].headers
    assert server.requests[1].headers["authorization"] == "Bearer sk-2"


@pytest.mark.parametrize(
    "name",
    [
        "openai-compatible:m",
        "openai-compatible:m@ftp://host",
        "openai-compatible:m@http://user:pw@host/v1",
        "openai-compatible:m@http://host:port/v1",
        "nothing:m",
        "openai",
        "openai:",
        "local:gpt-9",
    ],
)
def test_wrong_names(name: str) -> None:
    """A name that opens nothing is one line that says what is expected, and quotes no password."""
    with pytest.raises(InvalidModel) as caught:
        open_model(name)
    assert "\n" not in str(caught.value)
    assert "pw" not in str(caught.value)
