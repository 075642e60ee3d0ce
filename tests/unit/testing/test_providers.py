"""Each provider rule is broken by a minimal request, and caught under its own name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from turnlog.testing.providers import (
    ProviderRuleError,
    Rule,
    Violation,
    anthropic,
    check_anthropic,
    check_neutral,
    check_openai,
    neutral,
    openai,
    require_valid,
)

Json = Any
Case = tuple[Rule, Json]


def cyclic() -> list[Json]:
    """A list that holds itself."""
    loop: list[Json] = []
    loop.append(loop)
    return loop


def rules_of(violations: list[Violation]) -> list[str]:
    """The names of the rules broken, one a violation."""
    return [violation.rule for violation in violations]


# --- neutral messages ---------------------------------------------------------------------------


def text(value: Json = "x") -> Json:
    """A neutral text block."""
    return {"type": "text", "text": value}


def call(call_id: Json = "a", **over: Json) -> Json:
    """A neutral tool-call block."""
    return {"type": "tool-call", "id": call_id, "name": "f", "arguments": "{", **over}


def says(role: str, *content: Json, **over: Json) -> Json:
    """A neutral message."""
    return {"id": "m", "role": role, "source": {}, "content": list(content), **over}


def result(call_id: Json = "a", *content: Json, **over: Json) -> Json:
    """A neutral tool message."""
    return says("tool", *(content or (text(),)), toolCallId=call_id, isError=False, **over)


NO_MESSAGE: Json = "x"

NEUTRAL_LEGAL: dict[str, Json] = {
    "nothing": [],
    "a conversation": [says("system", text()), says("user", text()), says("assistant", text())],
    "two users in a row": [says("user", text()), says("user", text())],
    "parallel calls": [
        says("user", text()),
        says("assistant", text(), call("a"), call("b")),
        result("a"),
        result("b"),
        says("assistant", text()),
    ],
    "an id used again later": [
        says("assistant", call("a")),
        result("a"),
        says("assistant", call("a")),
        result("a"),
    ],
    "one id twice in a message": [
        says("assistant", call("a"), call("a")),
        result("a"),
        result("a"),
    ],
    "reasoning": [says("assistant", {"type": "reasoning", "text": "x"})],
    "empty reasoning with a signature": [
        says("assistant", {"type": "reasoning", "text": "", "signature": "s"})
    ],
    "empty reasoning with replay state": [
        says("assistant", {"type": "reasoning", "text": ""}, source={"replayState": {}})
    ],
    "an image": [says("user", {"type": "image", "attachment": "sha"})],
    "an unknown block": [says("user", {"type": "acme/map"})],
    "an unknown field": [says("user", text(), acme=1)],
    "an astral character": [says("user", text("\U0001f600"))],
}

NEUTRAL_BROKEN: list[Case] = [
    (Rule.NOT_JSON, [says("user", text(), x=float("nan"))]),
    (Rule.NOT_JSON, [says("user", text(), x=float("inf"))]),
    (Rule.NOT_JSON, [says("user", text(), x=(1, 2))]),
    (Rule.NOT_JSON, [says("user", text(), x=b"")]),
    (Rule.NOT_JSON, [says("user", text(), x={1: 2})]),
    (Rule.NOT_JSON, [says("user", text(), x=cyclic())]),
    (Rule.LONE_SURROGATE, [says("user", text("a\ud800"))]),
    (Rule.LONE_SURROGATE, [says("user", text(), x={"\udfff": 1})]),
    (Rule.MESSAGE_SHAPE, [NO_MESSAGE]),
    (Rule.MESSAGE_SHAPE, [says("user", text(), id="")]),
    (Rule.MESSAGE_SHAPE, [says("user", text(), source=None)]),
    (Rule.MESSAGE_SHAPE, [says("assistant", call()), {**result(), "isError": "no"}]),
    (Rule.ROLE, [says("developer", text())]),
    (Rule.ROLE, [{"id": "m", "source": {}, "content": [text()]}]),
    (Rule.CONTENT_EMPTY, [says("user")]),
    (Rule.CONTENT_EMPTY, [says("user", content="x")]),
    (Rule.TEXT_EMPTY, [says("user", text(""))]),
    (Rule.TEXT_EMPTY, [says("user", text(), text(" \n\t\u2003"))]),
    (Rule.TEXT_EMPTY, [says("assistant", call()), result("a", text(""))]),
    (Rule.BLOCK_SHAPE, [says("user", "x")]),
    (Rule.BLOCK_SHAPE, [says("user", {"text": "x"})]),
    (Rule.BLOCK_SHAPE, [says("user", text(None))]),
    (Rule.BLOCK_SHAPE, [says("user", {"type": "image"})]),
    (Rule.BLOCK_SHAPE, [says("assistant", {"type": "reasoning", "signature": "s"})]),
    (Rule.REASONING_EMPTY, [says("assistant", {"type": "reasoning", "text": " "})]),
    (
        Rule.REASONING_EMPTY,
        [says("assistant", {"type": "reasoning", "text": "", "signature": None})],
    ),
    (Rule.CALL_OUTSIDE_ASSISTANT, [says("user", call())]),
    (Rule.CALL_SHAPE, [says("assistant", call(""))]),
    (Rule.CALL_SHAPE, [says("assistant", call(name=None)), result()]),
    (Rule.CALL_SHAPE, [says("assistant", call(arguments={})), result()]),
    (Rule.CALL_WITHOUT_RESULT, [says("assistant", call())]),
    (Rule.CALL_WITHOUT_RESULT, [says("assistant", call()), says("user", text())]),
    (Rule.CALL_WITHOUT_RESULT, [says("assistant", call("a"), call("b")), result("b")]),
    (Rule.CALL_WITHOUT_RESULT, [says("assistant", call("a"), call("a")), result("a")]),
    (
        Rule.CALL_WITHOUT_RESULT,
        [says("assistant", call()), says("assistant", call()), result()],
    ),
    (Rule.RESULT_WITHOUT_CALL, [result()]),
    (Rule.RESULT_WITHOUT_CALL, [says("assistant", call("a")), result("a"), result("b")]),
    (Rule.RESULT_REPEATED, [says("assistant", call()), result(), result()]),
    (
        Rule.RESULT_REPEATED,
        [says("assistant", call()), result(), says("user", text()), result()],
    ),
    (Rule.RESULT_NOT_ADJACENT, [says("assistant", call()), says("user", text()), result()]),
    (
        Rule.RESULT_NOT_ADJACENT,
        [says("assistant", call("a")), says("assistant", call("b")), result("b"), result("a")],
    ),
    (
        Rule.RESULT_OUT_OF_ORDER,
        [says("assistant", call("a"), call("b")), result("b"), result("a")],
    ),
    (
        Rule.RESULT_CALL_ID_MISSING,
        [says("assistant", call()), result(), says("tool", text(), isError=False)],
    ),
]


@pytest.mark.parametrize("messages", NEUTRAL_LEGAL.values(), ids=NEUTRAL_LEGAL)
def test_legal_neutral_messages_pass(messages: Json) -> None:
    """Neutral messages that any provider takes have no violation."""
    assert check_neutral(messages) == []


@pytest.mark.parametrize(("rule", "messages"), NEUTRAL_BROKEN)
def test_neutral_messages_break_one_rule(rule: Rule, messages: Json) -> None:
    """Each broken list of neutral messages is caught once, under the name of its rule."""
    assert rules_of(check_neutral(messages)) == [rule]


def test_a_result_before_its_call_breaks_two_rules() -> None:
    """A result that stands before its call answers nothing, and its call stays open."""
    found = check_neutral([result(), says("assistant", call())])
    assert rules_of(found) == [Rule.RESULT_WITHOUT_CALL, Rule.CALL_WITHOUT_RESULT]


def test_each_open_call_is_named() -> None:
    """After a cancel that left four calls open there are four violations, each with its path."""
    found = check_neutral([says("assistant", *map(call, "abcd")), says("user", text())])
    assert [violation.where for violation in found] == [
        f"messages[0].content[{index}]" for index in range(4)
    ]


# --- OpenAI and DeepSeek ------------------------------------------------------------------------


def oa(*messages: Json, **over: Json) -> Json:
    """A chat-completions body; without messages, one from the user."""
    return {"model": "m", "messages": list(messages) or [oa_says("user")], **over}


def oa_says(role: str, content: Json = "x", **over: Json) -> Json:
    """A chat-completions message."""
    return {"role": role, "content": content, **over}


def oa_call(call_id: Json = "a", **over: Json) -> Json:
    """A chat-completions call."""
    function = {"name": "f", "arguments": "{", **over}
    return {"id": call_id, "type": "function", "function": function}


def oa_calls(*calls: Json, **over: Json) -> Json:
    """An assistant message that only calls."""
    return oa_says("assistant", None, tool_calls=list(calls), **over)


def oa_result(call_id: Json = "a", content: Json = "x") -> Json:
    """A chat-completions tool message."""
    return oa_says("tool", content, tool_call_id=call_id)


def oa_tool(name: Json = "f", **over: Json) -> Json:
    """A chat-completions tool."""
    function: Json = {"name": name, "parameters": {"type": "object", "properties": {}}, **over}
    return {"type": "function", "function": function}


def part(value: Json = "x") -> Json:
    """A text part, which is a text block for Anthropic too."""
    return {"type": "text", "text": value}


PICTURE = {"type": "image_url", "image_url": {"url": "data:,", "detail": "low"}}

OPENAI_LEGAL: dict[str, Json] = {
    "one message": oa(),
    "every role": oa(oa_says("system"), oa_says("developer"), oa_says("user", name="n")),
    "text and image parts": oa(oa_says("user", [part(), PICTURE])),
    "calls answered in any order": oa(
        oa_says("user"),
        oa_calls(oa_call("a"), oa_call("b")),
        oa_result("b"),
        oa_result("a", [part()]),
        oa_says("assistant"),
    ),
    "an id used again later": oa(
        oa_calls(oa_call()), oa_result(), oa_calls(oa_call()), oa_result()
    ),
    "an empty string beside calls": oa(
        oa_says("assistant", "", tool_calls=[oa_call("x" * 64)]), oa_result("x" * 64)
    ),
    "no content key beside calls": oa(
        {"role": "assistant", "tool_calls": [oa_call()]}, oa_result()
    ),
    "a refusal": oa(oa_says("assistant", None, refusal="no")),
    "refusal part": oa(oa_says("assistant", [{"type": "refusal", "refusal": "no"}])),
    "tools": oa(
        tools=[oa_tool("f", description="d", strict=True), oa_tool("g-1_B")],
        tool_choice={"type": "function", "function": {"name": "f"}},
        parallel_tool_calls=False,
    ),
    "a tool without parameters": oa(
        tools=[{"type": "function", "function": {"name": "f"}}], tool_choice="auto"
    ),
    "plain text": oa(response_format={"type": "text"}),
    "options": oa(
        stream=True,
        stream_options={"include_usage": True},
        max_completion_tokens=1,
        response_format={"type": "json_schema", "json_schema": {"name": "n", "schema": {}}},
    ),
}

OPENAI_BROKEN: list[Case] = [
    (Rule.NOT_JSON, oa(temperature=float("inf"))),
    (Rule.NOT_JSON, oa(metadata={"a": {1}})),
    (Rule.LONE_SURROGATE, oa(oa_says("user", "\udc00"))),
    (Rule.UNKNOWN_KEY, oa(api_key="k")),
    (Rule.UNKNOWN_KEY, oa(thinking={"type": "enabled"})),
    (Rule.UNKNOWN_KEY, oa(oa_says("user", id="m"))),
    (Rule.UNKNOWN_KEY, oa(oa_says("user", [{**part(), "signature": "s"}]))),
    (Rule.UNKNOWN_KEY, oa(oa_says("assistant", reasoning_content="r"))),
    (Rule.UNKNOWN_KEY, oa(oa_says("user", tool_calls=[]))),
    (Rule.UNKNOWN_KEY, oa(oa_calls({**oa_call(), "index": 0}), oa_result())),
    (Rule.UNKNOWN_KEY, oa(oa_says("assistant", reasoning_content=None))),
    (Rule.UNKNOWN_KEY, oa(oa_calls(oa_call(description="d")), oa_result())),
    (
        Rule.UNKNOWN_KEY,
        oa(oa_says("user", [{"type": "image_url", "image_url": {"url": "u", "id": 1}}])),
    ),
    (Rule.UNKNOWN_KEY, oa(tools=[oa_tool(input_schema={})])),
    (Rule.UNKNOWN_KEY, oa(tools=[{**oa_tool(), "cache_control": None}])),
    (Rule.MODEL, oa(model="")),
    (Rule.MODEL, {"messages": [oa_says("user")]}),
    (Rule.MAX_TOKENS, oa(max_tokens=0)),
    (Rule.MAX_TOKENS, oa(max_completion_tokens=True)),
    (Rule.STREAM_OPTIONS, oa(stream_options={})),
    (Rule.STREAM_OPTIONS, oa(stream=True, stream_options=None)),
    (Rule.RESPONSE_FORMAT, oa(response_format="json")),
    (
        Rule.RESPONSE_FORMAT,
        oa(response_format={"type": "json_schema", "json_schema": {"schema": {}}}),
    ),
    (
        Rule.RESPONSE_FORMAT,
        oa(response_format={"type": "json_schema", "json_schema": {"name": "n"}}),
    ),
    (Rule.TOOLS_SHAPE, oa(tools=[])),
    (Rule.TOOLS_SHAPE, oa(tools=[oa_tool(f"f{index}") for index in range(129)])),
    (Rule.TOOLS_SHAPE, oa(tools=[{"type": "function", "name": "f"}])),
    (Rule.TOOLS_SHAPE, oa(tools=[{**oa_tool(), "type": "custom"}])),
    (Rule.TOOLS_SHAPE, oa(tools=[oa_tool(description=1)])),
    (Rule.TOOLS_SHAPE, oa(tools=[oa_tool(strict="yes")])),
    (Rule.TOOL_NAME, oa(tools=[oa_tool("a b")])),
    (Rule.TOOL_NAME, oa(tools=[oa_tool("f\n")])),
    (Rule.TOOL_NAME, oa(tools=[oa_tool("f" * 65)])),
    (Rule.TOOL_NAME, oa(oa_calls(oa_call(name="a.b")), oa_result())),
    (Rule.TOOL_NAME_REPEATED, oa(tools=[oa_tool(), oa_tool()])),
    (Rule.TOOL_SCHEMA, oa(tools=[oa_tool(parameters={"type": "string"})])),
    (Rule.TOOL_SCHEMA, oa(tools=[oa_tool(parameters=None)])),
    (Rule.TOOL_SCHEMA, oa(tools=[oa_tool(parameters={"type": "object", "anyOf": []})])),
    (Rule.TOOL_SCHEMA, oa(tools=[oa_tool(parameters={"type": "object", "properties": []})])),
    (Rule.TOOL_SCHEMA, oa(tools=[oa_tool(parameters={"type": "object", "required": [1]})])),
    (Rule.TOOL_CHOICE, oa(tool_choice="auto")),
    (Rule.TOOL_CHOICE, oa(tool_choice="any")),
    (
        Rule.TOOL_CHOICE,
        oa(tools=[oa_tool()], tool_choice={"type": "tool", "function": {"name": "f"}}),
    ),
    (Rule.TOOL_CHOICE, oa(parallel_tool_calls=True)),
    (Rule.TOOL_CHOICE, oa(tools=[oa_tool()], parallel_tool_calls=None)),
    (Rule.TOOL_CHOICE, oa(tools=[oa_tool()], tool_choice="any")),
    (
        Rule.TOOL_CHOICE,
        oa(tools=[oa_tool()], tool_choice={"type": "function", "function": {"name": "g"}}),
    ),
    (Rule.MESSAGES_EMPTY, {"model": "m", "messages": []}),
    (Rule.MESSAGES_EMPTY, {"model": "m"}),
    (Rule.MESSAGE_SHAPE, oa("x")),
    (Rule.MESSAGE_SHAPE, oa(oa_says("user", 1))),
    (Rule.MESSAGE_SHAPE, oa(oa_says("user", name=1))),
    (Rule.MESSAGE_SHAPE, oa(oa_says("assistant", refusal=""))),
    (Rule.ROLE, oa(oa_says("function"))),
    (Rule.ROLE, oa({"content": "x"})),
    (Rule.CONTENT_EMPTY, oa(oa_says("user", None))),
    (Rule.CONTENT_EMPTY, oa(oa_says("user", []))),
    (Rule.CONTENT_EMPTY, oa(oa_says("assistant", None))),
    (Rule.CONTENT_EMPTY, oa(oa_says("assistant", [], tool_calls=[oa_call()]), oa_result())),
    (Rule.CONTENT_EMPTY, oa(oa_calls(oa_call()), oa_result("a", None))),
    (Rule.TEXT_EMPTY, oa(oa_says("system", ""))),
    (Rule.TEXT_EMPTY, oa(oa_says("user", [part(), part(" ")]))),
    (Rule.TEXT_EMPTY, oa(oa_says("assistant", ""))),
    (Rule.TEXT_EMPTY, oa(oa_calls(oa_call()), oa_result("a", ""))),
    (Rule.BLOCK_SHAPE, oa(oa_says("user", ["x"]))),
    (Rule.BLOCK_SHAPE, oa(oa_says("user", [part(1)]))),
    (Rule.BLOCK_SHAPE, oa(oa_says("user", [{"type": "image_url", "image_url": {}}]))),
    (Rule.BLOCK_TYPE, oa(oa_says("user", [{"type": "thinking", "thinking": "x"}]))),
    (Rule.BLOCK_TYPE, oa(oa_says("system", [PICTURE]))),
    (Rule.BLOCK_TYPE, oa(oa_calls(oa_call()), oa_result("a", [PICTURE]))),
    (Rule.CALLS_EMPTY, oa(oa_says("assistant", tool_calls=[]))),
    (Rule.CALLS_EMPTY, oa(oa_says("assistant", tool_calls=None))),
    (
        Rule.CALLS_EMPTY,
        oa(
            oa_calls(*(oa_call(str(index)) for index in range(129))),
            *(oa_result(str(index)) for index in range(129)),
        ),
    ),
    (Rule.CALL_SHAPE, oa(oa_calls({"id": "a", "type": "function"}), oa_result())),
    (Rule.CALL_SHAPE, oa(oa_calls({**oa_call(), "type": "custom"}), oa_result())),
    (Rule.CALL_SHAPE, oa(oa_calls(oa_call(arguments={})), oa_result())),
    (Rule.CALL_ID, oa(oa_calls(oa_call("")))),
    (Rule.CALL_ID, oa(oa_calls(oa_call(5)))),
    (Rule.CALL_ID, oa(oa_calls(oa_call("x" * 65)), oa_result("x" * 65))),
    (Rule.CALL_ID_REPEATED, oa(oa_calls(oa_call(), oa_call()), oa_result(), oa_result())),
    (Rule.CALL_WITHOUT_RESULT, oa(oa_calls(oa_call()))),
    (Rule.CALL_WITHOUT_RESULT, oa(oa_calls(oa_call("a"), oa_call("b")), oa_result("a"))),
    (Rule.RESULT_WITHOUT_CALL, oa(oa_result())),
    (Rule.RESULT_WITHOUT_CALL, oa(oa_says("assistant"), oa_result())),
    (Rule.RESULT_REPEATED, oa(oa_calls(oa_call()), oa_result(), oa_result())),
    (Rule.RESULT_NOT_ADJACENT, oa(oa_calls(oa_call()), oa_says("user"), oa_result())),
    (Rule.RESULT_CALL_ID_MISSING, oa(oa_says("tool"))),
]

DEEPSEEK_LEGAL: dict[str, Json] = {
    "reasoning sent back": oa(oa_calls(oa_call(), reasoning_content="r"), oa_result()),
    "empty reasoning sent back": oa(oa_calls(oa_call(), reasoning_content=""), oa_result()),
    "no call, no reasoning": oa(oa_says("assistant")),
    "thinking is off": oa(oa_calls(oa_call()), oa_result(), thinking={"type": "disabled"}),
    "the model does not think": oa(oa_calls(oa_call()), oa_result(), model="deepseek-chat"),
}

DEEPSEEK_BROKEN: list[Case] = [
    (Rule.UNKNOWN_KEY, oa(store=True)),
    (Rule.UNKNOWN_KEY, oa(oa_says("user", reasoning_content="r"))),
    (Rule.ROLE, oa(oa_says("developer"))),
    (Rule.BLOCK_TYPE, oa(oa_says("user", [PICTURE]))),
    (Rule.CONTENT_EMPTY, oa(oa_says("assistant", None, reasoning_content="r"))),
    (Rule.THINKING_CONFIG, oa(thinking={"type": "adaptive"})),
    (Rule.REASONING_SHAPE, oa(oa_says("assistant", reasoning_content=None))),
    (Rule.REASONING_MISSING, oa(oa_calls(oa_call()), oa_result())),
    (
        Rule.REASONING_MISSING,
        oa(
            oa_calls(oa_call()),
            oa_result(),
            model="deepseek-chat",
            thinking={"type": "enabled"},
        ),
    ),
]


@pytest.mark.parametrize("body", OPENAI_LEGAL.values(), ids=OPENAI_LEGAL)
def test_legal_openai_bodies_pass(body: Json) -> None:
    """A body that OpenAI takes has no violation."""
    assert check_openai(body) == []


@pytest.mark.parametrize(("rule", "body"), OPENAI_BROKEN)
def test_openai_bodies_break_one_rule(rule: Rule, body: Json) -> None:
    """Each broken chat-completions body is caught once, under the name of its rule."""
    assert rules_of(check_openai(body)) == [rule]


@pytest.mark.parametrize("body", DEEPSEEK_LEGAL.values(), ids=DEEPSEEK_LEGAL)
def test_legal_deepseek_bodies_pass(body: Json) -> None:
    """A body that DeepSeek takes has no violation."""
    assert check_openai(body, "deepseek") == []


@pytest.mark.parametrize(("rule", "body"), DEEPSEEK_BROKEN)
def test_deepseek_bodies_break_one_rule(rule: Rule, body: Json) -> None:
    """Each body broken by DeepSeek's rules is caught once, under the name of its rule."""
    assert rules_of(check_openai(body, "deepseek")) == [rule]


