"""The rules for turnlog's own neutral messages, which every provider's rules build on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from turnlog.testing.providers.pairing import Pairing
from turnlog.testing.providers.report import (
    BOOLEAN,
    FILLED,
    OBJECT,
    STRING,
    Report,
    Violation,
    as_array,
    as_object,
    check_json,
)
from turnlog.testing.providers.rules import PAIRING_RULES, Rule
from turnlog.testing.providers.shapes import check_text

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

ROLES = ("user", "assistant", "tool", "system")

RULES = PAIRING_RULES | {
    Rule.NOT_JSON,
    Rule.LONE_SURROGATE,
    Rule.MESSAGE_SHAPE,
    Rule.ROLE,
    Rule.CONTENT_EMPTY,
    Rule.TEXT_EMPTY,
    Rule.BLOCK_SHAPE,
    Rule.REASONING_EMPTY,
    Rule.CALL_OUTSIDE_ASSISTANT,
    Rule.CALL_SHAPE,
    Rule.RESULT_OUT_OF_ORDER,
}
"""The rules that `check_neutral` knows."""


def check_neutral(messages: Sequence[Mapping[str, object]]) -> list[Violation]:
    """Return how `messages`, neutral messages in wire form, break the rules of any provider.

    A message is `{id, role, source, content: [block…], toolCallId?, isError?}`. Block types and
    keys that are not known here pass: they are kept verbatim until an encoder filters them. The id
    of a call may come again in a later message: whose result is whose follows from adjacency.
    """
    report = Report()
    check_json(report, list(messages), "messages")
    pairing = Pairing(report, ordered=True)
    for index, value in enumerate(messages):
        where = f"messages[{index}]"
        message = as_object(value)
        if message is None:
            report.expect(Rule.MESSAGE_SHAPE, where, "an object", value)
            pairing.begin(())
            continue
        _check_fields(report, where, message)
        calls = _check_content(report, where, message)
        if message.get("role") == "tool":
            pairing.result(message.get("toolCallId"), where)
        else:
            pairing.begin(calls)
    pairing.close()
    return report.violations


def _check_fields(report: Report, where: str, message: dict[str, object]) -> None:
    role = message.get("role")
    if role not in ROLES:
        report.expect(Rule.ROLE, f"{where}.role", f"one of {', '.join(ROLES)}", role)
    report.check(FILLED, Rule.MESSAGE_SHAPE, f"{where}.id", message.get("id"))
    report.check(OBJECT, Rule.MESSAGE_SHAPE, f"{where}.source", message.get("source"))
    if "isError" in message:
        report.check(BOOLEAN, Rule.MESSAGE_SHAPE, f"{where}.isError", message["isError"])


def _check_content(report: Report, where: str, message: dict[str, object]) -> list[tuple[str, str]]:
    """Check the content and return the calls that the message makes, as pairs of id and path."""
    content = as_array(message.get("content"))
    if not content:
        value = message.get("content")
        report.expect(Rule.CONTENT_EMPTY, f"{where}.content", "a non-empty list", value)
    source = as_object(message.get("source")) or {}
    replayed = source.get("replayState") is not None
    role = message.get("role")
    calls: list[tuple[str, str]] = []
    for index, value in enumerate(content or []):
        place = f"{where}.content[{index}]"
        block = as_object(value)
        if block is None or not FILLED.fits(block.get("type")):
            report.expect(Rule.BLOCK_SHAPE, place, "an object with a type", value)
            continue
        _check_block(report, place, block, replayed=replayed)
        if block["type"] == "tool-call":
            if role != "assistant":
                message_text = f"a message of role {role!r} calls a tool"
                report.add(Rule.CALL_OUTSIDE_ASSISTANT, place, message_text)
            elif FILLED.fits(block.get("id")):
                calls.append((str(block["id"]), place))
    return calls


def _check_block(report: Report, where: str, block: dict[str, object], *, replayed: bool) -> None:
    """Check one block; `replayed` says that its message's source carries replay state."""
    private = [key for key in block if key not in ("type", "text") and block[key] is not None]
    match block["type"]:
        case "text":
            check_text(report, f"{where}.text", block.get("text"))
        case "reasoning":
            text = block.get("text")
            well_formed = report.check(STRING, Rule.BLOCK_SHAPE, f"{where}.text", text)
            if well_formed and not (str(text).strip() or private or replayed):
                report.expect(Rule.REASONING_EMPTY, where, "a text or replay data", block)
        case "image":
            if not private:
                report.expect(Rule.BLOCK_SHAPE, where, "an image", block)
        case "tool-call":
            for key, kind in (("id", FILLED), ("name", FILLED), ("arguments", STRING)):
                report.check(kind, Rule.CALL_SHAPE, f"{where}.{key}", block.get(key))
        case _:
            pass
