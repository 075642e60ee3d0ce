"""The rules of OpenAI's chat completions, and of DeepSeek's dialect of them.

Sources: the request reference and the 400 answers of `POST /v1/chat/completions`; for DeepSeek its
thinking-mode guide, by which a message with tool calls is sent back with its `reasoning_content`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from turnlog.testing.providers.openai_messages import MessageChecker
from turnlog.testing.providers.report import (
    BOOLEAN,
    COUNT,
    OBJECT,
    Report,
    Violation,
    as_array,
    as_object,
    check_json,
)
from turnlog.testing.providers.rules import PAIRING_RULES, Rule
from turnlog.testing.providers.shapes import NAME, ToolSet, check_keys, check_model, message_list

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from turnlog.testing.providers.openai_messages import Dialect

MAX_TOOLS = 128

_SHARED_KEYS = {
    "frequency_penalty",
    "logprobs",
    "max_tokens",
    "messages",
    "model",
    "presence_penalty",
    "reasoning_effort",
    "response_format",
    "stop",
    "stream",
    "stream_options",
    "temperature",
    "tool_choice",
    "tools",
    "top_logprobs",
    "top_p",
}
KEYS: Mapping[Dialect, Collection[str]] = {
    "openai": {
        *_SHARED_KEYS,
        "logit_bias",
        "max_completion_tokens",
        "metadata",
        "modalities",
        "n",
        "parallel_tool_calls",
        "prediction",
        "prompt_cache_key",
        "prompt_cache_retention",
        "safety_identifier",
        "seed",
        "service_tier",
        "store",
        "user",
        "verbosity",
        "web_search_options",
    },
    "deepseek": {*_SHARED_KEYS, "thinking"},
}
"""The top-level keys of a body that `check_openai` accepts without being told."""

RULES = PAIRING_RULES | {
    Rule.NOT_JSON,
    Rule.LONE_SURROGATE,
    Rule.UNKNOWN_KEY,
    Rule.MODEL,
    Rule.MAX_TOKENS,
    Rule.STREAM_OPTIONS,
    Rule.RESPONSE_FORMAT,
    Rule.TOOLS_SHAPE,
    Rule.TOOL_NAME,
    Rule.TOOL_NAME_REPEATED,
    Rule.TOOL_SCHEMA,
    Rule.TOOL_CHOICE,
    Rule.MESSAGES_EMPTY,
    Rule.MESSAGE_SHAPE,
    Rule.ROLE,
    Rule.CONTENT_EMPTY,
    Rule.TEXT_EMPTY,
    Rule.BLOCK_SHAPE,
    Rule.BLOCK_TYPE,
    Rule.CALLS_EMPTY,
    Rule.CALL_SHAPE,
    Rule.CALL_ID,
    Rule.CALL_ID_REPEATED,
    Rule.THINKING_CONFIG,
    Rule.REASONING_SHAPE,
    Rule.REASONING_MISSING,
}
"""The rules that `check_openai` knows; the last three are DeepSeek's."""


def check_openai(
    body: Mapping[str, object], dialect: Dialect = "openai", extra_keys: Collection[str] = ()
) -> list[Violation]:
    """Return how `body`, a chat-completions request, breaks the rules of its `dialect`.

    `extra_keys` names further top-level keys that the server addressed is known to take. Blank
    texts are refused everywhere, also where the provider would bear them; but an assistant message
    with tool calls may have the content `""`. DeepSeek counts as thinking unless `thinking` says
    `disabled` or, without `thinking`, the model is `deepseek-chat`.
    """
    report = Report()
    check_json(report, body, "")
    check_keys(report, "", body, {*KEYS[dialect], *extra_keys})
    check_model(report, body)
    _check_options(report, body)
    _check_tools(report, body)
    thinking = dialect == "deepseek" and _is_thinking(report, body)
    checker = MessageChecker(report, dialect, thinking=thinking)
    for index, message in enumerate(message_list(report, body)):
        checker.add(f"messages[{index}]", message)
    checker.pairing.close()
    return report.violations