def test_a_server_may_know_more_keys() -> None:
    """A top-level key that the caller vouches for is no violation."""
    body = oa(repeat_penalty=1.15)
    assert check_openai(body, extra_keys=["repeat_penalty"]) == []
    assert rules_of(check_openai(body)) == [Rule.UNKNOWN_KEY]


# --- Anthropic ----------------------------------------------------------------------------------


def an(*messages: Json, **over: Json) -> Json:
    """A messages body that begins with a user's message."""
    return {"model": "m", "max_tokens": 9, "messages": [user(), *messages], **over}


def user(*content: Json) -> Json:
    """An Anthropic user message; without content, a short text."""
    return {"role": "user", "content": list(content) or "x"}


def bot(*content: Json) -> Json:
    """An Anthropic assistant message; without content, a short text."""
    return {"role": "assistant", "content": list(content) or "x"}


def use(call_id: Json = "a", **over: Json) -> Json:
    """A tool_use block."""
    return {"type": "tool_use", "id": call_id, "name": "f", "input": {}, **over}


def answer(call_id: Json = "a", content: Json = "x", **over: Json) -> Json:
    """A tool_result block."""
    return {"type": "tool_result", "tool_use_id": call_id, "content": content, **over}


def an_tool(name: Json = "f", **over: Json) -> Json:
    """An Anthropic tool."""
    return {"name": name, "input_schema": {"type": "object"}, **over}


