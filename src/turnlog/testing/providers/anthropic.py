"""The rules of Anthropic's messages.

Sources: the request reference and the 400 answers of `POST /v1/messages`. Stricter than the
provider in two points: consecutive messages of a role, which it would merge, are refused, and so is
a blank text in a result.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from turnlog.testing.providers.anthropic_messages import (
    BLOCK_KEYS,
    THINKING_BLOCKS,
    MessageChecker,
)
from turnlog.testing.providers.report import (
    COUNT,
    Report,
    Violation,
    as_array,
    as_object,
    check_json,
    shown,
)
from turnlog.testing.providers.rules import PAIRING_RULES, Rule
from turnlog.testing.providers.shapes import ToolSet, check_keys, check_model, message_list

if TYPE_CHECKING:
    from collections.abc import Mapping

MIN_BUDGET = 1024
MAX_CACHE_MARKERS = 4

KEYS = {
    "cache_control",
    "container",
    "max_tokens",
    "messages",
    "metadata",
    "model",
    "output_config",
    "service_tier",
    "stop_sequences",
    "stream",
    "system",
    "temperature",
    "thinking",
    "tool_choice",
    "tools",
    "top_k",
    "top_p",
}
"""The top-level keys of a body that `check_anthropic` accepts."""

RULES = PAIRING_RULES | {
    Rule.NOT_JSON,
    Rule.LONE_SURROGATE,
    Rule.UNKNOWN_KEY,
    Rule.MODEL,
    Rule.MAX_TOKENS,
    Rule.SYSTEM,
    Rule.THINKING_CONFIG,
    Rule.CACHE_CONTROL,
    Rule.TOOLS_SHAPE,
    Rule.TOOL_NAME,
    Rule.TOOL_NAME_REPEATED,
    Rule.TOOL_SCHEMA,
    Rule.TOOL_CHOICE,
    Rule.MESSAGES_EMPTY,
    Rule.MESSAGE_SHAPE,
    Rule.ROLE,
    Rule.FIRST_NOT_USER,
    Rule.ROLES_ALTERNATE,
    Rule.CONTENT_EMPTY,
    Rule.TEXT_EMPTY,
    Rule.BLOCK_SHAPE,
    Rule.BLOCK_TYPE,
    Rule.FINAL_WHITESPACE,
    Rule.THINKING_SIGNATURE,
    Rule.REDACTED_DATA,
    Rule.THINKING_FIRST,
    Rule.THINKING_LAST,
    Rule.CALL_SHAPE,
    Rule.CALL_ID,
    Rule.CALL_ID_REPEATED,
    Rule.RESULT_AFTER_CONTENT,
}
"""The rules that `check_anthropic` knows."""


def check_anthropic(body: Mapping[str, object]) -> list[Violation]:
    """Return how `body`, a messages request, breaks Anthropic's rules.

    Blocks of the provider's own server tools are not known here and are refused.
    """
    report = Report()
    check_json(report, body, "")
    check_keys(report, "", body, KEYS)
    check_model(report, body)
    report.check(COUNT, Rule.MAX_TOKENS, "max_tokens", body.get("max_tokens"))
    if "system" in body:
        _check_system(report, body["system"])
    _check_tools(report, body)
    messages = message_list(report, body)
    checker = MessageChecker(report)
    for index, message in enumerate(messages):
        checker.add(f"messages[{index}]", message)
    checker.pairing.close()
    if messages:
        _check_final(report, f"messages[{len(messages) - 1}]", messages[-1])
    if "thinking" in body:
        _check_thinking(report, body, messages)
    _check_cache_markers(report, body)
    return report.violations


def _check_system(report: Report, system: object) -> None:
    blocks = as_array(system) or []
    is_text = isinstance(system, str) and system.strip() != ""
    if not blocks and not is_text:
        report.expect(Rule.SYSTEM, "system", "a text or a list of text blocks", system)
    for index, value in enumerate(blocks):
        where = f"system[{index}]"
        block = as_object(value) or {}
        text = block.get("text")
        if block.get("type") != "text" or not isinstance(text, str) or not text.strip():
            report.expect(Rule.SYSTEM, where, "a text block that is not blank", value)
        else:
            check_keys(report, where, block, BLOCK_KEYS["text"])


def _check_tools(report: Report, body: Mapping[str, object]) -> None:
    tools = ToolSet(report)
    values = as_array(body.get("tools", []))
    if values is None:
        report.expect(Rule.TOOLS_SHAPE, "tools", "a list", body["tools"])
    for index, value in enumerate(values or []):
        where = f"tools[{index}]"
        tool = as_object(value)
        if tool is None or tool.get("type", "custom") != "custom":
            report.expect(Rule.TOOLS_SHAPE, where, "a custom tool", value)
            continue
        known = ("type", "name", "description", "input_schema", "cache_control")
        check_keys(report, where, tool, known)
        tools.add(where, tool.get("name"), tool.get("description"))
        tools.check_schema(f"{where}.input_schema", tool.get("input_schema"))
    if "tool_choice" in body:
        choice = as_object(body["tool_choice"]) or {}
        kind = choice.get("type")
        is_named = kind == "tool" and choice.get("name") in tools.names
        if not values or not (is_named or kind in ("auto", "any", "none")):
            expected = "auto, any, none or one of the tools, and tools to choose from"
            report.expect(Rule.TOOL_CHOICE, "tool_choice", expected, body["tool_choice"])


def _check_final(report: Report, where: str, last: object) -> None:
    """Check the end of a final assistant message, which the model is to continue."""
    message = as_object(last) or {}
    text = message.get("content")
    if blocks := as_array(text):
        text = (as_object(blocks[-1]) or {}).get("text")
    speaks = message.get("role") == "assistant" and isinstance(text, str)
    if speaks and str(text).strip() and str(text)[-1].isspace():
        report.add(Rule.FINAL_WHITESPACE, where, f"ends in whitespace: {shown(str(text)[-20:])}")


def _check_thinking(report: Report, body: Mapping[str, object], messages: list[object]) -> None:
    thinking = as_object(body["thinking"]) or {}
    kind = thinking.get("type")
    if kind not in ("enabled", "disabled", "adaptive"):
        report.expect(Rule.THINKING_CONFIG, "thinking.type", "enabled, disabled, adaptive", kind)
    if kind != "enabled":
        return
    budget, limit = thinking.get("budget_tokens"), body.get("max_tokens")
    below = isinstance(budget, int) and (not isinstance(limit, int) or budget < limit)
    if not isinstance(budget, int) or budget < MIN_BUDGET or not below:
        expected = f"at least {MIN_BUDGET} and less than max_tokens"
        report.expect(Rule.THINKING_CONFIG, "thinking.budget_tokens", expected, budget)
    _check_thinking_first(report, messages)


def _check_thinking_first(report: Report, messages: list[object]) -> None:
    """Check the last assistant message, if its tool loop is open or the model is to continue it."""
    for index in reversed(range(len(messages))):
        message = as_object(messages[index]) or {}
        kinds = [(as_object(b) or {}).get("type") for b in as_array(message.get("content")) or []]
        if message.get("role") == "assistant":
            if not kinds or kinds[0] not in THINKING_BLOCKS:
                where = f"messages[{index}].content"
                report.expect(Rule.THINKING_FIRST, where, "a thinking block first", kinds[:1])
            return
        if "tool_result" not in kinds:
            return


def _check_cache_markers(report: Report, body: Mapping[str, object]) -> None:
    """Check and count the cache markers: on the body, on tools and blocks, inside results."""
    pending: list[tuple[str, object]] = [
        ("", {"cache_control": body["cache_control"]} if "cache_control" in body else {}),
        *((key, body.get(key)) for key in ("system", "tools", "messages")),
    ]
    count = 0
    while pending:
        where, value = pending.pop()
        pending += [(f"{where}[{i}]", item) for i, item in enumerate(as_array(value) or [])]
        holder = as_object(value) or {}
        if "content" in holder:
            pending.append((f"{where}.content", holder["content"]))
        if "cache_control" in holder:
            count += 1
            _check_marker(report, f"{where}.cache_control".lstrip("."), holder["cache_control"])
    if count > MAX_CACHE_MARKERS:
        report.expect(Rule.CACHE_CONTROL, "", f"at most {MAX_CACHE_MARKERS} markers", count)


def _check_marker(report: Report, where: str, value: object) -> None:
    marker = as_object(value) or {}
    check_keys(report, where, marker, ("type", "ttl"))
    if marker.get("type") != "ephemeral" or marker.get("ttl", "5m") not in ("5m", "1h"):
        report.expect(Rule.CACHE_CONTROL, where, "an ephemeral marker of 5m or 1h", value)
