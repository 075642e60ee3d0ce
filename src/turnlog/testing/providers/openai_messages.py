"""The rules for the messages of a chat-completions request, one by one and in their order."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from turnlog.testing.providers.pairing import Pairing
from turnlog.testing.providers.report import FILLED, STRING, Kind, as_array, as_object
from turnlog.testing.providers.rules import Rule
from turnlog.testing.providers.shapes import NAME, check_keys, check_text

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from turnlog.testing.providers.report import Report

Dialect = Literal["openai", "deepseek"]

MAX_CALLS = 128

CALL_ID = Kind(
    "a string of 1 to 64 characters",
    lambda value: isinstance(value, str) and 1 <= len(value) <= 64,
)

_KEYS: Mapping[str, Sequence[str]] = {
    "system": ("role", "content", "name"),
    "developer": ("role", "content", "name"),
    "user": ("role", "content", "name"),
    "assistant": ("role", "content", "name", "refusal", "tool_calls"),
    "tool": ("role", "content", "tool_call_id"),
}


class MessageChecker:
    """Takes the messages in their order and records what is wrong with them.

    The caller closes `pairing` after the last one.
    """

    def __init__(self, report: Report, dialect: Dialect, *, thinking: bool) -> None:
        self.pairing = Pairing(report, ordered=False)
        self._report = report
        self._thinking = thinking
        self._deepseek = dialect == "deepseek"
        self._roles = [role for role in _KEYS if not (self._deepseek and role == "developer")]

    def add(self, where: str, value: object) -> None:
        """Check the next message, which stands at `where`."""
        message = as_object(value)
        role = None if message is None else message.get("role")
        if message is None or not isinstance(role, str) or role not in self._roles:
            self.pairing.begin(())
            if message is None:
                self._report.expect(Rule.MESSAGE_SHAPE, where, "an object", value)
            else:
                expected = f"one of {', '.join(self._roles)}"
                self._report.expect(Rule.ROLE, f"{where}.role", expected, role)
            return
        if "name" in message:
            self._report.check(STRING, Rule.MESSAGE_SHAPE, f"{where}.name", message["name"])
        if role == "assistant":
            self._assistant(where, message)
            return
        check_keys(self._report, where, message, _KEYS[role])
        images = role == "user" and not self._deepseek
        self._content(where, message, ("text", "image_url") if images else ("text",))
        if role == "tool":
            self.pairing.result(message.get("tool_call_id"), where)
        else:
            self.pairing.begin(())

    def _assistant(self, where: str, message: dict[str, object]) -> None:
        extra = ("reasoning_content", "prefix") if self._deepseek else ()
        check_keys(self._report, where, message, (*_KEYS["assistant"], *extra))
        refusal = message.get("refusal")
        if refusal is not None:
            self._report.check(FILLED, Rule.MESSAGE_SHAPE, f"{where}.refusal", refusal)
        calls = "tool_calls" in message
        if not (calls or refusal is not None) or message.get("content") not in (None, ""):
            self._content(where, message, ("text", "refusal"))
        if self._deepseek and "reasoning_content" in message:
            place, value = f"{where}.reasoning_content", message["reasoning_content"]
            self._report.check(STRING, Rule.REASONING_SHAPE, place, value)
        elif self._thinking and calls:
            expected = "reasoning_content beside tool_calls"
            self._report.expect(Rule.REASONING_MISSING, where, expected, list(message))
        self.pairing.begin(self._calls(where, message) if calls else ())

    def _content(self, where: str, message: dict[str, object], kinds: Sequence[str]) -> None:
        content = message.get("content")
        place = f"{where}.content"
        parts = as_array(content)
        if content is None or parts == []:
            expected = "a text or a non-empty list of parts"
            self._report.expect(Rule.CONTENT_EMPTY, place, expected, content)
        elif parts is None:
            check_text(self._report, place, content, Rule.MESSAGE_SHAPE)
        else:
            for index, part in enumerate(parts):
                self._part(f"{place}[{index}]", part, kinds)

    def _part(self, where: str, value: object, kinds: Sequence[str]) -> None:
        part = as_object(value) or {}
        kind = part.get("type")
        if not isinstance(kind, str):
            self._report.expect(Rule.BLOCK_SHAPE, where, "an object with a type", value)
            return
        if kind not in kinds:
            self._report.expect(Rule.BLOCK_TYPE, where, f"one of {', '.join(kinds)}", kind)
            return
        check_keys(self._report, where, part, ("type", kind))
        if kind != "image_url":
            check_text(self._report, f"{where}.{kind}", part.get(kind))
            return
        place = f"{where}.image_url"
        image = as_object(part.get("image_url")) or {}
        check_keys(self._report, place, image, ("url", "detail"))
        self._report.check(FILLED, Rule.BLOCK_SHAPE, f"{place}.url", image.get("url"))

    def _calls(self, where: str, message: dict[str, object]) -> list[tuple[str, str]]:
        """Check `tool_calls` and return them as pairs of id and path."""
        values = as_array(message["tool_calls"]) or []
        if not 1 <= len(values) <= MAX_CALLS:
            expected = f"a list of 1 to {MAX_CALLS} calls"
            place = f"{where}.tool_calls"
            self._report.expect(Rule.CALLS_EMPTY, place, expected, message["tool_calls"])
        calls: dict[str, str] = {}
        repeated: list[tuple[str, str]] = []
        for index, value in enumerate(values):
            place = f"{where}.tool_calls[{index}]"
            call = as_object(value) or {}
            call_id = call.get("id")
            self._call(place, call)
            if not isinstance(call_id, str) or not call_id:
                continue
            if call_id in calls:
                self._report.add(Rule.CALL_ID_REPEATED, place, f"{call_id!r} is taken")
                repeated.append((call_id, place))
            else:
                calls[call_id] = place
        return [*calls.items(), *repeated]

    def _call(self, where: str, call: dict[str, object]) -> None:
        check_keys(self._report, where, call, ("id", "type", "function"))
        self._report.check(CALL_ID, Rule.CALL_ID, f"{where}.id", call.get("id"))
        function = as_object(call.get("function"))
        if function is None or call.get("type") != "function":
            self._report.expect(Rule.CALL_SHAPE, where, "a call of type function", call)
            return
        place = f"{where}.function"
        check_keys(self._report, place, function, ("name", "arguments"))
        self._report.check(NAME, Rule.TOOL_NAME, f"{place}.name", function.get("name"))
        arguments = function.get("arguments")
        self._report.check(STRING, Rule.CALL_SHAPE, f"{place}.arguments", arguments)