def marked(block: Json, **over: Json) -> Json:
    """The block with a cache marker."""
    return {**block, "cache_control": {"type": "ephemeral", **over}}


THOUGHT = {"type": "thinking", "thinking": "", "signature": "s"}
BLACKED = {"type": "redacted_thinking", "data": "d"}
THINKING = {"type": "enabled", "budget_tokens": 1024}
PHOTO = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "A"}}

ANTHROPIC_LEGAL: dict[str, Json] = {
    "one message": an(),
    "system blocks": an(system=[marked(part())]),
    "system text": an(system="x"),
    "parallel calls": an(
        bot(THOUGHT, part(), use("a"), use("b")),
        user(answer("b", is_error=True), answer("a", [part(), PHOTO]), part()),
        thinking=THINKING,
        max_tokens=2000,
    ),
    "redacted thinking first": an(
        bot(BLACKED, use()), user(answer()), thinking=THINKING, max_tokens=2000
    ),
    "a past turn without thinking": an(bot(), user(), thinking=THINKING, max_tokens=2000),
    "tools": an(tools=[an_tool(), an_tool("g", type="custom")], tool_choice={"type": "any"}),
    "a chosen tool": an(tools=[an_tool()], tool_choice={"type": "tool", "name": "f"}),
    "a user's whitespace at the end": an(bot(), user(part("x "))),
    "a prefill": an(bot(part("It is"))),
    "whitespace before the end": an(bot(part("so ")), user()),
    "four cache markers": an(
        bot(marked(use())),
        user(marked(answer())),
        cache_control={"type": "ephemeral"},
        tools=[marked(an_tool(), ttl="1h")],
    ),
    "a document by url": an(
        bot(), user({"type": "document", "source": {"type": "url", "url": "u"}, "title": "t"})
    ),
}