def _is_thinking(report: Report, body: Mapping[str, object]) -> bool:
    if "thinking" not in body:
        return body.get("model") != "deepseek-chat"
    kind = (as_object(body["thinking"]) or {}).get("type")
    if kind not in ("enabled", "disabled"):
        report.expect(Rule.THINKING_CONFIG, "thinking.type", "enabled or disabled", kind)
    return kind != "disabled"


def _check_options(report: Report, body: Mapping[str, object]) -> None:
    for key in ("max_tokens", "max_completion_tokens"):
        if key in body:
            report.check(COUNT, Rule.MAX_TOKENS, key, body[key])
    if "stream_options" in body:
        report.check(OBJECT, Rule.STREAM_OPTIONS, "stream_options", body["stream_options"])
        if body.get("stream") is not True:
            report.expect(Rule.STREAM_OPTIONS, "stream", "true", body.get("stream"))
    if "response_format" in body:
        _check_format(report, body["response_format"])


def _check_format(report: Report, value: object) -> None:
    where = "response_format"
    chosen = as_object(value) or {}
    kind = chosen.get("type")
    if kind == "json_schema":
        wanted = as_object(chosen.get("json_schema")) or {}
        report.check(NAME, Rule.RESPONSE_FORMAT, f"{where}.json_schema.name", wanted.get("name"))
        schema = wanted.get("schema")
        report.check(OBJECT, Rule.RESPONSE_FORMAT, f"{where}.json_schema.schema", schema)
    elif kind not in ("text", "json_object"):
        report.expect(Rule.RESPONSE_FORMAT, where, "text, json_object or json_schema", value)


def _check_tools(report: Report, body: Mapping[str, object]) -> None:
    tools = ToolSet(report)
    if "tools" in body:
        values = as_array(body["tools"]) or []
        if not 1 <= len(values) <= MAX_TOOLS:
            expected = f"a list of 1 to {MAX_TOOLS} tools"
            report.expect(Rule.TOOLS_SHAPE, "tools", expected, body["tools"])
        for index, value in enumerate(values):
            _check_tool(report, tools, f"tools[{index}]", value)
    for key in ("tool_choice", "parallel_tool_calls"):
        if key in body and "tools" not in body:
            report.add(Rule.TOOL_CHOICE, key, "comes without tools")
    if "tool_choice" in body and "tools" in body:
        _check_choice(report, body["tool_choice"], tools.names)
    if "parallel_tool_calls" in body:
        value = body["parallel_tool_calls"]
        report.check(BOOLEAN, Rule.TOOL_CHOICE, "parallel_tool_calls", value)


def _check_tool(report: Report, tools: ToolSet, where: str, value: object) -> None:
    tool = as_object(value) or {}
    function = as_object(tool.get("function"))
    if function is None or tool.get("type") != "function":
        report.expect(Rule.TOOLS_SHAPE, where, "a tool of type function", value)
        return
    check_keys(report, where, tool, ("type", "function"))
    place = f"{where}.function"
    check_keys(report, place, function, ("name", "description", "parameters", "strict"))
    tools.add(place, function.get("name"), function.get("description"))
    if "parameters" in function:
        tools.check_schema(f"{place}.parameters", function["parameters"])
    if "strict" in function:
        report.check(BOOLEAN, Rule.TOOLS_SHAPE, f"{place}.strict", function["strict"])


def _check_choice(report: Report, choice: object, names: Collection[str]) -> None:
    named = as_object(choice) or {}
    function = as_object(named.get("function")) or {}
    is_named = named.get("type") == "function" and function.get("name") in names
    if not is_named and choice not in ("none", "auto", "required"):
        expected = "none, auto, required or a function of tools"
        report.expect(Rule.TOOL_CHOICE, "tool_choice", expected, choice)