ANTHROPIC_BROKEN: list[Case] = [
    (Rule.NOT_JSON, an(bot(use(input={"x": float("nan")})), user(answer()))),
    (Rule.LONE_SURROGATE, an(bot(part("\ud83d")))),
    (Rule.UNKNOWN_KEY, an(max_completion_tokens=1)),
    (Rule.UNKNOWN_KEY, an({**bot(), "id": "m"})),
    (Rule.UNKNOWN_KEY, an(system=[{**part(), "id": "m"}])),
    (Rule.UNKNOWN_KEY, an(bot({**part(), "signature": "s"}))),
    (Rule.UNKNOWN_KEY, an(bot({**part(), "id": "a"}))),
    (Rule.UNKNOWN_KEY, an(bot(marked(THOUGHT), part()))),
    (Rule.UNKNOWN_KEY, an(tools=[an_tool(parameters={})])),
    (Rule.UNKNOWN_KEY, an(bot(marked(part(), scope="x")))),
    (Rule.MODEL, an(model=None)),
    (Rule.MAX_TOKENS, an(max_tokens=0)),
    (Rule.MAX_TOKENS, {"model": "m", "messages": [user()]}),
    (Rule.SYSTEM, an(system="")),
    (Rule.SYSTEM, an(system=[])),
    (Rule.SYSTEM, an(system=[part(" ")])),
    (Rule.SYSTEM, an(system=[part(None)])),
    (Rule.SYSTEM, an(system=[{**part(), "type": "note"}])),
    (Rule.MAX_TOKENS, an(bot(THOUGHT, part()), max_tokens=None, thinking=THINKING)),
    (Rule.THINKING_CONFIG, an(thinking={"type": "on"})),
    (Rule.THINKING_CONFIG, an(thinking={"type": "enabled"})),
    (Rule.THINKING_CONFIG, an(thinking={"type": "enabled", "budget_tokens": 1023})),
    (Rule.THINKING_CONFIG, an(thinking={"type": "enabled", "budget_tokens": 9}, max_tokens=99)),
    (Rule.THINKING_CONFIG, an(thinking=THINKING, max_tokens=1024)),
    (Rule.CACHE_CONTROL, an(cache_control={"type": "forever"})),
    (Rule.CACHE_CONTROL, an(bot(marked(part(), ttl="1d")))),
    (Rule.CACHE_CONTROL, an(bot(*[marked(part())] * 5))),
    (
        Rule.CACHE_CONTROL,
        an(bot(use()), user(answer("a", [marked(part())] * 4)), system=[marked(part())]),
    ),
    (Rule.TOOLS_SHAPE, an(tools={})),
    (Rule.TOOLS_SHAPE, an(tools=["f"])),
    (Rule.TOOLS_SHAPE, an(tools=[an_tool(type="function")])),
    (Rule.TOOLS_SHAPE, an(tools=[an_tool(description=1)])),
    (Rule.TOOL_NAME, an(tools=[an_tool("é")])),
    (Rule.TOOL_NAME, an(bot(use(name="")), user(answer()))),
    (Rule.TOOL_NAME_REPEATED, an(tools=[an_tool(), an_tool()])),
    (Rule.TOOL_SCHEMA, an(tools=[{"name": "f"}])),
    (Rule.TOOL_SCHEMA, an(tools=[an_tool(input_schema={"type": "object", "oneOf": []})])),
    (Rule.TOOL_CHOICE, an(tool_choice={"type": "auto"})),
    (Rule.TOOL_CHOICE, an(tools=[an_tool()], tool_choice="auto")),
    (Rule.TOOL_CHOICE, an(tools=[an_tool()], tool_choice={"type": "tool", "name": "g"})),
    (Rule.TOOL_CHOICE, an(tools=[an_tool()], tool_choice={"type": "function", "name": "f"})),
    (Rule.MESSAGES_EMPTY, an() | {"messages": []}),
    (Rule.MESSAGE_SHAPE, an("x")),
    (Rule.MESSAGE_SHAPE, an({"role": "assistant", "content": 1})),
    (Rule.ROLE, an({"role": "system", "content": "x"})),
    (Rule.FIRST_NOT_USER, an() | {"messages": [bot()]}),
    (Rule.ROLES_ALTERNATE, an(user())),
    (Rule.ROLES_ALTERNATE, an(bot(), bot())),
    (Rule.CONTENT_EMPTY, an({"role": "assistant"})),
    (Rule.CONTENT_EMPTY, an({"role": "assistant", "content": []})),
    (Rule.CONTENT_EMPTY, an(bot(use()), user(answer("a", [])))),
    (Rule.CONTENT_EMPTY, an(bot(use()), user(answer("a", None)))),
    (Rule.TEXT_EMPTY, an({"role": "assistant", "content": ""})),
    (Rule.TEXT_EMPTY, an(bot(part()), user(part("\n")))),
    (Rule.TEXT_EMPTY, an(bot(use()), user(answer("a", "")))),
    (Rule.TEXT_EMPTY, an(bot(use()), user(answer("a", [part("")])))),
    (Rule.BLOCK_SHAPE, an(bot("x"))),
    (Rule.BLOCK_SHAPE, an(bot(part(None)))),
    (Rule.BLOCK_SHAPE, an(bot(), user({"type": "image", "source": {"type": "base64"}}))),
    (Rule.BLOCK_SHAPE, an(bot({"type": "thinking", "signature": "s"}, part()))),
    (Rule.BLOCK_SHAPE, an(bot(use()), user(answer(is_error="no")))),
    (Rule.BLOCK_TYPE, an(bot(PHOTO))),
    (Rule.BLOCK_TYPE, an(bot(), user(THOUGHT))),
    (Rule.BLOCK_TYPE, an(bot(), user(use()))),
    (Rule.BLOCK_TYPE, an(bot(use()), user(answer("a", [use("b")])))),
    (Rule.BLOCK_TYPE, an(bot({"type": "reasoning", "text": "x"}, part()))),
    (Rule.FINAL_WHITESPACE, an(bot(part("It is ")))),
    (Rule.FINAL_WHITESPACE, an({"role": "assistant", "content": "It is\n"})),
    (Rule.THINKING_SIGNATURE, an(bot({"type": "thinking", "thinking": "x"}, part()))),
    (Rule.THINKING_SIGNATURE, an(bot({**THOUGHT, "signature": ""}, part()))),
    (Rule.REDACTED_DATA, an(bot({"type": "redacted_thinking", "data": None}, part()))),
    (
        Rule.THINKING_FIRST,
        an(bot(use()), user(answer()), thinking=THINKING, max_tokens=2000),
    ),
    (Rule.THINKING_FIRST, an(bot(), thinking=THINKING, max_tokens=2000)),
    (Rule.THINKING_LAST, an(bot(part(), THOUGHT), user())),
    (Rule.CALL_SHAPE, an(bot(use(input="{}")), user(answer()))),
    (Rule.CALL_ID, an(bot(use("Write:6")), user(answer("Write:6")))),
    (Rule.CALL_ID, an(bot(use("x" * 65)), user(answer("x" * 65)))),
    (Rule.CALL_ID, an(bot(use("")), user())),
    (Rule.CALL_ID_REPEATED, an(bot(use(), use()), user(answer(), answer()))),
    (Rule.CALL_ID_REPEATED, an(bot(use()), user(answer()), bot(use()), user(answer()))),
    (Rule.CALL_WITHOUT_RESULT, an(bot(use()))),
    (Rule.CALL_WITHOUT_RESULT, an(bot(use()), user())),
    (Rule.CALL_WITHOUT_RESULT, an(bot(use("a"), use("b")), user(answer("b")))),
    (Rule.RESULT_WITHOUT_CALL, an() | {"messages": [user(answer())]}),
    (Rule.RESULT_WITHOUT_CALL, an(bot(use()), user(answer("a"), answer("b")))),
    (Rule.RESULT_REPEATED, an(bot(use()), user(answer(), answer()))),
    (Rule.RESULT_NOT_ADJACENT, an(bot(use()), user(), bot(), user(answer()))),
    (Rule.RESULT_CALL_ID_MISSING, an(bot(), user(answer(None)))),
    (Rule.RESULT_CALL_ID_MISSING, an(bot(), user(answer("")))),
    (Rule.RESULT_AFTER_CONTENT, an(bot(use()), user(part(), answer()))),
    (
        Rule.RESULT_AFTER_CONTENT,
        an(bot(use("a"), use("b")), user(answer("a"), part(), answer("b"))),
    ),
]


@pytest.mark.parametrize("body", ANTHROPIC_LEGAL.values(), ids=ANTHROPIC_LEGAL)
def test_legal_anthropic_bodies_pass(body: Json) -> None:
    """A body that Anthropic takes has no violation."""
    assert check_anthropic(body) == []


@pytest.mark.parametrize(("rule", "body"), ANTHROPIC_BROKEN)
def test_anthropic_bodies_break_one_rule(rule: Rule, body: Json) -> None:
    """Each broken messages body is caught once, under the name of its rule."""
    assert rules_of(check_anthropic(body)) == [rule]


# --- all of them --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rules", "cases"),
    [
        (neutral.RULES, NEUTRAL_BROKEN),
        (openai.RULES, OPENAI_BROKEN + DEEPSEEK_BROKEN),
        (anthropic.RULES, ANTHROPIC_BROKEN),
    ],
    ids=["neutral", "openai", "anthropic"],
)
def test_every_rule_is_shown_broken(rules: frozenset[Rule], cases: list[Case]) -> None:
    """Each rule that a validator knows has a case above, and no other rule has one."""
    assert {rule for rule, _ in cases} == rules


def test_every_name_is_some_validators_rule() -> None:
    """No rule has a name without a validator that knows it."""
    assert set(Rule) == neutral.RULES | openai.RULES | anthropic.RULES


@pytest.mark.parametrize(
    ("found", "rule"),
    [
        (check_neutral([says("assistant", call()), NO_MESSAGE, result()]), Rule.MESSAGE_SHAPE),
        (check_openai(oa(oa_calls(oa_call()), "x", oa_result())), Rule.MESSAGE_SHAPE),
        (check_anthropic(an(bot(use()), "x", user(answer()))), Rule.MESSAGE_SHAPE),
        (check_anthropic(an(bot(use()), user(), user(answer()))), Rule.ROLES_ALTERNATE),
    ],
    ids=["neutral", "openai", "anthropic", "anthropic, two users"],
)
def test_what_stands_between_a_call_and_its_result_parts_them(
    found: list[Violation], rule: Rule
) -> None:
    """Something illegal between a call and its result breaks adjacency too."""
    assert rules_of(found) == [rule, Rule.RESULT_NOT_ADJACENT]


@pytest.mark.parametrize("check", [check_openai, check_anthropic])
@pytest.mark.parametrize("value", [None, True, 1, "x", [], [[]], {}, [{}], {"type": "text"}])
def test_odd_shapes_are_violations_not_crashes(
    check: Callable[[Json], list[Violation]], value: Json
) -> None:
    """Any JSON value in the place of a part of the body gives violations and never an exception."""
    keys = ("model", "messages", "tools", "tool_choice", "system", "thinking", "response_format")
    bodies = [an(**{key: value}) for key in keys]
    bodies += [an(bot(value), user(value)), an(value), an({"role": value, "content": value})]
    bodies.append(an(oa_calls(value), oa_says("tool", value, tool_call_id=value)))
    bodies.append(an(bot(use(value)), user(answer(value, value))))
    for body in bodies:
        assert all(isinstance(violation, Violation) for violation in check(body))
    assert check(an(value)) != []


def test_require_valid_raises_with_every_violation() -> None:
    """The error is an AssertionError that names what was judged and lists every violation."""
    found = check_neutral([says("user"), result()])
    with pytest.raises(ProviderRuleError) as caught:
        require_valid(found, "request 3")
    assert isinstance(caught.value, AssertionError)
    assert caught.value.violations == tuple(found)
    assert str(caught.value).splitlines() == [
        "request 3 breaks 2 provider rule(s):",
        "  messages[0].content: expected a non-empty list, got [] [content-empty]",
        "  messages[1]: no earlier message calls 'a' [result-without-call]",
    ]


def test_require_valid_accepts_no_violation() -> None:
    """Without violations nothing is raised."""
    require_valid(check_neutral([says("user", text())]))


def test_judging_leaves_the_body_alone() -> None:
    """A validator changes nothing in what it judges."""
    body = an(bot(use()), user(answer()), tools=[an_tool()])
    before = repr(body)
    check_anthropic(body)
    check_openai(body)
    assert repr(body) == before
